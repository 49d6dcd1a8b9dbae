"""The interface of a column of a table, whatever its kind.

A column is what a schema remembers of one column of the training table: a frozen record of plain values, so that
:mod:`nrf.config` can write it as JSON. It knows how values become outputs (numbers that a network takes) and outputs
become values again; nobody else asks what kind a column is.
"""

from __future__ import annotations

import datetime as dt
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from nrf.detect.tables.graph import Graph
from nrf.detect.tables.texts import Cells
from nrf.detect.tables.values import Array, Doubles, Kind, Mask, Singles, Value, from_seconds, missing_in

Scaling = Literal["auto", "quartiles", "deviation"]
"""Units of numbers.

- ``auto``: standard deviations from the mean. Where tails are heavy (a mean fourth power above 6), the average of their
  squash and of the normal score of the value's rank in training. Both are logarithmic beyond ±30.
- ``quartiles``: the squash of distances from the median over the interquartile range, which no extreme value moves.
- ``deviation``: the same over the standard deviation, for columns where half of all rows lie closely together and the
  other half is not noise.
"""
FAR_BELOW = -1e300
"""The rank of missing values."""
JITTER = 0.3
"""Noise on training rows where values are discrete: see :meth:`nrf.detect.tables.schema.Schema.jitter`."""
WORDS: dict[Kind, str] = {
    "numeric": "numbers",
    "boolean": "booleans",
    "categorical": "strings",
    "datetime": "dates",
    "missing": "missing values",
}


@dataclass(frozen=True)
class FitOptions:
    """How columns are fitted."""

    max_levels: int = 64
    """With more levels than this, rare ones not counted, a column is hashed."""
    hash_buckets: int = 32
    """Number of buckets for hashed levels."""
    scaling: Scaling = "auto"


@dataclass(frozen=True, eq=False)
class TrainingColumn:
    """One column of a training table."""

    name: str
    kind: Kind
    values: Array
    """Doubles with NaN for missing values, or strings and ``None``: see :class:`nrf.detect.tables.frame.Frame`."""
    single: bool = False
    """Whether numbers were given in single precision."""


class NewValues(NamedTuple):
    """Values of a column that were not there at fit."""

    rows: Mask
    reason: str
    counted: bool
    """Whether they count in the last output, which belongs to no column."""


C = TypeVar("C", bound="Column", covariant=True)


class Placed(NamedTuple, Generic[C]):
    """A column and its place."""

    column: C
    place: int
    """Its place in the training table."""
    start: int
    """Its first output."""


class Values(Protocol):
    """The values of several columns, each in the form of its kind."""

    def __getitem__(self, i: int, /) -> Array:
        """All values of one of them."""

    def rows(self, rows: slice) -> Array:
        """Some rows of all of them, as a matrix; for columns of numbers and times only."""


class Column(ABC):
    """One column of the training table. Each kind is a frozen dataclass with a name and what it has learned.

    A new kind has a file beside this one, a line in :data:`nrf.detect.tables.columns.KINDS`, and one in ``AnyColumn``.
    """

    name: str
    kind: ClassVar[Kind]
    """The kind of values that it encodes."""
    kept: ClassVar[bool] = True
    """Whether it has outputs."""

    @classmethod
    @abstractmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> Column:
        """Learn a column; one that does not distinguish rows becomes a :class:`DroppedColumn`."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""

    # -------------------------------------------------------------------------------------------------------- encoding

    @abstractmethod
    def encode(self, values: Array, out: Singles, unexpected: Singles) -> None:
        """Write the outputs of values that are in the form of the column's kind.

        Args:
            values: One per row.
            out: Zeros, shape (n, number of outputs), to be overwritten.
            unexpected: Shape (n,), to be increased by 1 where a value is a novelty that has no output.
        """

    @classmethod
    def encode_all(cls, columns: Sequence[Placed[Self]], values: Values, out: Singles) -> None:
        """Write the outputs of all columns of this family, where they belong in the encoded rows."""
        for i, (column, _, start) in enumerate(columns):
            column.encode(values[i], out[:, start : start + len(column.outputs)], out[:, -1])

    @classmethod
    @abstractmethod
    def to_onnx(cls, graph: Graph, columns: Sequence[Placed[Self]]) -> None:
        """Add what :meth:`encode_all` computes to a graph."""

    @property
    def novelty_outputs(self) -> tuple[int, ...]:
        """The outputs that are 0 in all training rows, and 1 for novelties."""
        return ()

    @property
    def jitter(self) -> tuple[float, ...]:
        """Standard deviation of the noise that training rows get, for each output."""
        return (JITTER,) * len(self.outputs)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Size of the numbers behind each output, in units of its scale; their rounding is relative to it."""
        return (1.0,) * len(self.outputs)

    @property
    def units(self) -> tuple[float, ...]:
        """Factor of each output in distances between rows."""
        return (1.0,) * len(self.outputs)

    @property
    def n_buckets(self) -> int:
        """Number of outputs that the record does not back with a value each: a stored record may claim any number."""
        return 0

    @property
    def n_signs(self) -> int:
        """How many of the first outputs together encode a level by their signs."""
        return 0

    # -------------------------------------------------------------------------------------------------------- decoding

    @abstractmethod
    def decode(self, outputs: Sequence[float]) -> Value:
        """The value behind the outputs, in the user's units; ``None`` is a missing one."""

    def decode_rounded(self, outputs: Sequence[float]) -> Value:
        """The same, rounded as the training values were: outputs of 32 bits do not carry all digits."""
        return self.decode(outputs)

    def decode_column(self, rows: Sequence[Sequence[float]], before: Array) -> list[Value]:
        """Values of many rows that were made from other rows, whose values are given: for tables to be scored."""
        return [self.decode(outputs) for outputs in rows]

    def order(self, outputs: Singles) -> Doubles:
        """A number for each encoded row, ``(n, number of outputs)``, by which rows are ranked to detect drift of the
        column: larger for larger values, and far below all others for missing ones."""
        numbers = outputs[:, 0].astype(np.float64)
        return np.where(outputs[:, 1] > 0.5, FAR_BELOW, numbers) if len(self.outputs) > 1 else numbers

    @abstractmethod
    def snap(self, outputs: Sequence[float]) -> list[float]:
        """The nearest outputs of a possible value: flags 0 or 1, a single level, numbers rounded."""

    # ----------------------------------------------------------------------------------------------------- later tables

    @property
    def is_read(self) -> bool:
        """Whether its values in later tables change anything."""
        return True

    @property
    def stand_in(self) -> float:
        """The value that replaces the column in a later table without it."""
        return np.nan

    @property
    def table_kind(self) -> Kind:
        """The kind of values that the table has in this column."""
        return self.kind

    def takes(self, kind: Kind) -> bool:
        """Whether values of some kind can be those of the column, whatever they are."""
        return kind in (self.table_kind, self.kind, "missing")  # levels may come as text, whatever their kind was

    def misfit(self, kind: Kind, values: Array) -> str | None:
        """What is wrong with values of another kind; None if all are missing or can be read as its own kind."""
        present = values[~missing_in(values)]
        if self.table_kind == "boolean" and kind == "numeric":
            present = present[(present != 0) & (present != 1)]
        if not len(present):
            return None
        example: object = present[0]
        if kind == "datetime":
            example = from_seconds(float(present[0])).isoformat()
        elif kind != "categorical":
            example = bool(present[0]) if kind == "boolean" else float(present[0])
        wanted = WORDS[self.table_kind]
        given = f"{WORDS[kind]}, for example {reprlib.repr(example)}"
        return f"column {self.name!r} had {wanted} at fit, now it has {given}; give {wanted}"

    def in_form(self, values: Array, kind: Kind) -> Array:
        """A table's values in the form of the column's kind; values of another kind are all missing here."""
        return np.full(len(values), np.nan) if values.dtype == object else values

    def from_text(self, cells: Cells) -> Any:
        """Cells of a CSV file as an Arrow array of the type that goes with the kind."""
        return cells.read(self.table_kind)

    @abstractmethod
    def new_values(self, values: Array, zone: dt.tzinfo | None) -> Iterator[NewValues]:
        """Which values, in the form of the kind, were not there at fit, and why; times are shown in the given zone."""

    # ------------------------------------------------------------------------------------------------------- in words

    @property
    @abstractmethod
    def summary(self) -> tuple[str, str]:
        """The kind in a word, and what was found in it."""


def never_missing(missing: Mask) -> NewValues:
    """Missing values where at fit there were none."""
    return NewValues(missing, "missing, which it never was at fit", True)


def or_missing(text: str, has_missing: bool) -> str:
    """What was found in a column, and whether values were missing."""
    return ", ".join(part for part in (text, "some missing" if has_missing else "") if part)
