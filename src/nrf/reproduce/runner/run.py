"""`nrf reproduce NAME`: run an experiment cell by cell, then summarise it.

Cells run in parallel processes, one thread each, and are kept one by one; a stopped experiment goes on with those it
lacks. The record names the commits that made them.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from nrf import figures
from nrf.config import to_json
from nrf.errors import InputError
from nrf.files import locked, require_folder
from nrf.processes import end_with, ray_cluster, terminable
from nrf.reproduce.runner.board import Board
from nrf.reproduce.runner.cells import CellFile, Stored
from nrf.reproduce.runner.experiment import Cell, Deadline, Experiment, MissingData, Outcome, OutOfTime
from nrf.reproduce.runner.record import Record, commit, kept_with_code, machine, require_clean
from nrf.reproduce.runner.report import Report
from nrf.training import ProgressBar
from nrf.training.checkpoint import versions

log = logging.getLogger(__name__)

CELLS = "cells.jsonl"
Engine = Literal["local", "ray"]
Task = tuple[Cell, Path, Deadline, float]
"""What :func:`_compute` takes."""
RETRIES = 3
"""How often Ray runs a cell again whose process was killed."""


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
    engine: Engine = "local"
    """Processes of this machine, or tasks of Ray; every machine must then see all these folders under their paths."""

    def __post_init__(self) -> None:
        for name in ("out", "results", "store", "inception_weights"):  # text will do
            given = getattr(self, name)
            object.__setattr__(self, name, given if given is None else Path(given))
        if self.engine not in get_args(Engine):
            raise InputError(f"engine must be 'local' or 'ray', got {self.engine!r}")
        if self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
        if self.max_hours is not None and not self.max_hours >= 0:
            raise InputError(f"max_hours must not be negative, got {self.max_hours}")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}")


def reproduce(experiment: Experiment[Any], options: Options, say: Callable[[str], None]) -> Record:
    """Run what is missing, summarise, and write the record, the figures and the report.

    Quick runs write beside their cells only: ``results/`` holds real ones. Nor does it get numbers of code that is not
    committed.
    """
    for place in (options.out, options.store, None if options.quick else options.results):
        if place is not None:
            require_folder(place)
    _require_clean(options)
    config = _resized(experiment, options)
    folder = options.out / (f"{experiment.name}-quick" if options.quick else experiment.name)
    with locked(folder):
        return _reproduce(experiment, config, folder, options, say)


def _require_clean(options: Options) -> None:
    if not options.quick:
        require_clean(options.results, "--results")
        if options.store is not None:
            require_clean(options.store, "--store")


def _reproduce(
    experiment: Experiment[Any], config: Any, folder: Path, options: Options, say: Callable[[str], None]
) -> Record:
    cells = experiment.cells(config, options.out)
    if len({cell.name for cell in cells}) != len(cells):
        raise InputError(f"{experiment.name} names two cells alike")
    file = CellFile(folder / CELLS)
    store = None if options.store is None else CellFile(options.store / f"{experiment.name}.jsonl")
    if store is not None:
        file.take_from(store)
    wall = _run_missing(experiment.name, picked(cells, options), folder, store, options)
    stored = file.find(cells)
    if not stored or (len(stored) < len(cells) and not experiment.partial):
        raise InputError(
            f"{len(cells) - len(stored)} of {len(cells)} cells are missing, so there is no summary yet; "
            "the same command goes on with them"
        )
    results = {cell.name: stored[cell.name].result for cell in cells if cell.name in stored}
    runs = {cell.name: _run(folder, cell) for cell in cells if cell.trains and _run(folder, cell).is_dir()}
    outcome = experiment.summarise(config, results, runs)
    command = f"nrf reproduce {experiment.name}{' --quick' if options.quick else ''}"
    command += f" --epochs {options.epochs}" if options.epochs else ""
    command += " --inception-weights FILE" if options.inception_weights else ""
    seeds = list(experiment.seeds(config))
    record = Record(experiment.name, command, _made_by(stored), versions(), machine(), seeds, wall, list(outcome.rows))
    if experiment.keeps_rows and len(stored) < len(cells) and not options.quick:
        record = record.beside(options.results / f"{experiment.name}.json")
    if not options.quick:
        _require_clean(options)  # the code may have changed in all these hours
        _require_committed(stored, file.path, options.results)
    _write(experiment, outcome, record, to_json(config), folder, folder if options.quick else options.results, say)
    return record


def _write(
    experiment: Experiment[Any],
    outcome: Outcome,
    record: Record,
    settings: dict[str, Any],
    folder: Path,
    home: Path,
    say: Callable[[str], None],
) -> None:
    """The record and its figures to ``home``, the page to the experiment's own folder."""
    record.write(home / f"{experiment.name}.json")
    report = Report(experiment.title, experiment.lead, list(outcome.headline))
    for section in outcome.sections:
        for table in section.tables:
            say(f"\n{section.heading}\n{table.as_text()}")
        for name, (figure, _) in section.figures.items():
            figures.save(figure, home / experiment.name / f"{name}.png")
        report.add(section.heading, section.text, *section.tables, *section.figures.values())
    report.add_provenance(record.command, settings)
    report.write(folder / "report.html")
    say(f"\nrecord: {home / (experiment.name + '.json')}\nreport: {folder / 'report.html'}")


def _made_by(stored: Mapping[str, Stored]) -> str | None:
    return ", ".join(sorted({cell.commit for cell in stored.values() if cell.commit})) or None


def _require_committed(stored: Mapping[str, Stored], path: Path, results: Path) -> None:
    """No cell of uncommitted code goes into a record that is kept with the code; those of 0.1.0 are older than that."""
    changed = [name for name, cell in stored.items() if (cell.commit or "").endswith("+") and not cell.configuration]
    if changed and kept_with_code(results):
        raise InputError(
            f"{len(changed)} cells in {path} were made by code that was not committed, the first is {changed[0]!r}; "
            "delete these lines and run again, or write elsewhere: --results runs/results"
        )


def _resized(experiment: Experiment[Any], options: Options) -> Any:
    config = experiment.quick if options.quick else experiment.whole
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
        found |= {cell.name: cell for cell in of_text}
    return list(found.values())


def _run_missing(name: str, cells: Sequence[Cell], folder: Path, store: CellFile | None, options: Options) -> float:
    """Compute the cells that are not there yet; returns the seconds spent on this experiment so far."""
    file = CellFile(folder / CELLS)
    spent, done = file.read()[1], set(file.find(cells))
    missing = [cell for cell in cells if cell.name not in done]
    began = time.time() - spent
    deadline = Deadline(math.inf if options.max_hours is None else time.time() + 3600 * options.max_hours)

    begun: list[str] = []

    def work() -> Iterator[Task]:
        for cell in missing:
            if time.time() < deadline.at:
                begun.append(cell.name)
                yield cell, folder, deadline, began

    finish = _by_ray if options.engine == "ray" else _in_processes
    with terminable(), _display(name, cells, done, folder, options) as advance:
        for finished in finish(work(), options.jobs):
            advance(finished)
            if store is not None:
                store.take_from(file)
    if begun:
        file.add([{"wall_seconds": round(time.time() - began, 1)}])
    if store is not None:
        store.take_from(file)
    return file.read()[1]


def _in_processes(work: Iterator[Task], jobs: int) -> Iterator[str | None]:
    """Cells in processes of this machine, so many at a time, in the order in which they finish."""
    from joblib import Parallel, delayed, parallel_config

    # Workers watch from their start on, not from their first cell: they may never get one.
    with parallel_config("loky", initializer=end_with, initargs=(os.getpid(),)):
        at_a_time = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch=jobs)
        yield from at_a_time(delayed(_compute)(*task) for task in work)


def _by_ray(work: Iterator[Task], jobs: int) -> Iterator[str | None]:
    """Cells as tasks of Ray, so many at a time; a task whose process has died is run again."""
    with ray_cluster():
        import ray

        compute, running = ray.remote(num_cpus=1, max_retries=RETRIES)(_compute), list[Any]()
        try:
            while True:
                running += [compute.remote(*task) for task in islice(work, jobs - len(running))]
                if not running:
                    return
                (done,), running = ray.wait(running, num_returns=1)
                try:
                    found: str | None = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error  # as if it were raised here
                yield found
        finally:
            for left in running:
                ray.cancel(left, force=True)


@contextmanager
def _display(
    name: str, cells: Sequence[Cell], done: set[str], folder: Path, options: Options
) -> Iterator[Callable[[str | None], None]]:
    """A table of all runs where they form a matrix, else a bar; yields what to call with a finished cell's name."""
    places = {cell.name: cell.place for cell in cells if cell.place is not None}
    if places:
        runs = {cell.name: _run(folder, cell) for cell in cells}
        with Board(name, places, runs, done, quiet=options.quiet):
            yield lambda finished: None if finished is None else done.add(finished)
    else:
        with ProgressBar(name, len(cells), len(done), quiet=options.quiet, at_once=True) as bar:
            yield lambda finished: bar.advance()


def _compute(cell: Cell, folder: Path, deadline: Deadline, began: float) -> str | None:
    """In a process of its own, which also keeps the result, so that no moment is left in which it could be lost."""
    torch.set_num_threads(1)
    try:
        result = cell.compute(_run(folder, cell), deadline)
    except OutOfTime:
        return None
    except MissingData as reason:
        log.warning("%s is left out: %s", cell.name, reason)
        return None
    stored = Stored(cell.name, cell.revision, cell.described(), commit(), result)
    CellFile(folder / CELLS).add([stored.as_line(time.time() - began)])
    return cell.name


def _run(folder: Path, cell: Cell) -> Path:
    return folder / "runs" / cell.key
