"""Tables to rows of numbers that a network can take, and such rows back to tables."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from nrf import config
from nrf.detect.tables.column import (
    TAIL,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    DroppedColumn,
    KeptColumn,
    NumericColumn,
    Scaling,
    SchemaError,
    fit_column,
    fit_levels,
    squash_in_place,
)
from nrf.detect.tables.frame import BLOCK, Array, Frame, Source, as_array, as_columns, is_table, names_of, read_columns
from nrf.detect.tables.identifiers import named_columns, why_identifier
from nrf.detect.tables.values import Doubles, Kind, Value, from_seconds, same_levels, to_levels
from nrf.errors import InputError

VERSION = 1
JITTER = 0.3
"""Noise on training rows where values are discrete: see :meth:`TableEncoder.jitter`."""
LARGEST_SIZE = 1000.0
"""Numbers farther from 0 than so many of their scales need doubles: in single precision too much of them is lost."""
UNEXPECTED = "(unexpected)"
WORDS: dict[Kind, str] = {
    "numeric": "numbers",
    "boolean": "booleans",
    "categorical": "strings",
    "datetime": "dates",
    "missing": "missing values",
}


@dataclass(frozen=True)
class TableEncoder:
    """How a table becomes a matrix of 32-bit floats without missing values; made by :meth:`fit`.

    - Numbers and times: ``squash((x − median) / scale)``, see :mod:`nrf.detect.tables.column`. Numbers that take two
      values are levels in disguise: 0 for the more frequent one and ±1 for the other.
    - Booleans: 0 or 1.
    - Strings and categories: one output per level, or one per bucket of levels where there are many. Levels too rare to
      learn from share one output, which levels that were not there at fit then have too; where none is rare, those have
      an output of their own.
    - Missing values: the median (the more frequent value of a boolean) and a flag beside it, if the column had missing
      values at fit; categories have an output for them.
    - Novelties: the last output counts, over all columns, values that are missing where at fit none were, and numbers
      that differ where at fit all were equal. Like the outputs of unseen levels it is 0 in all training rows.

    Example:
        >>> encoder = TableEncoder.fit([[1.0, "a"], [2.0, "b"], [4.0, "a"]], names=["size", "colour"])
        >>> encoder.output_names
        ('size', 'colour=a', 'colour=b', 'colour (unseen)', '(unexpected)')
        >>> encoder.encode([[2.0, "c"]]).tolist()
        [[0.0, 0.0, 0.0, 1.0, 0.0]]
        >>> encoder.decode(encoder.encode([[4.0, "b"]])[0])
        {'size': 4, 'colour': 'b'}
    """

    columns: tuple[Column, ...]
    """One record per column of the training table, in its order."""
    source: Source
    """Where the names came from at fit; see :class:`nrf.detect.tables.frame.Frame`."""
    max_levels: int = 64
    """Categorical columns with more levels are hashed."""
    hash_buckets: int = 32
    """Into so many buckets."""

    def __post_init__(self) -> None:
        if self.max_levels < 1 or self.hash_buckets < 1:
            raise InputError("max_levels and hash_buckets must be at least 1")
        if len(set(self.names)) != len(self.names):
            raise InputError("an encoder needs columns with different names")
        if not self.kept_columns:
            reasons = ", ".join(f"{c.name!r} ({c.reason})" for c in self.columns if isinstance(c, DroppedColumn))
            kept = any(c.reason == "identifier" for c in self.columns if isinstance(c, DroppedColumn))
            fix = "give at least one that varies" + (", or name identifiers to use in keep" if kept else "")
            raise InputError(f"no column tells rows apart: {reasons}; {fix}")

    @classmethod
    def fit(
        cls,
        table: Any,
        *,
        max_levels: int = 64,
        hash_buckets: int = 32,
        names: Sequence[str] | None = None,
        scaling: Scaling = "quartiles",
        categorical: Sequence[str | int] = (),
        keep: Sequence[str | int] = (),
    ) -> TableEncoder:
        """Learn columns, scales and levels from a training table.

        Columns that are constant, have no values or look like identifiers are left out, with one warning that names
        them all. Identifiers are told from 50 values on, see :mod:`nrf.detect.tables.identifiers`: levels nearly
        all of which are distinct, free text, running numbers, and dates of which each takes a step of its own on a
        regular grid.

        Args:
            table: Whatever :func:`nrf.detect.tables.frame.as_columns` takes, or its result.
            max_levels: Categorical columns with more levels are hashed.
            hash_buckets: Into so many buckets.
            names: Names for the columns of an array.
            scaling: Divide numbers by the distance of their quartiles, or by their standard ``deviation``.
            categorical: Columns, by name or place, whose values are levels whatever they look like: codes, zones.
            keep: Columns to keep though they look like identifiers.
        """
        if scaling not in get_args(Scaling):
            raise InputError(f"scaling must be 'quartiles' or 'deviation', got {scaling!r}")
        if isinstance(table, Frame) and names is not None:
            raise InputError("names are for arrays, a frame has its own; give them to as_columns instead")
        frame = table if isinstance(table, Frame) else as_columns(table, names)
        levels, kept = named_columns(frame.names, "categorical", categorical), named_columns(frame.names, "keep", keep)
        columns: list[Column] = []
        for i, (name, kind) in enumerate(zip(frame.names, frame.kinds, strict=True)):
            values = frame.column(i)
            why = None if i in levels | kept else why_identifier(kind, values)
            if why is not None:
                columns.append(DroppedColumn(name, "identifier", detail=why))
            elif i in levels and kind != "missing":
                columns.append(fit_levels(name, to_levels(kind, values), max_levels, hash_buckets, kind))
            else:
                column = fit_column(name, kind, values, max_levels, hash_buckets, scaling)
                if isinstance(column, DroppedColumn) and column.value is not None:
                    column = replace(column, single=frame.is_single(i))
                columns.append(column)
        encoder = cls(tuple(columns), frame.source, max_levels, hash_buckets)
        message = encoder._left_out()
        if message:
            warnings.warn(message, stacklevel=2)
        return encoder

    def _left_out(self) -> str:
        dropped = [c for c in self.columns if isinstance(c, DroppedColumn)]
        flat = [f"{c.name!r} ({c.reason})" for c in dropped if c.reason != "identifier"]
        names = [f"{c.name!r} ({c.detail})" for c in dropped if c.reason == "identifier"]
        parts = [f"columns left out, as they tell no row from another: {', '.join(flat)}"] if flat else []
        if names:
            listed = [c.name for c in dropped if c.reason == "identifier"]
            parts.append(
                f"columns left out, as they look like identifiers: {', '.join(names)}; to use them all the same give "
                f"keep={listed}, or categorical=… for codes that stand for groups"
            )
        return "; ".join(parts)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, those left out too."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def kept_columns(self) -> tuple[KeptColumn, ...]:
        """The columns that have outputs."""
        return tuple(c for c in self.columns if not isinstance(c, DroppedColumn))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Their places in the training table."""
        return tuple(i for i, c in enumerate(self.columns) if not isinstance(c, DroppedColumn))

    def lacks_dropped_only(self, table: Any) -> bool:
        """Whether a table with names has all columns but some that were left out at fit, in the order of the fit."""
        given = names_of(table)
        dropped = {c.name for c in self.columns if isinstance(c, DroppedColumn)} - set(given)
        return bool(dropped) and given == tuple(name for name in self.names if name not in dropped)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """First output of each kept column, and behind them the place of the count of novelties."""
        return tuple(int(s) for s in np.cumsum([0, *(len(c.outputs) for c in self.kept_columns)]))

    @property
    def n_outputs(self) -> int:
        """Number of outputs; the last one counts novelties."""
        return self._starts[-1] + 1

    @property
    def groups(self) -> list[tuple[str, slice]]:
        """Which outputs belong to which column. The last output belongs to none."""
        starts = self._starts
        return [(c.name, slice(a, b)) for c, a, b in zip(self.kept_columns, starts, starts[1:], strict=False)]

    @property
    def output_names(self) -> tuple[str, ...]:
        """A name for each output."""
        return (*(name for c in self.kept_columns for name in c.outputs), UNEXPECTED)

    @cached_property
    def surprises(self) -> list[int]:
        """Outputs that are 0 in all training rows, of novelties: unseen levels, and the count at the end."""
        parts = zip(self.kept_columns, self.groups, strict=True)
        return [*(part.stop - 1 for c, (_, part) in parts if isinstance(c, CategoricalColumn)), self.n_outputs - 1]

    @cached_property
    def learned(self) -> list[int]:
        """The other outputs: those in which training rows differ, and from which a model can learn."""
        odd = set(self.surprises)
        return [i for i in range(self.n_outputs) if i not in odd]

    def jitter(self) -> npt.NDArray[np.float32]:
        """Standard deviation of the noise that training rows should get, for each of the outputs that vary.

        A column with few values has no density, and a model of densities would make its potential ever steeper there.
        With noise it has one: a part of the distance between levels. Numbers of more than two values get none here.
        """
        noise = np.full(self.n_outputs, JITTER, dtype=np.float32)
        for column, start in zip(self.kept_columns, self._starts, strict=False):
            if isinstance(column, NumericColumn | DatetimeColumn) and not column.two_valued:
                noise[start] = 0.0
        return noise[self.learned]

    def sizes(self) -> npt.NDArray[np.float32]:
        """Size of the numbers behind each output, in scales: what their rounding is relative to."""
        size = np.ones(self.n_outputs, dtype=np.float32)
        for column, start in zip(self.kept_columns, self._starts, strict=False):
            if isinstance(column, NumericColumn | DatetimeColumn):
                size[start] = min(TAIL + abs(column.median) / column.scale, LARGEST_SIZE)
        return size

    @property
    def is_numeric(self) -> bool:
        """Whether all columns that have outputs hold numbers."""
        return all(isinstance(c, NumericColumn) for c in self.kept_columns)

    def encode(self, table: Any) -> npt.NDArray[np.float32]:
        """The table's rows as numbers, shape (n, n_outputs).

        A table with names may have its columns in any order. An array must have all columns of the training table, in
        their order, and so must a table if the encoder was fitted on an array without names. An encoder that was
        fitted on a table takes an array if its columns are all numeric. Columns left out at fit may be missing.

        Raises:
            SchemaError: The table does not fit; the message lists all that is wrong with it.
        """
        frame, places = self.read(table)
        out = np.zeros((frame.n_rows, self.n_outputs), dtype=np.float32)
        for _, changed in self.changed_constants(frame):
            out[:, -1] += changed
        if frame.matrix is not None and self.is_numeric:
            matrix = frame.matrix
            whole = places == tuple(range(matrix.shape[1]))
            self._scale(out, lambda rows: matrix[rows] if whole else matrix[rows][:, list(places)])
            return out
        arrays = [self.in_form(c, frame, p) for c, p in zip(self.kept_columns, places, strict=True)]
        scaled = [
            a for c, a in zip(self.kept_columns, arrays, strict=True) if isinstance(c, NumericColumn | DatetimeColumn)
        ]
        if scaled:
            self._scale(out, lambda rows: np.stack([a[rows] for a in scaled], axis=1))
        for column, start, values in zip(self.kept_columns, self._starts, arrays, strict=False):
            if isinstance(column, NumericColumn | DatetimeColumn):
                continue
            missing = is_missing(values)
            if isinstance(column, CategoricalColumn):
                out[np.arange(len(out)), start + column.places(values)] = 1
            else:
                out[:, start] = np.where(missing, column.common, values)
                if column.has_missing:
                    out[:, start + 1] = missing
            if not column.has_missing:
                out[:, -1] += missing
        return out

    def changed_constants(self, frame: Frame) -> Iterator[tuple[DroppedColumn, npt.NDArray[np.bool_]]]:
        """Columns of numbers that were all equal at fit, with the rows where they are not that now."""
        by_place = frame.source == "array" or self.source == "array"
        found = {name: i for i, name in enumerate(self.names if by_place else frame.names)}
        for column in self.columns:
            if not isinstance(column, DroppedColumn) or column.value is None or column.name not in found:
                continue
            place = found[column.name]
            if frame.matrix is not None or frame.kinds[place] == "numeric":
                yield column, column.differs(frame.column(place))
            else:  # whatever it is, it is not that number
                yield column, np.ones(frame.n_rows, np.bool_)

    def _scale(self, out: npt.NDArray[np.float32], block: Callable[[slice], Array]) -> None:
        """Fill the outputs of all scaled columns, block by block, so that little memory is needed on top.

        Numbers given in single precision are scaled in it: half the memory to go through, and no more is known of them.
        """
        scaled = [
            (c, s)
            for c, s in zip(self.kept_columns, self._starts, strict=False)
            if isinstance(c, NumericColumn | DatetimeColumn)
        ]
        starts = np.array([s for _, s in scaled])
        medians, scales = np.array([c.median for c, _ in scaled]), np.array([c.scale for c, _ in scaled])
        flagged = np.array([c.has_missing for c, _ in scaled])
        target = slice(0, len(scaled)) if starts[-1] == len(scaled) - 1 else starts
        n_rows = max(1, BLOCK // len(scaled))
        rest = np.zeros(1)
        if block(slice(0, 0)).dtype == np.float32 and _fit_single_precision(medians, scales):
            exact, medians, scales = medians, medians.astype(np.float32), scales.astype(np.float32)
            rest = ((exact - medians) / scales).astype(np.float32)  # what rounding takes off a large median
        rounded = (np.abs(rest) > np.finfo(np.float32).eps).any()
        buffer = np.empty((min(n_rows, len(out)), len(scaled)), medians.dtype)
        with np.errstate(over="ignore"):
            for start in range(0, len(out), n_rows):
                rows = slice(start, min(start + n_rows, len(out)))
                z = buffer[: rows.stop - start]
                np.subtract(block(rows), medians, out=z)
                np.divide(z, scales, out=z)
                if rounded:
                    np.subtract(z, rest, out=z)
                missing = np.isnan(z)
                if missing.any():
                    z[missing] = 0  # the median
                    out[rows, starts[flagged] + 1] = missing[:, flagged]
                    out[rows, -1] += missing[:, ~flagged].sum(axis=1)
                squash_in_place(z)
                out[rows, target] = z

    def decode(self, row: npt.ArrayLike) -> dict[str, Value]:
        """One encoded row in the user's units, by column; ``None`` is a missing value.

        Numbers are not clipped to the training range. Columns left out at fit are not in the result.
        """
        outputs = np.asarray(row, dtype=np.float64)
        if outputs.shape != (self.n_outputs,) or not np.isfinite(outputs).all():
            raise InputError(f"decode takes one row of {self.n_outputs} finite numbers, such as encode(table)[0]")
        parts = zip(self.kept_columns, self.groups, strict=True)
        return {c.name: c.decode(outputs[part].tolist()) for c, (_, part) in parts}

    def to_json(self) -> dict[str, Any]:
        """All of the encoder, ready for :func:`json.dumps`."""
        return {"version": VERSION, "encoder": config.to_json(self)}

    @classmethod
    def from_json(cls, data: Any) -> TableEncoder:
        """The encoder that :meth:`to_json` wrote."""
        if not isinstance(data, dict) or set(data) != {"version", "encoder"}:
            raise InputError("not an encoder: expected an object with the keys version and encoder")
        if data["version"] != VERSION:
            raise InputError(f"the encoder has version {data['version']!r}, this nrf reads {VERSION}; fit it again")
        return config.from_json(cls, data["encoder"], "encoder")

    def read(self, table: Any) -> tuple[Frame, tuple[int, ...]]:
        """A table as a frame, and where the kept columns are in it.

        Raises:
            SchemaError: The table does not fit.
        """
        frame, problems = self._frame(table)
        return frame, self._places(frame, problems)

    def in_form(self, column: KeptColumn, frame: Frame, place: int) -> Array:
        """The values of a kept column in the form of its kind, from the place of a frame where it is."""
        values, kind = frame.column(place), frame.kinds[place]
        if isinstance(column, CategoricalColumn) and column.holds != "categorical":
            return same_levels(column.holds, values) if kind == "categorical" else to_levels(column.holds, values)
        if (column.kind == "categorical") == (values.dtype == object):
            return values
        # Of another kind: all are known to be missing.
        return np.full(len(values), None) if column.kind == "categorical" else np.full(len(values), np.nan)

    def _frame(self, table: Any) -> tuple[Frame, dict[str, str]]:
        if isinstance(table, Frame):
            return table, {}
        if is_table(table):
            return read_columns(table)
        array = as_array(table)
        # Errors are to name the columns as the encoder does.
        frame, problems = read_columns(array, self.names if array.shape[1] == len(self.columns) else None)
        return replace(frame, source="array"), problems

    def _places(self, frame: Frame, problems: dict[str, str]) -> tuple[int, ...]:
        """Where the kept columns are in the frame."""
        by_place = frame.source == "array" or self.source == "array"
        if by_place and len(frame.names) != len(self.columns):
            raise SchemaError(
                f"the table has {len(frame.names)} columns, the encoder was fitted on {len(self.columns)}; "
                "give the same ones in the same order"
            )
        if frame.source == "array" and self.source == "table" and not self.is_numeric:
            raise SchemaError(
                "the encoder was fitted on a table with columns that are not numeric, and an array has no names to "
                "find them by; give a data frame"
            )
        found = {name: i for i, name in enumerate(self.names if by_place else frame.names)}
        wrong = [f"column {c.name!r} is not in the table; add it" for c in self.kept_columns if c.name not in found]
        known = set(self.names)
        wrong += [f"column {name!r} was not there at fit; remove it" for name in found if name not in known]
        for column in self.kept_columns:
            i = found.get(column.name)
            if i is None:
                continue
            problem = problems.get(frame.names[i])
            if problem is None and not (frame.matrix is not None and column.kind == "numeric"):
                problem = _misfit(column, frame.kinds[i], frame.column(i))
            wrong += [problem] if problem else []
        if wrong:
            raise SchemaError(
                "the table does not fit the one the encoder was fitted on:" + "".join(f"\n- {w}" for w in wrong)
            )
        return tuple(found[c.name] for c in self.kept_columns)


def _fit_single_precision(medians: Doubles, scales: Doubles) -> bool:
    """Whether no median is too large and no scale too small for a number of single precision."""
    single = np.finfo(np.float32)
    return bool((np.abs(medians) < single.max).all() and (scales > single.tiny).all() and (scales < single.max).all())


def is_missing(values: Array) -> npt.NDArray[np.bool_]:
    """Where values of a frame's column are missing."""
    if values.dtype == object:
        return np.fromiter((v is None for v in values), np.bool_, count=len(values))
    return np.isnan(values)


def _misfit(column: KeptColumn, kind: Kind, values: Array) -> str | None:
    """What is wrong with values of some kind in a column; nothing, if there are none or it is the column's kind."""
    wanted_kind = column.holds if isinstance(column, CategoricalColumn) else column.kind
    if kind in (wanted_kind, column.kind, "missing"):  # levels may come as text, whatever they were
        return None
    present = values[~is_missing(values)]
    if wanted_kind == "boolean" and kind == "numeric":
        present = present[(present != 0) & (present != 1)]
    if not len(present):
        return None
    example: object = present[0]
    if kind == "datetime":
        example = from_seconds(float(present[0])).isoformat()
    elif kind != "categorical":
        example = bool(present[0]) if kind == "boolean" else float(present[0])
    wanted = WORDS[wanted_kind]
    given = f"{WORDS[kind]}, for example {reprlib.repr(example)}"
    return f"column {column.name!r} had {wanted} at fit, now it has {given}; give {wanted}"
