"""Micro-batching: small requests that arrive while others are scored are scored together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from nrf.detect.tables.frame import Frame
from nrf.serve.requested import joined
from nrf.serve.served import Encoded, Floats, Served

Result = TypeVar("Result")
Kind = Literal["small", "large", "slow"]

SMALL_ROWS = 256
"""Requests with more rows than this are scored by themselves."""
BATCH_ROWS = 1024
"""Maximum number of rows in a batch."""


@dataclass(frozen=True, eq=False)
class _Job:
    model: Served
    frame: Frame
    done: asyncio.Future[Floats]
    until: float
    """When the job is given up, by the loop's clock."""


class Batcher:
    """Three threads: one scores batches of small requests, one large requests, and one explains, which is slow.

    A batch holds whatever waits for the same model when the one before it is done. Nothing is ever held back to make a
    batch larger, so a single request never waits.

    Args:
        on_batch: Called for each batch with the model and the numbers of requests and rows.
        on_scored: Called with the scores of each batch and its encoded rows, in the thread that scored them.
        seconds: Time to score a request, from its arrival; then it ends with a ``TimeoutError``.
    """

    def __init__(
        self,
        on_batch: Callable[[Served, int, int], None],
        seconds: float,
        on_scored: Callable[[Served, Floats, Encoded], None] | None = None,
    ) -> None:
        self._on_batch, self._seconds = on_batch, seconds
        self._on_scored = on_scored or (lambda model, scores, rows: None)
        self._open: set[_Job] = set()
        self._sweeping = False
        self._n_apart = 0
        self._waiting: deque[_Job] = deque()
        self._running: asyncio.Task[None] | None = None
        # Products of a few rows gain nothing from a second thread of torch. A thread that starts takes over the number
        # that was set last anywhere, so each one sets its own.
        self._n_threads = {"small": 1, "large": torch.get_num_threads(), "slow": 1}
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def _thread(self, kind: Kind) -> ThreadPoolExecutor:
        """The thread for some kind of work, started when it is first needed."""
        if kind not in self._threads:
            number = self._n_threads[kind]
            self._threads[kind] = ThreadPoolExecutor(1, kind, torch.set_num_threads, (number,))
        return self._threads[kind]

    @property
    def busy(self) -> bool:
        """Whether anything is being scored or waits to be."""
        return self._running is not None or self._n_apart > 0

    def close(self) -> None:
        """End the threads when their work is done."""
        while self._threads:
            self._threads.popitem()[1].shutdown()

    async def scores(self, model: Served, frame: Frame) -> Floats:
        """The scores of rows that fit the model."""
        loop = asyncio.get_running_loop()
        if frame.n_rows > SMALL_ROWS:
            async with asyncio.timeout(self._seconds):
                found = await self.apart(lambda: self._scored(model, frame))
            self._on_batch(model, 1, frame.n_rows)
            return found
        job = _Job(model, frame, loop.create_future(), loop.time() + self._seconds)
        self._waiting.append(job)
        self._open.add(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        if not self._sweeping:  # one look at all of them is cheaper than a timer for each
            self._sweeping = True
            loop.call_later(self._seconds / 4, self._sweep)
        try:
            return await job.done
        finally:
            self._open.discard(job)

    def _sweep(self) -> None:
        """Give up what has waited for too long."""
        loop = asyncio.get_running_loop()
        for job in self._open:
            if job.until <= loop.time() and not job.done.done():
                job.done.set_exception(TimeoutError())
        self._sweeping = bool(self._open)
        if self._sweeping:
            loop.call_later(min(0.25, self._seconds / 4), self._sweep)

    async def apart(self, work: Callable[[], Result], kind: Kind = "large") -> Result:
        """Do something large or slow without delaying small requests."""
        self._n_apart += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread(kind), work)
        finally:
            self._n_apart -= 1

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                jobs = self._next()
                if not jobs:
                    continue
                results = await loop.run_in_executor(
                    self._thread("small"), self._score, jobs[0].model, [job.frame for job in jobs]
                )
                self._on_batch(jobs[0].model, len(jobs), sum(job.frame.n_rows for job in jobs))
                for job, result in zip(jobs, results, strict=True):
                    if job.done.done():  # given up while it was scored
                        continue
                    if isinstance(result, BaseException):
                        job.done.set_exception(result)
                    else:
                        job.done.set_result(result)
        finally:
            self._running = None

    def _scored(self, model: Served, frame: Frame) -> Floats:
        scores, rows = model.scores(frame)
        self._on_scored(model, scores, rows)
        return scores

    def _score(self, model: Served, frames: Sequence[Frame]) -> list[Any]:
        """Scores of each frame, or what went wrong with it."""
        try:
            together = self._scored(model, joined(frames))
        except Exception as error:  # no request fails because of another one
            return [error] if len(frames) == 1 else [self._score(model, [frame])[0] for frame in frames]
        found, first = [], 0
        for frame in frames:
            found.append(together[first : first + frame.n_rows])
            first += frame.n_rows
        return found

    def _next(self) -> list[_Job]:
        """Jobs that can be scored in one go, the oldest first; the others keep their order."""
        batch: list[_Job] = []
        rest: list[_Job] = []
        n_rows = 0
        while self._waiting and n_rows < BATCH_ROWS:
            job = self._waiting.popleft()
            if job.done.done():
                continue
            if not batch or _together(batch[0], job):
                batch.append(job)
                n_rows += job.frame.n_rows
            else:
                rest.append(job)
        self._waiting.extendleft(reversed(rest))
        return batch


def _together(a: _Job, b: _Job) -> bool:
    return a.model is b.model and a.frame.kinds == b.frame.kinds
