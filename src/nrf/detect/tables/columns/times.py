"""Columns of points in time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nrf.detect.tables.columns.base import FitOptions, TrainingColumn, or_missing
from nrf.detect.tables.columns.dropped import DroppedColumn, seen_values
from nrf.detect.tables.columns.scaled import ScaledColumn
from nrf.detect.tables.columns.scales import find_scales
from nrf.detect.tables.values import Array, Kind, Value, from_seconds, in_zone
from nrf.errors import InputError

RESOLUTIONS = (86_400.0, 3600.0, 60.0, 1.0, 1e-3, 1e-6)
"""Resolutions that times may be whole multiples of, in seconds."""


@dataclass(frozen=True)
class DatetimeColumn(ScaledColumn):
    """Points in time, as seconds since 1970 in UTC; times without a zone are read as UTC."""

    resolution: float = 1.0
    """All training values were whole multiples of this many seconds; 1 in records without this field."""

    kind: ClassVar[Kind] = "datetime"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.resolution < math.inf:
            raise InputError(f"column {self.name!r} needs a positive resolution; fit the encoder again")

    @classmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> DatetimeColumn | DroppedColumn:
        """Find the centre, the scale and the resolution."""
        found = seen_values(given)
        if isinstance(found, DroppedColumn):
            return found
        seen, has_missing, low, high = found
        scales = find_scales(seen, low, high, options.scaling)
        resolution = next((r for r in RESOLUTIONS if not (seen % r).any()), RESOLUTIONS[-1])
        return cls(given.name, **scales._asdict(), has_missing=has_missing, low=low, high=high, resolution=resolution)

    @property
    def needs_double(self) -> bool:
        """Always: 32 bits would round seconds since 1970 to minutes."""
        return True

    def rounded(self, value: float) -> float:
        """The time rounded as the training values are: to whole days, minutes, seconds, …"""
        return round(value / self.resolution) * self.resolution

    def decode(self, outputs: Sequence[float]) -> Value:
        """The time in UTC, without a zone, in the years 1 to 9999."""
        value = self.number(outputs)
        return None if value is None else from_seconds(value)

    def decode_column(self, rows: Sequence[Sequence[float]], before: Array) -> list[Value]:
        """Times for many rows."""
        return [None if value is None else from_seconds(value) for value in self.numbers(rows)]

    def decode_rounded(self, outputs: Sequence[float]) -> Value:
        """The time in UTC, rounded to the resolution of the training values."""
        value = self.number(outputs)
        return None if value is None else from_seconds(self.rounded(value))

    def shown(self, value: float, zone: dt.tzinfo | None) -> str:
        """The value as a time in the zone."""
        return str(in_zone(from_seconds(value), zone))

    @property
    def summary(self) -> tuple[str, str]:
        """The first and the last time, and what to do if later rows are not abnormal just for being later."""
        found = or_missing(f"{from_seconds(self.low)} … {from_seconds(self.high)} UTC", self.has_missing)
        return "date", f"{found}; later dates score as unusual, --drop {self.name} leaves it out"
