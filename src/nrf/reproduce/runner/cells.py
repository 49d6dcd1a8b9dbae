"""`nrf reproduce NAME`: run an experiment cell by cell, then summarise it.

A cell is the smallest piece of work that is kept: a function of its configuration that returns JSON, stored with the
commit it was made by; the record names them all. Cells run in parallel processes, one thread each; a stopped experiment
goes on with the cells it lacks.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import torch
from matplotlib.figure import Figure

from nrf import figures
from nrf.config import to_json
from nrf.errors import InputError
from nrf.files import locked, read_json, require_folder, sweep, write_atomically
from nrf.processes import end_with, terminable
from nrf.reproduce.runner.board import Board, Place
from nrf.reproduce.runner.record import Record, Row, commit, machine
from nrf.reproduce.runner.report import Report, Table
from nrf.training import ProgressBar
from nrf.training.checkpoint import versions

STOP_AT: ContextVar[float] = ContextVar("STOP_AT", default=math.inf)
"""Time, as of :func:`time.time`, from which on a cell that can go on later stops with :class:`OutOfTime`."""


class OutOfTime(Exception):  # noqa: N818
    """A cell that stopped, for the time was over, and goes on at the next call."""


@dataclass(frozen=True)
class Cell:
    """One piece of work; ``compute`` must be a module-level function or a partial of one, to travel to a process."""

    key: str
    compute: Callable[[], dict[str, Any]]
    place: Place | None = None
    """Of a cell in a matrix of runs: it can be picked out by class and seed."""


@dataclass(frozen=True)
class Section:
    """A part of the report: text, tables, and figures by file name with their captions."""

    heading: str
    text: str
    tables: Sequence[Table] = ()
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What an experiment found."""

    rows: Sequence[Row]
    sections: Sequence[Section]
    headline: Sequence[tuple[str, str]] = ()


class Experiment(Protocol):
    """What `nrf reproduce` asks of an experiment."""

    name: str
    title: str
    lead: str
    partial: bool
    """Whether it can be summarised while cells are missing."""

    def config(self, *, quick: bool) -> Any:
        """The frozen settings; ``quick`` ones take seconds and mean nothing."""
        ...

    def seeds(self, config: Any) -> Sequence[int]: ...

    def cells(self, config: Any, folder: Path) -> Sequence[Cell]:
        """The work; what outlives a cell, such as the run folder of a training, goes below ``folder``."""
        ...

    def summarise(self, config: Any, results: Mapping[str, dict[str, Any]], folder: Path) -> Outcome: ...


@dataclass(frozen=True)
class Options:
    """Where and how to run."""

    out: Path = Path("runs/reproduce")
    results: Path = Path("results")
    jobs: int = 2
    quick: bool = False
    quiet: bool = False
    classes: tuple[int, ...] = ()
    """Of a matrix of runs: these classes only; all if none is given."""
    seeds: tuple[int, ...] = ()
    """These seeds only."""
    lines: tuple[str, ...] = ()
    """These lines only: those whose name holds one of these texts, in the order of the texts."""
    epochs: int | None = None
    """In place of the experiment's own number."""
    max_hours: float | None = None
    """Stop after that long; what is missing is computed at the next call. With 0, what is there is summarised."""
    store: Path | None = None
    """Folder that outlives ``out``: finished cells are looked for there first, and copied there."""
    inception_weights: Path | None = None
    """Where images are scored: by Inception with the weights of this file."""

    def __post_init__(self) -> None:
        for name in ("out", "results", "store", "inception_weights"):  # text will do
            given = getattr(self, name)
            object.__setattr__(self, name, given if given is None else Path(given))
        if self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
        if self.max_hours is not None and not self.max_hours >= 0:
            raise InputError(f"max_hours must not be negative, got {self.max_hours}")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}")


def cell_key(*parts: object) -> str:
    """A file name from the parts of a cell's name.

    Example:
        >>> cell_key("released", "exclusive-NRF, variational")
        'released-exclusive-nrf--variational'
    """
    return "".join(c if c.isalnum() else "-" for c in "-".join(map(str, parts)).lower())


def reproduce(experiment: Experiment, options: Options, say: Callable[[str], None]) -> Record:
    """Run what is missing, summarise, and write the record, the figures and the report.

    Quick runs write beside their cells only: ``results/`` holds real ones.
    """
    for place in (options.out, options.store, None if options.quick else options.results):
        if place is not None:
            require_folder(place)
    config = _resized(experiment, options)
    digest = hashlib.blake2b(json.dumps(to_json(config), sort_keys=True).encode(), digest_size=4).hexdigest()
    folder = options.out / f"{experiment.name}-{digest}"
    with locked(folder):
        sweep(folder / "cells", alone=True)
        return _reproduce(experiment, config, folder, options, say)


def _reproduce(
    experiment: Experiment, config: Any, folder: Path, options: Options, say: Callable[[str], None]
) -> Record:
    cells = experiment.cells(config, folder)
    if len({cell.key for cell in cells}) != len(cells):
        raise InputError(f"{experiment.name} names two cells alike")
    if options.store is not None:
        _copy_cells(options.store / folder.name, folder)
    wall = _run_missing(experiment.name, picked(cells, options), folder, options)
    stored = {cell.key: _stored(folder, cell.key) for cell in cells if _path(folder, cell.key).is_file()}
    if not stored or (len(stored) < len(cells) and not experiment.partial):
        raise InputError(
            f"{len(cells) - len(stored)} of {len(cells)} cells are missing, so there is no summary yet; "
            "the same command goes on with them"
        )
    outcome = experiment.summarise(config, {key: cell["result"] for key, cell in stored.items()}, folder)
    made_by = ", ".join(sorted({cell["commit"] for cell in stored.values() if cell["commit"]})) or None
    command = f"nrf reproduce {experiment.name}{' --quick' if options.quick else ''}"
    command += f" --epochs {options.epochs}" if options.epochs else ""
    command += " --inception-weights FILE" if options.inception_weights else ""
    record = Record(
        experiment.name, command, made_by, versions(), machine(), list(experiment.seeds(config)), wall, outcome.rows
    )
    home = folder if options.quick else options.results
    record.write(home / f"{experiment.name}.json")
    report = Report(experiment.title, experiment.lead, list(outcome.headline))
    for section in outcome.sections:
        for table in section.tables:
            say(f"\n{section.heading}\n{table.as_text()}")
        for name, (figure, _) in section.figures.items():
            figures.save(figure, home / experiment.name / f"{name}.png")
        report.add(section.heading, section.text, *section.tables, *section.figures.values())
    report.add_provenance(command, to_json(config))
    report.write(folder / "report.html")
    say(f"\nrecord: {home / (experiment.name + '.json')}\nreport: {folder / 'report.html'}")
    return record


def _resized(experiment: Experiment, options: Options) -> Any:
    config = experiment.config(quick=options.quick)
    given = {name: getattr(options, name) for name in ("epochs", "inception_weights")}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if not hasattr(config, name):
            flag, what = name.replace("_", "-"), name.replace("_", " ")
            raise InputError(f"{experiment.name} has no {what} to set; leave --{flag} out")
    return replace(config, **given) if given else config


def picked(cells: Sequence[Cell], options: Options) -> list[Cell]:
    """The cells of the chosen lines, classes and seeds."""
    found = list(cells) if not options.lines else _of_lines(cells, options.lines)
    for name, wanted, of in (
        ("classes", options.classes, attrgetter("label")),
        ("seeds", options.seeds, attrgetter("seed")),
    ):
        if not wanted:
            continue
        known = {of(cell.place) for cell in cells if cell.place is not None} - {None}
        unknown = sorted(set(wanted) - known)
        if unknown:
            there = ", ".join(map(str, sorted(known))) or "no such thing in this experiment"
            raise InputError(f"--{name}: {unknown[0]} is not there; there is {there}")
        found = [cell for cell in found if cell.place is not None and of(cell.place) in wanted]
    return found


def _of_lines(cells: Sequence[Cell], texts: Sequence[str]) -> list[Cell]:
    found: dict[str, Cell] = {}
    for text in texts:
        of_text = [cell for cell in cells if cell.place is not None and text in cell.place.line]
        if not of_text:
            known = list(dict.fromkeys(cell.place.line for cell in cells if cell.place is not None))
            there = "; ".join(known) or "no such thing in this experiment"
            raise InputError(f"--lines: no name has {text!r} in it; there is {there}")
        found |= {cell.key: cell for cell in of_text}
    return list(found.values())


def _run_missing(name: str, cells: Sequence[Cell], folder: Path, options: Options) -> float:
    """Compute the cells that are not there yet; returns the seconds spent on this experiment so far."""
    from joblib import Parallel, delayed, parallel_config

    spent = _wall(folder)
    missing = [cell for cell in cells if not _path(folder, cell.key).is_file()]
    started = time.perf_counter()
    stop_at = math.inf if options.max_hours is None else time.time() + 3600 * options.max_hours

    def work() -> Iterator[Any]:
        for cell in missing:
            if time.time() < stop_at:
                yield delayed(_compute)(cell, folder, stop_at)

    # Workers watch from their start on, not from their first cell: they may never get one.
    workers = parallel_config("loky", initializer=end_with, initargs=(os.getpid(),))
    with terminable(), workers, _display(name, cells, missing, folder, options) as advance:
        for _ in Parallel(n_jobs=options.jobs, return_as="generator_unordered", pre_dispatch=options.jobs)(work()):
            advance()
            _write_wall(folder, spent + time.perf_counter() - started)
            if options.store is not None:
                _copy_cells(folder, options.store / folder.name)
    return _write_wall(folder, spent + time.perf_counter() - started)


def _copy_cells(source: Path, target: Path) -> None:
    """Copy the finished cells that are not there yet, and the time that went into all of them."""
    for path in sorted(source.glob("cells/*.json")):
        copy = _path(target, path.stem)
        if not copy.is_file():
            write_atomically(copy, path.read_bytes())
    _write_wall(target, max(_wall(source), _wall(target)))


def _wall(folder: Path) -> float:
    """Seconds spent on an experiment so far."""
    path = folder / "wall.json"
    if not path.is_file():
        return 0.0
    remedy = "delete it, and the time counted so far is lost"
    seconds = read_json(path, remedy)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InputError(f"{path}: damaged (not a number of seconds); {remedy}")
    return float(seconds)


def _write_wall(folder: Path, seconds: float) -> float:
    write_atomically(folder / "wall.json", json.dumps(round(seconds, 1)).encode())
    return round(seconds, 1)


@contextmanager
def _display(
    name: str, cells: Sequence[Cell], missing: Sequence[Cell], folder: Path, options: Options
) -> Iterator[Callable[[], None]]:
    """A table of all runs where they form a matrix, else a bar; yields what to call after each cell."""
    places = {cell.key: cell.place for cell in cells if cell.place is not None}
    if places:
        with Board(name, places, folder, quiet=options.quiet):
            yield lambda: None
    else:
        with ProgressBar(name, len(cells), len(cells) - len(missing), quiet=options.quiet, at_once=True) as bar:
            yield bar.advance


def _compute(cell: Cell, folder: Path, stop_at: float) -> None:
    torch.set_num_threads(1)
    STOP_AT.set(stop_at)
    try:
        result = cell.compute()
    except OutOfTime:
        return
    text = json.dumps(result)
    content = {"commit": commit(), "result": json.loads(text), "digest": _digest(text)}
    write_atomically(_path(folder, cell.key), json.dumps(content).encode())


def _path(folder: Path, key: str) -> Path:
    return folder / "cells" / f"{key}.json"


def _stored(folder: Path, key: str) -> dict[str, Any]:
    path, remedy = _path(folder, key), "delete it and run again"
    content = read_json(path, remedy)
    if not isinstance(content, dict) or not isinstance(content.get("result"), dict):
        raise InputError(f"{path}: damaged (it holds no result); {remedy}")
    if not isinstance(content.get("commit"), str | None):
        raise InputError(f"{path}: damaged (its commit is {content['commit']!r}); {remedy}")
    # Cells of 0.1.0 have no digest.
    if "digest" in content and content["digest"] != _digest(json.dumps(content["result"])):
        raise InputError(f"{path}: damaged (the result does not match its checksum); {remedy}")
    return {"commit": None} | content


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def with_paper(rows: Sequence[Row]) -> Table:
    """Rows with the paper's values beside ours and the difference in standard deviations."""

    def spread(mean: float | None, sd: float | None) -> str:
        if mean is None:
            return ""
        return f"{mean:.4g}" if sd is None else f"{mean:.4g} ± {sd:.2g}"

    header = ["method", "case", "metric", "ours", "n"]
    lines = []
    for row in rows:
        ours = "" if row.quoted else spread(row.mean, row.sd)
        lines.append([row.method, row.case or "", row.metric, ours, str(row.n)])
    if any(row.quoted or row.paper is not None for row in rows):
        header += ["paper", "SDs apart"]
        for line, row in zip(lines, rows, strict=True):
            far = row.distance()
            paper = spread(row.mean, row.sd) if row.quoted else spread(row.paper, row.paper_sd)
            line += [paper, "" if far is None else f"{far:+.1f}"]
    return Table(header, lines)
