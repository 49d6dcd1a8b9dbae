"""The user's own rows: their values as they were given, and what in them was not there at fit."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.column import CategoricalColumn, DatetimeColumn, DroppedColumn, NumericColumn
from nrf.detect.tables.frame import Frame, as_array, as_table
from nrf.detect.tables.python_values import without_missing
from nrf.detect.tables.schema import TableEncoder, is_missing
from nrf.detect.tables.values import from_seconds

DAY = 86_400.0


@dataclass(frozen=True)
class GivenRows:
    """Rows of a table with their own values; ``None`` is a missing one."""

    rows: list[dict[str, Any]]
    """All columns, those left out at fit too."""
    zones: dict[str, dt.tzinfo]
    """Time zones of the columns that have one."""

    def in_kind(self, i: int, name: str, value: Any) -> Any:
        """A number, time or level in the type that the row has in that column: a date, a time with a zone, a span."""
        own = self.rows[i].get(name)
        if isinstance(value, dt.datetime):
            zone = own.tzinfo if isinstance(own, dt.datetime) else self.zones.get(name)
            is_date = isinstance(own, dt.date) and not isinstance(own, dt.datetime)
            return value.date() if is_date else _in_zone(value, zone)
        if isinstance(own, dt.timedelta) and isinstance(value, float | int):
            return dt.timedelta(seconds=value)
        if isinstance(own, dt.time) and isinstance(value, float | int) and 0 <= value < DAY:
            return from_seconds(value).time()
        return value


@dataclass(frozen=True)
class Novelty:
    """A value that was not there at fit, in its column."""

    column: str
    value: Any
    """The row's own value; ``None`` if it is missing."""
    reason: str
    """Why it is new."""
    counted: bool
    """Whether it counts in the last output, which is that of no column."""


def _given_values(data: Any) -> tuple[tuple[str, ...], list[list[Any]], list[str | None]]:
    """A table's own values, column by column: names, values with ``None`` for missing ones, and time zones."""
    table = as_table(data)
    if table is None:
        array = as_array(data)
        if array.dtype.kind in "Mm":
            array = array.astype(f"{array.dtype.str[:3]}[us]")  # finer ones would become integers
        columns = [without_missing(values.tolist()) for values in array.T]
        return tuple(f"x{i}" for i in range(len(columns))), columns, [None] * len(columns)
    zones = [getattr(table[name].dtype, "time_zone", None) for name in table.columns]
    return tuple(table.columns), [without_missing(table[name].to_list()) for name in table.columns], zones


def given_rows(encoder: TableEncoder, table: Any) -> GivenRows:
    """The rows of a table that fits an encoder, under the encoder's names where columns go by their places."""
    frame, places = encoder.read(table)
    names, columns, zones = _given_values(table)
    if frame.source == "array" or encoder.source == "array":
        names = encoder.names
    for place in places:
        if frame.kinds[place] == "categorical":  # categories may be numbers, and are strings then
            columns[place] = frame.column(place).tolist()
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    known = {name: _zone(zone) for name, zone in zip(names, zones, strict=True) if zone}
    return GivenRows(rows, {name: zone for name, zone in known.items() if zone is not None})


def _in_zone(time: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime:
    """A time in UTC, given without a zone, in a zone; those at the ends of the calendar stay as they are."""
    if zone is None or not dt.datetime.min + dt.timedelta(1) < time < dt.datetime.max - dt.timedelta(1):
        return time
    return time.replace(tzinfo=dt.UTC).astimezone(zone)


def _zone(name: str) -> dt.tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):  # an offset, not a name
        return None


def novelties(encoder: TableEncoder, table: Any) -> list[list[Novelty]]:
    """For each row, what was not there at fit: levels, missing values, numbers out of range or where all were equal.

    Args:
        encoder: A fitted encoder.
        table: Rows that fit it.

    Example:
        >>> encoder = TableEncoder.fit([[1.0, "a"], [2.0, "b"], [4.0, "a"]], names=["size", "colour"])
        >>> [(n.column, n.value, n.reason) for n in novelties(encoder, [[9.0, "c"]])[0]]
        [('size', 9.0, 'above the range at fit, 1 to 4'), ('colour', 'c', 'a level that was not there at fit')]
    """
    frame, places = encoder.read(table)
    given = given_rows(encoder, table)
    found: list[list[Novelty]] = [[] for _ in range(frame.n_rows)]
    for name, rows, reason, counted in _new_values(encoder, frame, places, given.zones):
        for i in np.flatnonzero(rows):
            found[i].append(Novelty(name, given.rows[i].get(name), reason, counted))
    return found


def _new_values(
    encoder: TableEncoder, frame: Frame, places: tuple[int, ...], zones: dict[str, dt.tzinfo]
) -> Iterator[tuple[str, npt.NDArray[np.bool_], str, bool]]:
    for column, place in zip(encoder.kept_columns, places, strict=True):
        values = encoder.in_form(column, frame, place)
        missing = is_missing(values)
        if not column.has_missing:
            yield column.name, missing, "missing, which it never was at fit", True
        if isinstance(column, CategoricalColumn):
            new = (column.places(values) == column.unseen) & ~missing
            yield column.name, new, "a level that was not there at fit", False
        elif isinstance(column, NumericColumn | DatetimeColumn):
            low, high = (_shown(column, value, zones.get(column.name)) for value in (column.low, column.high))
            span = f"the range at fit, {low} to {high}"
            yield column.name, values < column.low, f"below {span}", False
            yield column.name, values > column.high, f"above {span}", False
    for constant, changed in encoder.changed_constants(frame):
        yield constant.name, changed, f"at fit it was {_shown(constant, constant.value or 0.0)} in all rows", True


def _shown(column: NumericColumn | DatetimeColumn | DroppedColumn, value: float, zone: dt.tzinfo | None = None) -> str:
    if isinstance(column, DatetimeColumn):
        return str(_in_zone(from_seconds(value), zone))
    return f"{value:.6g}"
