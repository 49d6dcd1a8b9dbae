"""From potentials to decisions without labels: conformal p-values, thresholds, false discoveries.

Everything rests on the potentials of *calibration rows*: normal rows the model was not trained on. A new normal row is
equally likely to have any rank among them, however good or bad the potential is; so the guarantees hold for a bad
model, too. It only finds fewer anomalies.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError

Floats = NDArray[np.float64]
CalibratedOn = Literal[
    "held-out rows",
    "training rows",
    "given rows",
    "held-out rows in sequence",
    "training rows in sequence",
    "given rows in sequence",
]
IN_SEQUENCE: dict[str, CalibratedOn] = {
    "held-out rows": "held-out rows in sequence",
    "training rows": "training rows in sequence",
    "given rows": "given rows in sequence",
}
"""Names of calibration rows that are in windows: they depend on each other, and promises are weaker."""

FALSE_ALARM_RATE = 0.05
"""The false-alarm rate if neither it nor a contamination is given."""
SMALLEST_SPLIT = 20
"""With fewer rows none is held out for calibration: the training rows serve instead."""
CALIBRATION_SHARE = 0.2
"""Share of the rows held out for calibration by default."""
ROUNDING = 1e-5
"""How far summation on another processor or runtime may move a score, in units of max(1, |score|); measured: 1.2e-6."""


def rows_needed(rate: float) -> int:
    """The smallest number of calibration rows that can keep a rate: 1/(n + 1) is the lowest p-value.

    Example:
        >>> rows_needed(0.05), rows_needed(0.01)
        (19, 99)
    """
    return max(1, math.ceil(1 / rate - 1e-9) - 1)


def lowest_rate(n_rows: int) -> float:
    """The lowest rate that so many calibration rows keep, 1/(n + 1), rounded up to two digits.

    Example:
        >>> lowest_rate(15), lowest_rate(19)
        (0.063, 0.05)
    """
    unit = 10.0 ** (1 + math.ceil(math.log10(n_rows + 1)))
    return math.ceil(unit / (n_rows + 1) - 1e-9) / unit


def rows_to_hold_out(n_rows: int, share: float | None, rate: float | None) -> int:
    """How many of a table's rows are kept for calibration.

    Args:
        n_rows: Rows of the table.
        share: Share to hold out; if None, a fifth, or as many as the rate needs if that is at most half of all.
        rate: False-alarm rate to keep, if any.

    Example:
        >>> [rows_to_hold_out(n, None, 0.05) for n in (19, 30, 60, 1000)]
        [0, 6, 19, 200]
    """
    if n_rows < SMALLEST_SPLIT:
        return 0
    if share is not None:
        return round(share * n_rows)
    needed = 0 if rate is None else rows_needed(rate)
    return max(round(CALIBRATION_SHARE * n_rows), needed if needed <= n_rows // 2 else 0)


@dataclass(frozen=True)
class ThresholdRule:
    """Where the threshold of a detector comes from.

    Example:
        >>> print(ThresholdRule("false_alarm_rate", 0.05, -1.5, 200, "held-out rows"))
        threshold -1.5: flags at most 5 % of normal rows, by 200 held-out rows
    """

    kind: Literal["false_alarm_rate", "contamination"]
    rate: float
    """Share of normal rows, or of the rows that set the threshold, that may be flagged."""
    threshold: float
    """Rows with a score below it are flagged; −∞ where the calibration rows cannot keep the rate."""
    n_calibration: int
    calibrated_on: CalibratedOn
    tolerance: float = 0.0
    """How far the threshold was put below the score it comes from, so that rounding decides nothing."""

    @property
    def given(self) -> tuple[float | None, float | None]:
        """The false-alarm rate and the contamination, of which one is None."""
        return (self.rate, None) if self.kind == "false_alarm_rate" else (None, self.rate)

    @property
    def in_sequence(self) -> bool:
        """Whether the calibration rows follow each other in time: then the rate is kept in the long run only."""
        return self.calibrated_on in IN_SEQUENCE.values()

    @property
    def flags_nothing(self) -> bool:
        """Whether there are too few calibration rows for the rate, so that no row is ever flagged."""
        return not math.isfinite(self.threshold)

    def __str__(self) -> str:
        rows = f"{self.n_calibration} {self.calibrated_on}"
        if self.kind == "contamination":
            return (
                f"threshold {self.threshold:.6g}: flags {100 * self.rate:g} % of the rows that set it (contamination)"
            )
        if self.flags_nothing:
            least = f"{100 * lowest_rate(self.n_calibration):g} % or more"
            return f"no threshold: {rows} cannot keep a false-alarm rate of {100 * self.rate:g} %, only {least}"
        if self.in_sequence:
            return (
                f"threshold {self.threshold:.6g}: flags about {100 * self.rate:g} % of normal rows, by {rows} (no "
                "guarantee: they depend on each other)"
            )
        return f"threshold {self.threshold:.6g}: flags at most {100 * self.rate:g} % of normal rows, by {rows}"

    def warn(self, stacklevel: int = 2) -> None:
        """Warn if the rate cannot be kept; every way to set a threshold calls this."""
        if self.kind == "contamination":
            return
        if self.flags_nothing:
            _warn_too_few(self.n_calibration, self.rate, "false-alarm rate", stacklevel + 1)
        elif self.calibrated_on == "training rows in sequence":
            warnings.warn(
                "the series is too short to hold out a part of it, three windows at least: the threshold is that of "
                f"training rows, and more than {100 * self.rate:g} % of new normal rows may be flagged; give more "
                "rows, a smaller window, or calibrate(X) on a series that was not trained on",
                RuntimeWarning,
                stacklevel=stacklevel + 1,
            )
        elif self.calibrated_on == "training rows":
            warnings.warn(
                f"with fewer than {SMALLEST_SPLIT} rows none is held out: the threshold is that of training rows, and "
                f"more than {100 * self.rate:g} % of new normal rows may be flagged; give more rows, or calibrate(X) "
                "on rows that were not trained on",
                RuntimeWarning,
                stacklevel=stacklevel + 1,
            )


def warn_if_too_few(n_rows: int, rate: float, stacklevel: int = 2) -> None:
    """Warn if a false discovery rate is below the lowest p-value of so many calibration rows."""
    if 1 / (n_rows + 1) > rate:
        _warn_too_few(n_rows, rate, "false discovery rate", stacklevel + 1)


def _warn_too_few(n_rows: int, rate: float, what: str, stacklevel: int) -> None:
    warnings.warn(
        f"{n_rows} calibration rows cannot keep a {what} of {rate:g}: nothing is flagged. They can keep "
        f"{lowest_rate(n_rows):g} or more; {rate:g} needs {rows_needed(rate)} of them: give more rows, a larger "
        "calibration_fraction, or a higher rate",
        RuntimeWarning,
        stacklevel=stacklevel + 1,
    )


@dataclass(frozen=True)
class Calibration:
    """Potentials of calibration rows, sorted upwards.

    Equal rows have equal potentials except for rounding, which differs with other instructions, in another runtime, or
    if values come in single precision. Scores closer than ``tolerance`` therefore count as equal, in favour of the row:
    this makes p-values larger, and the promise holds.

    Example:
        >>> normal = Calibration.of(np.arange(99.0))
        >>> normal.p_values(np.array([-1.0, 49.0, 1000.0])).tolist()
        [0.01, 0.51, 1.0]
        >>> normal.threshold(0.05)  # flags potentials below it
        4.0
    """

    scores: Floats
    tolerance: float = 0.0

    @classmethod
    def of(cls, scores: NDArray[np.floating], tolerance: float = 0.0) -> Calibration:
        """Build a calibration from the potentials of calibration rows, in any order."""
        ordered: Floats = np.sort(np.asarray(scores, dtype=np.float64).ravel())
        if len(ordered) == 0:
            raise InputError("calibration needs at least one row")
        if not np.isfinite(ordered).all():
            raise InputError("calibration rows have potentials that are not finite")
        if not 0 <= tolerance < math.inf:
            raise InputError(f"the tolerance of a calibration must be finite and not negative, got {tolerance}")
        return cls(ordered, tolerance)

    def p_values(self, scores: NDArray[np.floating]) -> Floats:
        """For each potential, the share of calibration rows, and itself, that are at or below it within the tolerance.

        For a normal row independent of the calibration rows, ``P(p ≤ α) ≤ α`` for every α. A row without a score (NaN)
        has no p-value (NaN).
        """
        below = np.searchsorted(self.scores - self.tolerance, np.asarray(scores, dtype=np.float64), side="right")
        values: Floats = np.where(np.isnan(scores), np.nan, (below + 1) / (len(self.scores) + 1))
        return values

    def threshold(self, false_alarm_rate: float) -> float:
        """The potential below which rows are flagged, so that a normal row is flagged with at most that probability.

        With n calibration rows, a rate below 1/(n + 1) is kept only by flagging nothing: then nothing is flagged.
        """
        if not 0 < false_alarm_rate < 1:
            raise InputError(f"false_alarm_rate must lie between 0 and 1, got {false_alarm_rate}")
        # p ≤ α exactly where at most k calibration rows are at or below the score, k + 1 ≤ α(n + 1).
        k = int(np.floor(false_alarm_rate * (len(self.scores) + 1) + 1e-9)) - 1
        return float(self.scores[k] - self.tolerance) if k >= 0 else -np.inf

    def ranks(self, scores: NDArray[np.floating]) -> Floats:
        """Potentials as ranks among the calibration rows, 0 to 1, interpolated linearly; beyond them by their distance.

        A potential among several that are equal within the tolerance has the mean of the ranks below and above them.
        """
        given: Floats = np.asarray(scores, dtype=np.float64)
        if self.tolerance == 0:
            return self._ranks(given)
        mean: Floats = (self._ranks(given - self.tolerance) + self._ranks(given + self.tolerance)) / 2
        return mean

    def _ranks(self, scores: Floats) -> Floats:
        n = len(self.scores)
        inside: Floats = np.interp(scores, self.scores, np.arange(1, n + 1) / (n + 1))
        spread = max(float(self.scores[-1] - self.scores[0]), 1e-12)
        low = np.minimum(scores - self.scores[0], 0.0) / spread
        high = np.maximum(scores - self.scores[-1], 0.0) / spread
        # Squeezed into what is left outside, so that order is kept and nothing leaves (0, 1).
        outside: Floats = (np.tanh(low) + np.tanh(high)) / (n + 1)
        return inside + outside


def false_discoveries(p_values: NDArray[np.floating], rate: float) -> NDArray[np.bool_]:
    """Benjamini–Hochberg: which rows of a batch to flag, so that at most that share of them is expected to be normal.

    Conformal p-values that share their calibration rows are positively dependent, and the procedure keeps its promise
    (Bates et al., "Testing for outliers with conformal p-values").

    Example:
        >>> false_discoveries(np.array([0.001, 0.9, 0.02, 0.5]), 0.1).tolist()
        [True, False, True, False]
    """
    if not 0 < rate < 1:
        raise InputError(f"the false discovery rate must lie between 0 and 1, got {rate}")
    p = np.asarray(p_values, dtype=np.float64)
    if p.size == 0:
        return np.zeros(0, dtype=bool)
    ordered = np.sort(p)
    passing = ordered <= rate * np.arange(1, len(p) + 1) / len(p)
    if not passing.any():
        return np.zeros(len(p), dtype=bool)
    return np.asarray(p <= ordered[np.flatnonzero(passing)[-1]])
