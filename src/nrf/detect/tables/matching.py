"""Which columns of a later table, or of a file, are those of the training table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nrf.detect.tables.columns import Column, Placed
from nrf.detect.tables.frame import Frame
from nrf.detect.tables.values import Array
from nrf.errors import InputError


class SchemaError(InputError):
    """A table does not have the columns, or the kinds of columns, that a schema was fitted on.

    Args:
        message: All that is wrong.
        columns: The message column by column, where it is known.
    """

    def __init__(self, message: str, columns: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.columns = dict(columns or {})

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> SchemaError:
        """The error that lists what is wrong with some columns."""
        lines = "".join(f"\n- {problem}" for problem in columns.values())
        return cls(f"the table does not fit the one the encoder was fitted on:{lines}", columns)


@dataclass(frozen=True)
class Match:
    """The columns of a schema in a list of names."""

    places: dict[str, int]
    """The place of each column, by its name and in the order of the schema; absent columns are left out."""
    missing: tuple[str, ...]
    """Absent columns that have outputs."""
    extra: tuple[str, ...]
    """Names that the schema does not know."""
    wrong_number: bool = False
    """Whether columns are matched by place and their number differs; nothing else is known then."""

    @classmethod
    def of(cls, columns: Sequence[Column], names: Sequence[str], *, by_place: bool) -> Match:
        """Find columns by their names, or, if one side has none, by their places."""
        if by_place:
            if len(names) != len(columns):
                return cls({}, (), (), wrong_number=True)
            return cls({column.name: i for i, column in enumerate(columns)}, (), ())
        there = {name: i for i, name in enumerate(names)}
        known = {column.name for column in columns}
        return cls(
            {column.name: there[column.name] for column in columns if column.name in there},
            tuple(column.name for column in columns if column.kept and column.name not in there),
            tuple(name for name in names if name not in known),
        )

    def problems(self) -> dict[str, str]:
        """What is wrong, by column."""
        wrong = {name: f"column {name!r} is not in the table; add it" for name in self.missing}
        return wrong | {name: f"column {name!r} was not there at fit; remove it" for name in self.extra}


@dataclass(frozen=True, eq=False)
class MatchedFrame:
    """A table that fits a schema, read once."""

    frame: Frame
    places: dict[str, int]
    """Where each column of the schema is."""
    is_matrix: bool
    """Whether the columns with outputs are one array of numbers."""

    def values(self, column: Column) -> Array:
        """Values of a column in the form of its kind."""
        place = self.places[column.name]
        return column.in_form(self.frame.column(place), self.frame.kinds[place])

    def together(self, columns: Sequence[Placed[Column]]) -> MatchedValues:
        """Values of several columns."""
        return MatchedValues(self, tuple(c.column for c in columns))


class MatchedValues:
    """The values of several columns: see :class:`nrf.detect.tables.columns.Values`."""

    def __init__(self, matched: MatchedFrame, columns: tuple[Column, ...]) -> None:
        self._matched, self._columns = matched, columns
        self._places = [matched.places[column.name] for column in columns]
        self._is_all = self._places == list(range(len(matched.frame.names)))
        self._arrays: list[Array] | None = None

    def __getitem__(self, i: int) -> Array:
        return self._matched.values(self._columns[i])

    def rows(self, rows: slice) -> Array:
        """Some rows of all columns; those of an array keep its type."""
        if self._matched.is_matrix:
            assert self._matched.frame.matrix is not None
            part: Array = self._matched.frame.matrix[rows]
            return part if self._is_all else part[:, self._places]
        if self._arrays is None:
            self._arrays = [self[i] for i in range(len(self._columns))]
        return np.stack([array[rows] for array in self._arrays], axis=1)
