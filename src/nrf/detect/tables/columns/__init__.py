"""Kinds of columns: one class for each, which implements everything that is asked of a column.

:class:`~nrf.detect.tables.columns.base.Column` says what that is. Columns of one family are encoded, and written as an
ONNX graph, all at once: a thousand columns of numbers are one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from nrf.detect.tables.columns.base import (
    Column,
    FitOptions,
    NewValues,
    Placed,
    Scaling,
    TrainingColumn,
    Values,
)
from nrf.detect.tables.columns.boolean import BooleanColumn
from nrf.detect.tables.columns.categorical import CategoricalColumn
from nrf.detect.tables.columns.dropped import DroppedColumn
from nrf.detect.tables.columns.numeric import NumericColumn
from nrf.detect.tables.columns.scaled import ScaledColumn
from nrf.detect.tables.columns.times import DatetimeColumn
from nrf.detect.tables.values import Kind

__all__ = [
    "FAMILIES",
    "KINDS",
    "AnyColumn",
    "BooleanColumn",
    "CategoricalColumn",
    "Column",
    "DatetimeColumn",
    "DroppedColumn",
    "FitOptions",
    "NewValues",
    "NumericColumn",
    "Placed",
    "ScaledColumn",
    "Scaling",
    "TrainingColumn",
    "Values",
    "families_of",
]

AnyColumn = NumericColumn | BooleanColumn | CategoricalColumn | DatetimeColumn | DroppedColumn
"""The column classes that a stored schema may hold."""

KINDS: dict[Kind, type[Column]] = {
    "numeric": NumericColumn,
    "boolean": BooleanColumn,
    "categorical": CategoricalColumn,
    "datetime": DatetimeColumn,
    "missing": DroppedColumn,
}
"""The class that a column of each kind of values is fitted as."""

FAMILIES: tuple[type[Column], ...] = (ScaledColumn, DroppedColumn, BooleanColumn, CategoricalColumn)
"""Columns that are encoded together, in the order in which a graph has its inputs."""

Family = tuple[type[Column], tuple[Placed[Column], ...]]


def families_of(columns: Sequence[Placed[Column]]) -> tuple[Family, ...]:
    """The columns by family; families without a column are left out."""
    found = ((family, tuple(c for c in columns if isinstance(c.column, family))) for family in FAMILIES)
    return tuple((family, members) for family, members in found if members)
