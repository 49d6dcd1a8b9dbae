"""Progress of a fit that trains no network: how far it is, and the time left."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Literal, Self

from nrf.training.progress import ProgressBar, duration

Stage = Literal["columns", "rows", "density", "neighbours", "ranges", "calibration", "health"]
BEGINS: dict[Stage, float] = {
    "columns": 0.0,
    "rows": 0.13,
    "density": 0.16,
    "neighbours": 0.36,
    "ranges": 0.61,
    "calibration": 0.86,
    "health": 0.94,
}
"""Share of the time that is spent before each stage, measured on 100,000 rows of 120 numbers."""
SECONDS_PER_CELL, FEW_CELLS, SECONDS_PER_FURTHER_CELL = 9e-7, 1.2e6, 1.7e-7
"""Measured with one thread: for a table below so many cells, and for the cells beyond, which take less since the number
of rows that a fit learns from is bounded."""
BEAT = 0.5
"""Seconds between two updates by the clock."""


class FitProgress(ProgressBar):
    """The progress of a fit through its stages, updated by the clock, since a stage is one long call.

    The time left is at first estimated from the size of the table, then from the speed of the finished stages.

    Args:
        cells: Rows times columns.
        quiet: Show nothing even on a terminal.
        piped: Print plain lines where standard error is not a terminal.
    """

    def __init__(self, cells: int, *, quiet: bool = False, piped: bool = False) -> None:
        beyond = max(0.0, cells - FEW_CELLS)
        self._expected = (cells - beyond) * SECONDS_PER_CELL + beyond * SECONDS_PER_FURTHER_CELL
        super().__init__("NRFDetector", 100, quiet=quiet, piped=piped, at_once=self._expected > 1)
        self._stage: Stage = "columns"
        self._stopped = threading.Event()
        self._clock: threading.Thread | None = None

    def reach(self, stage: Stage) -> None:
        """Note that all stages before this one are done."""
        self._stage = stage
        if BEGINS[stage] > 0:
            self._expected = (time.monotonic() - self._began) / BEGINS[stage]

    def leave(self) -> None:
        """Stop drawing: what comes next has a line of its own."""
        self._stopped.set()
        if self._clock is not None:
            self._clock.join()
        if self._bar is not None and self._shown:
            self._bar.stop()

    def text(self) -> str:
        """The line without the bar."""
        left = max(0.0, self._expected - (time.monotonic() - self._began))
        return f"{self.label} {self._done} %, {duration(left)} left"

    def look(self) -> None:
        """Draw the line as of now; within a stage the clock advances it, up to the start of the next one."""
        ends = min((share for share in BEGINS.values() if share > BEGINS[self._stage]), default=1.0)
        by_clock = (time.monotonic() - self._began) / max(self._expected, 1e-9)
        self.move_to(int(100 * min(max(by_clock, BEGINS[self._stage]), ends)))

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT):
            self.look()

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._hidden:
            self._clock = threading.Thread(target=self._beat, daemon=True)
            self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stopped.is_set():
            self.leave()
            super().__exit__(kind, error, trace)
