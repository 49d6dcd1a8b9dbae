"""Columns of levels: strings, categories, and numbers, booleans or times that are to be treated as such."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.columns.base import (
    Column,
    FitOptions,
    NewValues,
    Placed,
    TrainingColumn,
    never_missing,
    or_missing,
)
from nrf.detect.tables.columns.dropped import DroppedColumn
from nrf.detect.tables.graph import Graph
from nrf.detect.tables.values import (
    Array,
    Doubles,
    Kind,
    Objects,
    Singles,
    Value,
    from_level,
    missing_in,
    same_levels,
    to_levels,
)
from nrf.errors import InputError

UNSEEN = "(unseen)"
RARE = "(rare)"
HASHED = "(one of the hashed levels)"
RARE_COUNT, RARE_SHARE = 5, 0.01
"""A level is rare if it was seen fewer than 5 times and in less than 1 % of the rows, or once."""
POOL_ROWS, POOL_SHARE = 5, 0.005
"""Rare levels share an output if this many rows, and, unless there are many levels, this share of rows hold one."""
LEVEL_UNIT = 0.6
"""Factor of the outputs of levels. Values from 0.5 to 0.7 made no difference on tables with swapped cells; weights by
frequency (chi-square, inverse frequency) were worse: then a rare level is far from everything, though it is normal."""
MOST_SIGNS = 64
"""Bits of a hash."""
LEAST_ROWS = 20
"""With fewer rows no level is rare."""


def level_hash(level: str) -> int:
    """A 64-bit hash of a level, the same in every process and on every machine."""
    digest = hashlib.blake2b(level.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class CategoricalColumn(Column):
    """Levels: one output each, or, if there are many, some shared outputs for all of them; "rare" if some levels were
    too rare to learn from; "missing" if values were missing at fit; then "unseen".

    Each of n shared outputs is 1/√n or −1/√n, by the bits of the level's hash: any two levels are about as far apart as
    two levels with outputs of their own. In records of version 0.1.0 only the output of the level's bucket is 1.

    Where rare levels share an output, a level that was not there at fit belongs to it too: the next rare level is not a
    novelty, and how often they occur was learned. Without it the levels are a closed set, and another one is a novelty.
    A hashed column keeps a 64-bit hash of each level that is not rare, about 20 bytes per level in JSON.
    """

    name: str
    levels: tuple[str, ...]
    """Training levels that are not rare, sorted; empty if the column is hashed."""
    hashed_buckets: int | None
    """Number of outputs for all levels; ``None`` gives every level its own output."""
    has_missing: bool
    hashes: tuple[int, ...] = ()
    """Hashes of the training levels that are not rare, sorted; empty unless the column is hashed."""
    rare: bool = False
    """Whether rare levels share an output."""
    examples: tuple[str | None, ...] = ()
    """The most frequent levels, as many as there are buckets; in a record without signs, the most frequent level of
    each bucket. Empty if the column is not hashed, or if they are unknown."""
    holds: Kind = "categorical"
    """What the table has in this column: strings, or numbers, booleans or times to be treated as levels."""
    signs: bool = False
    """Whether a hashed level is encoded by the signs of all outputs, and not by one of them."""

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
            or (self.signs and not 1 <= len(self.examples) <= MOST_SIGNS)
            or (self.signs and self.examples[0] is None)
        ):
            raise InputError(
                f"column {self.name!r} needs sorted levels, or buckets, sorted hashes, and an example of each bucket "
                f"or none; signs, at most {MOST_SIGNS}, need one; fit the encoder again"
            )

    @classmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> CategoricalColumn | DroppedColumn:
        """Find the levels; values of another kind are turned into levels."""
        values = to_levels(given.kind, given.values)
        counts = Counter(values.tolist())
        has_missing = counts.pop(None, 0) > 0
        if not counts:
            return DroppedColumn(given.name, "all missing")
        if len(counts) == 1 and not has_missing:
            return DroppedColumn(given.name, "constant")
        rare = _rare_levels(counts, len(values), options.max_levels)
        levels = sorted(counts.keys() - rare)
        if len(levels) <= options.max_levels:
            return cls(given.name, tuple(levels), None, has_missing, rare=bool(rare), holds=given.kind)
        n_buckets = options.hash_buckets
        signs = n_buckets <= MOST_SIGNS
        examples: list[str | None] = [None] * n_buckets
        for i, level in enumerate(sorted(levels, key=lambda v: (counts[v], v))):
            examples[(len(levels) - 1 - i if signs else level_hash(level)) % n_buckets] = level
        hashes = tuple(sorted({level_hash(v) for v in levels}))
        return cls(given.name, (), n_buckets, has_missing, hashes, bool(rare), tuple(examples), given.kind, signs)

    # --------------------------------------------------------------------------------------------------------- outputs

    @property
    def units(self) -> tuple[float, ...]:
        """Factors with which any two levels, frequent or rare, are 0.85 apart, in standard deviations of a number."""
        return (LEVEL_UNIT,) * len(self.outputs)

    @property
    def n_buckets(self) -> int:
        """Number of outputs for levels of which only hashes are known."""
        return self.hashed_buckets or 0

    @property
    def n_signs(self) -> int:
        """Number of outputs that are signs."""
        return self.n_buckets if self.signs else 0

    @property
    def width(self) -> int:
        """Number of outputs for levels or buckets, and for rare levels."""
        return (len(self.levels) if self.hashed_buckets is None else self.hashed_buckets) + self.rare

    @property
    def unseen(self) -> int:
        """Place of the output for novelties: the last one."""
        return self.width + self.has_missing

    @property
    def novelty_outputs(self) -> tuple[int, ...]:
        """The output for unseen levels."""
        return (self.unseen,)

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
        """For each value, the place of the output that is 1."""
        found = {value: self.place(value) for value in set(values)}
        return np.fromiter(map(found.__getitem__, values), np.intp, count=len(values))

    def place(self, level: str | None) -> int:
        """Place of the output that is 1 for a level; ``None`` is a missing value."""
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
        """Place of the output that is 1 for rare levels and those that were not there at fit."""
        return self.width - 1 if self.rare else self.unseen

    # -------------------------------------------------------------------------------------------- encoding and decoding

    def encode(self, values: Array, out: Singles, unexpected: Singles) -> None:
        """Write 1 into one of the outputs, or the signs of a level."""
        if self.signs:
            found = {value: i for i, value in enumerate(dict.fromkeys(values))}
            codes = np.zeros((len(found), len(self.outputs)), dtype=np.float32)
            for value, i in found.items():
                place = self.place(value)
                if place < self.n_buckets and value is not None:
                    codes[i, : self.n_buckets] = self.code(value)
                else:
                    codes[i, place] = 1
            out[:] = codes[np.fromiter(map(found.__getitem__, values), np.intp, count=len(values))]
        else:
            out[np.arange(len(out)), self.places(values)] = 1
        if not self.has_missing:
            unexpected += missing_in(values)

    def code(self, level: str) -> Singles:
        """The signs of a level, in a vector of length 1."""
        bits = (np.uint64(level_hash(level)) >> np.arange(self.n_buckets, dtype=np.uint64)) & np.uint64(1)
        return np.asarray((2 * bits.astype(np.float32) - 1) / np.float32(np.sqrt(self.n_buckets)))

    @cached_property
    def _example_codes(self) -> Singles:
        """The codes of the most frequent levels, as rows."""
        return np.array([self.code(level) for level in self.examples if level is not None], dtype=np.float32)

    @classmethod
    def to_onnx(cls, graph: Graph, columns: Sequence[Placed[Self]]) -> None:
        """One input of strings per column; the empty string is a missing value."""
        _require_exportable([c.column for c in columns])
        for column, _, start in columns:
            x = graph.input(column.name, "STRING")
            places = {level: column.place(level) for level in column.levels} | {"": column.place(None)}
            graph.emit_one_hot(graph.lookup(x, places, column.place_of_others), start, len(column.outputs))
            if not column.has_missing:
                graph.count(graph.cast(graph.lookup(x, {"": 1}, 0), "FLOAT"))

    def decode(self, outputs: Sequence[float]) -> Value:
        """The level with the greatest output, or the most frequent one of its bucket; ``None`` if flagged as missing.

        From signs it is the nearest of the most frequent levels: the text of the others is unknown.
        """
        if self.has_missing and outputs[self.width] > 0.5:
            return None
        best = int(np.argmax([*self._fits(outputs), *outputs[self.n_buckets : self.width], outputs[-1]]))
        if best == self.width:
            return UNSEEN
        if self.rare and best == self.width - 1:
            return RARE
        if self.hashed_buckets is None:
            return from_level(self.holds, self.levels[best])
        example = self.examples[best] if self.examples else None
        return HASHED if example is None else from_level(self.holds, example)

    def decode_column(self, rows: Sequence[Sequence[float]], before: Array) -> list[Value]:
        """Levels; a row keeps its former level if the outputs match none of the table's levels."""
        old = before.tolist()
        known = set(old)
        return [level if level in known else own for level, own in zip(map(self.decode, rows), old, strict=True)]

    def order(self, outputs: Singles) -> Doubles:
        """The place of the level among the outputs; for signs, the binary number that they form."""
        n = self.n_signs
        others = 1.0 + outputs[:, n:].argmax(1)
        signs: Doubles = (outputs[:, :n] > 0) @ 0.5 ** np.arange(1.0, n + 1)
        return np.where(outputs[:, :n].any(1), signs, others)

    def snap(self, outputs: Sequence[float]) -> list[float]:
        """The likeliest level, or "missing"; never "unseen" or an empty bucket."""
        hot = np.array([*self._fits(outputs), *outputs[self.n_buckets : -1]])
        hot[[i for i, example in enumerate(self.examples) if example is None]] = -np.inf
        best, snapped = int(hot.argmax()), [0.0] * len(outputs)
        example = self.examples[best] if self.signs and best < len(self.examples) else None
        if example is None:
            snapped[best] = 1.0
        else:
            snapped[: self.n_buckets] = self.code(example).tolist()
        return snapped

    def _fits(self, outputs: Sequence[float]) -> list[float]:
        """How well outputs of hashed levels match each example, or each bucket: 1 for a perfect match."""
        own = outputs[: self.n_buckets]
        if not self.signs:
            return list(own)
        fits = (self._example_codes @ np.array(own)).tolist()
        return [*fits, *[-np.inf] * (self.n_buckets - len(fits))]

    # ---------------------------------------------------------------------------------------------------- later tables

    @property
    def table_kind(self) -> Kind:
        """The kind of values that were turned into levels."""
        return self.holds

    def in_form(self, values: Array, kind: Kind) -> Array:
        """Levels as strings, and ``None``."""
        if self.holds != "categorical":
            return same_levels(self.holds, values) if kind == "categorical" else to_levels(self.holds, values)
        return values if values.dtype == object else np.full(len(values), None)

    def new_values(self, values: Array, zone: dt.tzinfo | None) -> Iterator[NewValues]:
        """Levels that were not there at fit, and missing values where there were none."""
        missing = missing_in(values)
        if not self.has_missing:
            yield never_missing(missing)
        new = (self.places(values) == self.unseen) & ~missing
        yield NewValues(new, "a level that was not there at fit", False)

    @property
    def summary(self) -> tuple[str, str]:
        """How many levels there are."""
        if self.hashed_buckets is None:
            found = f"{len(self.levels)}{', and rare ones' if self.rare else ''}"
        else:
            found = f"{len(self.hashes)}, hashed into {self.hashed_buckets}" + " signs" * self.signs
        return "levels", or_missing(found, self.has_missing)


def _rare_levels(counts: Counter[str], n_rows: int, max_levels: int) -> set[str]:
    """Levels too rare to learn from, if together they are frequent enough to learn what one of them costs.

    The share of rows with a level seen once is about the chance that the next row has a level never seen (Good and
    Turing). Where this share is tiny, the levels are a closed set.
    """
    if n_rows < LEAST_ROWS:
        return set()
    enough = max(2.0, min(RARE_COUNT, RARE_SHARE * n_rows))
    rare = {level for level, count in counts.items() if count < enough}
    least = POOL_ROWS if len(counts) > max_levels else max(POOL_ROWS, POOL_SHARE * n_rows)
    return rare if sum(counts[level] for level in rare) >= least else set()


def _require_exportable(columns: Sequence[CategoricalColumn]) -> None:
    hashed = [f"{c.name!r} ({len(c.hashes)} levels)" for c in columns if c.hashed_buckets is not None]
    if hashed:
        raise InputError(
            f"columns that are hashed cannot be exported: {', '.join(hashed)}; raise max_levels to at least their "
            "number of levels and fit again, or leave them out"
        )
    blank = [repr(c.name) for c in columns if "" in c.levels]
    if blank:
        raise InputError(
            f"in an exported model the empty string is a missing value, but it is a level of {', '.join(blank)}; "
            "replace it by None or a word and fit again"
        )
