"""One view of any table that a user has: NumPy, pandas, polars, Arrow, or lists of rows."""

from __future__ import annotations

import importlib
import numbers
import os
import reprlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from nrf.detect.tables.python_values import Read, level_of, objects, read_objects, read_vector, without_missing
from nrf.detect.tables.values import BLOCK, Array, Doubles, Kind
from nrf.errors import InputError

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

Source = Literal["table", "named array", "array"]

INFINITE = "replace them by missing values (NaN) or drop these rows"


@dataclass(frozen=True, eq=False)
class Frame:
    """A table, column by column.

    Values of a column are doubles with NaN for missing ones (numbers; booleans as 0 and 1; times as seconds since
    1970; durations and times of day as seconds), or, if it is categorical, strings with ``None`` for missing ones.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    n_rows: int
    source: Source
    """Where the names come from: the table, the caller, or nowhere (``x0``, ``x1``, …)."""
    matrix: Array | None = None
    """All values at once, in their own type, if the table was one array of real numbers."""
    arrays: tuple[Array, ...] = ()
    """Otherwise one array per column."""
    singles: frozenset[int] = frozenset()
    """Places of the columns whose numbers had 32 bits."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Columns that cannot be used, by name, and why."""
    given: Any = None
    """The given table, behind the interface of narwhals, or the array; None if only some of its rows were taken."""

    def column(self, place: int) -> Array:
        """Values of one column, counted from 0."""
        if self.matrix is None:
            return self.arrays[place]
        return np.asarray(self.matrix[:, place], dtype=np.float64)

    def is_single(self, place: int) -> bool:
        """Whether the numbers of a column were given in single precision."""
        return place in self.singles if self.matrix is None else self.matrix.dtype == np.float32

    def own_values(self, place: int) -> list[Any]:
        """Values of one column as they were given, in their own types; ``None`` for missing ones."""
        if self.given is None:
            return without_missing(self.column(place).tolist())
        if not isinstance(self.given, np.ndarray):
            try:
                return without_missing(self.given[self.given.columns[place]].to_list())
            except (OverflowError, LookupError, ValueError) as error:
                raise InputError(
                    f"column {self.names[place]!r} holds values that Python has no type for; give dates of the years "
                    "1 to 9999, in a known time zone"
                ) from error
        values = self.given[:, place]
        if values.dtype.kind in "Mm":
            values = values.astype(f"{values.dtype.str[:3]}[us]")  # finer ones would become integers
        return without_missing(values.tolist())

    def time_zone(self, place: int) -> str | None:
        """Name of the time zone that a column of a table has by its type."""
        if self.given is None or isinstance(self.given, np.ndarray):
            return None
        zone: str | None = getattr(self.given[self.given.columns[place]].dtype, "time_zone", None)
        return zone

    def __len__(self) -> int:
        return self.n_rows

    def taken(self, places: npt.NDArray[np.intp]) -> Frame:
        """A frame of some of the rows."""
        matrix = None if self.matrix is None else self.matrix[places]
        arrays = tuple(array[places] for array in self.arrays)
        return replace(self, n_rows=len(places), matrix=matrix, arrays=arrays, given=None)


def as_columns(data: Any, names: Sequence[str] | None = None) -> Frame:
    """A table of any kind as a :class:`Frame`.

    Args:
        data: A pandas or polars data frame, an Arrow table or record batch, or an array of shape (n, d) or anything
            that NumPy can turn into one. An array of real numbers is not copied.
        names: Names for the columns of an array.

    Raises:
        InputError: It is not a table, or some columns cannot be used; all of those are named.

    Example:
        >>> as_columns([[1, "a"], [None, "b"]], names=["size", "colour"]).kinds
        ('numeric', 'categorical')
    """
    frame = read_columns(data, names)
    if frame.problems:
        raise InputError("the table cannot be used as it is:" + "".join(f"\n- {p}" for p in frame.problems.values()))
    return frame


def read_columns(data: Any, names: Sequence[str] | None = None) -> Frame:
    """:func:`as_columns`, but columns that cannot be used are among the frame's problems, instead of an error."""
    table = as_table(data)
    if table is None:
        array = as_array(data)
        return replace(_read_array(array, names), given=array)
    columns = tuple(table.columns)
    if names is not None and tuple(names) != columns:
        raise InputError("names are for arrays, this table has its own; rename its columns instead")
    _check_shape(len(table), len(columns))
    matrix = _pandas_matrix(table)
    if matrix is not None:
        return replace(_matrix_frame(matrix, columns, "table"), given=table)
    read = [_read_series(table[name]) for name in columns]
    return replace(gathered(columns, len(table), "table", read), given=table)


def in_common_form(data: Any) -> Any:
    """Convert data that scikit-learn would misread: masked values to NaN, record batches to tables.

    Raises:
        InputError: It is the name of a file, or an array with a column that does not hold numbers; the column is named.
    """
    if isinstance(data, str | os.PathLike):
        raise InputError(
            f"rows are needed, not the name {str(data)!r}; read a file with read_table of nrf.detect.tables.files, or "
            "with pandas"
        )
    if isinstance(data, np.ma.MaskedArray):
        data = as_array(data)
    if isinstance(data, torch.Tensor):
        return without_gradient(data).numpy()
    if isinstance(data, list | tuple) or (isinstance(data, np.ndarray) and data.dtype.kind in "OUSMm"):
        _require_numbers(data)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(data, arrow.RecordBatch):
        return arrow.Table.from_batches([data])
    return data


def _require_numbers(data: Any) -> None:
    try:
        array = as_array(data)
    except ValueError:
        return  # scikit-learn reports what is wrong with its shape
    columns = array.T if array.dtype.kind in "OUSMm" else ()
    for i, values in enumerate(columns):
        odd = next((v for v in values.tolist() if not _is_number(v)), None)
        if odd is not None or values.dtype.kind in "Mm":
            raise InputError(
                f"column x{i} of the array holds {reprlib.repr(odd or values[0])}, which is no number; for columns of "
                "other kinds give a data frame, such as pandas.DataFrame(X)"
            )


def _is_number(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except (TypeError, ValueError):
        return False
    return True


def taken(data: Any, places: npt.NDArray[np.intp]) -> Any:
    """Some rows of an array, images or a table; the type stays the same."""
    if isinstance(data, Frame):
        return data.taken(places)
    if not is_table(data):
        return np.asarray(data)[places]
    import narwhals.stable.v2 as nw

    return nw.from_native(data, eager_only=True)[places, :].to_native()


def is_table(data: Any) -> bool:
    """Whether the data has columns with names of their own."""
    return as_table(data) is not None


def names_of(data: Any) -> tuple[str, ...] | None:
    """Names of the columns, if they have names of their own."""
    table = as_table(data)
    return None if table is None else tuple(table.columns)


def as_array(data: Any) -> Array:
    """Rows without names as an array of shape (n, d); an array of this shape is returned as it is."""
    if sparse.issparse(data):
        raise InputError("the table is a sparse matrix; make it dense with .toarray()")
    if isinstance(data, dict) or (isinstance(data, list | tuple) and data and isinstance(data[0], dict)):
        raise InputError("the table is made of dictionaries; turn it into a data frame: pandas.DataFrame(data)")
    try:
        if isinstance(data, np.ma.MaskedArray):
            to, blank = (np.float64, np.nan) if data.dtype.kind in "iuf" else (object, None)
            array: Array = data.data.astype(to)
            array[np.ma.getmaskarray(data)] = blank
        else:
            array = np.asarray(without_gradient(data))
            if array.dtype.kind in "US" and isinstance(data, list | tuple):
                array = np.array(data, dtype=object)  # or numbers beside strings would become strings
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"the table (a {type(data).__name__}) cannot be made an array of rows and columns: {error}; "
            "give each row the same number of plain values"
        ) from error
    if array.ndim == 1 and array.size:
        raise InputError(
            "the table has one dimension, not rows and columns; if it is one column use reshape(-1, 1), "
            "if it is one row reshape(1, -1)"
        )
    if array.ndim == 0:
        raise InputError(f"a {type(data).__name__} is not a table; give an array of shape (n, d) or a data frame")
    if array.ndim > 2:
        raise InputError(f"the table has the shape {array.shape}; flatten each row with reshape(len(x), -1)")
    _check_shape(len(array), array.shape[1] if array.ndim == 2 else 0)
    if array.dtype.kind == "c":
        raise InputError("the table holds complex numbers; give real and imaginary parts as columns of their own")
    if array.dtype.kind == "V":
        raise InputError("the table is a structured array; turn it into a data frame: pandas.DataFrame(array)")
    return array


def without_gradient(data: Any) -> Any:
    """A tensor without its graph, in a type that NumPy can read; anything else as it is."""
    if not isinstance(data, torch.Tensor):
        return data
    values = data.detach().cpu()
    return values.float() if values.dtype == torch.bfloat16 else values  # NumPy has no such type


def _check_shape(n_rows: int, n_columns: int) -> None:
    if n_rows == 0:
        raise InputError("the table has no rows; give at least one")
    if n_columns == 0:
        raise InputError("the table has no columns; give at least one")


# ---------------------------------------------------------------------------------------------------------- arrays


def _read_array(array: Array, names: Sequence[str] | None) -> Frame:
    source: Source = "array" if names is None else "named array"
    columns = tuple(f"x{i}" for i in range(array.shape[1])) if names is None else _checked_names(list(names))
    if len(columns) != array.shape[1]:
        raise InputError(f"the array has {array.shape[1]} columns, but {len(columns)} names are given; give one each")
    if array.dtype.kind in "iuf":
        return _matrix_frame(array, columns, source)
    read = [read_vector(values) for values in array.T]
    return gathered(columns, len(array), source, read)


def _matrix_frame(matrix: Array, names: tuple[str, ...], source: Source) -> Frame:
    problems = {
        names[i]: f"column {names[i]!r} has {count} infinite value{'s' * (count > 1)}; {INFINITE}"
        for i, count in _count_infinite(matrix)
    }
    kinds: tuple[Kind, ...] = tuple(["numeric"] * len(names))
    return Frame(names, kinds, len(matrix), source, matrix=matrix, problems=problems)


def _count_infinite(matrix: Array) -> list[tuple[int, int]]:
    """Columns with infinite values and how many. Blocks with a finite sum have none, which is a fast check."""
    if matrix.dtype.kind != "f":
        return []
    counts = np.zeros(matrix.shape[1], dtype=np.int64)
    rows = max(1, BLOCK // matrix.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(matrix), rows):
            block = matrix[start : start + rows]
            if not np.isfinite(block.sum()):
                counts += np.isinf(block.astype(np.float64, copy=False)).sum(axis=0)
    return [(int(i), int(counts[i])) for i in np.flatnonzero(counts)]


# ----------------------------------------------------------------------------------------------------- data frames


def as_table(data: Any) -> nw.DataFrame[Any] | None:
    """The data behind one interface if it has named columns, else ``None``."""
    if isinstance(data, np.ndarray | list | tuple | dict) or sparse.issparse(data):
        return None
    import narwhals.stable.v2 as nw

    if type(data).__module__.startswith("pyarrow") and hasattr(data, "column_names"):
        _checked_names(list(data.column_names))
        if type(data).__name__ == "RecordBatch":
            data = importlib.import_module("pyarrow").Table.from_batches([data])
    elif nw.dependencies.is_pandas_like_dataframe(data):
        data = data.set_axis(list(_checked_names(list(data.columns))), axis=1)
    table = nw.from_native(data, pass_through=True, allow_series=True)
    if isinstance(table, nw.LazyFrame):
        raise InputError("the table is lazy; run its query first, with .collect()")
    if isinstance(table, nw.Series):
        raise InputError(
            "the table is a single series; for one row of a table take table[i : i + 1] (pandas: table.iloc[[i]]), for "
            "one column make it a table with .to_frame()"
        )
    return table if isinstance(table, nw.DataFrame) else None


def _checked_names(names: list[Any]) -> tuple[str, ...]:
    """Names as strings. Integer names, which a data frame counts up when it is given none, are allowed."""
    integers = all(isinstance(n, numbers.Integral) and not isinstance(n, bool | np.bool_) for n in names)
    odd = [] if integers else [n for n in names if not isinstance(n, str)]
    if odd:
        raise InputError(
            f"column names must be strings, {odd[0]!r} is of type {type(odd[0]).__name__}; "
            "rename them, in pandas by table.columns = [str(name) for name in table.columns]"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"column names are used more than once: {', '.join(map(repr, twice))}; rename them")
    return tuple(str(n) for n in names)


def _pandas_matrix(table: nw.DataFrame[Any]) -> Array | None:
    """The one array behind a pandas frame of plain numbers of one type."""
    if not table.implementation.is_pandas():
        return None
    native: Any = table.to_native()
    types = set(native.dtypes)
    plain = len(types) == 1 and isinstance(next(iter(types)), np.dtype) and next(iter(types)).kind in "iuf"
    return np.asarray(native.to_numpy()) if plain else None


def gathered(names: tuple[str, ...], n_rows: int, source: Source, read: list[Read]) -> Frame:
    """A frame of columns that were read one by one."""
    problems: dict[str, str] = {}
    arrays = []
    for name, column in zip(names, read, strict=True):
        values = np.full(n_rows, np.nan) if column.values is None else column.values
        problem = column.problem
        if values.dtype == np.float64 and np.isinf(values).any():
            count = int(np.isinf(values).sum())
            problem = f"has {count} infinite value{'s' * (count > 1)}; {INFINITE}"
        if problem is not None:
            problems[name] = f"column {name!r} {problem}"
        arrays.append(values)
    kinds: tuple[Kind, ...] = tuple(
        "missing" if name in problems else c.kind for name, c in zip(names, read, strict=True)
    )
    singles = frozenset(i for i, column in enumerate(read) if column.single)
    return Frame(names, kinds, n_rows, source, arrays=tuple(arrays), singles=singles, problems=problems)


def _read_series(series: nw.Series[Any]) -> Read:
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    if getattr(series.to_native(), "dtype", None) == np.dtype(object):  # narwhals guesses what is inside; this looks
        return read_objects(series.to_list())
    if dtype.is_numeric():
        return Read("numeric", _doubles(series), single=dtype == nw.Float32)
    if dtype == nw.Boolean:
        return Read("boolean", _doubles(series))
    if isinstance(dtype, nw.Datetime | nw.Date):
        return Read("datetime", _doubles(series.dt.timestamp("us")) / 1e6)
    if isinstance(dtype, nw.Duration):
        return Read("numeric", _doubles(series.dt.total_microseconds()) / 1e6)
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return Read("categorical", objects([level_of(v) for v in without_missing(series.to_list())]))
    return read_objects(series.to_list())


def _doubles(series: nw.Series[Any]) -> Doubles:
    import narwhals.stable.v2 as nw

    if isinstance(series.dtype, nw.Decimal | nw.Int128 | nw.UInt128):  # NumPy has no such types
        series = series.cast(nw.Float64())
    # Arrow refuses to cast integers that a double would round, so NumPy casts them; it has no missing integers.
    missing = series.is_null()
    if missing.any():
        series = series.fill_null(value=False if series.dtype == nw.Boolean else 0)
    values = np.array(series.to_numpy(), dtype=np.float64)
    values[missing.to_numpy().astype(bool)] = np.nan
    return values
