"""What the paper claims, and what the records say of it: a difference, its interval, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nrf.reproduce.gmm.cells import METROPOLIS, TUNED, WHOLE
from nrf.reproduce.gmm.experiment import BETTER_BY_REVISION
from nrf.reproduce.kddcup.experiment import ARRAY, MOMENTUM_GAIN
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

LEVEL = 0.95
MODES, REALISTIC = "covered modes", "realistic ratio"
LENGTH = 160_000
"""Iterations of the paper's mixture."""
SPLITS = 20
"""The paper's splits of KDDCUP."""
REPRODUCED, SMALLER, NOT = "reproduced", "reproduced at smaller scale", "not reproduced"


@dataclass(frozen=True)
class Difference:
    """How far one thing is above another, with the half-width of its interval; paired, or of two samples."""

    mean: float
    half: float
    paired: bool
    n: int

    @classmethod
    def of_pairs(cls, row: Row) -> Difference:
        """Of a row whose values are differences."""
        return cls(row.mean, _quantile(row.n - 1) * (row.sd or 0.0) / math.sqrt(row.n), True, row.n)

    @classmethod
    def between(cls, one: Row, other: Row) -> Difference:
        """Of two rows of independent values, with Welch's degrees of freedom."""
        parts = [(row.sd or 0.0) ** 2 / row.n for row in (one, other)]
        total = sum(parts)
        if total == 0 or min(one.n, other.n) < 2:
            return cls(one.mean - other.mean, math.inf, False, min(one.n, other.n))
        freedom = total**2 / sum(part**2 / (row.n - 1) for part, row in zip(parts, (one, other), strict=True))
        return cls(one.mean - other.mean, _quantile(freedom) * math.sqrt(total), False, min(one.n, other.n))

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.mean - self.half > 0

    def text(self, form: str) -> str:
        """The difference and its interval."""
        if not math.isfinite(self.half):
            return f"{self.mean:+{form}}, no interval from one value".replace("-", "−")
        ends = f"[{self.mean - self.half:+{form}}, {self.mean + self.half:+{form}}]"
        return f"{self.mean:+{form}} {ends}".replace("-", "−")


def _quantile(freedom: float) -> float:
    """Student's quantile for a two-sided interval; infinite without a degree of freedom."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, freedom)) if freedom > 0 else math.inf


def verdict(difference: Difference, *, smaller: bool) -> str:
    """What a difference says of the claim that it is above 0.

    Example:
        >>> near, far = Difference(1.0, 2.0, True, 10), Difference(1.0, 0.5, True, 10)
        >>> verdict(near, smaller=False), verdict(far, smaller=True)
        ('not reproduced', 'reproduced at smaller scale')
    """
    if not difference.clear:
        return NOT
    return SMALLER if smaller else REPRODUCED


Line = list[str]


def claims(records: Records) -> Table:
    """A line a claim and setting."""
    lines = [*_mixture(records.rows("gmm")), *_sampling(records.rows("sampler-study"))]
    lines += [*_detection(records.rows("kddcup")), *_density(records.rows("gmm"))]
    header = ["the paper's claim", "measured in", "verdict", "difference, 95 % interval", "of"]
    return Table(header, lines)


def _line(claim: str, where: str, difference: Difference, what: str, form: str, *, smaller: bool) -> Line:
    kind = "paired" if difference.paired else "two samples"
    return [claim, where, f"*{verdict(difference, smaller=smaller)}*", difference.text(form), f"{what}; {kind}"]


# ------------------------------------------------------------------------------------------------------------ mixture


def _mixture(rows: Rows) -> Iterator[Line]:
    for other in ("exclusive-NRF", "GAN", "WGAN-GP"):
        for ours, theirs in (("released", "released"), ("released", TUNED), ("paper", "paper")):
            place: dict[str, Any] = {"case": "generation, last weights"}
            one = rows.find("inclusive-NRF", MODES, preset=ours, **place)
            two = rows.find(other, MODES, preset=theirs, **place)
            if one is not None and two is not None:
                against = f"`{theirs}`" if ours == theirs else f"`{ours}` against `{theirs}`"
                yield _line(
                    f"The generator of inclusive-NRF covers more modes than {other}.",
                    against,
                    Difference.between(one, two),
                    f"covered modes, {one.n} models each",
                    ".2f",
                    smaller=_shorter(rows, ours),
                )
    for setting in ("released", WHOLE, "best", "paper", METROPOLIS):
        for metric, form in ((MODES, ".2f"), (REALISTIC, ".3f")):
            gain = _revised(rows, setting, metric)
            if gain is not None:
                claim = f"Revised samples are better than generated ones ({metric})."
                smaller = _shorter(rows, setting)
                yield _line(claim, f"`{setting}`", gain, f"{metric}, {gain.n} models", form, smaller=smaller)


def _revised(rows: Rows, setting: str, metric: str) -> Difference | None:
    """What revision gains: by model where the record has that."""
    paired = rows.find("inclusive-NRF", BETTER_BY_REVISION[metric], preset=setting, case="last weights")
    if paired is not None:
        return Difference.of_pairs(paired)
    both = [
        rows.find("inclusive-NRF", metric, preset=setting, case=f"{kind}, last weights")
        for kind in ("revision", "generation")
    ]
    return None if both[0] is None or both[1] is None else Difference.between(both[0], both[1])


def _shorter(rows: Rows, setting: str) -> bool:
    return rows.get("inclusive-NRF", "iterations", preset=setting).mean < LENGTH


# ------------------------------------------------------------------------------------------------ sampling, detection


def _sampling(rows: Rows) -> Iterator[Line]:
    for case in [case for case in rows.cases("KL at the end") if case.startswith(("draw ", "scale "))]:
        slow, fast = (rows.get(name, "KL at the end", preset="paper", case=case) for name in ("SGLD", "SGHMC"))
        difference = Difference.between(slow, fast)
        what = f"KL of SGLD less that of SGHMC after 2,000 steps, {slow.n} runs each"
        where = case.replace("scale", "covariances times")
        yield _line("SGHMC samples better than SGLD.", where, difference, what, ".2f", smaller=False)


def _detection(rows: Rows) -> Iterator[Line]:
    for setting in ("released", ARRAY, "paper"):
        for column in ("oracle", "last"):
            place = {"preset": setting, "case": "all test rows", "column": column}
            paired = rows.find("inclusive-NRF, SGHMC", MOMENTUM_GAIN, **place)
            if paired is not None:
                difference = Difference.of_pairs(paired)
            else:
                both = [rows.find(f"inclusive-NRF, {name}", "F1", **place) for name in ("SGHMC", "SGLD")]
                if both[0] is None or both[1] is None:
                    continue
                difference = Difference.between(both[0], both[1])
            column_text = "best epoch on test rows, as published" if column == "oracle" else "last model"
            yield _line(
                "SGHMC detects better than SGLD.",
                f"KDDCUP, `{setting}`, {column_text}",
                difference,
                f"F1, {difference.n} splits",
                ".3f",
                smaller=difference.n < SPLITS,
            )


# ------------------------------------------------------------------------------------------------------------ density


def _density(rows: Rows) -> Iterator[Line]:
    fitted = "log-likelihood, temperature fitted"
    for other in ("exclusive-NRF", "CD"):
        pair = [rows.find(name, fitted, preset="released", case="last weights") for name in ("inclusive-NRF", other)]
        if pair[0] is not None and pair[1] is not None:
            length = rows.get(other, "iterations", preset="released").mean
            shorter = f", {other} after {length:,.0f} iterations" if length < LENGTH else ""
            yield _line(
                f"The potential of inclusive-NRF follows the data's density better than that of {other}.",
                "`released`, one temperature fitted for each",
                Difference.between(pair[0], pair[1]),
                f"nats a held-out point, {pair[0].n} models each{shorter}",
                ".2f",
                smaller=_shorter(rows, "released"),
            )
    for setting in ("released", "best"):
        weights = "averaged weights" if setting == "best" else "last weights"
        row = rows.find("inclusive-NRF", "KL from the mixture", preset=setting, case=weights)
        if row is not None:
            off = Difference.of_pairs(row)
            said = NOT if off.clear else REPRODUCED
            yield [
                "exp u is the data's density (0 nats from it).",
                f"`{setting}`",
                f"*{said}*",
                off.text(".2f"),
                f"KL from the mixture in nats, {row.n} models",
            ]


TABLES: dict[str, Callable[[Records], Table]] = {"claims": claims}
