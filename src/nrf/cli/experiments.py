"""`nrf demo` and `nrf reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from nrf.cli.parsing import Stopped, say
from nrf.errors import InputError
from nrf.files import require_folder


def demo(*, out: Path = Path("runs/demo"), quick: bool = False, quiet: bool = False) -> int:
    """Train on embedded data, print the figures, write a report page.

    Example: nrf demo --quick --out runs/demo

    Args:
        out: Folder for the runs and report.html; after a stop, the same command continues.
        quick: A few iterations only, to see that everything works.
        quiet: No progress bars.
    """
    from nrf.reproduce.demo import demo as run_demo

    require_folder(out)
    try:
        result = run_demo(out, say, quick=quick, quiet=quiet)
    except KeyboardInterrupt as stop:
        raise _stopped(out, "checkpoints/step-*.safetensors") from stop
    say(f"report: {result.report}")
    return 0


def reproduce(
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None,
    /,
    *,
    list: bool = False,
    write_docs: bool = False,
    quick: bool = False,
    out: Path = Path("runs/reproduce"),
    results: Path = Path("results"),
    jobs: int = 2,
    classes: tuple[int, ...] = (),
    seeds: tuple[int, ...] = (),
    lines: tuple[str, ...] = (),
    epochs: int | None = None,
    max_hours: float | None = None,
    store: Path | None = None,
    inception_weights: Path | None = None,
    engine: Literal["local", "ray"] = "local",
    quiet: bool = False,
) -> int:
    """Run an experiment of the paper: table, figures, report and a JSON record. After a stop, it continues.

    Example: nrf reproduce sampler-study

    Args:
        name: The experiment.
        list: Show every table and figure, and what the results folder holds of it.
        write_docs: Fill the tables of README.md and docs/*.md beside the results folder from its records.
        quick: A tiny version, to see that everything works; its record stays out of the results folder.
        out: Folder for the work in progress and the report.
        results: Folder for the record and the figures. If git tracks it together with the code, only committed code can
            write a record to it.
        jobs: Number of processes that run at a time.
        classes: For an experiment with a matrix of runs: only these classes.
        seeds: For an experiment with a matrix of runs: only these seeds.
        lines: For an experiment with a matrix of runs: only the lines whose name contains one of these texts, in that
            order.
        epochs: Number of epochs, in place of the experiment's own.
        max_hours: Stop after so many hours; the same command continues later. With 0, only finished work is summarised.
        store: A folder that outlives `out`: finished cells are looked for there and copied there, so that another
            machine can continue.
        inception_weights: For scores of images: a file with Inception's weights (torch-fidelity's). Inception is then
            used in place of the project's classifier.
        engine: Run cells in processes of this machine (local), or as tasks of Ray, `jobs` of them at a time.
        quiet: No progress bar.
    """
    from nrf.reproduce.pages import write_pages
    from nrf.reproduce.registry import OURS, PAPER, find_experiment, state
    from nrf.reproduce.runner.run import Options
    from nrf.reproduce.runner.run import reproduce as run_experiment

    if list:
        for known, what in (PAPER | OURS).items():
            say(f"{known:20} {what:50} [{state(known, results)}]")
        return 0
    if write_docs:
        if name is not None:
            raise InputError("--write-docs takes no experiment; it fills the tables of all records")
        changed = write_pages(results)
        say("\n".join(f"written: {path}" for path in changed) or "all tables are those of the records")
        return 0
    if name is None:
        raise InputError("which experiment? `nrf reproduce NAME`; `nrf reproduce --list` shows them")
    options = Options(
        out, results, jobs, quick, quiet, classes, seeds, lines, epochs, max_hours, store, inception_weights, engine
    )
    experiment = find_experiment(name)
    try:
        run_experiment(experiment, options, say)
    except KeyboardInterrupt as stop:
        raise _stopped(out, f"{name}*/cells.jsonl", f"{name}*/**/checkpoints/step-*.safetensors") from stop
    return 0


def _stopped(out: Path, *kept: str) -> Stopped:
    """The error after a stop, which says whether work is kept: there are files of these patterns then."""
    if not any(any(out.glob(f"**/{pattern}")) for pattern in kept):
        return Stopped("stopped before anything was finished: no work is kept")
    return Stopped(f"stopped; what is finished is kept in {out}: the same command goes on from there")
