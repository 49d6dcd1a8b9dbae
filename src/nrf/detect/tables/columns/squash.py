"""The squash: numbers in scales from the median, brought into a range that a network can take."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.values import Doubles, Floats

TAIL = 3.0  # where the squash leaves the straight line, in scales from the median
LARGEST = float(np.finfo(np.float64).max)


def squash(z: npt.ArrayLike) -> Doubles:
    """The identity up to ±3, from there logarithmic: smooth, monotone, and finite for whatever is given.

    Example:
        >>> squash([-1.0, 3.0, 1e6]).round(2).tolist()
        [-1.0, 3.0, 16.82]
    """
    out = np.array(z, dtype=np.float64, order="C")
    squash_in_place(out)
    return out


def squash_in_place(z: Floats) -> None:
    """:func:`squash` for a contiguous array, which is overwritten. Logarithms are taken in the tails only."""
    flat = z.reshape(-1)
    far = np.flatnonzero(np.abs(flat) > TAIL)
    if far.size:
        tail = flat[far].astype(np.float64)
        flat[far] = np.copysign(TAIL + np.log1p(np.minimum(np.abs(tail), LARGEST) - TAIL), tail)


def unsquash(y: float) -> float:
    """The inverse of :func:`squash`; it stays within the range of a float.

    Example:
        >>> round(unsquash(float(squash(1234.5))), 6)
        1234.5
    """
    if abs(y) <= TAIL:
        return float(y)
    return math.copysign(TAIL + math.expm1(min(abs(y) - TAIL, 709.78)), y)
