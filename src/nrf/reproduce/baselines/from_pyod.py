"""Detectors of PyOD, with PyOD's defaults unless a parameter says otherwise.

The rows they are given are standardised already. Done again, a column that was constant in training would be divided
by 1e-8; so that step is off.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nrf.reproduce.baselines.base import Baseline, Scores

Numbers = NDArray[np.floating]


@dataclass
class PyODBaseline(Baseline):
    """One of PyOD's; what has no seed there draws from the global streams, which :func:`fit_and_score` seeds."""

    class_name: ClassVar[str]

    @abstractmethod
    def parameters(self, rows: Numbers) -> dict[str, Any]:
        """Of PyOD's class."""

    def learn(self, rows: Numbers) -> None:
        kind = getattr(importlib.import_module(self.module), self.class_name)
        self.model = kind(**self.parameters(rows)).fit(rows)

    def scores(self, rows: Numbers) -> Scores:
        return -np.asarray(self.model.decision_function(rows), dtype=np.float64)


@dataclass
class RowsDeepSVDD(PyODBaseline):
    """Deep SVDD of rows; that of images is :class:`nrf.reproduce.baselines.DeepSVDD`."""

    epochs: int = 100

    module: ClassVar[str] = "pyod.models.deep_svdd"
    class_name: ClassVar[str] = "DeepSVDD"

    def parameters(self, rows: Numbers) -> dict[str, Any]:
        common = {"random_state": self.seed, "preprocessing": False, "verbose": 0}
        return {"n_features": rows.shape[1], "epochs": self.epochs, **common}


@dataclass
class RowsAutoencoder(PyODBaseline):
    """An autoencoder of rows."""

    epochs: int = 10

    module: ClassVar[str] = "pyod.models.auto_encoder"
    class_name: ClassVar[str] = "AutoEncoder"

    def parameters(self, rows: Numbers) -> dict[str, Any]:
        return {"epoch_num": self.epochs, "random_state": self.seed, "preprocessing": False, "verbose": 0}


@dataclass
class PyODALAD(PyODBaseline):
    """PyOD's ALAD, which keeps its dropout on while it scores, and fails; that of `alad.py` works."""

    epochs: int = 200
    batch_size: int = 32
    latent_dim: int = 2
    dropout_rate: float = 0.2

    FORMER_NAMES: ClassVar[tuple[str, ...]] = ("ALAD",)
    module: ClassVar[str] = "pyod.models.alad"
    class_name: ClassVar[str] = "ALAD"

    def parameters(self, rows: Numbers) -> dict[str, Any]:
        names = ("epochs", "batch_size", "latent_dim", "dropout_rate")
        return {name: getattr(self, name) for name in names}


@dataclass
class LUNAR(PyODBaseline):
    """A network of the distances to the five nearest rows, trained to tell rows from negative samples around them."""

    epochs: int = 200

    module: ClassVar[str] = "pyod.models.lunar"
    class_name: ClassVar[str] = "LUNAR"

    def parameters(self, rows: Numbers) -> dict[str, Any]:
        return {"n_epochs": self.epochs, "random_state": self.seed}


@dataclass
class ECOD(PyODBaseline):
    """How far out a row lies in each column; it ranks among training and test rows together."""

    module: ClassVar[str] = "pyod.models.ecod"
    class_name: ClassVar[str] = "ECOD"

    def parameters(self, rows: Numbers) -> dict[str, Any]:
        return {}
