"""The detector under PyOD's conventions: high = abnormal, a threshold by the share of anomalies in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from nrf.detect.detector import Field, NRFDetector
from nrf.detect.old_names import OldNames, takes_old_names
from nrf.detect.settings import Training
from nrf.detect.tables.columns import Scaling
from nrf.errors import needs
from nrf.models import LatentGenerator

with needs("pyod", "nrf.detect.pyod"):
    from pyod.models.base import BaseDetector  # type: ignore[import-untyped]

Floats = NDArray[np.float64]


class NRF(OldNames, BaseDetector):  # type: ignore[misc]
    """:class:`nrf.detect.NRFDetector` as a PyOD detector.

    ``predict``, ``predict_proba``, ``fit_predict`` and the rest are PyOD's own. Once fitted, ``decision_scores_``,
    ``threshold_`` and ``labels_`` are those of the training rows, and ``detector_`` is the model itself, with its
    calibrated p-values and explanations.

    Args:
        contamination: Share of anomalies among the training rows, in (0, 0.5]; it sets the threshold, not the model.
        random_state: Seed, or a numpy ``RandomState``.
        n_estimators: Models trained at once. This and all that follow: see :class:`nrf.detect.NRFDetector`.
        combine: Mean of the models' potentials, or of their ranks.
        calibration_fraction: Share of the rows that are not trained on but kept for ``detector_``'s p-values.
        field: Which field scores.
        max_iter: Iterations of training.
        training: Everything else about training: a :class:`nrf.detect.Training`. In ``set_params`` its single settings
            are ``training__sigma`` and the like.
        potential: A module of your own in place of the default one.
        generator: A generator of your own.
        max_levels: Categorical columns with more levels are hashed.
        categorical: Columns, by name or place, whose values are levels whatever they look like.
        keep: Columns to keep though they look like identifiers.
        scaling: Units of numbers: ``auto``, ``quartiles`` or ``deviation``, see :class:`nrf.detect.NRFDetector`.
        keep_examples: ``detector_.save`` stores the calibration rows, too.
        device: Where to compute.
        verbose: Progress: None shows it on a terminal, 1 everywhere, 0 nowhere.

    Attributes:
        detector_: The fitted :class:`nrf.detect.NRFDetector`.
        decision_scores_: Scores of the training rows: high = abnormal.
        threshold_: Rows with a higher score are outliers.
        labels_: 1 for training rows that are outliers, 0 for the others.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> detector = NRF(contamination=0.05, random_state=0).fit(X)
        >>> detector.predict(np.array([[0.1, 0.2], [9.0, -9.0]])).tolist(), int(detector.labels_.sum())
        ([0, 1], 10)
    """

    @takes_old_names
    def __init__(
        self,
        contamination: float = 0.1,
        random_state: int | np.random.RandomState | None = None,
        *,
        n_estimators: int = 1,
        combine: Literal["potential", "rank"] = "potential",
        calibration_fraction: float | None = None,
        field: Field = "auto",
        max_iter: int | None = None,
        training: Training | None = None,
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
        max_levels: int = 64,
        categorical: Sequence[str | int] | None = None,
        keep: Sequence[str | int] | None = None,
        scaling: Scaling = "auto",
        keep_examples: bool = False,
        device: str = "cpu",
        verbose: int | None = None,
    ) -> None:
        super().__init__(contamination=contamination)
        self.random_state = random_state
        self.n_estimators = n_estimators
        self.combine = combine
        self.calibration_fraction = calibration_fraction
        self.field: Field = field
        self.max_iter = max_iter
        self.training = training
        self.potential = potential
        self.generator = generator
        self.max_levels = max_levels
        self.categorical = categorical
        self.keep = keep
        self.scaling = scaling
        self.keep_examples = keep_examples
        self.device = device
        self.verbose = verbose

    detector_: NRFDetector

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what most rows are like; set ``decision_scores_``, ``threshold_`` and ``labels_``.

        Args:
            X: Rows: an array or a table.
            y: Ignored.
        """
        self._set_n_classes(None)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "contamination"}
        self.detector_ = NRFDetector(**settings).fit(X)
        self.decision_scores_ = self.decision_function(X)
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> Floats:
        """Minus the potential of each row: high = abnormal."""
        check_is_fitted(self, ["detector_"])
        return -self.detector_.score_samples(X)
