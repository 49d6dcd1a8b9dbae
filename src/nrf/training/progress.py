"""Progress on standard error: a line with the time left, for tasks of more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

SHOW_AFTER = 2.0
"""Seconds after which progress is shown; shorter tasks show none."""
LINE_EVERY = 10.0
"""Seconds between two plain lines, where standard error is not a terminal."""
BAR_FROM, NUMBERS_FROM = 70, 100
"""Fewest columns of a terminal with room for a bar, and for numbers beside it."""


class ProgressBar:
    """Shows how far a task is and how long it will still take, with the last logged numbers where there is room.

    On a terminal this is one line that is redrawn. Elsewhere nothing is shown, or, if ``piped``, plain lines without
    control characters.

    Args:
        label: Name of the task.
        total: Total number of steps.
        start: Steps already done.
        quiet: Show nothing even on a terminal.
        piped: Print plain lines where standard error is not a terminal.
        at_once: Show progress from the beginning, for tasks of few, long steps.
    """

    def __init__(
        self,
        label: str,
        total: int,
        start: int = 0,
        *,
        quiet: bool = False,
        piped: bool = False,
        at_once: bool = False,
    ) -> None:
        self.label, self.total, self._done = label, total, start
        self._worked = 0
        self._wait = 0.0 if at_once else SHOW_AFTER
        self._began = self._told = time.monotonic()
        console = Console(stderr=True)
        self._hidden = quiet or not (console.is_terminal or piped)
        self._shown = False
        self._bar: Progress | None = None
        if console.is_terminal and not quiet:
            self._bar = _rich_line(console)
            self._task = self._bar.add_task(label, total=total, completed=start, numbers="")

    def advance(self) -> None:
        """Count one step as done."""
        self._done += 1
        self._worked += 1
        self._draw()

    def move_to(self, step: int) -> None:
        """Move forward or back to a step."""
        self._done = step
        self._draw()

    def show(self, numbers: Mapping[str, float]) -> None:
        """Set the numbers that are shown beside the bar."""
        if self._bar is not None:
            text = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
            self._bar.update(self._task, numbers=text)

    def text(self) -> str:
        """The line without the bar.

        Example:
            >>> ProgressBar("training", 200, 50).text()
            'training 25 %'
        """
        share = f"{self.label} {100 * self._done // max(1, self.total)} %"
        if self._worked == 0:
            return share
        pace = (time.monotonic() - self._began) / self._worked
        return f"{share}, {duration(pace * (self.total - self._done))} left"

    def _draw(self) -> None:
        now = time.monotonic()
        if self._hidden or now - self._began < self._wait:
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=self.text())
            if not self._shown:
                self._bar.start()
        elif not self._shown or now - self._told >= LINE_EVERY:
            _say(self.text())
            self._told = now
        self._shown = True

    def __enter__(self) -> Self:
        self._began = self._told = time.monotonic()
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shown:
            return
        last = self.text() if kind else f"{self.label}: took {duration(time.monotonic() - self._began)}"
        if self._bar is not None:
            self._bar.update(self._task, description=last)
            self._bar.stop()
        elif kind is None:
            _say(last)


def duration(seconds: float) -> str:
    """Format a time, with no more digits than an estimate deserves.

    Example:
        >>> duration(0.2), duration(75.0), duration(700.0), duration(9000.0)
        ('1 s', '75 s', '12 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _rich_line(console: Console) -> Progress:
    """A progress line that begins with the time left; on a narrow terminal bar and numbers are omitted."""
    columns: list[TextColumn | BarColumn] = [TextColumn("{task.description}", table_column=Column(no_wrap=True))]
    if console.width >= BAR_FROM:
        columns.append(BarColumn(bar_width=20))
    if console.width >= NUMBERS_FROM:
        columns.append(TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True, ratio=1)))
    return Progress(*columns, console=console)
