"""Intervals of means of paired differences."""

from __future__ import annotations

import math

from nrf.reproduce.runner.record import Row


def interval(row: Row, level: float = 0.95) -> tuple[float, float]:
    """The interval of a mean by Student's t, from its SD and number of values.

    Example:
        >>> low, high = interval(Row.of([1.0, 2.0, 3.0], "a − b", "score"))
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    from scipy.stats import t

    if row.sd is None or row.n < 2:
        return -math.inf, math.inf
    half = float(t.ppf((1 + level) / 2, row.n - 1)) * row.sd / math.sqrt(row.n)
    return row.mean - half, row.mean + half


def between(row: Row, form: str = "+.2f") -> str:
    """Mean and interval as text.

    Example:
        >>> between(Row.of([1.0, 2.0, 3.0], "a − b", "score"))
        '+2.00 [−0.48, +4.48]'
    """
    low, high = interval(row)
    return f"{row.mean:{form}} [{low:{form}}, {high:{form}}]".replace("-", "−")
