"""Columns that are left out: constant, without values, or names of rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from nrf.detect.tables.columns.base import Column, FitOptions, NewValues, Placed, TrainingColumn
from nrf.detect.tables.graph import Graph
from nrf.detect.tables.texts import Cells
from nrf.detect.tables.values import Array, Doubles, Kind, Mask, Singles, Value


@dataclass(frozen=True)
class DroppedColumn(Column):
    """A column that does not distinguish rows, or only identifies them. It has no output of its own, and later tables
    may leave it out."""

    name: str
    reason: Literal["constant", "all missing", "identifier"]
    value: float | None = None
    """The constant, if it is a number: another one in a later table is a novelty."""
    detail: str = ""
    """Why it was taken for an identifier."""
    single: bool = False
    """Whether the constant was given in single precision."""

    kind: ClassVar[Kind] = "missing"
    kept: ClassVar[bool] = False

    @classmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> DroppedColumn:
        """A column without values."""
        return cls(given.name, "all missing")

    @property
    def outputs(self) -> tuple[str, ...]:
        """A dropped column has no outputs."""
        return ()

    def differs(self, values: Doubles) -> Mask:
        """Where numbers differ from the constant, in the lower of the two precisions: 0.1 in 32 bits equals 0.1."""
        assert self.value is not None
        with np.errstate(over="ignore"):
            rounded = np.float32(self.value)
            if self.single:
                return np.asarray(values.astype(np.float32) != rounded)
        return np.asarray((values != self.value) & (values != np.float64(rounded)))

    def encode(self, values: Array, out: Singles, unexpected: Singles) -> None:
        """Count the rows where the constant has changed."""
        unexpected += self.differs(values)

    @classmethod
    def to_onnx(cls, graph: Graph, columns: Sequence[Placed[Self]]) -> None:
        """Count numbers that are not the constants they were at fit, see :meth:`differs`."""
        constants = [c.column for c in columns]
        values = np.array([[c.value for c in constants]], dtype=np.float64)
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        x = graph.doubles([(c.column.name, c.place, "FLOAT") for c in columns])
        single = graph.constant(np.array([[c.single for c in constants]]))
        same = graph.add("Equal", x, graph.constant(values))
        same_rounded = graph.add("Equal", x, graph.constant(rounded.astype(np.float64)))
        same_single = graph.add("Equal", graph.cast(x, "FLOAT"), graph.constant(rounded))
        same = graph.add("Or", same, graph.add("Or", same_rounded, graph.add("And", single, same_single)))
        graph.count(graph.cast(graph.add("Not", same), "FLOAT"))

    def decode(self, outputs: Sequence[float]) -> Value:
        """The constant, if it is a number."""
        return self.value

    def snap(self, outputs: Sequence[float]) -> list[float]:
        """There are no outputs."""
        return []

    @property
    def is_read(self) -> bool:
        """Whether a value other than the constant would be a novelty."""
        return self.value is not None

    @property
    def stand_in(self) -> float:
        """The constant: a table without the column counts as unchanged."""
        return np.nan if self.value is None else self.value

    def in_form(self, values: Array, kind: Kind) -> Array:
        """Numbers; anything else, and NaN, differs from the constant."""
        return values if kind == "numeric" else np.full(len(values), np.nan)

    def from_text(self, cells: Cells) -> Any:
        """Numbers where there are any: any other text differs from the constant, which is all that matters."""
        return cells.read_numbers()

    def new_values(self, values: Array, zone: dt.tzinfo | None) -> Iterator[NewValues]:
        """Values that differ from the constant."""
        if self.value is not None:
            yield NewValues(self.differs(values), f"at fit it was {self.value:.6g} in all rows", True)

    @property
    def summary(self) -> tuple[str, str]:
        """Why it was left out."""
        if self.reason != "identifier":
            return "left out", self.reason
        why = f": {self.detail}" if self.detail else ""
        return "left out", f"{self.reason}{why}; --keep {self.name} uses it, --id {self.name} copies it to the scores"


class Seen(NamedTuple):
    """The values of a training column of doubles that are not missing."""

    values: Doubles
    has_missing: bool
    low: float
    high: float


def seen_values(given: TrainingColumn) -> Seen | DroppedColumn:
    """The values that are not missing, or a dropped column if they do not distinguish rows."""
    missing = np.isnan(given.values)
    has_missing = bool(missing.any())
    seen = given.values[~missing] if has_missing else given.values
    if not len(seen):
        return DroppedColumn(given.name, "all missing")
    low, high = float(seen.min()), float(seen.max())
    if low == high and not has_missing:
        if given.kind == "numeric":
            return DroppedColumn(given.name, "constant", low, single=given.single)
        return DroppedColumn(given.name, "constant")
    return Seen(seen, has_missing, low, high)
