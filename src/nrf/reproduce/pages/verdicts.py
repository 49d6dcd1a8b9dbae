"""A difference, its interval, and the verdict on a claim that follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nrf.reproduce.runner.record import Row

LEVEL = 0.95
REPRODUCED, SMALLER, NOT, NOT_RUN = "reproduced", "reproduced at smaller scale", "not reproduced", "not run yet"

ClaimLine = list[str]
"""A line of the table of claims: claim, where it is measured, verdict, measured value, and what that is of."""


@dataclass(frozen=True)
class Difference:
    """How far one quantity is above another, with the half-width of its interval; paired, or of two samples."""

    mean: float
    half: float
    paired: bool
    n: int

    @classmethod
    def of_pairs(cls, row: Row) -> Difference:
        """From a row whose values are differences; without their SD there is no interval."""
        if row.n < 2 or row.sd is None:
            return cls(row.mean, math.inf, True, row.n)
        return cls(row.mean, _quantile(row.n - 1) * row.sd / math.sqrt(row.n), True, row.n)

    @classmethod
    def between(cls, one: Row, other: Row) -> Difference:
        """From two rows of independent values, with Welch's degrees of freedom."""
        mean, n = one.mean - other.mean, min(one.n, other.n)
        if n < 2 or one.sd is None or other.sd is None:
            return cls(mean, math.inf, False, n)
        parts = [one.sd**2 / one.n, other.sd**2 / other.n]
        total = sum(parts)
        if total == 0:
            return cls(mean, 0.0, False, n)
        freedom = total**2 / sum(part**2 / (row.n - 1) for part, row in zip(parts, (one, other), strict=True))
        return cls(mean, _quantile(freedom) * math.sqrt(total), False, n)

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.mean - self.half > 0

    def __neg__(self) -> Difference:
        """The opposite sign, for quantities that are better if smaller."""
        return replace(self, mean=-self.mean)

    def below(self, most: float) -> Difference:
        """How far the value lies below a bound."""
        return replace(self, mean=most - self.mean)

    def text(self, form: str) -> str:
        """The difference and its interval."""
        if not math.isfinite(self.half):
            why = " from one value" if self.n == 1 else ""
            return f"{self.mean:{form}}, no interval{why}".replace("-", "−")
        ends = f"[{self.mean - self.half:{form}}, {self.mean + self.half:{form}}]"
        return f"{self.mean:{form}} {ends}".replace("-", "−")


def _quantile(freedom: float) -> float:
    """Student's quantile for a two-sided interval."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, freedom))


def verdict(difference: Difference, *, smaller: bool) -> str:
    """The verdict on the claim that a difference is above 0.

    Example:
        >>> near, far = Difference(1.0, 2.0, True, 10), Difference(1.0, 0.5, True, 10)
        >>> verdict(near, smaller=False), verdict(far, smaller=True)
        ('not reproduced', 'reproduced at smaller scale')
    """
    if not difference.clear:
        return NOT
    return SMALLER if smaller else REPRODUCED


def claim_line(claim: str, where: str, difference: Difference, what: str, form: str, *, smaller: bool) -> ClaimLine:
    """The line of a claim that a difference is above 0."""
    kind = "paired" if difference.paired else "two samples"
    return [claim, where, f"*{verdict(difference, smaller=smaller)}*", difference.text(form), f"{what}; {kind}"]


def not_run(claim: str, where: str, experiment: str) -> ClaimLine:
    """The line of a claim that the record has no rows for."""
    return [claim, where, NOT_RUN, "", f"`nrf reproduce {experiment}`"]


def fewer(rows: Sequence[Row], n: int) -> bool:
    """Whether any row has fewer values than the paper's ``n``."""
    return min(row.n for row in rows) < n
