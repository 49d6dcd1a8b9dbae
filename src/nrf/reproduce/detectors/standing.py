"""Places of methods on data sets."""

from __future__ import annotations

import numpy as np

from nrf.reproduce.detectors.sets import Floats

RANK = "mean rank"


def ranks(scores: Floats) -> Floats:
    """Ranks in each line of ``(data sets, methods)``: 1 for the highest score; those that are level share the mean.

    Example:
        >>> ranks(np.array([[0.9, 1.0, 0.9, 0.5]])).tolist()
        [[2.5, 1.0, 2.5, 4.0]]
    """
    from scipy.stats import rankdata

    return np.asarray(rankdata(-np.round(scores, 9), method="average", axis=1), dtype=np.float64)
