"""What all compared detectors have in common: rows in, scores out, high = normal."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nrf.errors import needs

Rows = Any
"""An array of numbers, rows or images; for a few also a table."""
Scores = NDArray[np.floating]


@dataclass
class Baseline(ABC):
    """A detector with its parameters. It learns from normal rows and gives one number per row, high = normal."""

    seed: int = 0
    """Of whatever it draws."""
    max_rows: int | None = None
    """Learn from so many rows drawn at random, where the cost of more would be too high."""
    kept_variance: float | None = None
    """Work on the principal components that keep this share of the variance."""

    module: ClassVar[str] = "sklearn"
    """What it is made of."""
    takes_tables: ClassVar[bool] = False
    """Whether it takes tables with strings and gaps; the others take numbers."""

    @abstractmethod
    def learn(self, rows: Rows) -> None:
        """From normal rows, as :meth:`seen` makes them."""

    @abstractmethod
    def scores(self, rows: Rows) -> Scores:
        """One number a row, high = normal."""

    def fit(self, rows: Rows) -> Self:
        """Learn from normal rows."""
        if self.max_rows is not None:
            rows = rows[np.random.default_rng(self.seed).permutation(len(rows))[: self.max_rows]]
        if self.kept_variance is not None:
            from sklearn.decomposition import PCA

            self.components = PCA(self.kept_variance, random_state=0).fit(flat(rows))
        self.learn(self.seen(rows))
        return self

    def score_samples(self, rows: Rows) -> Scores:
        """One number a row, high = normal."""
        return self.scores(self.seen(rows))

    def seen(self, rows: Rows) -> Rows:
        """What the detector is given of rows."""
        return rows if self.kept_variance is None else self.components.transform(flat(rows))

    @classmethod
    def require(cls) -> None:
        """An error that says what to install, if its library is not there."""
        with needs("reproduce", cls.module):
            importlib.import_module(cls.module)


def flat(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Images as rows of numbers; rows as they are."""
    return rows.reshape(len(rows), -1)
