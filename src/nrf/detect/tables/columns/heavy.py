"""Coordinates of columns with heavy tails: half the squash, half the normal score of the rank among training values.

``f(z) = (squash(z) + g(z)) / 2``, where z counts standard deviations from the mean, and g goes linearly through knots:
training values z and the normal scores of their ranks. Beyond the first and the last knot g is constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, wrightomega

from nrf.detect.tables.columns.squash import LARGEST, TAIL, squash, squash_in_place, squash_to_onnx
from nrf.detect.tables.graph import Graph
from nrf.detect.tables.values import Doubles

HEAVY = 6.0
"""A column has heavy tails if the mean of z⁴ is above this. Of a normal distribution it is 3."""
MOST_KNOTS = 256
ENDS = 8  # this many of the least and of the greatest values are always knots
NARROWEST = 1e-290  # knots closer to each other would have an infinite slope between them
LARGEST_LOG = math.log(LARGEST)


class Knots(NamedTuple):
    """Knots of g: values in standard deviations from the mean, and their normal scores."""

    values: tuple[float, ...]
    scores: tuple[float, ...]

    @classmethod
    def of(cls, z: Doubles, noise: Doubles) -> Knots | None:
        """Knots for training values.

        Args:
            z: The values, sorted.
            noise: For each value, by how much rounding may have moved it: values closer than that count as equal.

        Returns:
            At most 256 knots; None if all values are the same up to rounding.
        """
        starts = np.flatnonzero(np.r_[True, np.diff(z) > np.maximum(np.maximum(noise[1:], noise[:-1]), NARROWEST)])
        if len(starts) < 2:
            return None
        counts = np.diff(np.r_[starts, len(z)])
        values, ranks = z[starts], (np.cumsum(counts) - counts / 2 + 0.5) / (len(z) + 1)
        if len(values) > MOST_KNOTS:
            places = np.linspace(ranks[0], ranks[-1], MOST_KNOTS - 2 * ENDS)
            wanted = np.r_[ranks[:ENDS], places, ranks[-ENDS:]]
            chosen = np.unique(np.searchsorted(ranks, wanted).clip(0, len(ranks) - 1))
            values, ranks = values[chosen], ranks[chosen]
        return cls(tuple(values.tolist()), tuple(np.round(ndtri(ranks), 7).tolist()))

    def table(self) -> Doubles:
        """Values, scores, and slopes up to the next knot, as the rows of a matrix."""
        values, scores = np.array(self.values), np.array(self.scores)
        return np.stack([values, scores, np.r_[np.diff(scores) / np.diff(values), 0.0]])


# ------------------------------------------------------------------------------------------------------------- encoding


class Stacked(NamedTuple):
    """The tables of several columns side by side, each padded to a power of two for a binary search."""

    values: Doubles
    """Shape (columns, 2ᵏ); infinite where there is no knot."""
    scores: Doubles
    slopes: Doubles
    first: Doubles
    """Shape (columns, 1), like the next field."""
    last: Doubles

    @classmethod
    def of(cls, tables: Sequence[Doubles]) -> Stacked:
        """Put tables side by side."""
        width = 2 ** (max(t.shape[1] for t in tables) - 1).bit_length()
        full = np.empty((3, len(tables), width))
        full[0], full[1:] = np.inf, 0.0
        for i, table in enumerate(tables):
            full[:, i, : table.shape[1]] = table
        first, last = (np.array([[t[0, end]] for t in tables]) for end in (0, -1))
        return cls(full[0], full[1], full[2], first, last)

    @property
    def strides(self) -> list[int]:
        """The steps of the search, the longest first."""
        return [2**k for k in reversed(range((self.values.shape[1] - 1).bit_length()))]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each column begins in the flat tables, shape (columns, 1)."""
        return np.arange(0, self.values.size, self.values.shape[1])[:, None]

    def encode(self, z: Doubles) -> Doubles:
        """Outputs for z, an array with one column of the table per row; it is overwritten.

        ``np.interp`` searches with branches that processors cannot predict: it takes three times as long.
        """
        inside = np.clip(z, self.first, self.last)
        at = np.empty(z.shape, np.int32)
        at[:] = self.starts
        step, found, reached = np.empty_like(at), np.empty_like(z), np.empty(z.shape, np.bool_)
        for stride in self.strides:
            np.add(at, stride, out=step)
            np.take(self.values, step, out=found, mode="clip")  # never out of range, but without a mode it would copy
            np.less_equal(found, inside, out=reached)
            np.multiply(reached, np.int32(stride), out=step)
            np.add(at, step, out=at)
        inside -= np.take(self.values, at, out=found, mode="clip")
        inside *= np.take(self.slopes, at, out=found, mode="clip")
        inside += np.take(self.scores, at, out=found, mode="clip")
        squash_in_place(z)
        z += inside
        z *= 0.5
        return z

    def to_onnx(self, graph: Graph, z: str) -> str:
        """Add :meth:`encode` to a graph, in which columns are not transposed."""
        inside = graph.add("Max", graph.add("Min", z, graph.constant(self.last.T)), graph.constant(self.first.T))
        values, scores, slopes = (graph.constant(t.reshape(-1)) for t in (self.values, self.scores, self.slopes))
        at = graph.constant(self.starts.T)
        for stride in self.strides:
            step = graph.constant(np.array(stride, dtype=np.int64))
            reached = graph.add("GreaterOrEqual", inside, graph.add("Gather", values, graph.add("Add", at, step)))
            at = graph.add("Add", at, graph.add("Mul", graph.cast(reached, "INT64"), step))
        beyond = graph.add("Sub", inside, graph.add("Gather", values, at))
        score = graph.add(
            "Add", graph.add("Mul", beyond, graph.add("Gather", slopes, at)), graph.add("Gather", scores, at)
        )
        both = graph.add("Add", squash_to_onnx(graph, z), score)
        return graph.add("Mul", both, graph.constant(np.array(0.5)))


# ------------------------------------------------------------------------------------------------------------- decoding


class Inverse(NamedTuple):
    """The inverse. Between two breaks g is a line, and the squash is a line or, beyond ±3, a logarithm."""

    breaks: Doubles
    """The knots, and ±3."""
    sums: Doubles
    """squash + g at the breaks."""
    slopes: Doubles
    """Slopes of g before the first break, between neighbouring breaks, and after the last one."""

    @classmethod
    def of(cls, table: Doubles) -> Inverse:
        """Invert what a table of knots describes."""
        values, scores, _ = table
        breaks = np.union1d(values, [-TAIL, TAIL])
        g = np.interp(breaks, values, scores)
        return cls(breaks, squash(breaks) + g, np.r_[0.0, np.diff(g) / np.diff(breaks), 0.0])

    def decode(self, outputs: Doubles) -> Doubles:
        """The z that outputs stand for."""
        sums = 2 * outputs
        piece = np.searchsorted(self.sums, sums)
        below, above = piece <= np.searchsorted(self.breaks, -TAIL), piece > np.searchsorted(self.breaks, TAIL)
        near = piece - ~below  # the end of the piece that is closer to 0
        start, slope, rest = self.breaks[near], self.slopes[piece], sums - self.sums[near]
        z = start + rest / (1 + slope)
        far = below | above
        z[far] = np.copysign(TAIL - 1 + _tail(np.abs(start[far]) - TAIL + 1, slope[far], np.abs(rest[far])), start[far])
        return z


def _tail(start: Doubles, slope: Doubles, rest: Doubles) -> Doubles:
    """The value a at which ``log(a) + slope · a`` exceeds its value at ``start`` by ``rest``."""
    total = np.log(start) + slope * start + rest
    a = np.exp(np.minimum(total, LARGEST_LOG))
    some = slope > 0
    a[some] = wrightomega(total[some] + np.log(slope[some])) / slope[some]
    return a
