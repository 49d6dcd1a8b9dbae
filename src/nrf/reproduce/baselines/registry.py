"""Every system that ours is compared with, by name, each with one set of parameters.

An experiment takes one by :func:`find_baseline` and names there what it wants otherwise.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from nrf.errors import InputError
from nrf.reproduce.baselines.alad import ALAD
from nrf.reproduce.baselines.anogan import AnoGAN
from nrf.reproduce.baselines.base import Baseline
from nrf.reproduce.baselines.dagmm import DAGMM
from nrf.reproduce.baselines.deep_svdd import DCAE, DeepSVDD
from nrf.reproduce.baselines.diffusion_time import DiffusionTimeClassifier
from nrf.reproduce.baselines.dsebm import DSEBM
from nrf.reproduce.baselines.from_pyod import ECOD, LUNAR, PyODALAD, RowsAutoencoder, RowsDeepSVDD
from nrf.reproduce.baselines.from_scikit import (
    IsolationForest,
    KernelDensity,
    LikelyKernelDensity,
    LocalOutlierFactor,
    NearestNeighbours,
    OneClassSVM,
)
from nrf.reproduce.baselines.ours import NRF, UntrainedPotential

BASELINES: dict[str, Baseline] = {
    "NRF": NRF(),
    "untrained NRF": NRF(max_iter=1, learning_rate=1e-12, field="inclusive"),
    "untrained potential": UntrainedPotential(),
    "isolation forest": IsolationForest(),
    "one-class SVM": OneClassSVM(),
    "LOF": LocalOutlierFactor(),
    "kernel density": KernelDensity(),
    "likely kernel density": LikelyKernelDensity(),
    "kernel, likely width": LikelyKernelDensity(widths=tuple(2.0 ** (i / 2) for i in range(-10, 3))),
    "1-NN": NearestNeighbours(),
    "5-NN": NearestNeighbours(place=5),
    "DTE-NP": NearestNeighbours(place=5, mean=True),
    "DTE-C": DiffusionTimeClassifier(),
    "DAGMM": DAGMM(),
    "DSEBM-e": DSEBM(),
    "DSEBM-r": DSEBM(score="reconstruction"),
    "DCAE": DCAE(),
    "Deep SVDD of images": DeepSVDD(),
    "Deep SVDD": RowsDeepSVDD(),
    "AnoGAN": AnoGAN(),
    "autoencoder": RowsAutoencoder(),
    "ALAD": ALAD(),
    "ALAD (PyOD)": PyODALAD(),
    "LUNAR": LUNAR(),
    "ECOD": ECOD(),
}


def find_baseline(name: str, **changes: Any) -> Baseline:
    """The system of that name, with some parameters changed.

    Example:
        >>> find_baseline("one-class SVM", nu=0.1).nu
        0.1
    """
    if name not in BASELINES:
        raise InputError(f"unknown method {name!r}; there are {', '.join(BASELINES)}")
    return replace(BASELINES[name], **changes)


_STORED_AS = {"ALAD": "ALAD, own", "ALAD (PyOD)": "ALAD"}


def stored_as(method: str) -> str:
    """The name that the cells of a system have: that of a renamed one is the one it had.

    Example:
        >>> stored_as("ALAD (PyOD)"), stored_as("LOF")
        ('ALAD', 'LOF')
    """
    return _STORED_AS.get(method, method)


def has_epochs(baseline: Baseline) -> bool:
    """Whether it is trained in epochs, of which the last is reported."""
    return any(field.name == "epochs" for field in fields(baseline))


def with_epochs(baseline: Baseline, epochs: int) -> Baseline:
    """TrainedModel for so many epochs, if it is trained in epochs."""
    changes: dict[str, Any] = {"epochs": epochs}
    return replace(baseline, **changes) if has_epochs(baseline) else baseline


def shortened(baseline: Baseline) -> Baseline:
    """One that hardly trains, to see that everything works."""
    if isinstance(baseline, NRF):
        return replace(baseline, max_iter=baseline.max_iter or 5)
    return with_epochs(baseline, 2)
