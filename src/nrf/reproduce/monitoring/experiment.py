"""Measurements of drift monitors: false alarms in streams that do not change, and the delay until a change is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nrf.reproduce.monitoring.cells import DIAMONDS, LEVELS, NUMBERS, shifted_cell, speed_cell, unchanged_cell
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

LEVELS_OF_ALARM = (0.01, 0.05)
SCORE, COLUMNS, TOGETHER, NAIVE = (
    "score alone",
    "columns alone",
    "score and columns",
    "fixed calibration rows (control)",
)
FALSE, DELAY, NAMED, SPEED = "false alarms", "delay", "columns named right", "rows per CPU-second"
ANY, ALONE = "score and columns", "score alone"
QUANTILES = {"median": 0.5, "90 %": 0.9}
NEVER = -1.0
"""A delay that is longer than the stream."""


@dataclass(frozen=True)
class UnchangedStreams:
    """Streams that do not change."""

    table: str
    n_calibration: int
    keeps_rows: bool
    """Whether columns are compared with the calibration rows; otherwise with the first rows of the stream."""

    @property
    def text(self) -> str:
        """Description in a table."""
        return f"{self.table}, {self.n_calibration} calibration rows" + (", kept" if self.keeps_rows else "")


@dataclass(frozen=True)
class DriftConfig:
    """Which streams, and how many of each."""

    still: tuple[UnchangedStreams, ...] = (
        UnchangedStreams(DIAMONDS, 1000, True),
        UnchangedStreams(DIAMONDS, 100, False),
        UnchangedStreams(LEVELS, 100, False),
    )
    length: int = 5000
    blocks: int = 4
    """Number of cells that the streams of a kind are divided into."""
    streams: int = 250
    """Streams per cell."""
    shifts: tuple[float, ...] = (0.25, 0.5, 1.0)
    moved_streams: int = 200
    n_calibration: int = 1000
    before: int = 1000
    after: int = 4000
    n_train: int = 2000
    n_pool: int = 12_000
    speed_rows: int = 100_000


QUICK = DriftConfig((UnchangedStreams(LEVELS, 50, False),), 200, 2, 2, (1.0,), 3, 50, 150, 100, 200, 600, 2000)
SHIFTED = {"one column": 1, "all columns": 6}
"""Number of shifted columns of the table of numbers."""


class Drift(Experiment[DriftConfig]):
    """The experiment behind `nrf reproduce drift`."""

    name = "drift"
    title = "Drift monitors"
    lead = (
        "How often a monitor raises an alarm in streams that do not change, against what it promises, and how many "
        "rows it needs to see a change."
    )

    whole = DriftConfig()
    quick = QUICK
    partial = True

    def cells(self, config: DriftConfig, shared: Path) -> list[Cell]:
        where = {"n_train": config.n_train, "n_pool": config.n_pool}
        still_cells = [
            Cell(
                _still_name(still, block),
                unchanged_cell,
                {
                    "table": still.table,
                    **where,
                    "n_calibration": still.n_calibration,
                    "length": config.length,
                    "first": block * config.streams,
                    "streams": config.streams,
                    "keeps_rows": still.keeps_rows,
                },
            )
            for block in range(config.blocks)
            for still in config.still
        ]
        found = list[Cell]()
        for shift in config.shifts:
            for what, n_shifted in SHIFTED.items():
                settings = {
                    "table": NUMBERS,
                    **where,
                    "n_calibration": config.n_calibration,
                    "before": config.before,
                    "after": config.after,
                    "streams": config.moved_streams,
                    "shift": shift,
                    "n_shifted": n_shifted,
                }
                found.append(Cell(_moved_name(shift, what), shifted_cell, settings))
        speed = {"rows": config.speed_rows, "n_columns": 10, "batch": 1000}
        return [*found, *still_cells, Cell("speed", speed_cell, speed)]

    def summarise(self, config: DriftConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows = list[Row]()
        for still in config.still:
            names = [_still_name(still, block) for block in range(config.blocks)]
            found = [results[name]["peaks"] for name in names if name in results]
            if found:
                rows += _false_alarms(still, {key: [e for peaks in found for e in peaks[key]] for key in found[0]})
        for shift in config.shifts:
            for what in SHIFTED:
                name = _moved_name(shift, what)
                if name in results:
                    rows += _delays(f"{shift:g} SD, {what}", results[name], config.moved_streams)
        rows += [Row(name, SPEED, float(value)) for name, value in results.get("speed", {}).items()]
        still_text = (
            f"{config.blocks * config.streams} streams of {config.length} rows for each line, with calibration rows of "
            "their own; an alarm counts wherever in the stream it is. Intervals are of 95 % (Clopper and Pearson)."
        )
        moved_text = (
            f"{config.moved_streams} streams for each line, level 0.01, {config.n_calibration} calibration rows, the "
            f"change after {config.before} rows, {config.after} rows after it; intervals of 95 % by order statistics."
        )
        sections = [
            Section("Where nothing changes", still_text, [false_alarm_table(rows)]),
            Section("Where something changes", moved_text, [delay_table(rows)]),
            Section("Speed", "One core.", [speed_table(rows)]),
        ]
        together = [row.mean for row in rows if row.metric == f"{FALSE} at 0.01" and row.method == TOGETHER]
        text = "most false alarms of score and columns at level 0.01"
        return Outcome(rows, sections, [(f"{max(together):.3f}", text)] if together else [])


def _still_name(still: UnchangedStreams, block: int) -> str:
    return cell_name("still", still.table, still.n_calibration, "kept" if still.keeps_rows else "stream", block)


def _moved_name(shift: float, what: str) -> str:
    return cell_name("moved", f"{shift:g}", what)


def _false_alarms(still: UnchangedStreams, peaks: Mapping[str, Sequence[float]]) -> list[Row]:
    """Score and columns have half of the level each; either of them alone has all of it."""
    score, columns, naive = (np.array(peaks[name]) for name in ("score", "columns", "naive"))
    whole = np.log10(2)
    evidence = {
        SCORE: score + whole,
        COLUMNS: columns + whole,
        TOGETHER: np.maximum(score, columns),
        NAIVE: naive,
    }
    return [
        Row(method, f"{FALSE} at {level:g}", float((e >= -np.log10(level)).mean()), n=len(e), case=still.text)
        for method, e in evidence.items()
        for level in LEVELS_OF_ALARM
    ]


def _delays(case: str, result: Mapping[str, object], n: int) -> list[Row]:
    delays, rows = result["delays"], list[Row]()
    assert isinstance(delays, Mapping)
    for method, found in ((ANY, delays["any"]), (ALONE, delays["score alone"])):
        early = sum(delay is not None and delay <= 0 for delay in found)
        late = np.sort([np.inf if delay is None else delay for delay in found if delay is None or delay > 0])
        for name, share in QUANTILES.items():
            low, middle, high = quantile_with_interval(late, share)
            for what, value in (("", middle), (", low", low), (", high", high)):
                rows.append(Row(method, f"{DELAY}, {name}{what}", _finite(value), n=len(late), case=case))
        rows.append(Row(method, "missed", float(np.isinf(late).mean()), n=len(late), case=case))
        rows.append(Row(method, "alarms before the change", early / n, n=n, case=case))
    named = result["named"]
    assert isinstance(named, int)
    return [*rows, Row(ANY, NAMED, named / n, n=n, case=case)]


def quantile_with_interval(ordered: np.ndarray, share: float) -> tuple[float, float, float]:
    """Lower end, quantile and upper end of a 95 % interval by order statistics, of sorted values.

    Example:
        >>> [int(v) for v in quantile_with_interval(np.arange(1.0, 201.0), 0.5)]
        [86, 100, 115]
    """
    from scipy.stats import binom

    n = len(ordered)
    places = binom.ppf(0.025, n, share) - 1, np.ceil(share * n) - 1, binom.ppf(0.975, n, share)
    low, middle, high = (float(ordered[int(np.clip(place, 0, n - 1))]) for place in places)
    return low, middle, high


def share_with_interval(row: Row) -> str:
    """A share in percent with its 95 % interval.

    Example:
        >>> share_with_interval(Row("m", "x", 0.004, n=1000))
        '0.4 % (0.1–1.0)'
    """
    from scipy.stats import beta

    hits = round(row.mean * row.n)
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, row.n - hits + 1))
    high = 1.0 if hits == row.n else float(beta.ppf(0.975, hits + 1, row.n - hits))
    return f"{100 * row.mean:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def false_alarm_table(rows: Sequence[Row]) -> Table:
    """A line for each kind of stream and level."""
    methods = (SCORE, COLUMNS, TOGETHER, NAIVE)
    lines = []
    for case in dict.fromkeys(row.case for row in rows if row.metric.startswith(FALSE)):
        for level in LEVELS_OF_ALARM:
            found = {r.method: r for r in rows if r.case == case and r.metric == f"{FALSE} at {level:g}"}
            lines.append([case or "", f"{100 * level:g} %", *(share_with_interval(found[m]) for m in methods)])
    return Table(["streams that do not change", "promised", *methods], lines)


def delay_table(rows: Sequence[Row]) -> Table:
    """A line for each shift."""
    by = {(row.method, row.metric, row.case): row for row in rows}
    lines = []
    for case in dict.fromkeys(row.case for row in rows if row.metric == NAMED):
        line = [case or ""]
        for method in (ANY, ALONE):
            for name in QUANTILES:
                at = [by[method, f"{DELAY}, {name}{end}", case].mean for end in ("", ", low", ", high")]
                line.append(f"{_rows(at[0])} ({_rows(at[1])}–{_rows(at[2])})")
            line.append(f"{100 * by[method, 'missed', case].mean:.0f} %")
        lines.append([*line, f"{100 * by[ANY, NAMED, case].mean:.0f} %"])
    heads = [f"{method}: {name}" for method in (ANY, ALONE) for name in (*QUANTILES, "missed")]
    return Table(["rows from the change to the alarm", *heads, NAMED], lines)


def speed_table(rows: Sequence[Row]) -> Table:
    """A line for scores alone, and one with columns."""
    return Table(["monitor", SPEED], [[row.method, f"{row.mean:,.0f}"] for row in rows if row.metric == SPEED])


def _finite(value: float) -> float:
    return value if np.isfinite(value) else NEVER


def _rows(value: float) -> str:
    return "never" if value == NEVER else f"{value:.0f}"
