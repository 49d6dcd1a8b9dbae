"""Kinds of values in a table, values as levels, and times as seconds."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["numeric", "boolean", "categorical", "datetime", "missing"]
Value = float | int | bool | str | dt.datetime | None
Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating]
Objects = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]

BLOCK = 2**18  # numbers processed at once: large enough for few passes, small enough for the processor's cache


def missing_in(values: Array) -> Mask:
    """Where values of a frame's column are missing."""
    if values.dtype == object:
        return np.fromiter((v is None for v in values), np.bool_, count=len(values))
    return np.isnan(values)


def to_levels(kind: Kind, values: Array) -> Objects:
    """Values of any kind as levels: strings, and ``None`` for missing values."""
    if kind == "categorical":
        return values
    found, places = np.unique(values, return_inverse=True)
    return np.array([None if v != v else _as_level(kind, float(v)) for v in found], dtype=object)[places]


def _as_level(kind: Kind, value: float) -> str:
    if kind == "boolean":
        return str(value != 0)
    if kind == "datetime":
        return from_seconds(value).isoformat()
    return str(int(value)) if value.is_integer() else repr(value)


def same_levels(kind: Kind, values: Objects) -> Objects:
    """Text from a file as the levels that :func:`to_levels` makes from values of a kind."""
    found = {text: None if text is None else _same_level(kind, text) for text in set(values)}
    return np.array([found[text] for text in values], dtype=object)


def _same_level(kind: Kind, text: str) -> str:
    try:
        if kind == "boolean":
            return {"true": "True", "false": "False"}.get(text.casefold(), text)
        if kind == "datetime":
            time = dt.datetime.fromisoformat(text)
            return (time.astimezone(dt.UTC).replace(tzinfo=None) if time.tzinfo else time).isoformat()
        return _as_level(kind, float(text))
    except (ValueError, OverflowError):
        return text  # not one of the levels


def from_level(kind: Kind, level: str) -> Value:
    """The value that :func:`to_levels` turned into a level."""
    if kind == "boolean":
        return level == "True"
    if kind == "datetime":
        return dt.datetime.fromisoformat(level)
    if kind == "numeric":
        number = float(level)
        return int(number) if number.is_integer() else number
    return level


def from_seconds(seconds: float) -> dt.datetime:
    """Seconds since 1970 as a time in UTC, without a zone; times beyond the calendar become its ends."""
    try:
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        return dt.datetime.max if seconds > 0 else dt.datetime.min


def in_zone(time: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime:
    """A time in UTC, given without a zone, in a zone; those at the ends of the calendar stay as they are."""
    if zone is None or not dt.datetime.min + dt.timedelta(1) < time < dt.datetime.max - dt.timedelta(1):
        return time
    return time.replace(tzinfo=dt.UTC).astimezone(zone)
