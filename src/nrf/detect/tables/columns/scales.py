"""Units of numbers and times, as learned from training values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nrf.detect.tables.columns.base import Scaling
from nrf.detect.tables.columns.heavy import HEAVY, Knots
from nrf.detect.tables.columns.squash import LARGEST
from nrf.detect.tables.values import Doubles

IQR_OF_NORMAL = 1.349  # interquartile range of a standard normal
NOISE = 4 * float(np.finfo(np.float64).eps)  # a range this small, relative to its ends, is due to rounding errors
LARGEST_Z = 1e100
"""No training value is this many standard deviations from the mean, unless the distance overflows."""


class Scales(NamedTuple):
    """Fields of a :class:`~nrf.detect.tables.columns.scaled.ScaledColumn`."""

    median: float
    scale: float
    mean: float | None = None
    knots: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()


def find_scales(seen: Doubles, low: float, high: float, scaling: Scaling) -> Scales:
    """The centre of training values, the scale that distances from it are divided by, and knots if tails are heavy.

    Args:
        seen: The values, finite.
        low: The least of them.
        high: The greatest of them.
        scaling: See :data:`~nrf.detect.tables.columns.base.Scaling`.
    """
    if low == high:  # all given values are equal: only the missing flag differs
        return Scales(low, 1.0, low if scaling == "auto" else None)
    # Numbers near the end of the range of floats are first divided by a power of two: their differences would overflow.
    unit = 2.0**-4 if max(-low, high) > LARGEST / 16 else 1.0
    first, median, third = _quartiles(seen * unit)
    scale = (third - first) / IQR_OF_NORMAL
    if scaling == "quartiles" and scale > max(NOISE * max(abs(first), abs(third)), 1e-290):
        return Scales(median / unit, min(scale / unit, LARGEST))
    # Relative to the greatest distance, so that squares neither overflow nor vanish.
    reach = max(high * unit - median, median - low * unit)
    distances = (seen * unit - median) / reach
    deviation = float(np.std(distances))
    found = Scales(median / unit, min((reach * deviation or reach) / unit, LARGEST))
    if scaling != "auto":
        return found
    shift = float(np.mean(distances))
    found = found._replace(mean=min(max((median + reach * shift) / unit, low), high))
    if float(np.mean(((distances - shift) / deviation) ** 4)) > HEAVY:
        found = _with_knots(found, np.sort(seen))
    return found


def _with_knots(found: Scales, ordered: Doubles) -> Scales:
    assert found.mean is not None
    with np.errstate(over="ignore"):
        z = np.clip((ordered - found.mean) / found.scale, -LARGEST_Z, LARGEST_Z)
        knots = Knots.of(z, np.minimum(NOISE * (np.abs(ordered) / found.scale), LARGEST_Z))
    return found if knots is None else found._replace(knots=knots.values, scores=knots.scores)


def _quartiles(values: Doubles) -> tuple[float, float, float]:
    """What ``np.percentile`` gives for 25, 50 and 75, in a tenth of its time where there are many short columns."""
    last = len(values) - 1
    places = [share * last for share in (0.25, 0.5, 0.75)]
    ends = [(int(p), min(int(p) + 1, last)) for p in places]
    ordered = np.partition(values, sorted({i for pair in ends for i in pair}))

    def between(place: float, low: int, high: int) -> float:
        a, b, part = float(ordered[low]), float(ordered[high]), place - low
        return a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)

    first, median, third = (between(p, *pair) for p, pair in zip(places, ends, strict=True))
    return first, median, third
