"""The user's own rows: their values as they were given, and their novelties: what was not there at fit."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from dataclasses import dataclass
from typing import Any

import numpy as np

from nrf.detect.tables.frame import Frame
from nrf.detect.tables.matching import MatchedFrame
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.values import from_seconds, in_zone

DAY = 86_400.0


@dataclass(frozen=True)
class Novelty:
    """A value that was not there at fit, in its column."""

    column: str
    value: Any
    """The row's own value; ``None`` if it is missing."""
    reason: str
    """Why it is new."""
    counted: bool
    """Whether it counts in the last output, which belongs to no column."""


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows of a table with their own values; ``None`` is a missing one."""

    schema: Schema
    matched: MatchedFrame
    """The table, in the form that the schema reads."""
    rows: list[dict[str, Any]]
    """All columns, those left out at fit too."""
    zones: dict[str, dt.tzinfo]
    """Time zones of the columns that have one."""

    @property
    def frame(self) -> Frame:
        """The table, read."""
        return self.matched.frame

    def in_kind(self, i: int, name: str, value: Any) -> Any:
        """A number, time or level in the type of the row's own value: a date, a time with a zone, a duration."""
        own = self.rows[i].get(name)
        if isinstance(value, dt.datetime):
            zone = own.tzinfo if isinstance(own, dt.datetime) else self.zones.get(name)
            is_date = isinstance(own, dt.date) and not isinstance(own, dt.datetime)
            return value.date() if is_date else in_zone(value, zone)
        if isinstance(own, dt.timedelta) and isinstance(value, float | int):
            return dt.timedelta(seconds=value)
        if isinstance(own, dt.time) and isinstance(value, float | int) and 0 <= value < DAY:
            return from_seconds(value).time()
        return value

    def novelties(self) -> list[list[Novelty]]:
        """For each row, what was not there at fit."""
        found: list[list[Novelty]] = [[] for _ in self.rows]
        for column in (*self.schema.kept_columns, *self.schema.dropped_columns):
            if not column.is_read or column.name not in self.matched.places:
                continue
            for new in column.new_values(self.matched.values(column), self.zones.get(column.name)):
                for i in np.flatnonzero(new.rows):
                    own = self.rows[i].get(column.name)
                    found[i].append(Novelty(column.name, own, new.reason, new.counted))
        return found


def given_rows(schema: Schema, table: Any) -> GivenRows:
    """The rows of a table, or a frame, that fits a schema, under the schema's names if columns are matched by place."""
    matched = schema.read(table)
    frame = matched.frame
    named = {place: name for name, place in matched.places.items()}
    names = [named.get(place, name) for place, name in enumerate(frame.names)]
    columns = [frame.own_values(place) for place in range(len(names))]
    for column in schema.kept_columns:
        place = matched.places[column.name]
        if frame.kinds[place] == "categorical":  # categories may be numbers, and are strings then
            columns[place] = frame.column(place).tolist()
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    zones = {name: _zone(frame.time_zone(place)) for place, name in enumerate(names)}
    return GivenRows(schema, matched, rows, {name: zone for name, zone in zones.items() if zone is not None})


def novelties(schema: Schema, table: Any) -> list[list[Novelty]]:
    """For each row, what was not there at fit: levels, missing values, numbers out of range or where all were equal.

    Args:
        schema: A fitted schema.
        table: Rows that fit it.

    Example:
        >>> schema = Schema.fit([[1.0, "a"], [2.0, "b"], [4.0, "a"]], names=["size", "colour"])
        >>> [(n.column, n.value, n.reason) for n in novelties(schema, [[9.0, "c"]])[0]]
        [('size', 9.0, 'above the range at fit, 1 to 4'), ('colour', 'c', 'a level that was not there at fit')]
    """
    return given_rows(schema, table).novelties()


def _zone(name: str | None) -> dt.tzinfo | None:
    if not name:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):  # a UTC offset, not a name
        return None
