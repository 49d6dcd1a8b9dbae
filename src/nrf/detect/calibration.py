"""From potentials to decisions without labels: conformal p-values, thresholds, false discoveries.

Everything rests on the potentials of *calibration rows*: normal rows the model was not trained on. A new normal row is
as likely to rank anywhere among them, whatever the potential is worth; so the guarantees hold for a bad model, too. It
only finds less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Potentials of calibration rows, sorted upwards.

    Example:
        >>> normal = Calibration.of(np.arange(99.0))
        >>> normal.p_values(np.array([-1.0, 49.0, 1000.0])).tolist()
        [0.01, 0.51, 1.0]
        >>> normal.threshold(0.05)  # flags potentials below it
        4.0
    """

    scores: Floats

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> Calibration:
        """From the potentials of calibration rows in any order."""
        ordered: Floats = np.sort(np.asarray(scores, dtype=np.float64).ravel())
        if len(ordered) == 0:
            raise InputError("calibration needs at least one row")
        if not np.isfinite(ordered).all():
            raise InputError("calibration rows have potentials that are not finite")
        return cls(ordered)

    def p_values(self, scores: NDArray[np.floating]) -> Floats:
        """For each potential, the share of calibration rows at or below it, the row itself counted in.

        For a normal row independent of the calibration rows, ``P(p ≤ α) ≤ α`` for every α.
        """
        below = np.searchsorted(self.scores, np.asarray(scores, dtype=np.float64), side="right")
        values: Floats = (below + 1) / (len(self.scores) + 1)
        return values

    def threshold(self, false_alarm_rate: float) -> float:
        """The potential below which rows are flagged, so that a normal row is flagged with at most that probability.

        With n calibration rows no rate below 1/(n + 1) can be kept by flagging anything: then nothing is.
        """
        if not 0 < false_alarm_rate < 1:
            raise InputError(f"false_alarm_rate must lie between 0 and 1, got {false_alarm_rate}")
        # p ≤ α exactly where at most k calibration rows are at or below the score, k + 1 ≤ α(n + 1).
        k = int(np.floor(false_alarm_rate * (len(self.scores) + 1) + 1e-9)) - 1
        return float(self.scores[k]) if k >= 0 else -np.inf

    def ranks(self, scores: NDArray[np.floating]) -> Floats:
        """Potentials as ranks among the calibration rows, 0 to 1, linear in between; beyond them by their distance."""
        scores = np.asarray(scores, dtype=np.float64)
        n = len(self.scores)
        inside: Floats = np.interp(scores, self.scores, np.arange(1, n + 1) / (n + 1))
        spread = max(float(self.scores[-1] - self.scores[0]), 1e-12)
        low = np.minimum(scores - self.scores[0], 0.0) / spread
        high = np.maximum(scores - self.scores[-1], 0.0) / spread
        # Squeezed into what is left outside, so that order is kept and nothing leaves (0, 1).
        outside: Floats = (np.tanh(low) + np.tanh(high)) / (n + 1)
        return inside + outside


def false_discoveries(p_values: NDArray[np.floating], rate: float) -> NDArray[np.bool_]:
    """Benjamini–Hochberg: the rows of a batch to flag so that of those at most that share is expected to be normal.

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
