"""Columns of numbers."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nrf.detect.tables.columns.base import FitOptions, TrainingColumn, or_missing
from nrf.detect.tables.columns.dropped import DroppedColumn, seen_values
from nrf.detect.tables.columns.scaled import BOUND, MOST_PIECES, ScaledColumn
from nrf.detect.tables.columns.scales import Scales, find_scales
from nrf.detect.tables.columns.squash import TAIL
from nrf.detect.tables.texts import DAY, Cells
from nrf.detect.tables.values import Array, Doubles, Kind, Value

ROUNDING = 1e-5
"""How far 32-bit floats may move a value in an exported graph, in scales of its column."""
MOST_ROUNDING = 100 * ROUNDING
"""The same for a value that lies between two knots that happen to be close together."""


@dataclass(frozen=True)
class NumericColumn(ScaledColumn):
    """Numbers; durations count as seconds."""

    integer: bool = False
    """Whether all training values were whole numbers."""
    decimals: int | None = None
    """Number of decimals that all training values need; ``None`` if it is more than six, or unknown."""

    kind: ClassVar[Kind] = "numeric"

    @classmethod
    def fit(cls, given: TrainingColumn, options: FitOptions) -> NumericColumn | DroppedColumn:
        """Find the centre and the scale; for numbers with two values, the more frequent value and the distance."""
        found = seen_values(given)
        if isinstance(found, DroppedColumn):
            return found
        seen, has_missing, low, high = found
        scales, decimals = find_scales(seen, low, high, options.scaling), _decimals(seen)
        two_valued = low < high and bool(((seen == low) | (seen == high)).all())
        if two_valued and math.isfinite(high - low):
            # Not by the standard deviation: every row with the rarer value would then be an outlier.
            scales = Scales(high if (seen == high).mean() > 0.5 else low, high - low)
        return cls(
            given.name,
            **scales._asdict(),
            has_missing=has_missing,
            low=low,
            high=high,
            integer=decimals == 0,
            decimals=decimals or None,
        )

    @property
    def needs_double(self) -> bool:
        """Whether floats of 32 bits would round the numbers by more than a 100,000th of their scale."""
        far = max(abs(self.low), abs(self.high))
        if far >= (1 - 2.0**-24) * float(np.finfo(np.float32).max):  # rounded to the largest: no next one
            return True
        if self.integer and far <= 2**24:
            return False
        if self.knots:
            moves = self._gains * (np.spacing(self._ends.astype(np.float32)).astype(np.float64) / 2 / self.scale)
            return bool(np.quantile(moves, MOST_PIECES) > ROUNDING or moves.max() > MOST_ROUNDING)
        # Beyond the tail only logarithms matter, and beyond the bound nothing does: rounding is harmless there.
        near = min(far, abs(self.centre) + (TAIL if self.mean is None else BOUND) * self.scale)
        return float(np.spacing(np.float32(near))) / 2 > ROUNDING * self.scale

    def rounded(self, value: float) -> float:
        """The number in the form of the training values: one of the two values, a whole number, with their decimals, or
        else rounded to about a ten-thousandth of the scale."""
        if self.two_valued:
            return self.high if abs(value - self.high) < abs(value - self.low) else self.low
        if abs(value) > 1e300:
            return value
        return round(value, 0 if self.integer else self._digits)

    @cached_property
    def _digits(self) -> int:
        if self.decimals is not None:
            return self.decimals
        gain = float(np.quantile(self._gains, MOST_PIECES)) if self.knots else 1.0
        return 4 - math.floor(math.log10(self.scale) - math.log10(max(gain, 1.0)))

    def decode(self, outputs: Sequence[float]) -> Value:
        """The number, rounded if the column holds whole ones."""
        value = self.number(outputs)
        return round(value) if self.integer and value is not None else value

    def decode_rounded(self, outputs: Sequence[float]) -> Value:
        """The number with the decimals of the training values."""
        value = self.number(outputs)
        if value is None:
            return None
        return int(self.rounded(value)) if self.integer else self.rounded(value)

    def decode_column(self, rows: Sequence[Sequence[float]], before: Array) -> list[Value]:
        """Numbers as floats, since some synthetic ones are too large for an integer."""
        numbers = self.numbers(rows)
        return [None if value is None else float(round(value)) if self.integer else value for value in numbers]

    def from_text(self, cells: Cells) -> Any:
        """Numbers; times of day as seconds where the column may hold such."""
        return cells.read("numeric", clock=self.integer and self.low >= 0 and self.high < DAY)

    def shown(self, value: float, zone: dt.tzinfo | None) -> str:
        """The number with six digits."""
        return f"{value:.6g}"

    @property
    def summary(self) -> tuple[str, str]:
        """The range of the numbers."""
        return "number", or_missing(f"{self.low:.6g} … {self.high:.6g}", self.has_missing)


def _decimals(seen: Doubles) -> int | None:
    """How many decimals suffice to write all numbers; ``None`` if more than six are needed."""
    for part in (seen[:100], seen):  # the first ones tell most columns
        with np.errstate(over="ignore"):
            found = next((d for d in range(7) if (np.round(part, d) == part).all()), None)
        if found is None:
            return None
    return found
