"""The records in a results folder, and one number of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nrf.errors import InputError
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.record import Record, Row


class Rows:
    """The rows of a record, to be asked for by name."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.name, self.all = name, rows

    def find(
        self,
        method: str,
        metric: str,
        *,
        preset: str | None = None,
        case: str | None = None,
        column: str | None = None,
    ) -> Row | None:
        """The row of that description, if there is one."""
        wanted = (method, metric, preset, case, column)
        found = [row for row in self.all if (row.method, row.metric, row.preset, row.case, row.column) == wanted]
        if len(found) > 1:
            raise InputError(f"{self.name}: {len(found)} rows are of {wanted}")
        return found[0] if found else None

    def get(self, method: str, metric: str, **place: str | None) -> Row:
        """The same where it must be there."""
        row = self.find(method, metric, **place)
        if row is None:
            raise InputError(f"{self.name} has no row of {method!r}, {metric!r}, {place}")
        return row

    def within(self, preset: str | None) -> Rows:
        """Those of one preset, setting or block, or those of none."""
        return Rows(self.name, [row for row in self.all if row.preset == preset])

    def methods(self, metric: str) -> list[str]:
        """Names of those that have the metric, in the record's order."""
        return list(dict.fromkeys(row.method for row in self.all if row.metric == metric))

    def cases(self, metric: str) -> list[str]:
        """The same of what the numbers belong to."""
        return list(dict.fromkeys(row.case for row in self.all if row.metric == metric and row.case is not None))


class Records:
    """A results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = cache(self._rows)

    def _rows(self, name: str) -> Rows:
        return Rows(name, Record.read(self.folder / f"{name}.json").rows)

    def rows_if_there(self, name: str) -> Rows:
        """The rows of a record; none where it is not there yet."""
        return self.rows(name) if (self.folder / f"{name}.json").is_file() else Rows(name, [])

    def cell(self, experiment: str, name: str) -> dict[str, Any]:
        """The result of a stored cell."""
        found = [stored for stored in CellFile(self.folder / "cells" / f"{experiment}.jsonl").read()[0]]
        results = [stored.result for stored in found if stored.name == name]
        if len(results) != 1:
            raise InputError(f"{experiment} has {len(results)} stored cells of the name {name!r}")
        return results[0]


def joined(rows: Sequence[Row], form: str = ".3f") -> str:
    """Mean ± SD of several rows in one place."""
    return " / ".join(row.text(form) for row in rows)


def means(rows: Sequence[Row], form: str = ".3f") -> str:
    """The means alone."""
    return " / ".join(f"{row.mean:{form}}" for row in rows)
