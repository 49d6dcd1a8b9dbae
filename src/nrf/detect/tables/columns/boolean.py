"""Columns of booleans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from nrf.detect.tables.columns.base import (
    Column,
    FitOptions,
    NewValues,
    Placed,
    TrainingColumn,
    never_missing,
    or_missing,
)
from nrf.detect.tables.columns.dropped import DroppedColumn, seen_values
from nrf.detect.tables.graph import Graph
from nrf.detect.tables.values import Array, Kind, Singles, Value


@dataclass(frozen=True)
class BooleanColumn(Column):
    """True or false: one output, and a flag if training values were missing."""

    name: str
    common: bool
    """The more frequent training value; it stands in for missing ones."""
    has_missing: bool

    kind: ClassVar[Kind] = "boolean"

    @classmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> BooleanColumn | DroppedColumn:
        """Find the more frequent value."""
        seen = seen_values(given)
        if isinstance(seen, DroppedColumn):
            return seen
        return cls(given.name, common=bool(seen.values.mean() > 0.5), has_missing=seen.has_missing)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (self.name, f"{self.name} (missing)") if self.has_missing else (self.name,)

    def encode(self, values: Array, out: Singles, unexpected: Singles) -> None:
        """Write 0 or 1, and the flag."""
        missing = np.isnan(values)
        out[:, 0] = np.where(missing, self.common, values)
        if self.has_missing:
            out[:, 1] = missing
        else:
            unexpected += missing

    @classmethod
    def to_onnx(cls, graph: Graph, columns: Sequence[Placed[Self]]) -> None:
        """One input per column: 0, 1 or NaN."""
        x = graph.joined([graph.input(c.column.name, "FLOAT") for c in columns])
        missing = graph.add("IsNaN", x)
        common = graph.constant(np.array([[c.column.common for c in columns]], dtype=np.float32))
        graph.emit(graph.add("Where", missing, common, x), [c.start for c in columns])
        graph.emit_flags(missing, [c.start + 1 if c.column.has_missing else None for c in columns])

    def decode(self, outputs: Sequence[float]) -> Value:
        """Whether the output is above one half."""
        return None if self.has_missing and outputs[1] > 0.5 else bool(outputs[0] > 0.5)

    def snap(self, outputs: Sequence[float]) -> list[float]:
        """0 or 1; with the flag, the more frequent value."""
        snapped = [float(output > 0.5) for output in outputs]
        if self.has_missing and snapped[1]:
            snapped[0] = float(self.common)
        return snapped

    def new_values(self, values: Array, zone: dt.tzinfo | None) -> Iterator[NewValues]:
        """Missing values where there were none at fit."""
        if not self.has_missing:
            yield never_missing(np.isnan(values))

    @property
    def summary(self) -> tuple[str, str]:
        """Whether values were missing."""
        return "boolean", or_missing("", self.has_missing)
