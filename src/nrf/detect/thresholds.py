"""The part of a detector that turns scores into decisions: calibration rows, the threshold and its rule, p-values."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nrf.deprecation import deprecated
from nrf.detect.calibration import FALSE_ALARM_RATE, false_discoveries, warn_if_too_few
from nrf.detect.fitted import FittedAttributes
from nrf.errors import InputError

Floats = NDArray[np.float64]


class Thresholds(FittedAttributes):
    """Decisions by the scores of calibration rows; the scores come from the detector."""

    false_alarm_rate: float | None
    contamination: float | None

    def calibrate(self, X: Any) -> Self:
        """Calibrate on these rows instead: normal rows from which nothing has learned, neither model nor feature step.

        P-values and the threshold then come from them. For a detector behind a transformer that was fitted on all rows,
        as in a pipeline, this restores the promise.
        """
        X = self._checked(X)
        self.fitted_ = self.fitted_.calibrated_on(X)
        self.fitted_.rule.warn()
        return self

    def p_values(self, X: Any) -> Floats:
        """Conformal p-values: for a normal row, the chance of a p-value of at most α is at most α."""
        X = self._checked(X)
        return self.fitted_.p_values(X)

    def predict_fdr(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Flag rows over the whole batch so that at most that share of the flagged rows is expected to be normal.

        Args:
            X: Rows.
            rate: False discovery rate.
        """
        found = false_discoveries(self.p_values(X), rate)
        warn_if_too_few(len(self.fitted_.calibrated.scores.scores), rate)
        return found

    def discoveries(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """The old name of :meth:`predict_fdr`."""
        deprecated("discoveries", "predict_fdr")
        return self.predict_fdr(X, rate)

    def set_threshold(
        self, *, false_alarm_rate: float | None = None, contamination: float | None = None, X: Any = None
    ) -> Self:
        """Set another threshold without fitting again.

        Args:
            false_alarm_rate: Flag normal rows with at most this probability.
            contamination: Flag this share of ``X``.
            X: Rows for ``contamination``.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        if (false_alarm_rate is None) == (contamination is None):
            raise InputError("give either false_alarm_rate or contamination")
        if contamination is not None and X is None:
            raise InputError("a threshold by contamination needs X, the rows of which that share is to be flagged")
        if contamination is not None and not 0 < contamination <= 0.5:
            raise InputError(f"contamination must lie in (0, 0.5], got {contamination}")
        if contamination is not None:
            self.fitted_ = self.fitted_.with_share(contamination, self._checked(X))
        elif false_alarm_rate is not None:
            self.fitted_ = self.fitted_.with_rate(false_alarm_rate)
        self.fitted_.rule.warn()
        return self

    def _false_alarm_rate(self, given: float | None) -> float | None:
        """The rate to keep, or None for a threshold by contamination."""
        rate = self.false_alarm_rate if given is None else given
        if self.contamination is not None and rate is not None:
            raise InputError("give either false_alarm_rate or contamination, not both")
        if given is not None and not 0 < given < 1:
            raise InputError(f"false_alarm_rate must lie between 0 and 1, got {given}")
        return FALSE_ALARM_RATE if rate is None and self.contamination is None else rate
