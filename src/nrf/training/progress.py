"""A progress bar on standard error, silent where nobody watches."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """``rich``'s bar with the last logged numbers beside it.

    Args:
        label: What is being done.
        total: Steps in all.
        start: Steps already done.
        quiet: Show nothing even on a terminal.
    """

    def __init__(self, label: str, total: int, start: int = 0, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task(label, total=total, completed=start, numbers="")

    def advance(self) -> None:
        """One step done."""
        self._bar.advance(self._task)

    def move_to(self, step: int) -> None:
        """Forward or back to a step."""
        self._bar.update(self._task, completed=step)

    def show(self, numbers: Mapping[str, float]) -> None:
        """Numbers to show beside the bar."""
        text = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        self._bar.update(self._task, numbers=text)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._bar.disable:  # older versions of rich print an empty line otherwise
            self._bar.stop()
