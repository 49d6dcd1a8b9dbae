"""One system learns from some rows and scores others, by itself."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.reproduce.baselines.base import Baseline, Rows, Scores


@dataclass(frozen=True)
class Scored:
    """Scores of rows, and what it took."""

    scores: Scores
    fit_seconds: float
    score_seconds: float
    fit_cpu_seconds: float
    """Of this process, all its threads together: what a busy machine does not stretch."""
    score_cpu_seconds: float
    warnings: tuple[str, ...]


def fit_and_score(baseline: Baseline, train: Rows, rows: Rows, seed: int) -> Scored:
    """Learn from some rows, score others. What a library draws from global streams depends on the seed, too."""
    baseline.require()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one of a process loads much of torch
    with _in_private(seed) as said:
        start = _times()
        fitted = replace(baseline, seed=seed).fit(train)
        between = _times()
        scores = fitted.score_samples(rows)
        done = _times()
    kept = tuple(sorted({str(warning.message)[:200] for warning in said}))
    (fit, fit_cpu), (score, score_cpu) = between - start, done - between
    return Scored(scores, float(fit), float(score), float(fit_cpu), float(score_cpu), kept)


def _times() -> NDArray[np.float64]:
    """Now, in seconds of the clock and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


@contextlib.contextmanager
def _in_private(seed: int) -> Iterator[list[warnings.WarningMessage]]:
    """Global random streams start from the seed and are put back; what is printed is lost, what is warned is kept."""
    numbers, words = np.random.get_state(), random.getstate()  # noqa: NPY002 (what others draw from)
    hashing = os.environ.get("PYTHONHASHSEED")
    quiet = contextlib.redirect_stdout(io.StringIO())
    with torch.random.fork_rng(devices=[]), quiet, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield said
        finally:
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(words)
            if hashing is None:
                os.environ.pop("PYTHONHASHSEED", None)
            else:
                os.environ["PYTHONHASHSEED"] = hashing
