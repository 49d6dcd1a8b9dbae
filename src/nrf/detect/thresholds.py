"""The part of a detector that turns scores into decisions: calibration rows, the threshold and its rule, p-values."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from nrf.detect.calibration import (
    FALSE_ALARM_RATE,
    SMALLEST_SPLIT,
    CalibratedOn,
    Calibration,
    ThresholdRule,
    false_discoveries,
    warn_if_too_few,
)
from nrf.detect.replicas import Replicas
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

Floats = NDArray[np.float64]


class Thresholds:
    """Decisions by the scores of calibration rows; scores themselves come from the detector."""

    combine: str
    encoder_: Schema | None
    false_alarm_rate: float | None
    contamination: float | None
    members_: Replicas
    calibration_: Calibration
    calibrated_on_: CalibratedOn
    threshold_rule_: ThresholdRule
    offset_: float
    _calibration_rows: Tensor | None
    """None in a detector that was saved without them."""
    _member_calibrations: list[Calibration]

    @abstractmethod
    def score_samples(self, X: Any) -> Floats:
        """The score of each row: high = normal."""

    @abstractmethod
    def _encode(self, X: Any) -> Tensor: ...

    @abstractmethod
    def _combined(self, potentials: Tensor) -> Floats: ...

    def calibrate(self, X: Any) -> Self:
        """Calibrate on these rows instead: normal ones that nothing has learned from, neither model nor feature step.

        P-values and the threshold are then kept by them. For a detector behind a transformer that was fitted on all
        rows, as in a pipeline, this makes the promise good.
        """
        check_is_fitted(self)
        self._calibrate(self._encode(X), "given rows")
        if self.threshold_rule_.kind == "false_alarm_rate":
            self._set_rule(self.threshold_rule_.rate, None, None)
            self.threshold_rule_.warn()
        return self

    def p_values(self, X: Any) -> Floats:
        """Conformal p-values: for a normal row the chance of one at most α is at most α."""
        scores = self.score_samples(X)
        return self.calibration_.p_values(scores)

    def discoveries(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Rows to look at, chosen over the whole batch so that at most that share of them is expected to be normal."""
        found = false_discoveries(self.p_values(X), rate)
        warn_if_too_few(len(self.calibration_.scores), rate)
        return found

    def set_threshold(
        self, *, false_alarm_rate: float | None = None, contamination: float | None = None, X: Any = None
    ) -> Self:
        """Another threshold without another fit.

        Args:
            false_alarm_rate: Flag normal rows with at most this probability.
            contamination: Flag this share of ``X``.
            X: Rows for ``contamination``.
        """
        check_is_fitted(self)
        if (false_alarm_rate is None) == (contamination is None):
            raise InputError("give either false_alarm_rate or contamination")
        if contamination is not None and X is None:
            raise InputError("a threshold by contamination needs X, the rows of which that share is to be flagged")
        if contamination is not None and not 0 < contamination <= 0.5:
            raise InputError(f"contamination must lie in (0, 0.5], got {contamination}")
        self._set_rule(false_alarm_rate, contamination, X)
        self.threshold_rule_.warn()
        return self

    def _set_rule(self, false_alarm_rate: float | None, contamination: float | None, X: Any) -> None:
        """The one place where a threshold is set."""
        n, rows_are, tolerance = len(self.calibration_.scores), self.calibrated_on_, self.calibration_.tolerance
        if false_alarm_rate is not None:
            threshold = self.calibration_.threshold(false_alarm_rate)
            rule = ThresholdRule("false_alarm_rate", float(false_alarm_rate), threshold, n, rows_are, tolerance)
        else:
            assert contamination is not None
            threshold = float(np.percentile(self.score_samples(X), 100 * contamination)) - tolerance
            rule = ThresholdRule("contamination", float(contamination), threshold, n, rows_are, tolerance)
        self.threshold_rule_, self.offset_ = rule, threshold

    def _false_alarm_rate(self, given: float | None) -> float | None:
        """The rate to keep, or None for a threshold by contamination."""
        rate = self.false_alarm_rate if given is None else given
        if self.contamination is not None and rate is not None:
            raise InputError("give either false_alarm_rate or contamination, not both")
        if given is not None and not 0 < given < 1:
            raise InputError(f"false_alarm_rate must lie between 0 and 1, got {given}")
        return FALSE_ALARM_RATE if rate is None and self.contamination is None else rate

    def _calibration_part(self, held: Tensor, learned: Tensor, *, add: bool) -> tuple[Tensor, CalibratedOn]:
        """Rows to calibrate on: held-out ones, with those of earlier calls; training rows only where there are none."""
        if not add:
            return (held, "held-out rows") if len(held) else (learned, "training rows")
        before = self._calibration_rows
        if not len(held):
            if before is None:
                raise InputError(
                    f"with fewer than {SMALLEST_SPLIT} rows none is held out, and this detector was saved without its "
                    "calibration rows: nothing is left to calibrate on. Give more rows, or fit it with "
                    "keep_examples=True before it is saved"
                )
            return before, self.calibrated_on_
        if before is not None and self.calibrated_on_ != "training rows":
            held = torch.cat([before, held])
        return held, "held-out rows"

    def _calibrate(self, rows: Tensor, rows_are: CalibratedOn) -> None:
        """Take the scores of these encoded rows as those of normal ones."""
        self._calibration_rows, self.calibrated_on_ = rows, rows_are
        values = self.members_.potentials(rows)
        sizes = 1.0 if self.encoder_ is None else torch.from_numpy(self.encoder_.sizes()).to(rows)
        tolerance = self.members_.tolerance(rows, values, sizes)
        self._member_calibrations = [Calibration.of(u.cpu().numpy(), tolerance) for u in values]
        scores = self._combined(values)
        if self.combine == "rank":  # what half of it, up or down, changes
            moved = [self._combined(values + part * tolerance) - scores for part in (-0.5, 0.5)]
            tolerance = float(np.abs(moved).max())
        self.calibration_ = Calibration.of(scores, tolerance)
