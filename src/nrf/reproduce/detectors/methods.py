"""The detectors that are compared: ours, its untrained control, scikit-learn's and PyOD's, all at their defaults.

Each is a function that fits on normal rows and returns a score, high = normal.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.detect import NRFDetector, Training
from nrf.errors import InputError, needs
from nrf.metrics import auroc
from nrf.reproduce.detectors.sets import Floats, Rows, Task

Score = Callable[[Rows], NDArray[Any]]
"""Rows to numbers, high = normal."""
Fit = Callable[[Rows, int], Score]
"""Training rows and seed to a score."""


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    fit: Fit
    module: str = "nrf.detect"
    """Where it comes from: imported before the clock starts."""
    takes_tables: bool = False
    """Whether it takes the rows as they are; the others get :meth:`Task.as_numbers`."""

    def require(self) -> Any:
        """Its module, or an error that says what to install."""
        with needs("reproduce", self.module):
            return importlib.import_module(self.module)


# ---------------------------------------------------------------------------------------------------------------- ours


def _nrf(train: Rows, seed: int, **settings: Any) -> Score:
    return NRFDetector(random_state=seed, **settings).fit(train).score_samples


# ------------------------------------------------------------------------------------------------------- scikit-learn


def _isolation_forest(train: Floats, seed: int) -> Score:
    from sklearn.ensemble import IsolationForest

    return IsolationForest(random_state=seed).fit(train).score_samples  # type: ignore[no-any-return]


def _one_class_svm(train: Floats, seed: int) -> Score:
    from sklearn.svm import OneClassSVM

    return OneClassSVM(kernel="rbf", gamma="scale").fit(train).score_samples  # type: ignore[no-any-return]


def _local_outlier_factor(train: Floats, seed: int) -> Score:
    from sklearn.neighbors import LocalOutlierFactor

    neighbours = min(20, len(train) - 1)
    return LocalOutlierFactor(neighbours, novelty=True).fit(train).score_samples  # type: ignore[no-any-return]


def _kernel_density(train: Floats, seed: int) -> Score:
    from sklearn.neighbors import KernelDensity

    return KernelDensity(bandwidth="scott").fit(train).score_samples  # type: ignore[no-any-return]


def _nearest_neighbour(train: Floats, seed: int, *, place: int) -> Score:
    """Minus the distance to the ``place``-th nearest training row."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=place).fit(train)
    return lambda rows: np.asarray(-index.kneighbors(rows)[0][:, -1])


# ---------------------------------------------------------------------------------------------------------------- PyOD


def _pyod(train: Floats, seed: int, *, module: str, name: str, seeded: bool = False, **settings: Any) -> Score:
    """A PyOD detector; those that cannot be given a seed draw from the global streams, which :func:`measure` seeds."""
    if seeded:
        settings["random_state"] = seed
    if name == "DeepSVDD":
        settings["n_features"] = train.shape[1]
    detector = getattr(importlib.import_module(module), name)(**settings).fit(train)
    return lambda rows: -np.asarray(detector.decision_function(rows), dtype=np.float64)


def _from_pyod(module: str, name: str, **settings: Any) -> Method:
    place = f"pyod.models.{module}"
    return Method(partial(_pyod, module=place, name=name, **settings), place)


# The rows are standardised already. Done again, a column that was constant in training would be divided by 1e-8.
_DEEP = {"seeded": True, "preprocessing": False, "verbose": 0}

METHODS: dict[str, Method] = {
    "NRF": Method(_nrf, takes_tables=True),
    "untrained NRF": Method(partial(_nrf, max_iter=1, training=Training(learning_rate=1e-12)), takes_tables=True),
    "isolation forest": Method(_isolation_forest, "sklearn.ensemble"),
    "one-class SVM": Method(_one_class_svm, "sklearn.svm"),
    "LOF": Method(_local_outlier_factor, "sklearn.neighbors"),
    "kernel density": Method(_kernel_density, "sklearn.neighbors"),
    "1-NN": Method(partial(_nearest_neighbour, place=1), "sklearn.neighbors"),
    "5-NN": Method(partial(_nearest_neighbour, place=5), "sklearn.neighbors"),
    "Deep SVDD": _from_pyod("deep_svdd", "DeepSVDD", **_DEEP),
    "autoencoder": _from_pyod("auto_encoder", "AutoEncoder", **_DEEP),
    "ALAD": _from_pyod("alad", "ALAD"),
    "ECOD": _from_pyod("ecod", "ECOD"),
}
"""In the order they are shown."""
OURS = ("NRF",)
CONTROL = "untrained NRF"

_SHORT: dict[str, dict[str, Any]] = {
    "NRF": {"max_iter": 5},
    "Deep SVDD": {"epochs": 2},
    "autoencoder": {"epoch_num": 2},
    "ALAD": {"epochs": 2},
}
"""What makes a method quick where training takes its time."""


def find_method(name: str, *, quick: bool = False) -> Method:
    """The method of that name; a ``quick`` one hardly trains."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; there are {', '.join(METHODS)}")
    method = METHODS[name]
    return replace(method, fit=partial(method.fit, **_SHORT[name])) if quick and name in _SHORT else method


def measure(method: Method, task: Task, seed: int) -> dict[str, Any]:
    """Fit, score, and compare with the truth; times are in seconds, with a method's own encoding of the rows."""
    from sklearn.metrics import average_precision_score

    method.require()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one of a process loads much of torch
    train, test = (task.train, task.test) if method.takes_tables else task.as_numbers()
    with _in_private(seed) as said:
        start = time.perf_counter()
        score = method.fit(train, seed)
        fitted = time.perf_counter()
        values = score(test)
        done = time.perf_counter()
    if not np.isfinite(values).all():
        raise InputError(f"a score on {task.name!r}, seed {seed}, is not finite; leave the method out of the settings")
    return {
        "auroc": auroc(values, task.labels),
        "average_precision": float(average_precision_score(task.labels, -values)),
        "fit_seconds": round(fitted - start, 4),
        "score_seconds": round(done - fitted, 5),
        "warnings": sorted({str(warning.message)[:200] for warning in said}),
    }


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
