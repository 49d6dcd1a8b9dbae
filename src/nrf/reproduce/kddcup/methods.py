"""The systems KDDCUP is compared with, each on the same splits: fitted on training rows, scored on distinct rows."""

from __future__ import annotations

import contextlib
import importlib
import io
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.errors import needs
from nrf.metrics import nearest_neighbour_score
from nrf.reproduce.baselines import DAGMM, DSEBM
from nrf.reproduce.kddcup.cells import Scores, Split
from nrf.reproduce.runner.watch import potential_of
from nrf.runs.presets import find_preset

SVM_ROWS = 10_000
"""A kernel machine's cost grows with the square of its rows: these are drawn at random."""
ALAD_ROWS = 50_000

Rows = NDArray[np.float32]
Fit = Callable[[Split, int, int], Scores]
"""Split, seed and epochs to scores of the distinct rows."""


def _subsample(rows: Rows, n: int, seed: int) -> Rows:
    return rows[np.random.default_rng(seed).permutation(len(rows))[:n]]


def _one_class_svm(split: Split, seed: int, epochs: int) -> Scores:
    from sklearn.svm import OneClassSVM

    rows = _subsample(split.splits.train, SVM_ROWS, seed)
    # ν is the share of training rows left outside; they are all normal, and no label says more.
    return np.asarray(OneClassSVM(gamma="scale", nu=0.05).fit(rows).score_samples(split.distinct), dtype=np.float32)


def _dsebm(score: str) -> Fit:
    def fit(split: Split, seed: int, epochs: int) -> Scores:
        model = DSEBM(epochs=epochs, seed=seed, score=score)  # type: ignore[arg-type]
        return model.fit(split.splits.train).score_samples(split.distinct).astype(np.float32)

    return fit


def _dagmm(split: Split, seed: int, epochs: int) -> Scores:
    model = DAGMM(epochs=epochs, seed=seed)
    return model.fit(split.splits.train).score_samples(split.distinct).astype(np.float32)


def _alad(split: Split, seed: int, epochs: int) -> Scores:
    with needs("reproduce", "ALAD"):
        alad = importlib.import_module("pyod.models.alad").ALAD
    rows = _subsample(split.splits.train, ALAD_ROWS, seed)
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        model = alad(epochs=epochs, batch_size=1024, latent_dim=32).fit(rows)
        return -np.asarray(model.decision_function(split.distinct), dtype=np.float32)


def _nearest(split: Split, seed: int, epochs: int) -> Scores:
    known = np.unique(split.splits.train, axis=0)
    return np.asarray(nearest_neighbour_score(known, split.distinct), dtype=np.float32)


def _untrained(split: Split, seed: int, epochs: int) -> Scores:
    preset = replace(find_preset("kddcup-sgld-released"), seed=seed)
    potential, _ = preset.networks(split.splits.event_shape, preset.seed)
    return potential_of(potential, split.distinct)


METHODS: dict[str, Fit] = {
    "OC-SVM": _one_class_svm,
    "DSEBM-e": _dsebm("energy"),
    "DSEBM-r": _dsebm("reconstruction"),
    "DAGMM": _dagmm,
    "ALAD": _alad,
    "1-NN": _nearest,
    "untrained potential": _untrained,
}
ONE_PASS = ("OC-SVM", "1-NN", "untrained potential")
"""What has no epochs."""


def fit_and_measure(name: str, split: Split, seed: int, epochs: int) -> dict[str, Any]:
    """One system on one split."""
    started = time.perf_counter()
    scores = METHODS[name](split, seed, epochs)
    return split.numbers(scores) | {"seconds": round(time.perf_counter() - started, 1)}
