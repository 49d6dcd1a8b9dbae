"""Read columns of Python values: find their kind, and turn their values into numbers or strings."""

from __future__ import annotations

import datetime as dt
import numbers
import reprlib
from collections import Counter
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.values import Kind

Array = npt.NDArray[Any]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NESTED = (list, tuple, dict, set, np.ndarray)


class Read:
    """One column as read: its kind and values, or what is wrong with it."""

    def __init__(
        self, kind: Kind = "missing", values: Array | None = None, problem: str | None = None, *, single: bool = False
    ) -> None:
        self.kind, self.values, self.problem, self.single = kind, values, problem, single


NOTHING = Read()


def read_vector(values: Array) -> Read:
    """A column of an array that is not made of real numbers."""
    if values.dtype.kind == "b":
        return Read("boolean", values.astype(np.float64))
    if values.dtype.kind in "Mm":
        unit = f"{'datetime64' if values.dtype.kind == 'M' else 'timedelta64'}[us]"
        seconds = values.astype(unit).astype(np.int64) / 1e6
        return Read("datetime" if values.dtype.kind == "M" else "numeric", np.where(np.isnat(values), np.nan, seconds))
    return read_objects(values.tolist())


def is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # a signalling NaN cannot be compared
    if isinstance(value, float | np.floating):
        return bool(value != value)
    # pandas marks missing values with its own objects; NumPy has NaT.
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))
    )


_Class = Literal["numbers", "booleans", "strings", "dates", "durations", "times of day", "nested", "complex", "other"]


def _class_of(kind: type) -> _Class:
    order: list[tuple[_Class, tuple[type, ...]]] = [
        ("booleans", (bool, np.bool_)),
        ("strings", (str,)),
        ("dates", (dt.date, np.datetime64)),
        ("durations", (dt.timedelta, np.timedelta64)),
        ("times of day", (dt.time,)),
        ("numbers", (numbers.Real, Decimal)),
        ("complex", (numbers.Complex,)),
        ("nested", NESTED),
    ]
    return next((name for name, types in order if issubclass(kind, types)), "other")


def without_missing(values: list[Any]) -> list[Any]:
    """The values with ``None`` for missing ones; types that never mean a missing value are checked only once."""
    doubtful = {t for t in set(map(type, values)) if not issubclass(t, str | int)}
    return [None if type(v) in doubtful and is_missing(v) else v for v in values]


def read_objects(raw: list[Any]) -> Read:
    values = without_missing(raw)
    classes = {_class_of(t) for t in set(map(type, values)) - {type(None)}}
    if not classes:
        return NOTHING
    if len(classes) > 1:
        counts = Counter(_class_of(type(v)) for v in values if v is not None)
        rarest = min(counts, key=lambda c: (counts[c], c != "strings"))
        example = next(v for v in values if v is not None and _class_of(type(v)) == rarest)
        words = " and ".join(sorted(counts))
        return Read(problem=f"mixes {words}, for example {reprlib.repr(example)}; give it one type")
    (name,) = classes
    example = next(v for v in values if v is not None)
    if name == "nested":
        return Read(
            problem=f"holds nested values, for example {reprlib.repr(example)}; give each part a column of its own"
        )
    if name == "complex":
        return Read(
            problem=f"holds complex numbers, for example {reprlib.repr(example)}; give their parts columns of their own"
        )
    if name == "other":
        return Read(problem=f"holds values of type {type(example).__name__}; turn them into numbers or strings")
    if name == "strings":
        return Read("categorical", objects([None if v is None else str(v) for v in values]))
    try:
        doubles = np.array([np.nan if v is None else as_double(v) for v in values], dtype=np.float64)
    except OverflowError:
        return Read(problem="holds a number beyond the range of 64-bit floats; rescale it or give it as a string")
    kinds: dict[_Class, Kind] = {"booleans": "boolean", "dates": "datetime"}
    return Read(kinds.get(name, "numeric"), doubles)


def as_double(value: Any) -> float:
    if isinstance(value, np.datetime64 | np.timedelta64):
        span = value - np.datetime64(0, "s") if isinstance(value, np.datetime64) else value
        return float(span / np.timedelta64(1, "s"))
    if isinstance(value, dt.datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - EPOCH).total_seconds()
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).total_seconds()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, dt.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    return float(value)


def level_of(value: Any) -> str | None:
    """A category as a string; 2.0 is 2, since missing values elsewhere in a column make floats of integers."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)


def objects(values: list[str | None]) -> Array:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
