"""The paper's claims, and what the records say about them. A claim without rows in a record is "not run yet"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from nrf.reproduce.gmm.cells import METROPOLIS, TUNED, WHOLE
from nrf.reproduce.gmm.experiment import BETTER_BY_REVISION
from nrf.reproduce.kddcup.experiment import ARRAY, MOMENTUM_GAIN
from nrf.reproduce.pages.image_claims import by_class, detection, generation
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.pages.verdicts import NOT_RUN, ClaimLine, Difference, claim_line, fewer, not_run, verdict
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

MODES, REALISTIC = "covered modes", "realistic ratio"
LENGTH = 160_000
"""Iterations of the paper's mixture."""
SPLITS = 20
"""The paper's splits of KDDCUP."""
RUNS = 10
"""The paper's runs of its sampler study."""
NEAR = 0.1
"""Nats from the mixture within which a density counts as the data's."""
COLUMNS = {"oracle": "best epoch on test rows, as published", "last": "last model"}


def claims(records: Records) -> Table:
    """A line for each claim and setting."""
    return Table(["the paper's claim", "where", "verdict", "measured, 95 % interval", "of"], _lines(records))


def claims_in_short(records: Records) -> Table:
    """A line for each claim: the comparison closest to the paper, which is the first that was run, and how many of the
    others say what."""
    by_claim: dict[str, list[ClaimLine]] = {}
    for line in _lines(records):
        by_claim.setdefault(line[0], []).append(line)
    found = []
    for claim, lines in by_claim.items():
        first = next((line for line in lines if line[2] != NOT_RUN), lines[0])
        others = Counter(line[2].strip("*") for line in lines if line is not first)
        rest = ", ".join(f"{n} {said}" for said, n in others.items())
        _, where, said, measured, of = first
        found.append([claim, said, f"{where}: {measured} ({of})" if measured else where, rest])
    return Table(["the paper's claim", "verdict", "where, with the 95 % interval", "other comparisons"], found)


def _lines(records: Records) -> list[ClaimLine]:
    """Of each claim the comparison closest to the paper first."""
    mixture, kddcup = records.rows_if_there("gmm"), records.rows_if_there("kddcup")
    lines = [*_generators(mixture), *_revision(mixture), *generation(records)]
    lines += [*_sampling(records.rows_if_there("sampler-study")), *_momentum(kddcup), *by_class(records)]
    return [*lines, *_likelihood(mixture), *_nearest(kddcup), *detection(records)]


# ------------------------------------------------------------------------------------------------------------ mixture


def _generators(rows: Rows) -> Iterator[ClaimLine]:
    place = {"case": "generation, last weights"}
    for other in ("exclusive-NRF", "GAN", "WGAN-GP"):
        claim = f"The generator of inclusive-NRF covers more modes than {other}."
        for ours, theirs in (("released", "released"), ("released", TUNED), ("paper", "paper")):
            where = "mixture, " + (f"`{theirs}`" if ours == theirs else f"`{ours}` against `{theirs}`")
            one = rows.find("inclusive-NRF", MODES, preset=ours, **place)
            two = rows.find(other, MODES, preset=theirs, **place)
            if one is None or two is None:
                yield not_run(claim, where, "gmm")
                continue
            smaller = _shorter(rows, "inclusive-NRF", ours) or _shorter(rows, other, theirs)
            what = f"covered modes, {_models(one, two)}"
            yield claim_line(claim, where, Difference.between(one, two), what, "+.2f", smaller=smaller)


def _models(one: Row, two: Row) -> str:
    """How many models the two sides of a comparison have."""
    return f"{one.n} models each" if one.n == two.n else f"{one.n} and {two.n} models"


def _revision(rows: Rows) -> Iterator[ClaimLine]:
    for setting in ("released", WHOLE, "best", "paper", METROPOLIS):
        found = {metric: _revised(rows, setting, metric) for metric in (MODES, REALISTIC)}
        for metric, gain in found.items():
            claim = f"Revised samples are better than generated ones ({metric})."
            if gain is None:
                yield not_run(claim, f"mixture, `{setting}`", "gmm")
                continue
            form, smaller = "+.2f" if metric == MODES else "+.3f", _shorter(rows, "inclusive-NRF", setting)
            yield claim_line(claim, f"mixture, `{setting}`", gain, f"{metric}, {gain.n} models", form, smaller=smaller)


def _revised(rows: Rows, setting: str, metric: str) -> Difference | None:
    """What revision gains: paired by model if the record has that."""
    paired = rows.find("inclusive-NRF", BETTER_BY_REVISION[metric], preset=setting, case="last weights")
    if paired is not None:
        return Difference.of_pairs(paired)
    both = [
        rows.find("inclusive-NRF", metric, preset=setting, case=f"{kind}, last weights")
        for kind in ("revision", "generation")
    ]
    return None if both[0] is None or both[1] is None else Difference.between(both[0], both[1])


def _shorter(rows: Rows, method: str, setting: str) -> bool:
    """Whether a method had fewer iterations than the paper gives it."""
    return rows.get(method, "iterations", preset=setting).mean < LENGTH


def _likelihood(rows: Rows) -> Iterator[ClaimLine]:
    fitted, where = "log-likelihood, temperature fitted", "mixture, `released`, one temperature fitted for each"
    for other in ("exclusive-NRF", "CD"):
        claim = f"The potential of inclusive-NRF follows the data's density better than that of {other}."
        pair = [rows.find(name, fitted, preset="released", case="last weights") for name in ("inclusive-NRF", other)]
        if pair[0] is None or pair[1] is None:
            yield not_run(claim, where, "gmm")
            continue
        length = rows.get(other, "iterations", preset="released").mean
        what = f"nats per held-out point, {_models(pair[0], pair[1])}"
        what += f", {other} after {length:,.0f} iterations" if length < LENGTH else ""
        smaller = length < LENGTH or _shorter(rows, "inclusive-NRF", "released")
        yield claim_line(claim, where, Difference.between(pair[0], pair[1]), what, "+.2f", smaller=smaller)
    claim = f"exp u is the data's density: less than {NEAR} nats from it."
    for setting, weights in (("released", "last weights"), ("best", "averaged weights")):
        row = rows.find("inclusive-NRF", "KL from the mixture", preset=setting, case=weights)
        if row is None:
            yield not_run(claim, f"mixture, `{setting}`", "gmm")
            continue
        far = Difference.of_pairs(row)
        said = verdict(far.below(NEAR), smaller=_shorter(rows, "inclusive-NRF", setting))
        what = f"KL from the mixture in nats, {row.n} models, {weights}"
        yield [claim, f"mixture, `{setting}`", f"*{said}*", far.text(".2f"), what]


# ------------------------------------------------------------------------------------------------ sampling, detection


def _sampling(rows: Rows) -> Iterator[ClaimLine]:
    claim, found = "SGHMC samples better than SGLD.", rows.cases("KL at the end")
    cases = [case for case in found if case.startswith(("draw ", "scale "))]
    if not cases:
        yield not_run(claim, "sampler study", "sampler-study")
    for case in cases:
        slow, fast = (rows.get(name, "KL at the end", preset="paper", case=case) for name in ("SGLD", "SGHMC"))
        what = f"KL of SGLD less that of SGHMC after 2,000 steps, {slow.n} runs each"
        where = "sampler study, " + case.replace("scale", "covariances times")
        difference = Difference.between(slow, fast)
        yield claim_line(claim, where, difference, what, "+.2f", smaller=fewer([slow, fast], RUNS))


def _momentum(rows: Rows) -> Iterator[ClaimLine]:
    claim = "SGHMC detects better than SGLD."
    for setting in (ARRAY, "released", "paper"):
        found = {column: _gain(rows, setting, column) for column in COLUMNS}
        if all(gain is None for gain in found.values()):
            yield not_run(claim, f"KDDCUP, `{setting}`", "kddcup")
        for column, gain in found.items():
            if gain is not None:
                where, what = f"KDDCUP, `{setting}`, {COLUMNS[column]}", f"F1, {gain.n} splits"
                yield claim_line(claim, where, gain, what, "+.3f", smaller=gain.n < SPLITS)


def _gain(rows: Rows, setting: str, column: str) -> Difference | None:
    """What SGHMC gains over SGLD: paired by split if the record has that."""
    place = {"preset": setting, "case": "all test rows", "column": column}
    paired = rows.find("inclusive-NRF, SGHMC", MOMENTUM_GAIN, **place)
    if paired is not None:
        return Difference.of_pairs(paired)
    both = [rows.find(f"inclusive-NRF, {name}", "F1", **place) for name in ("SGHMC", "SGLD")]
    return None if both[0] is None or both[1] is None else Difference.between(both[0], both[1])


def _nearest(rows: Rows) -> Iterator[ClaimLine]:
    claim, place = (
        "The potential is a good anomaly score: better than 1-NN, our control.",
        dict[str, Any](case="all test rows"),
    )
    nearest = rows.find("1-NN", "F1", **place)
    for column, text in COLUMNS.items():
        ours = rows.find("inclusive-NRF, SGHMC", "F1", preset="released", column=column, **place)
        where = f"KDDCUP, `released`, {text}"
        if ours is None or nearest is None:
            yield not_run(claim, where, "kddcup")
            continue
        what = f"F1, SGHMC on {ours.n} splits, 1-NN on {nearest.n}"
        difference = Difference.between(ours, nearest)
        yield claim_line(claim, where, difference, what, "+.3f", smaller=fewer([ours, nearest], SPLITS))


TABLES: dict[str, Callable[[Records], Table]] = {"claims": claims, "claims, in short": claims_in_short}
