"""Columns that identify rows instead of describing them: row numbers, keys, free text.

A model can learn nothing from a value that never occurs again, and each new row would look abnormal by its identifier
alone. The tests look at values only, not at their order, so that they find the same in a random part of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.values import Doubles, Kind, Objects
from nrf.errors import InputError

LEAST_ROWS = 50
"""With fewer values nothing is taken for an identifier."""
DISTINCT = 0.9
"""Levels are names, and points in time those of events, if at least this share of the values is distinct."""
WORDS, DISTINCT_TEXTS = 5, 0.5
"""Free text has at least so many words per value on average, and at least this share of distinct values."""
REPEATS = 10
"""Whole numbers are running numbers if none is there twice although, drawn at random from their range, at least so many
pairs would be equal: the chance of none is below e^-10. Prices and populations have too wide a range, counts repeat."""
GAPS = 3
"""Dates are a time index if all differ and at least every third step of their grid is taken."""
DAY = 86_400.0
"""Seconds. Points in time that differ within the day are when something happened, dates alone may be birthdays."""
HEAD = 1000  # values checked first: they decide for most columns


def why_identifier(kind: Kind, values: npt.NDArray[Any]) -> str | None:
    """Why a column looks like an identifier, or ``None`` if it does not.

    Args:
        kind: What the column holds.
        values: Its values, as a :class:`nrf.detect.tables.frame.Frame` has them.

    Example:
        >>> why_identifier("numeric", np.arange(100.0)[::-1])
        'a running number'
        >>> why_identifier("numeric", np.arange(100.0) ** 3) is None
        True
    """
    if kind == "categorical":
        return _why_levels(values)
    if kind == "numeric":
        return "a running number" if _is_running_number(values) else None
    if kind == "datetime":
        return _why_times(values)
    return None


def _why_levels(values: Objects) -> str | None:
    present = [v for v in values if v is not None]
    if len(present) < LEAST_ROWS:
        return None
    levels = set(present)
    share = len(levels) / len(present)
    if share >= DISTINCT_TEXTS and np.mean([len(level.split()) for level in levels]) >= WORDS:
        return "free text"
    return f"{len(levels)} of {len(present)} values are distinct" if share >= DISTINCT else None


def _is_running_number(values: Doubles) -> bool:
    if not _may_count(values[:HEAD]):
        return False
    seen = values[~np.isnan(values)]
    n = len(seen)
    if n < LEAST_ROWS or not _may_count(seen) or np.abs(seen).max() >= 2**53:  # beyond, doubles have gaps
        return False
    steps = _grid_steps(seen.astype(np.int64))
    return steps is not None and n * (n - 1) / 2 >= REPEATS * steps


def _may_count(values: Doubles) -> bool:
    seen = values[~np.isnan(values)]
    return bool((seen == np.floor(seen)).all()) and len(np.unique(seen)) == len(seen)


def _why_times(values: Doubles) -> str | None:
    seen = values[~np.isnan(values)]
    if len(seen) < LEAST_ROWS:
        return None
    steps = _grid_steps(np.rint(seen * 1e6).astype(np.int64))
    if steps is not None and steps <= GAPS * len(seen):
        return "a time index with equal steps"
    if len(np.unique(seen)) >= DISTINCT * len(seen) and len(np.unique(seen % DAY)) > 2:  # two: summer time and winter
        return "the time of each row, by which alone all later rows would be unusual"
    return None


def _grid_steps(values: npt.NDArray[np.int64]) -> int | None:
    """Points of the coarsest grid that holds the values, from the least to the greatest; ``None`` if any is twice."""
    distances = np.diff(np.sort(values))
    if not len(distances) or not distances.min():
        return None
    return int(distances.sum()) // int(np.gcd.reduce(distances)) + 1


def named_columns(names: Sequence[str], parameter: str, chosen: Sequence[str | int]) -> set[int]:
    """Places of the columns that a parameter names.

    Args:
        names: Names of all columns.
        parameter: Which parameter, for errors.
        chosen: Names, or places counted from 0.
    """
    if isinstance(chosen, str):
        raise InputError(f"{parameter} takes a list of columns; give {parameter}=[{chosen!r}]")
    found = {name: i for i, name in enumerate(names)}
    places, unknown = set(), []
    for item in chosen:
        place = found.get(str(item))  # in a frame whose columns are numbered, 7 is the column of that name
        if place is None and not isinstance(item, str) and 0 <= item < len(names):
            place = int(item)
        if place is None:
            unknown.append(repr(item))
        else:
            places.add(place)
    if unknown:
        few = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
        raise InputError(f"{parameter} names columns that are not there: {', '.join(unknown)}; there are {few}")
    return places
