"""Columns of a request as a frame that fits a model, without a data frame in between."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from nrf.detect.tables.columns import Column
from nrf.detect.tables.frame import Frame, gathered, read_columns
from nrf.detect.tables.matching import Match, SchemaError
from nrf.detect.tables.python_values import Read, as_double, objects, read_objects
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.texts import DATE, arrow
from nrf.detect.tables.values import Kind
from nrf.serve.limits import Limits, Refused

pa, pc = arrow(), arrow("compute")
NUMBERS: set[type] = {float, int, type(None)}
TEXTS: set[type] = {str, type(None)}
NOTHING: set[type] = {type(None)}
_DATE = re.compile(DATE)


@dataclass(frozen=True, eq=False)
class Given:
    """The rows of a request, which fit the model they are for."""

    frame: Frame
    """All columns of the schema, in its order."""
    table: Callable[[], Any]
    """The rows as an Arrow table, with the values as they were given."""

    def __len__(self) -> int:
        return self.frame.n_rows


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, none of them twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        problems = {name: f"column {name!r} is there more than once; rename or remove it" for name in twice}
        raise Refused(422, "; ".join(problems.values()), problems)
    return tuple(names)


def joined(frames: Sequence[Frame]) -> Frame:
    """The rows of several frames with the same names and kinds, one after the other."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0]
    arrays = tuple(np.concatenate([f.arrays[i] for f in frames]) for i in range(len(first.names)))
    return Frame(first.names, first.kinds, sum(f.n_rows for f in frames), first.source, arrays=arrays)


def given_columns(schema: Schema, passed_over: Collection[str], columns: Mapping[str, list[Any]], n_rows: int) -> Given:
    """Columns of JSON values as rows that fit.

    Args:
        schema: The schema that they must fit.
        passed_over: Names that may be present and are ignored.
        columns: Values by name.
        n_rows: Number of values of each.
    """
    places = {column.name: column for column in schema.columns}
    read = {name: _read_values(places[name], values) for name, values in columns.items() if name in places}
    frame = _fitting(schema, passed_over, list(columns), read, n_rows)
    return Given(frame, lambda: arrow_columns(schema, columns))


def arrow_columns(schema: Schema, columns: Mapping[str, list[Any]]) -> Any:
    """Columns of JSON values that fit as an Arrow table."""
    there = [column for column in schema.columns if column.name in columns]
    return pa.table({column.name: _arrow_values(column, columns[column.name]) for column in there})


@dataclass(frozen=True, eq=False)
class Plain:
    """A fast path for JSON rows that have exactly the columns with outputs, in plain numbers and texts.

    It takes a tenth of the time that :func:`given_columns` takes for one row, and gives the same frame. Rows that it
    cannot read are left to that function, which finds out what is wrong.
    """

    schema: Schema
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    kinds: tuple[Kind, ...]
    order: tuple[int, ...]
    """For each column of the schema, its place among numbers and then texts; −1 if it was left out at fit."""

    @classmethod
    def of(cls, schema: Schema) -> Plain | None:
        """The fast path of a schema; None if a column holds anything but numbers and texts."""
        kept = schema.kept_columns
        if any(column.table_kind not in ("numeric", "categorical") for column in kept):
            return None
        numbers = tuple(c.name for c in kept if c.table_kind == "numeric" and c.kind != "categorical")
        texts = tuple(c.name for c in kept if c.table_kind == "categorical")
        if len(numbers) + len(texts) != len(kept):  # numbers that are levels
            return None
        places = {name: i for i, name in enumerate((*numbers, *texts))}
        kinds = tuple(
            ("numeric" if c.name in numbers else "categorical") if c.kept else _stand_in(c, 1).kind
            for c in schema.columns
        )
        return cls(schema, numbers, texts, kinds, tuple(places.get(c.name, -1) for c in schema.columns))

    def frame(self, names: Sequence[str] | None, rows: list[Any]) -> Frame | None:
        """The rows as a frame; None if they need :func:`given_columns`.

        Args:
            names: Names of the values, for rows that are lists.
            rows: Objects or lists.
        """
        own: Any = (*self.numbers, *self.texts)
        if names is None:
            width, keys = len(own), own
        else:
            width, place = len(names), {name: i for i, name in enumerate(names)}
            if len(place) != len(own) or not place.keys() >= set(own):
                return None
            keys = [place[name] for name in own]
        if set(map(len, rows)) != {width} or width != len(own):
            return None
        split, get = len(self.numbers), itemgetter(*keys) if len(keys) > 1 else lambda row: (row[keys[0]],)
        try:
            columns = list(zip(*map(get, rows), strict=True))
            numbers = [np.array(values, dtype=np.float64) for values in _typed(columns[:split], NUMBERS)]
            texts = [objects(list(values)) for values in _typed(columns[split:], TEXTS)]
        except (KeyError, OverflowError, _OtherError):
            return None
        if numbers and np.isinf(numbers).any():
            return None
        arrays = (*numbers, *texts)
        stand_ins = [
            arrays[place] if place >= 0 else np.full(len(rows), column.stand_in)
            for place, column in zip(self.order, self.schema.columns, strict=True)
        ]
        return Frame(self.schema.names, self.kinds, len(rows), "table", arrays=tuple(stand_ins))


class _OtherError(Exception):
    """A column has values of other types."""


def _typed(columns: list[tuple[Any, ...]], types: set[type]) -> list[tuple[Any, ...]]:
    """The columns, if their values are of these types alone."""
    if not set(map(type, chain.from_iterable(columns))) <= types:
        raise _OtherError
    return columns


def given_arrow(schema: Schema, passed_over: Collection[str], table: Any, limits: Limits) -> Given:
    """An Arrow table as rows that fit."""
    limits.check_rows(table.num_rows)
    known = {column.name for column in schema.columns}
    names = list(table.column_names)
    table = table.select([name for name in names if name in known])
    read: dict[str, Read] = {}
    slow: list[str] = []
    limits.check_unpacked(sum(map(_text_bytes, table.columns)))
    for name, values in zip(table.column_names, table.columns, strict=True):
        found = _read_arrow(values)
        if found is None:
            slow.append(name)
        else:
            read[name] = found
    if slow:  # dates, decimals, spans of time and the like
        frame = read_columns(table.select(slow))
        for i, name in enumerate(slow):
            problem = frame.problems.get(name)
            said = None if problem is None else problem.removeprefix(f"column {name!r} ")
            read[name] = Read(frame.kinds[i], frame.column(i), said)
    return Given(_fitting(schema, passed_over, names, read, table.num_rows), lambda: table)


def _fitting(
    schema: Schema, passed_over: Collection[str], names: Sequence[str], read: Mapping[str, Read], n_rows: int
) -> Frame:
    """All columns of the schema, found by their names; those that were left out at fit may be missing."""
    there = [name for name in names if name in read or name not in passed_over]
    wrong = Match.of(schema.columns, there, by_place=False).problems()
    parts = [read.get(column.name) or _stand_in(column, n_rows) for column in schema.columns]
    frame = gathered(schema.names, n_rows, "table", parts)
    try:
        schema.read(frame)
    except SchemaError as error:
        wrong = {**error.columns, **wrong}
    if wrong:
        raise Refused(422, str(SchemaError.of(wrong)).replace("the encoder", "the model"), wrong)
    return frame


def _stand_in(column: Column, n_rows: int) -> Read:
    value = column.stand_in
    return Read("missing" if np.isnan(value) else "numeric", np.full(n_rows, value))


# ---------------------------------------------------------------------------------------------------------- JSON values


def _read_values(column: Column, values: list[Any]) -> Read:
    types = set(map(type, values))
    if types <= NUMBERS:
        if types == NOTHING and column.table_kind != "numeric":
            return read_objects(values)
        try:
            return Read("numeric", np.array(values, dtype=np.float64))
        except OverflowError:
            return read_objects(values)
    if types <= TEXTS:
        return _read_dates(values) if column.table_kind == "datetime" else Read("categorical", objects(values))
    return read_objects(values)


def _read_dates(values: list[str | None]) -> Read:
    try:
        return Read("datetime", np.array([np.nan if v is None else as_double(_date(v)) for v in values]))
    except ValueError:
        bad = next(v for v in values if v is not None and not _is_date(v))
        return Read(problem=f"holds {bad[:40]!r}, which is no ISO date or time; write it like 2024-02-01T08:30:00")


def _date(text: str) -> dt.datetime:
    if _DATE.match(text.strip()) is None:
        raise ValueError
    found = dt.datetime.fromisoformat(text.strip())
    try:
        return found if found.tzinfo is None else found.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueError("not in the years 1 to 9999 of UTC") from error


def _is_date(text: str) -> bool:
    try:
        _date(text)
    except ValueError:
        return False
    return True


def _arrow_values(column: Column, values: list[Any]) -> Any:
    """JSON values that fit, as Arrow has them."""
    if column.table_kind == "datetime":
        dates = [None if v is None else _date(v) for v in values]
        zoned = any(d is not None and d.tzinfo for d in dates)
        return pa.array(dates, pa.timestamp("us", "UTC" if zoned else None))
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        # Large numbers; or, in a column that was left out at fit and fits whatever it holds, values of several types.
        as_one = float if all(isinstance(v, int | float | None) for v in values) else str
        return pa.array([None if v is None else as_one(v) for v in values])


# --------------------------------------------------------------------------------------------------------------- Arrow


def _read_arrow(values: Any) -> Read | None:
    """A column of plain numbers, booleans or texts; None for any other type."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return Read("numeric", np.array(values.to_numpy(), dtype=np.float64), single=pa.types.is_float32(kind))
    if pa.types.is_boolean(kind) and not values.null_count:
        return Read("boolean", np.array(values.to_numpy(), dtype=np.float64))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Read("categorical", objects(values.to_pylist()))
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return Read("categorical", objects(pc.cast(values, kind.value_type).to_pylist()))
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        return Read(problem="holds nested values; give each part a column of its own")
    return None


def _text_bytes(values: Any) -> int:
    """Bytes of all texts of a column, counted in every row: one text can be in many rows."""
    return sum(_chunk_bytes(chunk) for chunk in values.chunks)


def _chunk_bytes(chunk: Any) -> int:
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        if not _is_text(kind.value_type):
            return 0
        lengths = np.append(np.asarray(_lengths(chunk.dictionary), dtype=np.int64), 0)
        places = pc.fill_null(pc.cast(chunk.indices, pa.int64()), len(lengths) - 1)
        return int(lengths[np.asarray(places)].sum())
    return int(np.asarray(_lengths(chunk), dtype=np.int64).sum()) if _is_text(kind) else 0


def _lengths(chunk: Any) -> Any:
    if _is_view(chunk.type):  # a view begins with its length, in four of sixteen bytes
        views = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[::4]
        lengths = views[chunk.offset : chunk.offset + len(chunk)]
        return np.where(np.asarray(chunk.is_valid()), lengths, 0)  # a missing one may have any length
    return pc.fill_null(pc.binary_length(chunk), 0)


def _is_text(kind: Any) -> bool:
    types = pa.types
    plain = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
    return plain or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or _is_view(kind)


def _is_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
