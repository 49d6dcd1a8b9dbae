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

from nrf.reproduce.baselines.base import Baseline, Rows, Scores


@dataclass(frozen=True)
class Scored:
    """Scores of rows, and what it took."""

    scores: Scores
    fit_seconds: float
    score_seconds: float
    warnings: tuple[str, ...]


def fit_and_score(baseline: Baseline, train: Rows, rows: Rows, seed: int) -> Scored:
    """Learn from some rows, score others. What a library draws from global streams hangs on the seed, too."""
    baseline.require()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one of a process loads much of torch
    with _in_private(seed) as said:
        start = time.perf_counter()
        fitted = replace(baseline, seed=seed).fit(train)
        between = time.perf_counter()
        scores = fitted.score_samples(rows)
        done = time.perf_counter()
    kept = tuple(sorted({str(warning.message)[:200] for warning in said}))
    return Scored(scores, between - start, done - between, kept)


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
