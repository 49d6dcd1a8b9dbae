"""What an encoder remembers of each column: how its values become outputs, and outputs become values again.

There is one frozen record a kind of column. They hold plain values only, so :mod:`nrf.config` can write them as JSON.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nrf.errors import InputError

Kind = Literal["numeric", "boolean", "categorical", "datetime", "missing"]
Value = float | int | bool | str | dt.datetime | None
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating]
Objects = npt.NDArray[np.object_]

Scaling = Literal["quartiles", "deviation"]
"""What numbers are divided by: the distance of the quartiles, which no wild value moves, or the standard deviation, for
columns where half of all rows lie closely together and the other half is no noise."""
TAIL = 3.0  # where the squash leaves the straight line, in scales from the median
IQR_OF_NORMAL = 1.349  # interquartile range of a standard normal
NOISE = 4 * float(np.finfo(np.float64).eps)  # a range this small, relative to its ends, is that of rounding errors
LARGEST = float(np.finfo(np.float64).max)
UNSEEN = "(unseen)"
HASHED = "(one of the hashed levels)"


class SchemaError(InputError):
    """A table does not have the columns, or the kinds of columns, that an encoder was fitted on."""


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


def level_hash(level: str) -> int:
    """A 64-bit hash of a level, the same in every process and on every machine."""
    digest = hashlib.blake2b(level.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class DroppedColumn:
    """A column that tells no row from another. It has no output of its own, and later tables may leave it out."""

    name: str
    reason: Literal["constant", "all missing"]
    value: float | None = None
    """The constant, if it is a number: another one in a later table is a surprise."""

    outputs: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class ScaledColumn:
    """What numbers and times have in common: one squashed output, and a flag if training values were missing."""

    name: str
    median: float
    scale: float
    """Interquartile range over 1.349, or the standard deviation where that range is 0 up to rounding; of numbers that
    take two values, the distance between them."""
    has_missing: bool
    low: float
    """Least training value."""
    high: float
    """Greatest training value."""

    kind: ClassVar[Kind] = "numeric"

    @property
    def two_valued(self) -> bool:
        """Whether the column took two values in training; no other scale is as wide as the range."""
        return self.high > self.low and self.scale == self.high - self.low

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.median, self.scale, self.low, self.high))) or self.scale <= 0:
            raise InputError(f"column {self.name!r} needs finite numbers and a positive scale; fit the encoder again")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (self.name, f"{self.name} (missing)") if self.has_missing else (self.name,)

    def number(self, outputs: Sequence[float]) -> float | None:
        """The number behind the outputs, or ``None`` if they are flagged as missing."""
        if self.has_missing and outputs[1] > 0.5:
            return None
        value = self.median + self.scale * unsquash(outputs[0])
        return min(max(value, -LARGEST), LARGEST)


@dataclass(frozen=True)
class NumericColumn(ScaledColumn):
    """Numbers; durations count as seconds."""

    integer: bool = False
    """Whether all training values were whole numbers."""

    def decode(self, outputs: Sequence[float]) -> Value:
        """The number, rounded if the column holds whole ones."""
        value = self.number(outputs)
        return round(value) if self.integer and value is not None else value


@dataclass(frozen=True)
class DatetimeColumn(ScaledColumn):
    """Points in time, as seconds since 1970 in UTC; times without a zone are read as UTC."""

    kind: ClassVar[Kind] = "datetime"

    def decode(self, outputs: Sequence[float]) -> Value:
        """The time in UTC, without a zone, in the years 1 to 9999."""
        value = self.number(outputs)
        return None if value is None else from_seconds(value)


@dataclass(frozen=True)
class BooleanColumn:
    """True or false: one output, and a flag if training values were missing."""

    name: str
    common: bool
    """The more frequent training value; it stands in for missing ones."""
    has_missing: bool

    kind: ClassVar[Kind] = "boolean"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (self.name, f"{self.name} (missing)") if self.has_missing else (self.name,)

    def decode(self, outputs: Sequence[float]) -> Value:
        """Whether the output is above one half."""
        return None if self.has_missing and outputs[1] > 0.5 else bool(outputs[0] > 0.5)


@dataclass(frozen=True)
class CategoricalColumn:
    """Levels: an output each, or one a bucket where there are many; then "missing" if it was seen, then "unseen".

    A hashed column keeps a 64-bit hash of each training level to tell seen from unseen: about 20 bytes a level in
    JSON, so some 20 MB for a million levels.
    """

    name: str
    levels: tuple[str, ...]
    """Training levels, sorted; empty if the column is hashed."""
    hashed_buckets: int | None
    """Number of buckets; ``None`` gives every level its own output."""
    has_missing: bool
    hashes: tuple[int, ...] = ()
    """Hashes of the training levels, sorted; empty unless the column is hashed."""

    kind: ClassVar[Kind] = "categorical"

    def __post_init__(self) -> None:
        known: tuple[Any, ...] = self.levels if self.hashed_buckets is None else self.hashes
        other: tuple[Any, ...] = self.hashes if self.hashed_buckets is None else self.levels
        rising = all(a < b for a, b in itertools.pairwise(known))
        if other or not known or not rising or (self.hashed_buckets is not None and self.hashed_buckets < 1):
            raise InputError(
                f"column {self.name!r} needs sorted levels, or buckets and sorted hashes; fit the encoder again"
            )

    @property
    def width(self) -> int:
        """Number of outputs for levels or buckets."""
        return len(self.levels) if self.hashed_buckets is None else self.hashed_buckets

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        if self.hashed_buckets is None:
            names = [f"{self.name}={level}" for level in self.levels]
        else:
            names = [f"{self.name}#{bucket}" for bucket in range(self.hashed_buckets)]
        if self.has_missing:
            names.append(f"{self.name} (missing)")
        return (*names, f"{self.name} {UNSEEN}")

    def places(self, values: Objects) -> npt.NDArray[np.intp]:
        """For each value, which of the outputs is 1."""
        found = {value: self._place(value) for value in set(values)}
        return np.fromiter(map(found.__getitem__, values), np.intp, count=len(values))

    def _place(self, level: str | None) -> int:
        unseen = self.width + self.has_missing
        if level is None:
            return self.width if self.has_missing else unseen
        if self.hashed_buckets is None:
            i = bisect_left(self.levels, level)
            return i if i < len(self.levels) and self.levels[i] == level else unseen
        code = level_hash(level)
        i = bisect_left(self.hashes, code)
        return code % self.hashed_buckets if i < len(self.hashes) and self.hashes[i] == code else unseen

    def decode(self, outputs: Sequence[float]) -> Value:
        """The level with the greatest output; ``None`` if flagged as missing."""
        if self.has_missing and outputs[self.width] > 0.5:
            return None
        best = int(np.argmax([*outputs[: self.width], outputs[-1]]))
        if best == self.width:
            return UNSEEN
        return self.levels[best] if self.hashed_buckets is None else HASHED


KeptColumn = NumericColumn | BooleanColumn | CategoricalColumn | DatetimeColumn
Column = KeptColumn | DroppedColumn


def fit_column(
    name: str, kind: Kind, values: npt.NDArray[Any], max_levels: int, hash_buckets: int, scaling: Scaling = "quartiles"
) -> Column:
    """The record of one training column.

    Args:
        name: The column's name.
        kind: What it holds.
        values: Doubles with NaN for missing values, or strings and ``None`` for a categorical column.
        max_levels: More levels than these are hashed.
        hash_buckets: Number of buckets for them.
        scaling: What numbers are divided by: see :data:`Scaling`.
    """
    if kind == "categorical":
        return _fit_levels(name, values, max_levels, hash_buckets)
    missing = np.isnan(values)
    has_missing = bool(missing.any())
    seen = values[~missing] if has_missing else values
    if not len(seen):
        return DroppedColumn(name, "all missing")
    low, high = float(seen.min()), float(seen.max())
    if low == high and not has_missing:
        return DroppedColumn(name, "constant", low if kind == "numeric" else None)
    if kind == "boolean":
        return BooleanColumn(name, common=bool(seen.mean() > 0.5), has_missing=has_missing)
    median, scale = _median_and_scale(seen, low, high, scaling)
    if kind == "numeric" and low < high and math.isfinite(high - low) and ((seen == low) | (seen == high)).all():
        median, scale = high if (seen == high).mean() > 0.5 else low, high - low
    if kind == "datetime":
        return DatetimeColumn(name, median, scale, has_missing, low, high)
    return NumericColumn(name, median, scale, has_missing, low, high, integer=bool((seen == np.floor(seen)).all()))


def _fit_levels(name: str, values: Objects, max_levels: int, hash_buckets: int) -> Column:
    levels = set(values)
    has_missing = None in levels
    levels.discard(None)
    if not levels:
        return DroppedColumn(name, "all missing")
    if len(levels) == 1 and not has_missing:
        return DroppedColumn(name, "constant")
    if len(levels) <= max_levels:
        return CategoricalColumn(name, tuple(sorted(levels)), None, has_missing)
    return CategoricalColumn(name, (), hash_buckets, has_missing, tuple(sorted({level_hash(v) for v in levels})))


def _median_and_scale(seen: Doubles, low: float, high: float, scaling: Scaling) -> tuple[float, float]:
    if low == high:  # the same wherever it is given: the flag alone tells rows apart
        return low, 1.0
    # Numbers near the end of the range are brought down by a power of two first: their differences would overflow.
    unit = 2.0**-4 if max(-low, high) > LARGEST / 16 else 1.0
    first, median, third = _quartiles(seen * unit)
    scale = (third - first) / IQR_OF_NORMAL
    if scaling == "deviation" or scale <= max(NOISE * max(abs(first), abs(third)), 1e-290):
        # Relative to the greatest distance, so that squares neither overflow nor vanish.
        reach = max(high * unit - median, median - low * unit)
        scale = reach * float(np.std((seen * unit - median) / reach)) or reach
    return median / unit, min(scale / unit, LARGEST)


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


def from_seconds(seconds: float) -> dt.datetime:
    """Seconds since 1970 as a time in UTC, without a zone; what no calendar holds becomes its first or last moment."""
    try:
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        return dt.datetime.max if seconds > 0 else dt.datetime.min
