"""The parts of an experiment: cells, the smallest pieces of work whose results are stored, and a summary of them."""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from matplotlib.figure import Figure

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.record import Row, spread
from nrf.reproduce.runner.report import Table

Results = Mapping[str, dict[str, Any]]
"""Results of cells, by their names."""
Config = TypeVar("Config")


class OutOfTime(Exception):  # noqa: N818
    """A cell stopped because the time was over; it continues at the next call."""


class MissingData(Exception):  # noqa: N818
    """The data of a cell is not on this machine: the cell is left out, and the message says what is missing."""


@dataclass(frozen=True)
class Deadline:
    """When to stop."""

    at: float = math.inf
    """As of :func:`time.time`."""

    def passed(self) -> bool:
        """Whether it is time."""
        return time.time() > self.at

    def end(self) -> NoReturn:
        """End a cell whose training stopped early: because the time is over, or because a user asked for it."""
        raise OutOfTime if self.passed() else KeyboardInterrupt


NEVER = Deadline()


@dataclass(frozen=True)
class Cell:
    """A function and its settings. It is computed once; the result is valid as long as both are the same."""

    name: str
    """Unique within the experiment."""
    work: Callable[..., dict[str, Any]]
    """A module-level function, so that it can be sent to a process; returns JSON."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``work``: frozen dataclasses, numbers, texts."""
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    """Settings that ``work`` takes from elsewhere, such as the defaults of a detector."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """Further arguments that the result does not depend on: folders to work in."""
    trains: bool = False
    """Whether it can stop and continue later: then it gets a folder ``out`` and a ``deadline``."""
    place: Place | None = None
    """Its place in a matrix of runs, by which it can be selected (line, class, seed)."""
    revision: int = 1
    """Increased by hand when a change of the code changes the results of the same settings."""

    def described(self) -> dict[str, Any]:
        """All settings as JSON."""
        found: dict[str, Any] = json.loads(json.dumps({name: to_json(value) for name, value in self._all().items()}))
        return found

    @property
    def key(self) -> str:
        """A file name made from name, settings and revision."""
        text = json.dumps([self.revision, self.described()], sort_keys=True)
        return f"{self.name}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"

    def has(self, revision: int, settings: Any) -> bool:
        """Whether stored settings equal those of this cell. A field that is newer than them has its default."""
        mine = self._all()
        if revision != self.revision or not isinstance(settings, dict) or set(settings) != set(mine):
            return False
        return all(_same(value, settings[name]) for name, value in mine.items())

    def compute(self, out: Path, deadline: Deadline = NEVER) -> dict[str, Any]:
        """Run the cell; ``out`` is used by a cell that trains."""
        more: dict[str, Any] = {"out": out, "deadline": deadline} if self.trains else {}
        return self.work(**self.settings, **self.places, **more)

    def _all(self) -> dict[str, Any]:
        return {**self.settings, **self.depends_on}


def _same(value: Any, stored: Any) -> bool:
    if not is_dataclass(value):
        return bool(json.loads(json.dumps(to_json(value))) == stored)
    try:
        return from_json(type(value), stored) == value
    except InputError:
        return False


def cell_name(*parts: object) -> str:
    """A name for files from the parts of a cell's name.

    Example:
        >>> cell_name("released", "exclusive-NRF, variational")
        'released-exclusive-nrf--variational'
    """
    return "".join(c if c.isalnum() else "-" for c in "-".join(map(str, parts)).lower())


@dataclass(frozen=True)
class Section:
    """A part of the report: text, tables, and figures by file name with their captions."""

    heading: str
    text: str
    tables: Sequence[Table] = ()
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The results of an experiment: rows of the record, and sections of the report."""

    rows: Sequence[Row]
    sections: Sequence[Section]
    headline: Sequence[tuple[str, str]] = ()


class Experiment(ABC, Generic[Config]):
    """Base class of what `nrf reproduce` runs. A subclass sets the attributes, on the class or in ``__init__``.

    Attributes:
        name: Name in the command.
        title: Title of the report.
        lead: The report's first lines.
        whole: Frozen settings of the experiment.
        quick: Settings that take seconds; their numbers mean nothing.
        partial: Whether it can be summarised while cells are missing.
        keeps_rows: Whether a new record keeps the rows of an earlier one for methods whose cells are missing.
    """

    name: str
    title: str
    lead: str
    whole: Config
    quick: Config
    partial: bool = False
    keeps_rows: bool = False

    def seeds(self, config: Config) -> Sequence[int]:
        """The seeds that the record names."""
        return [0]

    @abstractmethod
    def cells(self, config: Config, shared: Path) -> Sequence[Cell]:
        """The cells of the experiment.

        Args:
            config: Settings.
            shared: Folder for files that cells of several experiments share.
        """

    @abstractmethod
    def summarise(self, config: Config, results: Results, runs: Mapping[str, Path]) -> Outcome:
        """Rows, tables and figures.

        Args:
            config: Settings.
            results: Results of the finished cells, by name.
            runs: Run folders of the cells that train, by name.
        """


def with_paper(rows: Sequence[Row]) -> Table:
    """A table with our values, the paper's, and their difference in standard deviations."""
    header = ["method", "case", "metric", "ours", "n"]
    lines = []
    for row in rows:
        ours = "" if row.quoted else row.text(".4g", ".2g")
        lines.append([row.method, row.case or "", row.metric, ours, str(row.n)])
    if any(row.quoted or row.paper is not None for row in rows):
        header += ["paper", "SDs apart"]
        for line, row in zip(lines, rows, strict=True):
            far = row.distance()
            quoted = (row.mean, row.sd) if row.quoted else (row.paper, row.paper_sd)
            line += [spread(*quoted, ".4g", ".2g"), "" if far is None else f"{far:+.1f}"]
    return Table(header, lines)
