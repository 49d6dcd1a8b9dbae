"""A matrix of runs on the terminal: which are done, how far the others are."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

SECONDS = 5.0
"""Between two looks at the folder."""


@dataclass(frozen=True)
class Place:
    """Where a cell stands in a matrix of runs."""

    line: str
    """What is run: settings and method."""
    label: int | None
    """The class, where runs differ in it."""
    seed: int
    epochs: int | None = None
    """Points of a run's curve when it is done, where that is known."""


class Board:
    """A table with a line for each kind of run and a column for each class.

    Args:
        name: Of the experiment.
        places: Where each cell stands, by name.
        runs: Folders of the runs, by name of the cell.
        done: Names of the finished cells; what is added later is seen.
        quiet: Show nothing even on a terminal.
    """

    def __init__(
        self,
        name: str,
        places: Mapping[str, Place],
        runs: Mapping[str, Path],
        done: Collection[str],
        *,
        quiet: bool = False,
    ) -> None:
        self.name, self.places, self.runs, self.done = name, dict(places), runs, done
        console = Console(stderr=True)
        self._live = None
        if not quiet and console.is_terminal:
            self._live = Live(get_renderable=self.table, console=console, refresh_per_second=1 / SECONDS)

    def table(self) -> Table:
        """What is done now."""
        lines = list(dict.fromkeys(place.line for place in self.places.values()))
        labels = sorted({place.label for place in self.places.values()}, key=lambda label: (label is not None, label))
        states = {key: self.state(key) for key in self.places}
        done = sum(state == "done" for state in states.values())
        table = Table(title=f"{self.name}: {done} of {len(states)}", title_justify="left")
        table.add_column("")
        for label in labels:
            table.add_column("" if label is None else str(label), justify="right")
        for line in lines:
            table.add_row(line, *(self._entry(states, line, label) for label in labels))
        return table

    def state(self, key: str) -> str:
        """``done``, ``waiting``, or how many points the curve of a run has that has begun."""
        if key in self.done:
            return "done"
        try:
            points = len(json.loads((self.runs[key] / "curve.json").read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return "waiting"
        epochs = self.places[key].epochs
        return f"{points}" if epochs is None else f"{points}/{epochs}"

    def _entry(self, states: Mapping[str, str], line: str, label: int | None) -> str:
        found = [states[key] for key, place in self.places.items() if (place.line, place.label) == (line, label)]
        done = found.count("done")
        if done == len(found):
            return "✓" if found else ""
        begun = [state for state in found if state not in ("done", "waiting")]
        text = f"{done} of {len(found)}" if len(found) > 1 else "·"
        return " ".join([text, *begun]) if len(found) > 1 or not begun else begun[0]

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
