"""Detectors of scikit-learn, and two that are as short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nrf.reproduce.baselines.base import Baseline, Scores, flat

Numbers = NDArray[np.floating]

PART = 50
"""Rows whose distances to all training rows are held at a time."""


@dataclass
class IsolationForest(Baseline):
    """Rows that few random cuts set apart are abnormal."""

    n_estimators: int = 100
    """Trees."""

    module: ClassVar[str] = "sklearn.ensemble"

    def learn(self, rows: Numbers) -> None:
        from sklearn.ensemble import IsolationForest as Forest

        self.model = Forest(n_estimators=self.n_estimators, random_state=self.seed).fit(flat(rows))

    def scores(self, rows: Numbers) -> Scores:
        return np.asarray(self.model.score_samples(flat(rows)))


@dataclass
class OneClassSVM(Baseline):
    """A boundary in the space of a Gaussian kernel, of scikit-learn's width."""

    nu: float = 0.5
    """Share of training rows that may be left outside."""

    module: ClassVar[str] = "sklearn.svm"

    def learn(self, rows: Numbers) -> None:
        from sklearn.svm import OneClassSVM as Machine

        self.model = Machine(kernel="rbf", gamma="scale", nu=self.nu).fit(rows)

    def scores(self, rows: Numbers) -> Scores:
        return np.asarray(self.model.score_samples(rows))


@dataclass
class LocalOutlierFactor(Baseline):
    """How much sparser it is at a row than at its neighbours."""

    neighbours: int = 20
    """At most; fewer where there are not so many rows."""

    module: ClassVar[str] = "sklearn.neighbors"

    def learn(self, rows: Numbers) -> None:
        from sklearn.neighbors import LocalOutlierFactor as Factor

        self.model = Factor(min(self.neighbours, len(rows) - 1), novelty=True).fit(rows)

    def scores(self, rows: Numbers) -> Scores:
        return np.asarray(self.model.score_samples(rows))


@dataclass
class NearestNeighbours(Baseline):
    """Minus the distance to the nearest training row, or to one that is farther in that order."""

    place: int = 1
    """1 for the nearest."""
    distinct: bool = False
    """Whether training rows that repeat count once, which is quicker where most of them do."""
    mean: bool = False
    """The mean distance to all of them, up to that place."""

    module: ClassVar[str] = "sklearn.neighbors"

    def learn(self, rows: Numbers) -> None:
        from sklearn.neighbors import NearestNeighbors

        known = flat(rows)
        self.index = NearestNeighbors(n_neighbors=self.place).fit(np.unique(known, axis=0) if self.distinct else known)

    def scores(self, rows: Numbers) -> Scores:
        distances = self.index.kneighbors(flat(rows))[0]
        return np.asarray(-(distances.mean(1) if self.mean else distances[:, -1]))


@dataclass
class KernelDensity(Baseline):
    """scikit-learn's, with Scott's bandwidth."""

    bandwidth: str = "scott"
    """How it is chosen."""

    module: ClassVar[str] = "sklearn.neighbors"

    def learn(self, rows: Numbers) -> None:
        from sklearn.neighbors import KernelDensity as Density

        self.model = Density(bandwidth=self.bandwidth).fit(rows)

    def scores(self, rows: Numbers) -> Scores:
        return np.asarray(self.model.score_samples(rows))


@dataclass
class LikelyKernelDensity(Baseline):
    """Gaussians of the width under which held-out rows are most likely, added up as it is written."""

    widths: tuple[float, ...] = tuple(2.0 ** (i / 2) for i in range(-2, 7))
    """To choose from, as multiples of the standard deviation of all numbers."""
    choosing_rows: int = 1500
    """By how many rows, in three folds."""

    def learn(self, rows: Numbers) -> None:
        from sklearn.model_selection import KFold

        scale, some = float(rows.std()), rows[: self.choosing_rows]

        def held_out(width: float) -> float:
            folds = KFold(3).split(some)
            return float(np.mean([kernel_log_density(some[a], some[b], width * scale).mean() for a, b in folds]))

        self.rows, self.width = rows, scale * max(self.widths, key=held_out)

    def scores(self, rows: Numbers) -> Scores:
        return kernel_log_density(self.rows, rows, self.width)


def kernel_log_density(train: Numbers, rows: Numbers, width: float) -> Scores:
    """Log-density of rows under Gaussians of that width on the training rows, as it is written.

    scikit-learn's ``KernelDensity`` adds up by differences of bounds, which cancel where dimensions are many: on 116
    components of MNIST it is off by 35 nats, and so is the order of its scores.
    """
    from scipy.special import logsumexp
    from sklearn.metrics import euclidean_distances

    parts = [
        logsumexp(-euclidean_distances(part, train, squared=True) / (2 * width**2), axis=1)
        for part in np.array_split(rows.astype(np.float64), -(-len(rows) // PART))
    ]
    d = train.shape[1]
    return np.asarray(np.concatenate(parts) - np.log(len(train)) - d / 2 * np.log(2 * np.pi * width**2))
