"""Encode tables as rows of numbers that a network can take, and decode such rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from nrf import config
from nrf.deprecation import deprecated
from nrf.detect.tables.columns import (
    KINDS,
    AnyColumn,
    Column,
    DroppedColumn,
    FitOptions,
    Placed,
    Scaling,
    TrainingColumn,
    families_of,
)
from nrf.detect.tables.columns.base import JITTER
from nrf.detect.tables.frame import Frame, Source, as_array, as_columns, is_table, read_columns
from nrf.detect.tables.identifiers import named_columns, why_identifier
from nrf.detect.tables.matching import Match, MatchedFrame, SchemaError
from nrf.detect.tables.values import Singles, Value
from nrf.errors import InputError

VERSION = 1
STORED_AS = "TableEncoder"
"""The name of a schema in stored detectors: its class name in version 0.1.0."""
UNEXPECTED = "(unexpected)"


@dataclass(frozen=True)
class Schema:
    """How a table becomes a matrix of 32-bit floats without missing values; made by :meth:`fit`.

    - Numbers and times: ``z = (x − mean) / SD``, logarithmic beyond ±30. Where the mean of z⁴ is above 6: the mean of
      ``squash(z)`` and of the normal score of the value's rank in training, see
      :mod:`nrf.detect.tables.columns.heavy`.
    - With another ``scaling`` than "auto": ``squash((x − median) / scale)``, see
      :mod:`nrf.detect.tables.columns.squash`.
    - Numbers that take two values: 0 for the more frequent one and ±1 for the other.
    - Booleans: 0 or 1.
    - Strings and categories: one output per level, or some shared outputs if there are many levels. Levels too rare to
      learn from share one output, which then also stands for levels that were not there at fit; if no level is rare,
      those have an output of their own.
    - Missing values: the centre of the column (the mean, or the median where tails are heavy or z is not used; the more
      frequent value of a boolean) and a flag, if the column had missing values at fit; categories have an output for
      them.
    - Novelties: the last output counts, over all columns, values that are missing where none were at fit, and numbers
      that differ where all were equal at fit. Like the outputs of unseen levels it is 0 in all training rows.

    Example:
        >>> schema = Schema.fit([[1.0, "a"], [2.0, "b"], [3.0, "a"]], names=["size", "colour"])
        >>> schema.output_names
        ('size', 'colour=a', 'colour=b', 'colour (unseen)', '(unexpected)')
        >>> schema.encode([[2.0, "c"]]).tolist()
        [[0.0, 0.0, 0.0, 1.0, 0.0]]
        >>> schema.decode(schema.encode([[3.0, "b"]])[0])
        {'size': 3, 'colour': 'b'}
    """

    columns: tuple[AnyColumn, ...]
    """One record per column of the training table, in its order."""
    source: Source
    """Where the names came from at fit; see :class:`nrf.detect.tables.frame.Frame`."""
    max_levels: int = 64
    """Categorical columns with more levels are hashed."""
    hash_buckets: int = 32
    """Number of outputs for hashed levels: signs up to 64 of them, else buckets."""

    def __post_init__(self) -> None:
        if self.max_levels < 1 or self.hash_buckets < 1:
            raise InputError("max_levels and hash_buckets must be at least 1")
        if len(set(self.names)) != len(self.names):
            raise InputError("an encoder needs columns with different names")
        if not self.kept_columns:
            reasons = ", ".join(f"{c.name!r} ({c.reason})" for c in self.dropped_columns)
            named = any(c.reason == "identifier" for c in self.dropped_columns)
            fix = "give at least one that varies" + (", or name identifiers to use in keep" if named else "")
            raise InputError(f"no column distinguishes rows: {reasons}; {fix}")

    @classmethod
    def fit(
        cls,
        table: Any,
        *,
        max_levels: int = 64,
        hash_buckets: int = 32,
        names: Sequence[str] | None = None,
        scaling: Scaling = "auto",
        categorical: Sequence[str | int] = (),
        keep: Sequence[str | int] = (),
    ) -> Schema:
        """Learn columns, scales and levels from a training table.

        Columns that are constant, have no values or look like identifiers are left out, with one warning that names
        them all. Identifiers are recognised in columns of 50 values or more, see :mod:`nrf.detect.tables.identifiers`:
        levels nearly all of which are distinct, free text, running numbers, and dates of which each takes its own step
        on a regular grid.

        Args:
            table: Anything that :func:`nrf.detect.tables.frame.as_columns` takes, or its result.
            max_levels: Categorical columns with more levels are hashed.
            hash_buckets: Number of outputs for hashed levels: signs up to 64 of them, else buckets.
            names: Names for the columns of an array.
            scaling: Units of numbers and times, see :data:`nrf.detect.tables.columns.base.Scaling`.
            categorical: Columns, by name or place, whose values are levels, whatever they look like: codes, zones.
            keep: Columns to keep though they look like identifiers.
        """
        if scaling not in get_args(Scaling):
            raise InputError(f"scaling must be 'auto', 'quartiles' or 'deviation', got {scaling!r}")
        if isinstance(table, Frame) and names is not None:
            raise InputError("names are for arrays, a frame has its own; give them to as_columns instead")
        frame = table if isinstance(table, Frame) else as_columns(table, names)
        levels, kept = named_columns(frame.names, "categorical", categorical), named_columns(frame.names, "keep", keep)
        options = FitOptions(max_levels, hash_buckets, scaling)
        columns: list[Column] = []
        for i, (name, kind) in enumerate(zip(frame.names, frame.kinds, strict=True)):
            given = TrainingColumn(name, kind, frame.column(i), frame.is_single(i))
            why = None if i in levels | kept else why_identifier(kind, given.values)
            if why is not None:
                columns.append(DroppedColumn(name, "identifier", detail=why))
            else:
                as_kind = "categorical" if i in levels and kind != "missing" else kind
                columns.append(KINDS[as_kind].fit(given, options))
        schema = cls(cast("tuple[AnyColumn, ...]", tuple(columns)), frame.source, max_levels, hash_buckets)
        message = schema._left_out()
        if message:
            warnings.warn(message, stacklevel=2)
        return schema

    def _left_out(self) -> str:
        flat = [f"{c.name!r} ({c.reason})" for c in self.dropped_columns if c.reason != "identifier"]
        names = {c.name: f"{c.name!r} ({c.detail})" for c in self.dropped_columns if c.reason == "identifier"}
        parts = [f"columns left out, as they do not distinguish rows: {', '.join(flat)}"] if flat else []
        if names:
            parts.append(
                f"columns left out, as they look like identifiers: {', '.join(names.values())}; to use them all the "
                f"same give keep={list(names)}, or categorical=… for codes that stand for groups"
            )
        return "; ".join(parts)

    # --------------------------------------------------------------------------------------------------------- columns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, including those left out."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def kept_columns(self) -> tuple[Column, ...]:
        """The columns that have outputs."""
        return tuple(c for c in self.columns if c.kept)

    @cached_property
    def dropped_columns(self) -> tuple[DroppedColumn, ...]:
        """The columns that were left out."""
        return cast("tuple[DroppedColumn, ...]", tuple(c for c in self.columns if not c.kept))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Places in the training table of the columns that have outputs."""
        return tuple(i for i, c in enumerate(self.columns) if c.kept)

    @cached_property
    def families(self) -> tuple[tuple[type[Column], tuple[Placed[Column], ...]], ...]:
        """All columns that are read from later tables, grouped by how they are encoded together."""
        starts = dict(zip(self.kept, self._starts, strict=False))
        placed = [Placed[Column](c, i, starts.get(i, 0)) for i, c in enumerate(self.columns) if c.is_read]
        return families_of(placed)

    @property
    def is_numeric(self) -> bool:
        """Whether all columns that have outputs hold numbers."""
        return all(c.kind == "numeric" for c in self.kept_columns)

    # --------------------------------------------------------------------------------------------------------- outputs

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """First output of each kept column, then the place of the count of novelties."""
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
    def novelty_columns(self) -> list[int]:
        """Outputs for novelties, which are 0 in all training rows: unseen levels, and the count at the end."""
        parts = zip(self.kept_columns, self._starts, strict=False)
        return [*(start + i for c, start in parts for i in c.novelty_outputs), self.n_outputs - 1]

    @property
    def surprises(self) -> list[int]:
        """The former name of ``novelty_columns``."""
        deprecated("Schema.surprises", "Schema.novelty_columns")
        return self.novelty_columns

    @cached_property
    def learned(self) -> list[int]:
        """The other outputs: those in which training rows differ, and from which a model can learn."""
        odd = set(self.novelty_columns)
        return [i for i in range(self.n_outputs) if i not in odd]

    @property
    def learned_spans(self) -> list[tuple[Column, tuple[int, int]]]:
        """Each kept column, and the range (start, stop) of its outputs among those that vary."""
        widths = [len(c.outputs) - len(c.novelty_outputs) for c in self.kept_columns]
        ends = [int(end) for end in np.cumsum(widths)]
        return [(c, (b - n, b)) for c, n, b in zip(self.kept_columns, widths, ends, strict=True)]

    def jitter(self) -> Singles:
        """Standard deviation of the noise that training rows should get, for each of the outputs that vary.

        A column with few values has no density, and a density model would make its potential ever steeper there. With
        noise, of a fraction of the distance between levels, it has one. Numbers of more than two values get no noise
        here.
        """
        noise = [value for column in self.kept_columns for value in column.jitter]
        return np.array([*noise, JITTER], dtype=np.float32)[self.learned]

    def units(self) -> Singles:
        """Factors, in distances between rows, of the outputs that vary."""
        units = [value for column in self.kept_columns for value in column.units]
        return np.array([*units, 1.0], dtype=np.float32)[self.learned]

    def sizes(self) -> Singles:
        """Size of the numbers behind each output, in units of its scale; their rounding is relative to it."""
        return np.array([*(size for column in self.kept_columns for size in column.sizes), 1.0], dtype=np.float32)

    # ------------------------------------------------------------------------------------------- encoding and decoding

    def encode(self, table: Any) -> Singles:
        """The table's rows as numbers, shape (n, n_outputs).

        A table with names may have its columns in any order. An array must have all columns of the training table, in
        their order, and so must a table if the schema was fitted on an array without names. A schema that was fitted on
        a table takes an array if its columns are all numeric. Columns left out at fit may be missing.

        Raises:
            SchemaError: The table does not fit; the message lists all that is wrong with it.
        """
        matched = self.read(table)
        out = np.zeros((matched.frame.n_rows, self.n_outputs), dtype=np.float32)
        for family, columns in self.families:
            there = [c for c in columns if c.column.name in matched.places]
            if there:
                family.encode_all(there, matched.together(there), out)
        return out

    def decode(self, row: npt.ArrayLike) -> dict[str, Value]:
        """One encoded row in the user's units, by column; ``None`` is a missing value.

        Numbers are not clipped to the training range. Columns left out at fit are not in the result.
        """
        return {c.name: c.decode(outputs) for c, outputs in self._split(row)}

    def decode_rounded(self, row: npt.ArrayLike) -> dict[str, Value]:
        """:meth:`decode` with numbers and times rounded as they were at fit: 32 bits do not carry all digits."""
        return {c.name: c.decode_rounded(outputs) for c, outputs in self._split(row)}

    def snap(self, row: npt.ArrayLike) -> Singles:
        """The nearest encoded row with possible values: a single level, flags 0 or 1, rounded numbers and times, no
        novelty."""
        snapped = [output for c, outputs in self._split(row) for output in c.snap(outputs)]
        return np.array([*snapped, 0.0], dtype=np.float32)

    def _split(self, row: npt.ArrayLike) -> list[tuple[Column, list[float]]]:
        """The columns that have outputs, each with its outputs of an encoded row."""
        outputs = np.asarray(row, dtype=np.float64)
        if outputs.shape != (self.n_outputs,) or not np.isfinite(outputs).all():
            raise InputError(f"this takes one row of {self.n_outputs} finite numbers, such as encode(table)[0]")
        parts = zip(self.kept_columns, self.groups, strict=True)
        return [(c, outputs[part].tolist()) for c, (_, part) in parts]

    # -------------------------------------------------------------------------------------------------------- matching

    def match(self, names: Sequence[str], source: Source = "table") -> Match:
        """Find the columns in a table or a file, by name, or by place if one side has no names."""
        return Match.of(self.columns, names, by_place="array" in (source, self.source))

    def lacks_dropped_only(self, names: Sequence[str]) -> bool:
        """Whether these are the names of all columns, in the order of the fit, except some left out at fit."""
        places = list(Match.of(self.columns, names, by_place=False).places.values())
        lacking = {c.name for c in self.dropped_columns} - set(names)
        return bool(lacking) and len(names) == len(self.columns) - len(lacking) and places == list(range(len(names)))

    def read(self, table: Any) -> MatchedFrame:
        """Match a table or a frame to the schema.

        Raises:
            SchemaError: The table does not fit.
        """
        frame = self._frame(table)
        match = self.match(frame.names, frame.source)
        if match.wrong_number:
            raise SchemaError(
                f"the table has {len(frame.names)} columns, the encoder was fitted on {len(self.columns)}; "
                "give the same ones in the same order"
            )
        if frame.source == "array" and self.source == "table" and not self.is_numeric:
            raise SchemaError(
                "the encoder was fitted on a table with columns that are not numeric, and an array has no names to "
                "find them by; give a data frame"
            )
        wrong = match.problems()
        for column in self.kept_columns:
            if column.name not in match.places:
                continue
            i = match.places[column.name]
            problem = frame.problems.get(frame.names[i])
            if problem is None and not column.takes(frame.kinds[i]):
                problem = column.misfit(frame.kinds[i], frame.column(i))
            if problem:
                wrong[column.name] = problem
        if wrong:
            raise SchemaError.of(wrong)
        return MatchedFrame(frame, match.places, is_matrix=frame.matrix is not None and self.is_numeric)

    def _frame(self, table: Any) -> Frame:
        if isinstance(table, Frame):
            return table
        if is_table(table):
            return read_columns(table)
        array = as_array(table)
        # Errors should name the columns as the schema does.
        frame = read_columns(array, self.names if array.shape[1] == len(self.columns) else None)
        return replace(frame, source="array")

    # ------------------------------------------------------------------------------------------------------------ JSON

    def to_json(self) -> dict[str, Any]:
        """All of the schema, ready for :func:`json.dumps`."""
        return {"version": VERSION, "encoder": config.to_json(self) | {"type": STORED_AS}}

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """The schema that :meth:`to_json` wrote."""
        if not isinstance(data, dict) or set(data) != {"version", "encoder"}:
            raise InputError("not an encoder: expected an object with the keys version and encoder")
        if data["version"] != VERSION:
            raise InputError(f"the encoder has version {data['version']!r}, this nrf reads {VERSION}; fit it again")
        stored = data["encoder"]
        if not isinstance(stored, dict) or stored.get("type") != STORED_AS:
            raise InputError(f"encoder does not hold a {STORED_AS}")
        return config.from_json(cls, stored | {"type": cls.__name__}, "encoder")
