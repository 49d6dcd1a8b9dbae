"""Drift monitors for the rows that a service scores: one for each model, updated after the answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from nrf.detect.drift import DriftMonitor, DriftState, drift_report
from nrf.serve.limits import Refused
from nrf.serve.served import Encoded, Floats, Served

MOST_WAITING = 100_000
"""Maximum number of rows that wait. Whether a row is skipped does not depend on its values, so the promise holds."""
ROWS_AT_ONCE = 64
"""Number of rows up to which small batches are looked at together."""


class Watches:
    """Monitors of the models of a service. A model that is loaded again gets a new one, with a promise of its own.

    Args:
        level: Probability that a model's monitor ever raises an alarm while nothing changes: at most this.
        on_state: Called with a model's name and what its monitor has found.
        on_passed_over: Called with the number of rows that were skipped because too many were waiting.
    """

    def __init__(
        self, level: float, on_state: Callable[[str, DriftState], None], on_passed_over: Callable[[int], None]
    ) -> None:
        self._level, self._on_state, self._on_passed_over = level, on_state, on_passed_over
        self._monitors: dict[str, tuple[Served, DriftMonitor]] = {}
        self._waiting: deque[tuple[Served, Floats, Encoded]] = deque()
        self._n_waiting = 0
        self._lock, self._making = threading.Lock(), threading.Lock()

    def take(self, model: Served, scores: Floats, rows: Encoded) -> None:
        """Queue scores and encoded rows for the next :meth:`work`."""
        with self._lock:
            if self._n_waiting + len(scores) > MOST_WAITING:
                self._on_passed_over(len(scores))
                return
            self._waiting.append((model, scores, rows))
            self._n_waiting += len(scores)

    def work(self, busy: Callable[[], bool] = lambda: False) -> None:
        """Process the waiting rows in the order of their scoring; only a small part while others are busy."""
        while (part := self._next()) is not None:
            model, scores, rows = part
            monitor = self.monitor(model)
            if monitor is None:  # scored by a model that was replaced meanwhile
                continue
            state = monitor.update_values(scores, monitor.values_of(rows) if monitor.columns else None)
            self._on_state(model.name, state)
            if busy():
                return

    def _next(self) -> tuple[Served, Floats, Encoded] | None:
        """The first rows that wait, of one model: a large batch, or small ones together."""
        found: list[tuple[Served, Floats, Encoded]] = []
        n_rows = 0
        with self._lock:
            while self._waiting and n_rows < ROWS_AT_ONCE and self._waiting[0][0] is (found or self._waiting)[0][0]:
                found.append(self._waiting.popleft())
                n_rows += len(found[-1][1])
            self._n_waiting -= n_rows
        if not found:
            return None
        return found[0][0], np.concatenate([part[1] for part in found]), np.concatenate([part[2] for part in found])

    def monitor(self, model: Served) -> DriftMonitor | None:
        """The monitor of a model as it was loaded; None if another model has replaced it."""
        with self._making:
            kept = self._monitors.get(model.name)
            if kept is None or kept[0].loaded_at < model.loaded_at:
                kept = self._monitors[model.name] = model, DriftMonitor(model.detector.fitted_, self._level)
            return kept[1] if kept[0] is model else None

    def report(self, model: Served) -> dict[str, Any]:
        """The answer of `/drift`."""
        monitor = self.monitor(model)
        if monitor is None:
            raise Refused(503, "the model has just been replaced; ask again", headers={"Retry-After": "1"})
        return drift_report(monitor.state, model.name)
