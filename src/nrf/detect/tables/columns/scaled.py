"""What columns of numbers and times have in common: a centre, a scale, and a compression of values far out."""

from __future__ import annotations

import datetime as dt
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.columns.base import JITTER, Column, NewValues, Placed, Values, never_missing
from nrf.detect.tables.columns.heavy import MOST_KNOTS, Inverse, Knots, Stacked
from nrf.detect.tables.columns.squash import LARGEST, TAIL, squash, squash_in_place, squash_to_onnx, unsquash
from nrf.detect.tables.graph import Graph
from nrf.detect.tables.values import BLOCK, Array, Doubles, Singles
from nrf.errors import InputError

BOUND = 30.0
"""Outputs that are not squashed earlier grow logarithmically beyond this."""
MOST_PIECES = 0.9
"""Slopes between knots are judged by this quantile: a few of them are large by chance."""
LARGEST_SIZE = 1000.0
"""Numbers farther from 0 than this many of their scales need doubles: single precision would lose too much of them."""


@dataclass(frozen=True)
class ScaledColumn(Column):
    """What numbers and times have in common: one output, and a flag if training values were missing.

    With a mean the output is ``z = (x − mean) / scale``, in columns with heavy tails the ``f(z)`` of
    :mod:`~nrf.detect.tables.columns.heavy`, either logarithmic beyond ±30. Without a mean it is
    ``squash((x − median) / scale)``.
    """

    name: str
    median: float
    scale: float
    """Standard deviation. Without a mean: interquartile range over 1.349, or the standard deviation where that range is
    0 up to rounding; for numbers with two values, the distance between them."""
    has_missing: bool
    low: float
    """Least training value."""
    high: float
    """Greatest training value."""
    mean: float | None = field(default=None, kw_only=True)
    """Mean of the training values; None in records of scalings other than "auto"."""
    knots: tuple[float, ...] = field(default=(), kw_only=True)
    """For a column with heavy tails: some training values, in scales from the mean."""
    scores: tuple[float, ...] = field(default=(), kw_only=True)
    """The normal scores of their ranks."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.median, self.scale, self.centre, self.low, self.high))) or self.scale <= 0:
            raise InputError(f"column {self.name!r} needs finite numbers and a positive scale; fit the encoder again")
        if self.low > self.high:
            raise InputError(f"column {self.name!r} has its least value above its greatest; fit the encoder again")
        if (self.knots or self.scores) and not self._has_good_knots:
            raise InputError(
                f"column {self.name!r} needs a mean and 2 to {MOST_KNOTS} finite knots in ascending order, and a score "
                "for each; fit the encoder again"
            )

    @property
    def _has_good_knots(self) -> bool:
        if self.mean is None or not 2 <= len(self.knots) <= MOST_KNOTS or len(self.knots) != len(self.scores):
            return False
        with np.errstate(all="ignore"):
            values, _, slopes = self.table
        return bool((np.diff(values) > 0).all() and (slopes >= 0).all() and np.isfinite(self.table).all())

    @property
    def centre(self) -> float:
        """The value that is subtracted from numbers."""
        return self.median if self.mean is None else self.mean

    @property
    def middle(self) -> float:
        """The value that stands for missing values."""
        return self.median if self.knots else self.centre

    @cached_property
    def table(self) -> Doubles:
        """Knots, scores, and slopes between them; for columns that have knots."""
        return Knots(self.knots, self.scores).table()

    @cached_property
    def _inverse(self) -> Inverse:
        return Inverse.of(self.table)

    @property
    def two_valued(self) -> bool:
        """Whether the column took two values in training; without a mean, no other scale is as wide as the range."""
        return self.mean is None and self.high > self.low and self.scale == self.high - self.low

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (self.name, f"{self.name} (missing)") if self.has_missing else (self.name,)

    @property
    def jitter(self) -> tuple[float, ...]:
        """No noise for numbers of more than two values: they have a density."""
        return (JITTER if self.two_valued else 0.0, *super().jitter[1:])

    @property
    def sizes(self) -> tuple[float, ...]:
        """How far from 0 the numbers are, in scales."""
        size = TAIL + abs(self.centre) / self.scale
        if self.knots:
            with np.errstate(over="ignore"):
                size = max(TAIL, float(np.quantile(self._gains * self._ends / self.scale, MOST_PIECES)))
        return (min(size, LARGEST_SIZE), *super().sizes[1:])

    @property
    def _gains(self) -> Doubles:
        """The slope of the output in z between neighbouring knots."""
        return (1 + self.table[2, :-1]) / 2

    @property
    def _ends(self) -> Doubles:
        """For each of these pieces, the end that is farther from 0, as a number of the table."""
        x = np.abs(np.clip(self.centre + self.scale * self.table[0], self.low, self.high))
        return np.asarray(np.maximum(x[1:], x[:-1]))

    @property
    @abstractmethod
    def needs_double(self) -> bool:
        """Whether floats of 32 bits would move the column's values by more than the scores of a graph may differ."""

    @abstractmethod
    def rounded(self, value: float) -> float:
        """The number in the form of the training values."""

    @abstractmethod
    def shown(self, value: float, zone: dt.tzinfo | None) -> str:
        """A number as text."""

    # -------------------------------------------------------------------------------------------------------- encoding

    def encode(self, values: Array, out: Singles, unexpected: Singles) -> None:
        """Encode one column by itself."""
        _scale([self], np.array([0]), lambda rows: values[rows, None], out, unexpected)

    @classmethod
    def encode_all(cls, columns: Sequence[Placed[Self]], values: Values, out: Singles) -> None:
        """Encode many columns as one matrix."""
        _scale([c.column for c in columns], np.array([c.start for c in columns]), values.rows, out, out[:, -1])

    @classmethod
    def to_onnx(cls, graph: Graph, columns: Sequence[Placed[Self]]) -> None:
        """Scale, and compress values far out, in doubles up to the end, as the encoder does it."""
        scaled = [c.column for c in columns]
        x = graph.doubles([(c.column.name, c.place, "DOUBLE" if c.column.needs_double else "FLOAT") for c in columns])
        found = np.array([[c.middle, c.centre, c.scale] for c in scaled])
        middles, centres, scales = (graph.constant(row[None]) for row in found.T)
        missing = graph.add("IsNaN", x)
        z = graph.add("Div", graph.add("Sub", graph.add("Where", missing, middles, x), centres), scales)
        squashed = [i for i, c in enumerate(scaled) if c.mean is None]
        heavy = [i for i, c in enumerate(scaled) if c.knots]
        others = sorted({*range(len(scaled))} - {*squashed, *heavy})
        for places in filter(None, (squashed, heavy, others)):
            values = z if len(places) == len(scaled) else graph.taken(z, places)
            if places is squashed:
                values = squash_to_onnx(graph, values)
            else:
                if places is heavy:
                    values = Stacked.of([scaled[i].table for i in heavy]).to_onnx(graph, values)
                values = squash_to_onnx(graph, values, BOUND)
            graph.emit(graph.cast(values, "FLOAT"), [columns[i].start for i in places])
        graph.emit_flags(missing, [c.start + 1 if c.column.has_missing else None for c in columns])

    # -------------------------------------------------------------------------------------------------------- decoding

    def number(self, outputs: Sequence[float]) -> float | None:
        """The number behind the outputs, or ``None`` if they are flagged as missing."""
        return None if self.has_missing and outputs[1] > 0.5 else self.decoded(outputs[0])

    def numbers(self, rows: Sequence[Sequence[float]]) -> list[float | None]:
        """:meth:`number` for many rows."""
        if not self.knots or not rows:
            return [self.number(outputs) for outputs in rows]
        outputs = np.array(rows, dtype=np.float64)
        found: list[float | None] = self._decoded(outputs[:, 0]).tolist()
        flagged = outputs[:, 1] > 0.5 if self.has_missing else np.zeros(len(rows), np.bool_)
        return [None if is_missing else value for value, is_missing in zip(found, flagged, strict=True)]

    def decoded(self, output: float) -> float:
        """The number behind the first output."""
        if self.knots:
            return float(self._decoded(np.array([output], dtype=np.float64))[0])
        z = unsquash(output, TAIL if self.mean is None else BOUND)
        return min(max(self.centre + self.scale * z, -LARGEST), LARGEST)

    def _decoded(self, outputs: Doubles) -> Doubles:
        far = np.abs(outputs) > BOUND
        if far.any():
            outputs = outputs.copy()
            outputs[far] = [unsquash(output, BOUND) for output in outputs[far]]
        with np.errstate(over="ignore"):
            return np.clip(self.centre + self.scale * self._inverse.decode(outputs), -LARGEST, LARGEST)

    def encoded(self, value: float) -> float:
        """The output for a number."""
        z = (value - self.centre) / self.scale
        if self.mean is None:
            return float(squash(z))
        if self.knots:
            z = float(squash(z) + np.interp(z, *self.table[:2])) / 2
        return float(squash(z, BOUND))

    def snap(self, outputs: Sequence[float]) -> list[float]:
        """The outputs of the rounded number, or of a missing value."""
        if self.has_missing and outputs[1] > 0.5:
            return [self.encoded(self.middle), 1.0]
        return [self.encoded(self.rounded(self.decoded(outputs[0]))), *[0.0] * self.has_missing]

    def new_values(self, values: Array, zone: dt.tzinfo | None) -> Iterator[NewValues]:
        """Values outside the range at fit, and missing ones where there were none."""
        if not self.has_missing:
            yield never_missing(np.isnan(values))
        low, high = (self.shown(value, zone) for value in (self.low, self.high))
        span = f"the range at fit, {low} to {high}"
        yield NewValues(values < self.low, f"below {span}", False)
        yield NewValues(values > self.high, f"above {span}", False)


def _scale(
    columns: Sequence[ScaledColumn],
    starts: npt.NDArray[np.intp],
    block: Callable[[slice], Array],
    out: Singles,
    unexpected: Singles,
) -> None:
    """Fill the outputs of scaled columns, block by block, so that little memory is needed on top.

    Numbers given in single precision are scaled in it: that takes half the memory, and their values are no more
    precise.
    """
    centres, scales = np.array([c.centre for c in columns]), np.array([c.scale for c in columns])
    flagged, squashed = np.array([(c.has_missing, c.mean is None) for c in columns]).T
    heavy = [i for i, c in enumerate(columns) if c.knots]
    curves = Stacked.of([columns[i].table for i in heavy]) if heavy else None
    middles = (np.array([c.middle for c in columns]) - centres) / scales
    target = slice(0, len(columns)) if starts[-1] == len(columns) - 1 else starts
    n_rows = max(1, BLOCK // len(columns))
    rest = np.zeros(1)
    if curves is None and block(slice(0, 0)).dtype == np.float32 and _fit_single_precision(centres, scales):
        exact, centres, scales = centres, centres.astype(np.float32), scales.astype(np.float32)
        rest = ((exact - centres) / scales).astype(np.float32)  # what rounding loses of a large median
    rounded = (np.abs(rest) > np.finfo(np.float32).eps).any()
    buffer = np.empty((min(n_rows, len(out)), len(columns)), centres.dtype)
    with np.errstate(over="ignore"):
        for start in range(0, len(out), n_rows):
            rows = slice(start, min(start + n_rows, len(out)))
            z = buffer[: rows.stop - start]
            np.subtract(block(rows), centres, out=z)
            np.divide(z, scales, out=z)
            if rounded:
                np.subtract(z, rest, out=z)
            missing = np.isnan(z)
            if missing.any():
                z[missing] = middles[np.nonzero(missing)[1]] if heavy else 0
                out[rows, starts[flagged] + 1] = missing[:, flagged]
                unexpected[rows] += missing[:, ~flagged].sum(axis=1)
            if squashed.all():
                squash_in_place(z)
            else:
                if curves is not None:
                    z[:, heavy] = curves.encode(np.take(z.T, heavy, axis=0)).T
                if squashed.any():
                    z[:, squashed] = squash(z[:, squashed])
                    z[:, ~squashed] = squash(z[:, ~squashed], BOUND)
                else:
                    squash_in_place(z, BOUND)
            out[rows, target] = z


def _fit_single_precision(medians: Doubles, scales: Doubles) -> bool:
    """Whether no median is too large and no scale too small for a number of single precision."""
    single = np.finfo(np.float32)
    return bool((np.abs(medians) < single.max).all() and (scales > single.tiny).all() and (scales < single.max).all())
