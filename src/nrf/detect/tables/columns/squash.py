"""The squash: it compresses numbers, in scales from the median, into a range that a network can take."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.graph import Graph
from nrf.detect.tables.values import Doubles, Floats

TAIL = 3.0  # where the squash leaves the straight line, in scales from the median
LARGEST = float(np.finfo(np.float64).max)


def squash(z: npt.ArrayLike, tail: float = TAIL) -> Doubles:
    """The identity up to ±3 (or ±``tail``), logarithmic beyond: smooth, monotone, and finite for all floats.

    Example:
        >>> squash([-1.0, 3.0, 1e6]).round(2).tolist()
        [-1.0, 3.0, 16.82]
    """
    out = np.array(z, dtype=np.float64, order="C")
    squash_in_place(out, tail)
    return out


def squash_in_place(z: Floats, tail: float = TAIL) -> None:
    """:func:`squash` for a contiguous array, which is overwritten. Logarithms are taken in the tails only."""
    flat = z.reshape(-1)
    far = np.flatnonzero(np.abs(flat) > tail)
    if far.size:
        beyond = flat[far].astype(np.float64)
        flat[far] = np.copysign(tail + np.log1p(np.minimum(np.abs(beyond), LARGEST) - tail), beyond)


def squash_to_onnx(graph: Graph, z: str, tail: float = TAIL) -> str:
    """Add the squash of doubles to a graph."""
    # For |z| > 3 it is 3 + log1p(|z| − 3) = 3 + log(|z| − 2). Where computes both of its branches, hence the Max.
    end = graph.constant(np.array(tail))
    size = graph.add("Abs", z)
    bounded = graph.add("Max", graph.add("Min", size, graph.constant(np.array(LARGEST))), end)
    log = graph.add("Log", graph.add("Sub", bounded, graph.constant(np.array(tail - 1))))
    far = graph.add("Mul", graph.add("Sign", z), graph.add("Add", log, end))
    return graph.add("Where", graph.add("Greater", size, end), far, z)


def unsquash(y: float, tail: float = TAIL) -> float:
    """The inverse of :func:`squash`; it stays within the range of a float.

    Example:
        >>> round(unsquash(float(squash(1234.5))), 6)
        1234.5
    """
    if abs(y) <= tail:
        return float(y)
    return math.copysign(tail + math.expm1(min(abs(y) - tail, 709.78)), y)
