"""How a benchmark writes its record: of committed code only, and beside what other parts of it have measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nrf.reproduce.runner.record import Record, Row, commit, machine, require_clean
from nrf.training.checkpoint import versions

BENCHMARKS = Path(__file__).parents[1]


def require_committed(results: Path | None) -> None:
    """Refuse a folder that is kept with the code, before anything is measured, if package or benchmarks have changed.

    Args:
        results: The folder; None where no record is wanted.
    """
    if results is not None:
        for code in (None, BENCHMARKS):
            require_clean(results, "--results", code)


def make_record(name: str, command: str, rows: Sequence[Row], began: float) -> Record:
    """The record of what was measured since ``began`` (``time.time()``)."""
    return Record(name, command, commit(), versions(), machine(), [0], time.time() - began, rows)


def write_beside(results: Path, record: Record) -> None:
    """Write a record, and keep the rows of methods and presets that it does not have.

    Where rows are kept, the commands that made them stand before the new one.
    """
    require_committed(results)  # the code may have changed meanwhile
    path = results / f"{record.experiment}.json"
    whole = record.beside(path)
    if whole is not record:
        earlier = [command for command in Record.read(path).command.split("; ") if command != record.command]
        whole = replace(whole, command="; ".join([*earlier, record.command]))
    whole.write(path)
