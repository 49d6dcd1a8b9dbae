"""Timing of several things in turn, so that a busy moment of the machine hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

Block = Callable[[], object]
"""Something to be timed, called without arguments."""


@dataclass(frozen=True)
class Times:
    """Seconds of one call of each block, in every round."""

    rounds: Mapping[str, Sequence[float]]

    @property
    def n(self) -> int:
        """How many rounds."""
        return len(next(iter(self.rounds.values())))

    def seconds(self, name: str) -> float:
        """The median over rounds."""
        return float(np.median(self.rounds[name]))

    def ratio(self, slow: str, fast: str) -> float:
        """How many times longer one takes than another: the median of the rounds' ratios."""
        return float(np.median(np.divide(self.rounds[slow], self.rounds[fast])))

    def spread(self, slow: str, fast: str) -> float:
        """Standard deviation of that ratio over rounds."""
        ratios = np.divide(self.rounds[slow], self.rounds[fast])
        return float(np.std(ratios, ddof=1)) if len(ratios) > 1 else 0.0


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int = 7
    """Times that each block is measured."""
    least: float = 0.3
    """Seconds of one measurement, at least; a short block is repeated within it."""
    most: float = 60.0
    """Seconds of all rounds together, at most; but three of them are measured at least."""

    def rounds_of(self, seconds: float) -> int:
        """How many rounds of so many seconds there is time for."""
        return min(self.rounds, max(FEWEST, int(self.most / max(seconds, 1e-9))))


FEWEST = 3
QUICK = Effort(rounds=2, least=0.005)


def in_turn(blocks: Mapping[str, Block], effort: Effort) -> Times:
    """Time the blocks one after the other, round by round; the first call of each, which may compile, does not count.

    Example:
        >>> times = in_turn({"a": lambda: sum(range(100)), "b": lambda: sum(range(10_000))}, QUICK)
        >>> times.ratio("b", "a") > 5
        True
    """
    repeats, whole = {}, 0.0
    for name, block in blocks.items():
        block()
        once = _clock(block, 1)
        repeats[name] = max(1, int(np.ceil(effort.least / max(once, 1e-7))))
        whole += repeats[name] * once
    rounds: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(effort.rounds_of(whole)):
        for name, block in blocks.items():
            rounds[name].append(_clock(block, repeats[name]))
    return Times(rounds)


def _clock(block: Block, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        block()
    return (time.perf_counter() - started) / repeats


@contextmanager
def threads(n: int) -> Iterator[None]:
    """That many threads of torch inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
