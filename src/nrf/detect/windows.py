"""Windows of a series: a detector of tables sees several rows in the order of time, and scores rows.

A row may be normal in itself and still come at the wrong moment. A window is one row of a new table that holds several
neighbouring rows of the series, one after the other, so a detector learns which sequences are usual.
"""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nrf.detect.tables.frame import as_columns, as_table, in_common_form
from nrf.errors import InputError

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
How = Literal["mean", "min"]
Column = str | int

LONGER = 1.5
"""In units of the usual step: rows that are further apart are not neighbours."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Which rows are in which window."""

    order: Places
    """All rows, ordered by group, then by time."""
    starts: Places
    """Places in that order at which windows begin."""
    size: int

    def rows_at(self, place: int) -> Places:
        """The row at a given place of each window, counted from 0, the oldest."""
        return self.order[self.starts + place]

    @property
    def held(self) -> Places:
        """Rows that are in a window."""
        return np.unique(np.concatenate([self.rows_at(place) for place in range(self.size)]))

    def to_rows(self, scores: NDArray[np.floating], how: How = "mean") -> Floats:
        """Scores of windows as scores of rows: the mean or the minimum over the windows that hold a row.

        Rows that no window holds have NaN.
        """
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != self.starts.shape:
            raise InputError(f"there are {len(self.starts)} windows, but scores of the shape {values.shape}")
        if how not in ("mean", "min"):
            raise InputError(f"how must be 'mean' or 'min', got {how!r}")
        counts = np.zeros(len(self.order))
        found = np.full(len(self.order), 0.0 if how == "mean" else np.inf)
        for place in range(self.size):  # at one place, no row appears twice
            rows = self.rows_at(place)
            counts[rows] += 1
            found[rows] = found[rows] + values if how == "mean" else np.minimum(found[rows], values)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = found / counts if how == "mean" else found
        return np.where(counts > 0, means, np.nan)


class Windows(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows of a series as windows: each holds ``size`` neighbouring rows, one after the other, as columns.

    For numbers a window has the last value and the differences of neighbouring rows, for other columns all values: as
    many columns as with all values, but errors of order were detected better (docs/time.md).

    As ``NRFDetector(features=Windows(24, time="time"))`` it makes a detector of windows that scores rows; calibration
    rows are then held out as blocks of time, not at random. On its own it is a transformer that returns fewer rows than
    it takes.

    Args:
        size: Rows per window.
        step: Rows from the start of a window to that of the next, at most ``size``. A series always ends with a window,
            so that no row is left over.
        time: Column to order rows by, by name or place; numbers or dates. If not given, rows must be in the order of
            time.
        group: Column that says which series a row belongs to; no window holds rows of two series.
        max_gap: Rows further apart in time than this are not neighbours, and no window holds both: in units of the
            column, for dates in seconds. ``auto`` is one and a half times the median distance at fit, None any
            distance. Without ``time`` there are no gaps.
        how: How a row's score is made from the scores of the windows that hold it: their mean, or their minimum.
        differences: Whether numbers are given as the last value and differences; with False, as all values.

    Attributes:
        max_gap_: The gap that was found or given; None for any distance.
        columns_: Names of the columns that are in windows, or their places.
        numbers_: Those columns of which differences are taken.

    Example:
        >>> windows = Windows(3).fit_transform(np.arange(10.0).reshape(5, 2))
        >>> windows.shape
        (3, 6)
        >>> windows[0].tolist()  # the last row, its difference from the one before, and that from the first
        [4.0, 5.0, 2.0, 2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        size: int,
        step: int = 1,
        time: Column | None = None,
        group: Column | None = None,
        *,
        max_gap: float | Literal["auto"] | None = "auto",
        how: How = "mean",
        differences: bool = True,
    ) -> None:
        self.size = size
        self.step = step
        self.time = time
        self.group = group
        self.max_gap: float | Literal["auto"] | None = max_gap
        self.how: How = how
        self.differences = differences

    # ---------------------------------------------------------------------------------------------------- transforming

    def fit(self, X: Any, y: Any = None) -> Windows:
        """Learn the columns, and how far apart neighbouring rows usually are."""
        self.check()
        X = in_common_form(X)
        names = _given_names(X)
        self._special(names)
        columns = [name for name in names if name not in (self.time, self.group)]
        if not columns:
            raise InputError("there is no column beside those of time and group; give one with values")
        table = as_table(X)
        self.columns_: list[Any] = columns
        self.numbers_: list[Any] = []
        if self.differences:
            self.numbers_ = columns if table is None else [c for c in columns if table[c].dtype.is_numeric()]
        self.max_gap_ = self._usual_gap(X) if self.max_gap == "auto" else self.max_gap
        self.n_features_in_ = len(names)
        self.layout(X)
        return self

    def transform(self, X: Any) -> Any:
        """Turn rows into windows, group by group in the order of time: a table of the kind given, or an array.

        In a table, the column ``wind`` of the last row of a window is called ``wind[0]``, of the row before
        ``wind[-1]``, and the difference of the two ``wind[0]-wind[-1]``.

        Warns:
            RuntimeWarning: Some rows are in no window, since their group, or a stretch of it between two gaps, is
                shorter than a window.
        """
        X = in_common_form(X)
        layout = self.layout(X)
        alone = len(X) - len(layout.held)
        if alone:
            warnings.warn(
                f"{alone} of {len(X)} rows are in no window and get no score (NaN): stretches without a gap that are "
                f"shorter than {self.size} rows",
                RuntimeWarning,
                stacklevel=2,
            )
        table = as_table(X)
        if table is None:
            array = np.asarray(X)[:, np.array(self.columns_, dtype=np.intp)]
            rows = [array[layout.rows_at(place)] for place in reversed(range(self.size))]
            if self.differences:
                if array.dtype.kind in "biu":  # differences of unsigned or short integers would overflow
                    rows = [part.astype(np.result_type(part, np.int64)) for part in rows]
                rows[1:] = [later - sooner for later, sooner in pairwise(rows)]
            return np.concatenate(rows, axis=1)
        import narwhals.stable.v2 as nw

        values, parts, later = table.select(self.columns_), [], None
        values = values.with_columns(nw.col(*self.numbers_).cast(nw.Float64())) if self.numbers_ else values
        for place in reversed(range(self.size)):
            rows_there = nw.maybe_reset_index(values[layout.rows_at(place).tolist(), :])
            names = self._names(place)
            part = rows_there
            if later is not None and self.numbers_:
                part = rows_there.with_columns(*[later[name] - rows_there[name] for name in self.numbers_])
            parts.append(part.rename(dict(zip(self.columns_, names, strict=True))))
            later = rows_there
        return nw.concat(parts, how="horizontal").to_native()

    def window_scores_to_rows(self, scores: NDArray[np.floating], X: Any, how: How | None = None) -> Floats:
        """Bring scores of windows back to the rows that they were made of.

        Args:
            scores: One for each window of ``transform(X)``.
            X: The rows that the windows were made from.
            how: Mean or minimum over the windows that hold a row; if not given, the parameter ``how``.
        """
        return self.layout(in_common_form(X)).to_rows(scores, self.how if how is None else how)

    def layout(self, X: Any) -> Layout:
        """Which rows stand in which window.

        Raises:
            InputError: No window fits into the series, or times or groups cannot be used.
        """
        check_is_fitted(self, "columns_")
        if len(_given_names(X)) != self.n_features_in_ or not set(self.columns_) <= set(_given_names(X)):
            raise InputError(f"the columns at fit were {self.columns_}, beside those of time and group; give the same")
        order, cuts = self._series(X)
        if self.max_gap_ is not None and self.time is not None:
            times = self._times(X)[order]
            cuts = np.union1d(cuts, np.flatnonzero(np.diff(times) > self.max_gap_) + 1)
        ends = np.append(cuts[1:], len(order))
        starts = [_starts(int(a), int(b), self.size, self.step) for a, b in zip(cuts, ends, strict=True)]
        found: Places = np.concatenate(starts).astype(np.intp)
        if not len(found):
            longest = int((ends - cuts).max())
            raise InputError(
                f"no window of {self.size} rows fits in: the longest stretch without a gap has {longest}. Take a "
                "smaller size, or set max_gap, the distance in time up to which rows are neighbours"
            )
        return Layout(order, found, self.size)

    @property
    def n_columns(self) -> int:
        """How many columns it makes."""
        return self.size * len(self.columns_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of windows of a table."""
        check_is_fitted(self, "columns_")
        return np.array([name for i in reversed(range(self.size)) for name in self._names(i)], dtype=object)

    # ------------------------------------------------------------------------------------------------------- splitting

    def split(self, X: Any, n_held: int, seed: int) -> tuple[Places, Places]:
        """Rows to train on and rows to hold out: the last part of each group, with a gap of one window between them.

        Overlapping windows share rows, so windows held out at random would be partly known already. A group that is too
        short to be cut, with fewer rows than three windows, is trained on; if all groups are too short, whole groups
        are held out, drawn at random. If that is not possible either, nothing is held out.

        Args:
            X: Rows.
            n_held: Approximate number of rows to hold out.
            seed: Seed of the draw.
        """
        self.check()
        X = in_common_form(X)
        self._special(_given_names(X))
        order, cuts = self._series(X)
        groups = np.split(order, cuts[1:])
        learned, held = list[Places](), list[Places]()
        for rows in groups:
            last = max(self.size, round(n_held / len(order) * len(rows)))
            first = len(rows) - last - self.size
            if n_held and first >= self.size:
                learned, held = [*learned, rows[:first]], [*held, rows[len(rows) - last :]]
            else:
                learned = [*learned, rows]
        if n_held and not held and len(groups) > 1:
            groups = [groups[i] for i in np.random.RandomState(seed).permutation(len(groups))]
            ends = np.cumsum([len(rows) for rows in groups])
            count = min(len(groups) - 1, int(np.searchsorted(ends, n_held)) + 1)
            learned, held = groups[count:], groups[:count]
        return np.sort(np.concatenate(learned)), np.sort(np.concatenate([np.zeros(0, np.intp), *held]))

    # --------------------------------------------------------------------------------------------------------- reading

    def check(self) -> None:
        """Raise for an invalid parameter."""
        counts: dict[str, Any] = {"size": self.size, "step": self.step}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise InputError(f"{name} of the windows must be a whole number from 1 on, got {value!r}")
        if self.step > self.size:
            raise InputError(f"step must be at most size, or windows would pass over rows: {self.step} > {self.size}")
        if self.how not in ("mean", "min"):
            raise InputError(f"how must be 'mean' or 'min', got {self.how!r}")
        gap: Any = self.max_gap  # may be anything
        if gap is not None and gap != "auto" and not (isinstance(gap, int | float | np.number) and 0 < gap < np.inf):
            raise InputError(f"max_gap must be a number above 0, 'auto', or None for any distance, got {gap!r}")

    def _special(self, names: list[Any]) -> None:
        for what, column in (("time", self.time), ("group", self.group)):
            if column is not None and column not in names:
                shown = ", ".join(map(repr, names[:8])) + (" …" if len(names) > 8 else "")
                raise InputError(f"{what}={column!r}: there is no such column; there are {shown}")
        if self.time is not None and self.time == self.group:
            raise InputError(f"time and group are the same column, {self.time!r}; give two")

    def _series(self, X: Any) -> tuple[Places, Places]:
        """Rows by group, then by time, and where in that order groups begin."""
        n_rows = len(X)
        groups = np.zeros(n_rows, np.intp) if self.group is None else _codes(X, self.group)
        if self.time is None:
            order = np.argsort(groups, kind="stable")
            return order, _changes(groups[order])
        times = self._times(X)
        order = np.lexsort((times, groups))
        cuts, same = _changes(groups[order]), np.flatnonzero(np.diff(times[order]) == 0) + 1
        twice = np.setdiff1d(same, cuts)
        if len(twice):
            a, b = sorted((int(order[twice[0] - 1]), int(order[twice[0]])))
            raise InputError(
                f"rows {a + 1} and {b + 1} have the same time in {self.time!r}"
                + ("; name the column that identifies the series as group" if self.group is None else " and one group")
            )
        return order, cuts

    def _times(self, X: Any) -> Floats:
        frame = _column(X, self.time)
        if frame.kinds[0] not in ("numeric", "datetime"):
            raise InputError(f"column {self.time!r} is to hold times: numbers or dates, not {frame.kinds[0]} values")
        times: Floats = frame.column(0)
        _require_all(np.isnan(times), self.time)
        return times

    def _usual_gap(self, X: Any) -> float | None:
        if self.time is None:
            return None
        order, cuts = self._series(X)
        steps = np.delete(np.diff(self._times(X)[order]), cuts[1:] - 1)
        return LONGER * float(np.median(steps)) if len(steps) else None

    def _names(self, place: int) -> list[str]:
        """Names of the columns at a given place of the windows."""
        ago = place + 1 - self.size
        of_numbers = "{0}[0]" if ago == 0 else f"{{0}}[{ago + 1}]-{{0}}[{ago}]"
        return [of_numbers.format(c) if c in self.numbers_ else f"{c}[{ago}]" for c in self.columns_]

    # --------------------------------------------------------------------------------------------------------- storing

    def stored(self) -> dict[str, Any]:
        """What a fit has learned, as plain values."""
        names = {"columns": list(self.columns_), "numbers": list(self.numbers_)}
        return {**names, "max_gap": self.max_gap_, "n_features_in": self.n_features_in_}

    def restore(self, described: dict[str, Any]) -> None:
        """Restore what :meth:`stored` returned."""
        self.check()
        columns, gap, count = described["columns"], described["max_gap"], described["n_features_in"]
        found = described["numbers"]
        for names in (columns, found):
            if not isinstance(names, list) or not all(isinstance(c, str | int) for c in names):
                raise InputError(f"the windows must have a list of columns, got {names!r}")
        if not columns or not set(found) <= set(columns):
            raise InputError(f"the windows have the columns {columns!r}, of which {found!r} are to be numbers")
        if gap is not None and not (isinstance(gap, int | float) and gap >= 0):
            raise InputError(f"the gap of the windows must be a number or null, got {gap!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < len(columns):
            raise InputError(f"the windows are of {count!r} columns, of which {len(columns)} have values")
        self.columns_, self.numbers_, self.max_gap_, self.n_features_in_ = columns, found, gap, count


def _given_names(X: Any) -> list[Any]:
    table = as_table(X)
    if table is not None:
        return list(table.columns)
    shape = np.shape(X)
    if len(shape) != 2:
        raise InputError(f"windows are made of a table with rows and columns, not of the shape {shape}")
    return list(range(shape[1]))


def _column(X: Any, name: Any) -> Any:
    """One column as a frame."""
    table = as_table(X)
    return as_columns(np.asarray(X)[:, [name]] if table is None else table.select([name]).to_native())


def _codes(X: Any, name: Column) -> Places:
    """A number for each group, in the order in which groups first come."""
    values = _column(X, name).column(0)
    _require_all(np.array([v is None or v != v for v in values.tolist()]), name)
    _, first, codes = np.unique(values.astype(str), return_index=True, return_inverse=True)
    places: Places = np.argsort(np.argsort(first))[codes].astype(np.intp)
    return places


def _require_all(missing: NDArray[np.bool_], name: Column | None) -> None:
    if missing.any():
        count, first = int(missing.sum()), int(missing.argmax()) + 1
        raise InputError(f"column {name!r} has {count} missing values, the first in row {first}; leave those rows out")


def _changes(groups: Places) -> Places:
    """Where stretches of equal values begin."""
    return np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1]).astype(np.intp)


def _starts(first: int, end: int, size: int, step: int) -> Places:
    starts = np.arange(first, end - size + 1, step)
    if len(starts) and starts[-1] != end - size:
        starts = np.append(starts, end - size)
    return starts
