"""Far more flagged rows than a detector's rate allows: how many, and which column they differ by most."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from nrf.detect.explain import explain
from nrf.detect.windows import Windows

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

LEAST_ROWS = 20
MANY, TIMES = 0.2, 4
"""Far more: at least this share of all rows, and so many times the rate. Tables with that many anomalies are rare, and
tables that have changed since the fit are not."""


def is_excess(flagged: int, rows: int, rate: float) -> bool:
    """Whether so many flagged rows speak of a change in the table and not of anomalies.

    Example:
        >>> is_excess(73, 100, rate=0.05), is_excess(9, 100, rate=0.05), is_excess(3, 4, rate=0.05)
        (True, False, False)
    """
    return rows >= LEAST_ROWS and flagged >= max(MANY, TIMES * rate) * rows


def excess_note(detector: NRFDetector, flagged: int, rows: int, examples: Any) -> str | None:
    """What to say of the flagged rows of a table, ``None`` if there is nothing to say.

    Args:
        detector: A fitted detector of tables.
        flagged: Flagged rows.
        rows: All rows.
        examples: A few of the flagged rows as a table, to see by which column they differ most.
    """
    rule = detector.threshold_rule_
    if not is_excess(flagged, rows, rule.rate):
        return None
    lines = [
        f"{flagged} of {rows} rows are flagged, though the threshold allows {100 * rule.rate:g} %: the rows seem to "
        "have changed since the fit"
    ]
    if examples.num_rows and not isinstance(detector.features_, Windows):
        column, count = _costliest(detector, examples)
        lines.append(
            f"in {count} of {examples.num_rows} flagged rows looked at, {column} counts most; if it should not count, "
            f"fit again with --drop {column}"
        )
    lines.append("if the new rows are normal, fit again with newer ones")
    return "; ".join(lines)


def _costliest(detector: NRFDetector, examples: Any) -> tuple[str, int]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X has feature names")
        found = explain(detector, examples)
    sizes = [{name: abs(size) for name, size in row.contributions.items()} for row in found]
    return Counter(max(of_row, key=of_row.__getitem__) for of_row in sizes).most_common(1)[0]
