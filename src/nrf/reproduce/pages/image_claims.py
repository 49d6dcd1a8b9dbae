"""Claims of the paper about images: generation, its cost, interpolation, and one-class detection class by class."""

from __future__ import annotations

from collections.abc import Iterator

from nrf.reproduce.generation.experiment import AGAINST_SNGAN
from nrf.reproduce.generation.mnist import REVISION, SCORES, STUDIED
from nrf.reproduce.generation.mnist_cells import LINES
from nrf.reproduce.one_class.paper import NAMES
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.pages.verdicts import NOT, SMALLER, ClaimLine, Difference, claim_line, fewer, not_run, verdict
from nrf.reproduce.runner.record import Row

_QUOTED = {line.method: line.paper for line in LINES if line.paper is not None}
_TWO, _TEN, _MOMENTUM = (_QUOTED[name] for name in ("SGLD, L = 2", "SGLD, L = 10", "SGHMC, L = 10"))
MNIST = {
    REVISION: f"Revised images are better than generated ones (the paper's IS: {_TEN[1]} and {_TEN[0]}).",
    "L = 10 − L = 2, SGLD": "More steps in training make better images "
    f"(IS {_TEN[0]} with L = 10, {_TWO[0]} with L = 2).",
    "SGHMC − SGLD, L = 10": "SGHMC generates better images than SGLD "
    f"(IS {_MOMENTUM[0]} and {_TEN[0]}, revised {_MOMENTUM[1]} and {_TEN[1]}).",
}
"""Claims by the name of the difference in the record."""
COST = 35 / 22
"""Hours of inclusive-NRF over those of SNGAN in the paper, ResNet."""
TIMED = ("cifar10-resnet", "cifar10-resnet-released", "cifar10-cnn", "cifar10-cnn-released")
EVEN = 2.0
"""Upper limit of the largest of eleven steps over the mean step. A single jump would have 11."""
RUNS = 10
"""The paper's runs of each class."""
ONE_CLASS = {
    "mnist": ("mnist-one-class", "one-class MNIST", ("released", "released, short")),
    "cifar10": ("cifar10-one-class", "one-class CIFAR-10, pixels", ("released, half width",)),
}
"""Record, name and settings by dataset; the first setting that was run counts."""
WHOLE = "released"
"""The setting with the paper's networks and number of epochs."""
COLUMNS = {"oracle": "best epoch on test images, as published", "last": "last model"}


def generation(records: Records) -> Iterator[ClaimLine]:
    """Claims about generated images."""
    yield from _mnist(records.rows_if_there("mnist-generation"))
    yield from _revised_images(records.rows_if_there("cifar10-generation"))
    yield from _against_sngan(records.rows_if_there("cifar10-generation"))
    yield from _cost(records.rows_if_there("bench"), records.rows_if_there("cifar10-generation"))
    yield from _interpolation(records.rows_if_there("interpolation"))


def _better(row: Row, difference: Difference) -> tuple[Difference, str]:
    """The difference with its sign such that more is better, and its name: a smaller Fréchet distance is better."""
    return (-difference, f"fall of {row.metric}") if row.metric.startswith("FID") else (difference, row.metric)


def _mnist(rows: Rows) -> Iterator[ClaimLine]:
    for name, claim in MNIST.items():
        found = [row for row in rows.all if row.method == name and row.metric in SCORES]
        found.sort(key=lambda row: row.case != STUDIED)  # the row whose scores the claim quotes comes first
        if not found:
            yield not_run(claim, "MNIST", "mnist-generation")
        for row in found:
            difference, what = _better(row, Difference.of_pairs(row))
            yield claim_line(claim, f"MNIST, {row.case}", difference, f"{what}, {row.n} seeds", "+.3f", smaller=True)


def _revised_images(rows: Rows) -> Iterator[ClaimLine]:
    for metric in ("IS-c10", "FID-c10"):
        row = rows.find(f"inclusive-NRF: {REVISION}", metric, preset="best")
        if row is not None:
            difference, what = _better(row, Difference.of_pairs(row))
            where, of = "CIFAR-10, standard CNN", f"{what}, {row.n} seeds"
            yield claim_line(MNIST[REVISION], where, difference, of, "+.3f", smaller=True)


def _against_sngan(rows: Rows) -> Iterator[ClaimLine]:
    claim = "Inclusive-NRF generates images as good as SNGAN's or better (ResNet, the paper's FID: 20.9 and 21.7)."
    where = "CIFAR-10, standard CNN, the same time"
    for metric in ("FID-c10", "IS-c10"):
        paired = rows.find(AGAINST_SNGAN, metric, preset="best")
        both = [rows.find(name, metric, preset="best", case="generation") for name in ("inclusive-NRF", "SNGAN")]
        if paired is not None:
            row, difference = paired, Difference.of_pairs(paired)
        elif both[0] is not None and both[1] is not None:
            row, difference = both[0], Difference.between(both[0], both[1])
        else:
            yield not_run(claim, where, "cifar10-generation")
            continue
        better, what = _better(row, difference)
        seeds = "one seed" if difference.n == 1 else f"{difference.n} seeds"
        yield claim_line(claim, where, better, f"{what} against SNGAN's, {seeds}", "+.2f", smaller=True)


def _cost(bench: Rows, rows: Rows) -> Iterator[ClaimLine]:
    claim = f"Training takes at most {COST:.1f} times the time of SNGAN (35 and 22 hours)."
    found = [row for row in bench.all if row.metric == "times SNGAN's iteration" and row.preset in TIMED]
    for row in sorted(found, key=lambda row: TIMED.index(row.preset or "")):
        times = Difference.of_pairs(row)
        said = verdict(times.below(COST), smaller=True)
        what = f"times SNGAN's iteration, {row.n} repeats"
        yield [claim, f"an iteration, `{row.case}`", f"*{said}*", times.text(".2f"), what]
    both = [rows.find(name, "milliseconds per iteration", preset="best") for name in ("SNGAN", "inclusive-NRF")]
    if both[0] is not None and both[1] is not None:
        slow, ours = both[0], both[1]
        most = Row("", "", COST * slow.mean, None if slow.sd is None else COST * slow.sd, slow.n)
        what = f"milliseconds per iteration below {COST:.1f} times SNGAN's, {ours.n} runs each"
        yield claim_line(claim, "CIFAR-10, standard CNN", Difference.between(most, ours), what, "+.0f", smaller=True)
    elif not found:
        yield not_run(claim, "an iteration", "cifar10-generation")


def _interpolation(rows: Rows) -> Iterator[ClaimLine]:
    claim, where = "Between two codes images change step by step.", "MNIST"
    row = rows.find("inclusive-NRF", "largest step over the mean")
    if row is None:
        yield not_run(claim, where, "interpolation")
        return
    said = SMALLER if row.mean < EVEN else NOT
    what = f"largest of eleven steps over the mean one, reproduced below {EVEN:g}; one model"
    yield [claim, where, f"*{said}*", f"{row.mean:.2f}, no interval from one model", what]


# ----------------------------------------------------------------------------------------------- one-class detection


def by_class(records: Records) -> Iterator[ClaimLine]:
    """SGHMC against SGLD, class by class."""
    for dataset, (record, _, _) in ONE_CLASS.items():
        yield from _paired(records.rows_if_there(record), dataset, "SGHMC detects better than SGLD.", "SGLD")


def detection(records: Records) -> Iterator[ClaimLine]:
    """SGHMC's potential against the nearest training image, class by class."""
    for dataset, (record, _, _) in ONE_CLASS.items():
        yield from _paired(
            records.rows_if_there(record),
            dataset,
            "The potential is a good anomaly score: better than 1-NN, our control.",
            None,
        )


def _paired(rows: Rows, dataset: str, claim: str, sampler: str | None) -> Iterator[ClaimLine]:
    """SGHMC minus another sampler, or minus 1-NN, on the classes that both have."""
    record, name, settings = ONE_CLASS[dataset]
    for column, text in COLUMNS.items():
        found = [(setting, _of_both(rows, dataset, setting, column, sampler)) for setting in settings]
        setting, pairs = next(((s, pairs) for s, pairs in found if len(pairs) > 1), (settings[0], []))
        where = f"{name}, `{setting}`, {text}"
        if not pairs:
            yield not_run(claim, where, record)
            continue
        gains = Row.of([one.mean - two.mean for one, two in pairs], "", "AUROC")
        trained = [row for pair in pairs for row in (pair if sampler else pair[:1])]
        smaller = len(pairs) < len(NAMES[dataset]) or fewer(trained, RUNS) or setting != WHOLE
        what = f"AUROC in percent, {len(pairs)} classes"
        yield claim_line(claim, where, Difference.of_pairs(gains), what, "+.1f", smaller=smaller)


def _of_both(rows: Rows, dataset: str, setting: str, column: str, sampler: str | None) -> list[tuple[Row, Row]]:
    pairs = []
    for case in NAMES[dataset]:
        place = {"preset": setting, "case": case, "column": column}
        one = rows.find("inclusive-NRF, SGHMC", "AUROC", **place)
        if sampler is None:
            two = rows.find("1-NN", "AUROC", case=case)
        else:
            two = rows.find(f"inclusive-NRF, {sampler}", "AUROC", **place)
        if one is not None and two is not None:
            pairs.append((one, two))
    return pairs
