"""What an encoder remembers of each column: how its values become outputs, and outputs become values again.

There is one frozen record a kind of column. They hold plain values only, so :mod:`nrf.config` can write them as JSON.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.values import Doubles, Floats, Kind, Objects, Value, from_level, from_seconds
from nrf.errors import InputError

Scaling = Literal["quartiles", "deviation"]
"""What numbers are divided by: the distance of the quartiles, which no wild value moves, or the standard deviation, for
columns where half of all rows lie closely together and the other half is no noise."""
TAIL = 3.0  # where the squash leaves the straight line, in scales from the median
IQR_OF_NORMAL = 1.349  # interquartile range of a standard normal
NOISE = 4 * float(np.finfo(np.float64).eps)  # a range this small, relative to its ends, is that of rounding errors
LARGEST = float(np.finfo(np.float64).max)
UNSEEN = "(unseen)"
RARE = "(rare)"
HASHED = "(one of the hashed levels)"
RARE_COUNT, RARE_SHARE = 5, 0.01
"""A level is rare if it was seen fewer than 5 times and in less than 1 % of the rows, or once."""
POOL_ROWS, POOL_SHARE = 5, 0.005
"""Rare levels share an output if so many rows hold one, and, unless there are many levels, this share of all rows."""
LEAST_ROWS = 20
"""With fewer rows no level is rare."""
RESOLUTIONS = (86_400.0, 3600.0, 60.0, 1.0, 1e-3, 1e-6)
"""What times may be whole multiples of, in seconds."""


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
    """A column that tells no row from another, or only names rows. It has no output of its own, and later tables may
    leave it out."""

    name: str
    reason: Literal["constant", "all missing", "identifier"]
    value: float | None = None
    """The constant, if it is a number: another one in a later table is a novelty."""
    detail: str = ""
    """Why it was taken for an identifier."""
    single: bool = False
    """Whether the constant was given in single precision."""

    outputs: ClassVar[tuple[str, ...]] = ()

    def differs(self, values: Doubles) -> npt.NDArray[np.bool_]:
        """Where numbers are not the constant, in the coarser of their precision and its own: 0.1 of 32 bits is 0.1."""
        assert self.value is not None
        with np.errstate(over="ignore"):
            rounded = np.float32(self.value)
            if self.single:
                return np.asarray(values.astype(np.float32) != rounded)
        return np.asarray((values != self.value) & (values != np.float64(rounded)))


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
        if self.low > self.high:
            raise InputError(f"column {self.name!r} has its least value above its greatest; fit the encoder again")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (self.name, f"{self.name} (missing)") if self.has_missing else (self.name,)

    def number(self, outputs: Sequence[float]) -> float | None:
        """The number behind the outputs, or ``None`` if they are flagged as missing."""
        return None if self.has_missing and outputs[1] > 0.5 else self.decoded(outputs[0])

    def decoded(self, output: float) -> float:
        """The number behind the first output."""
        return min(max(self.median + self.scale * unsquash(output), -LARGEST), LARGEST)

    def encoded(self, value: float) -> float:
        """The output for a number."""
        return float(squash((value - self.median) / self.scale))


@dataclass(frozen=True)
class NumericColumn(ScaledColumn):
    """Numbers; durations count as seconds."""

    integer: bool = False
    """Whether all training values were whole numbers."""
    decimals: int | None = None
    """So many decimals were enough for all training values; ``None`` if more than six are needed, or it is unknown."""

    def rounded(self, value: float) -> float:
        """A number such as the training values: one of the two, a whole one, with their decimals, or else to about a
        ten-thousandth of the scale."""
        if self.two_valued:
            return self.high if abs(value - self.high) < abs(value - self.low) else self.low
        if abs(value) > 1e300:
            return value
        return round(value, 0 if self.integer else self._digits)

    @property
    def _digits(self) -> int:
        return 4 - math.floor(math.log10(self.scale)) if self.decimals is None else self.decimals

    def decode(self, outputs: Sequence[float]) -> Value:
        """The number, rounded if the column holds whole ones."""
        value = self.number(outputs)
        return round(value) if self.integer and value is not None else value


@dataclass(frozen=True)
class DatetimeColumn(ScaledColumn):
    """Points in time, as seconds since 1970 in UTC; times without a zone are read as UTC."""

    resolution: float = 1.0
    """All training values were whole multiples of these seconds; 1 in records that do not say."""

    kind: ClassVar[Kind] = "datetime"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.resolution < math.inf:
            raise InputError(f"column {self.name!r} needs a positive resolution; fit the encoder again")

    def rounded(self, value: float) -> float:
        """A time such as the training values: to whole days, minutes, seconds, …"""
        return round(value / self.resolution) * self.resolution

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
    """Levels: an output each, or one per bucket where there are many; "rare" if some levels were too rare to learn
    from; "missing" if it was seen; then "unseen".

    Where rare levels share an output, a level that was not there at fit belongs to it too: the next rare level is
    nothing new, and how often they come was learned. Without it the levels are a closed set, and another one is a
    novelty. A hashed column keeps a 64-bit hash of each level that is not rare, about 20 bytes per level in JSON.
    """

    name: str
    levels: tuple[str, ...]
    """Training levels that are not rare, sorted; empty if the column is hashed."""
    hashed_buckets: int | None
    """Number of buckets; ``None`` gives every level its own output."""
    has_missing: bool
    hashes: tuple[int, ...] = ()
    """Hashes of the training levels that are not rare, sorted; empty unless the column is hashed."""
    rare: bool = False
    """Whether rare levels share an output."""
    examples: tuple[str | None, ...] = ()
    """The most frequent level of each bucket; empty if the column is not hashed, or it is unknown."""
    holds: Kind = "categorical"
    """What the table has there: strings, or numbers, booleans or times to be treated as levels."""

    kind: ClassVar[Kind] = "categorical"

    def __post_init__(self) -> None:
        known: tuple[Any, ...] = self.levels if self.hashed_buckets is None else self.hashes
        other: tuple[Any, ...] = self.hashes if self.hashed_buckets is None else self.levels
        rising = all(a < b for a, b in itertools.pairwise(known))
        if (
            other
            or not (known or self.rare)
            or not rising
            or (self.hashed_buckets is not None and self.hashed_buckets < 1)
            or len(self.examples) not in (0, self.hashed_buckets)
        ):
            raise InputError(
                f"column {self.name!r} needs sorted levels, or buckets, sorted hashes, and an example of each bucket "
                "or none; fit the encoder again"
            )

    @property
    def width(self) -> int:
        """Number of outputs for levels or buckets, and for rare levels."""
        return (len(self.levels) if self.hashed_buckets is None else self.hashed_buckets) + self.rare

    @property
    def unseen(self) -> int:
        """Which of the outputs is that of novelties: the last one."""
        return self.width + self.has_missing

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        if self.hashed_buckets is None:
            names = [f"{self.name}={level}" for level in self.levels]
        else:
            names = [f"{self.name}#{bucket}" for bucket in range(self.hashed_buckets)]
        if self.rare:
            names.append(f"{self.name} {RARE}")
        if self.has_missing:
            names.append(f"{self.name} (missing)")
        return (*names, f"{self.name} {UNSEEN}")

    def places(self, values: Objects) -> npt.NDArray[np.intp]:
        """For each value, which of the outputs is 1."""
        found = {value: self.place(value) for value in set(values)}
        return np.fromiter(map(found.__getitem__, values), np.intp, count=len(values))

    def place(self, level: str | None) -> int:
        """Which of the outputs is 1 for a level; ``None`` is a missing value."""
        if level is None:
            return self.width if self.has_missing else self.unseen
        if self.hashed_buckets is None:
            i = bisect_left(self.levels, level)
            return i if i < len(self.levels) and self.levels[i] == level else self.place_of_others
        code = level_hash(level)
        i = bisect_left(self.hashes, code)
        return code % self.hashed_buckets if i < len(self.hashes) and self.hashes[i] == code else self.place_of_others

    @property
    def place_of_others(self) -> int:
        """Which of the outputs is 1 for rare levels and those that were not there at fit."""
        return self.width - 1 if self.rare else self.unseen

    def decode(self, outputs: Sequence[float]) -> Value:
        """The level with the greatest output, of a bucket its most frequent one; ``None`` if flagged as missing."""
        if self.has_missing and outputs[self.width] > 0.5:
            return None
        best = int(np.argmax([*outputs[: self.width], outputs[-1]]))
        if best == self.width:
            return UNSEEN
        if self.rare and best == self.width - 1:
            return RARE
        if self.hashed_buckets is None:
            return from_level(self.holds, self.levels[best])
        example = self.examples[best] if self.examples else None
        return HASHED if example is None else from_level(self.holds, example)


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
        return fit_levels(name, values, max_levels, hash_buckets)
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
        resolution = next((r for r in RESOLUTIONS if not (seen % r).any()), RESOLUTIONS[-1])
        return DatetimeColumn(name, median, scale, has_missing, low, high, resolution)
    decimals = _decimals(seen)
    return NumericColumn(name, median, scale, has_missing, low, high, integer=decimals == 0, decimals=decimals or None)


def fit_levels(name: str, values: Objects, max_levels: int, hash_buckets: int, holds: Kind = "categorical") -> Column:
    """The record of a training column of levels.

    Args:
        name: The column's name.
        values: Strings, and ``None`` for missing values.
        max_levels: More levels than these, rare ones not counted, are hashed.
        hash_buckets: Number of buckets for them.
        holds: What the table has there, if it is no strings.
    """
    counts = Counter(values.tolist())
    has_missing = counts.pop(None, 0) > 0
    if not counts:
        return DroppedColumn(name, "all missing")
    if len(counts) == 1 and not has_missing:
        return DroppedColumn(name, "constant")
    rare = _rare_levels(counts, len(values), max_levels)
    levels = sorted(counts.keys() - rare)
    if len(levels) <= max_levels:
        return CategoricalColumn(name, tuple(levels), None, has_missing, rare=bool(rare), holds=holds)
    examples: list[str | None] = [None] * hash_buckets
    for level in sorted(levels, key=lambda v: (counts[v], v)):
        examples[level_hash(level) % hash_buckets] = level
    hashes = tuple(sorted({level_hash(v) for v in levels}))
    return CategoricalColumn(name, (), hash_buckets, has_missing, hashes, bool(rare), tuple(examples), holds)


def _rare_levels(counts: Counter[str], n_rows: int, max_levels: int) -> set[str]:
    """Levels too rare to learn from, if together they are frequent enough to learn what one of them costs.

    The share of rows with a level seen once is about the chance that the next row has one never seen (Good and Turing).
    Where it is next to nothing, the levels are a closed set.
    """
    if n_rows < LEAST_ROWS:
        return set()
    enough = max(2.0, min(RARE_COUNT, RARE_SHARE * n_rows))
    rare = {level for level, count in counts.items() if count < enough}
    least = POOL_ROWS if len(counts) > max_levels else max(POOL_ROWS, POOL_SHARE * n_rows)
    return rare if sum(counts[level] for level in rare) >= least else set()


def _decimals(seen: Doubles) -> int | None:
    """How many decimals all numbers can be written with; ``None`` if it is more than six."""
    for part in (seen[:100], seen):  # the first ones tell most columns
        with np.errstate(over="ignore"):
            found = next((d for d in range(7) if (np.round(part, d) == part).all()), None)
        if found is None:
            return None
    return found


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
