"""Intervals against scipy's own, verdicts that follow from them, and claims that follow the record."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import nrf
from nrf.reproduce.generation.experiment import AGAINST_SNGAN
from nrf.reproduce.generation.mnist import PAIRS, REVISION
from nrf.reproduce.gmm.cells import TUNED
from nrf.reproduce.gmm.experiment import BETTER_BY_REVISION
from nrf.reproduce.kddcup.experiment import MOMENTUM_GAIN
from nrf.reproduce.one_class.paper import NAMES
from nrf.reproduce.pages import Records
from nrf.reproduce.pages.claims import NEAR, claims, claims_in_short
from nrf.reproduce.pages.image_claims import COST, EVEN, MNIST, TIMED
from nrf.reproduce.pages.verdicts import NOT, NOT_RUN, REPRODUCED, SMALLER, Difference, verdict
from nrf.reproduce.runner.record import Record, Row

RESULTS = Path(nrf.__file__).parent.parent.parent / "results"


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    return rng.normal(1.0, 2.0, 10), rng.normal(0.0, 0.5, 7)


def test_an_interval_of_pairs_is_students(values):
    (x, _) = values
    found = Difference.of_pairs(Row.of(x, "a", "m"))
    wanted = stats.ttest_1samp(x, 0.0).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((wanted.low, wanted.high))
    assert found.clear == (wanted.low > 0)


def test_an_interval_of_two_samples_is_welchs(values):
    x, y = values
    found = Difference.between(Row.of(x, "a", "m"), Row.of(y, "b", "m"))
    wanted = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((wanted.low, wanted.high))
    assert not found.paired


def test_one_value_proves_nothing():
    found = Difference.between(Row("a", "m", 5.0), Row("b", "m", 1.0, 0.1, 10))
    assert math.isinf(found.half)
    assert verdict(found, smaller=False) == NOT
    assert found.text("+.1f") == "+4.0, no interval from one value"
    alone = Difference.of_pairs(Row("a", "m", 5.0))
    assert math.isinf(alone.half)
    assert verdict(alone, smaller=False) == verdict(alone.below(9.0), smaller=False) == NOT


def test_without_an_sd_there_is_no_interval():
    mean = Row("a", "m", 5.0, None, 10)
    pairs, samples = Difference.of_pairs(mean), Difference.between(mean, Row("b", "m", 1.0, 0.1, 10))
    assert math.isinf(pairs.half)
    assert math.isinf(samples.half)
    assert pairs.text("+.1f") == "+5.0, no interval"


def test_values_without_a_spread_differ_for_sure():
    found = Difference.between(Row("a", "m", 32.0, 0.0, 10), Row("b", "m", 31.0, 0.0, 10))
    assert found.text(".1f") == "1.0 [1.0, 1.0]"
    assert verdict(found, smaller=False) == REPRODUCED


def test_verdicts():
    clear, unclear = Difference(1.0, 0.9, True, 10), Difference(1.0, 1.1, True, 10)
    assert [verdict(clear, smaller=s) for s in (False, True)] == [REPRODUCED, SMALLER]
    assert verdict(unclear, smaller=False) == NOT
    assert clear.text("+.1f") == "+1.0 [+0.1, +1.9]"
    assert (-clear).text("+.1f") == "−1.0 [−1.9, −0.1]"
    assert verdict(-clear, smaller=False) == NOT
    assert [verdict(clear.below(most), smaller=False) for most in (2.0, 1.8)] == [REPRODUCED, NOT]


@pytest.fixture
def results(tmp_path):
    for name in ("gmm", "sampler-study", "kddcup"):
        shutil.copy(RESULTS / f"{name}.json", tmp_path)
    return tmp_path


def _changed(results, name, rows, left_out=lambda row: False):
    record = Record.read(results / f"{name}.json")
    kept = [row for row in record.rows if not left_out(row)]
    replace(record, rows=[*kept, *rows]).write(results / f"{name}.json")


def _find(results, *words):
    return [line for line in claims(Records(results)).rows if all(any(w in cell for cell in line) for w in words)]


def test_tuned_rows_are_claims_once_they_are_in_the_record(results):
    _changed(results, "gmm", [], lambda row: row.preset == TUNED)
    missing = _find(results, f"`{TUNED}`")
    assert [line[2] for line in missing] == [NOT_RUN] * 3
    row = Row("GAN", "covered modes", 30.0, 0.1, 10, preset=TUNED, case="generation, last weights")
    _changed(results, "gmm", [row, Row("GAN", "iterations", 160_000, preset=TUNED)])
    claim = "The generator of inclusive-NRF covers more modes than GAN."
    ((_, where, said, difference, _),) = _find(results, f"`{TUNED}`", claim)
    assert where == "mixture, `released` against `tuned`"
    assert said == f"*{NOT}*"
    assert difference.startswith("−")


@pytest.mark.parametrize(("gain", "said"), [(0.5, REPRODUCED), (-0.5, NOT)])
def test_paired_rows_come_before_two_samples(results, gain, said):
    where = {"preset": "released", "case": "all test rows", "column": "oracle"}
    _changed(
        results,
        "kddcup",
        [Row("inclusive-NRF, SGHMC", MOMENTUM_GAIN, gain, 0.1, 20, **where)],
        lambda row: row.metric == MOMENTUM_GAIN,
    )
    ((_, _, found, _, of),) = _find(results, "SGHMC detects", "KDDCUP, `released`, best epoch")
    assert found == f"*{said}*"
    assert "paired" in of
    metric = BETTER_BY_REVISION["covered modes"]
    _changed(
        results,
        "gmm",
        [Row("inclusive-NRF", metric, gain, 0.1, 10, preset="released", case="last weights")],
        lambda row: row.metric == metric,
    )
    ((_, _, found, _, of),) = _find(results, "(covered modes)", "mixture, `released`")
    assert found == f"*{said}*"
    assert of == "covered modes, 10 models; paired"


# ------------------------------------------------------------------------------------------------- made-up records


def _write(folder, name, *rows):
    Record(name, "", rows=list(rows)).write(folder / f"{name}.json")


ISSUE = (
    "more modes than exclusive-NRF",
    "more modes than GAN",
    "more modes than WGAN-GP",
    "Revised samples are better",
    "Revised images are better",
    "SGHMC samples better",
    "SGHMC generates better",
    "SGHMC detects better",
    "as good as SNGAN's",
    "density better than that of exclusive-NRF",
    "exp u is the data's density",
    "better than 1-NN",
    "the time of SNGAN",
    "Between two codes",
)


def test_every_claim_is_there_without_any_record(tmp_path):
    lines = claims(Records(tmp_path)).rows
    assert {line[2] for line in lines} == {NOT_RUN}
    for words in ISSUE:
        assert [line for line in lines if words in line[0]], words
    for place in ("KDDCUP", "one-class MNIST", "one-class CIFAR-10", "sampler study", "mixture"):
        assert [line for line in lines if place in line[1]], place


@pytest.mark.parametrize(("lengths", "said"), [((160_000, 160_000), REPRODUCED), ((160_000, 20_000), SMALLER)])
def test_a_side_that_is_trained_for_less_makes_it_smaller(tmp_path, lengths, said):
    place = {"preset": "released", "case": "last weights"}
    rows = [Row(m, "iterations", n, preset="released") for m, n in zip(("inclusive-NRF", "CD"), lengths, strict=True)]
    rows += [Row("inclusive-NRF", "log-likelihood, temperature fitted", -2.0, 0.1, 10, **place)]
    rows += [Row("CD", "log-likelihood, temperature fitted", -3.0, 0.1, 10, **place)]
    made = {"preset": "released", "case": "generation, last weights"}
    rows += [
        Row("GAN", "iterations", lengths[1], preset="released"),
        Row("GAN", "covered modes", 20.0, 1.0, 10, **made),
    ]
    rows += [Row("inclusive-NRF", "covered modes", 25.0, 1.0, 10, **made)]
    _write(tmp_path, "gmm", *rows)
    ((_, _, found, _, _),) = _find(tmp_path, "more modes than GAN.", "mixture, `released`", "two samples")
    assert found == f"*{said}*"
    ((_, _, found, difference, _),) = _find(tmp_path, "that of CD")
    assert found == f"*{said}*"
    assert difference == "+1.00 [+0.91, +1.09]"


@pytest.mark.parametrize(
    ("far", "sd", "n", "said"),
    [(0.5, 0.01, 10, REPRODUCED), (0.5, 0.5, 10, NOT), (0.5, None, 1, NOT), (20.0, 0.01, 10, NOT)],
)
def test_a_density_is_the_datas_where_the_whole_interval_is_close(tmp_path, far, sd, n, said):
    """One model, or models that vary, prove nothing."""
    row = Row("inclusive-NRF", "KL from the mixture", far * NEAR, sd, n, preset="released", case="last weights")
    _write(tmp_path, "gmm", row, Row("inclusive-NRF", "iterations", 160_000, preset="released"))
    ((_, _, found, _, _),) = _find(tmp_path, "exp u", "`released`")
    assert found == f"*{said}*"


@pytest.mark.parametrize(("splits", "said"), [(20, REPRODUCED), (5, SMALLER)])
def test_fewer_splits_are_a_smaller_scale(tmp_path, splits, said):
    place = {"preset": "released", "case": "all test rows", "column": "oracle"}
    rows = [Row("inclusive-NRF, SGHMC", MOMENTUM_GAIN, 0.5, 0.1, splits, **place)]
    rows += [Row("inclusive-NRF, SGHMC", "F1", 0.9, 0.01, 20, **place)]
    rows += [Row("1-NN", "F1", 0.5, 0.01, splits, case="all test rows")]
    _write(tmp_path, "kddcup", *rows)
    for claim in ("SGHMC detects", "better than 1-NN"):
        ((_, _, found, _, _),) = _find(tmp_path, claim, "KDDCUP, `released`, best epoch")
        assert found == f"*{said}*"


@pytest.mark.parametrize(("runs", "said"), [(10, REPRODUCED), (3, SMALLER)])
def test_a_sampler_study_of_fewer_runs_is_smaller(tmp_path, runs, said):
    place = {"preset": "paper", "case": "draw 0"}
    names = {"SGLD": 20.0, "SGHMC": 10.0}
    _write(tmp_path, "sampler-study", *(Row(m, "KL at the end", v, 0.5, runs, **place) for m, v in names.items()))
    ((_, where, found, difference, _),) = _find(tmp_path, "SGHMC samples")
    assert (where, found) == ("sampler study, draw 0", f"*{said}*")
    assert difference.startswith("+10.00 [+")


def test_images_are_better_where_is_rises_and_fid_falls(tmp_path):
    assert set(MNIST) <= {REVISION, *(name for name, _, _ in PAIRS)}
    rows = [Row(REVISION, "IS-mnist", 0.3, 0.1, 5, case="SGLD, L = 2")]
    rows += [Row(REVISION, "FID-mnist", -0.5, 0.1, 5, case="SGLD, L = 2")]
    rows += [Row("SGHMC − SGLD, L = 10", "FID-mnist", 0.5, 0.1, 5, case="revision")]
    _write(tmp_path, "mnist-generation", *rows)
    up, down = _find(tmp_path, "Revised images", "MNIST, SGLD, L = 2")
    assert [up[2], down[2]] == [f"*{SMALLER}*"] * 2
    assert [up[4], down[4]] == ["IS-mnist, 5 seeds; paired", "fall of FID-mnist, 5 seeds; paired"]
    assert down[3] == "+0.500 [+0.376, +0.624]"
    ((_, where, said, difference, _),) = _find(tmp_path, "SGHMC generates")
    assert (where, said) == ("MNIST, revision", f"*{NOT}*")
    assert difference.startswith("−0.500")
    ((_, _, said, _, _),) = _find(tmp_path, "More steps")
    assert said == NOT_RUN


def test_sngan_is_compared_seed_by_seed_where_there_are_several(tmp_path):
    alone = [
        Row(method, "FID-c10", value, preset="best", case="generation")
        for method, value in (("inclusive-NRF", 8.0), ("SNGAN", 9.0))
    ]
    _write(tmp_path, "cifar10-generation", *alone)
    fid, score = _find(tmp_path, "as good as SNGAN's")
    assert fid[2:] == [f"*{NOT}*", "+1.00, no interval from one value", fid[4]]
    assert "one seed" in fid[4]
    assert score[2] == NOT_RUN
    pairs = [Row(AGAINST_SNGAN, m, v, 0.1, 3, preset="best") for m, v in (("FID-c10", -1.0), ("IS-c10", -1.0))]
    _write(tmp_path, "cifar10-generation", *alone, *pairs)
    fid, score = _find(tmp_path, "as good as SNGAN's")
    assert [fid[2], score[2]] == [f"*{SMALLER}*", f"*{NOT}*"]
    assert [fid[3][:5], score[3][:5]] == ["+1.00", "−1.00"]


@pytest.mark.parametrize(("times", "said"), [(COST - 0.1, SMALLER), (COST - 0.01, NOT), (COST + 0.1, NOT)])
def test_the_cost_is_met_where_the_whole_interval_is_below_it(tmp_path, times, said):
    where = {"preset": TIMED[0], "case": f"{TIMED[0]}, batches of 8"}
    _write(tmp_path, "bench", Row("inclusive-NRF", "times SNGAN's iteration", times, 0.05, 7, **where))
    ((_, _, found, difference, _),) = _find(tmp_path, "the time of SNGAN")
    assert found == f"*{said}*"
    assert difference.startswith(f"{times:.2f} [")
    rows = [
        Row(method, "milliseconds per iteration", value, 5.0, 3, preset="best")
        for method, value in (("SNGAN", 1000.0), ("inclusive-NRF", 1000.0 * times))
    ]
    _write(tmp_path, "cifar10-generation", *rows)
    _, (_, where, found, _, _) = _find(tmp_path, "the time of SNGAN")
    assert where == "CIFAR-10, standard CNN"
    assert found == f"*{said}*"


@pytest.mark.parametrize(("largest", "said"), [(EVEN - 0.1, SMALLER), (EVEN + 0.1, NOT)])
def test_a_jump_between_codes_is_seen(tmp_path, largest, said):
    _write(tmp_path, "interpolation", Row("inclusive-NRF", "largest step over the mean", largest))
    ((_, _, found, measured, _),) = _find(tmp_path, "Between two codes")
    assert found == f"*{said}*"
    assert measured == f"{largest:.2f}, no interval from one model"


def _classes(dataset, setting, gain, n=1, classes=10):
    """SGHMC is ahead of SGLD and of 1-NN by about that, on the test images' best epoch, and behind at the end."""
    rows = []
    for i, case in enumerate(NAMES[dataset][:classes]):
        level = 60.0 + 3 * i  # classes differ by more than methods do
        rows.append(Row("1-NN", "AUROC", level, case=case))
        for column, sign in (("oracle", 1), ("last", -1)):
            place = {"preset": setting, "case": case, "column": column}
            rows.append(Row("inclusive-NRF, SGLD", "AUROC", level, None, n, **place))
            ours = level + sign * gain + 0.2 * (i % 2)
            rows.append(Row("inclusive-NRF, SGHMC", "AUROC", ours, None, n, **place))
    return rows


@pytest.mark.parametrize("claim", ["SGHMC detects", "better than 1-NN"])
@pytest.mark.parametrize(("n", "classes", "said"), [(10, 10, REPRODUCED), (1, 10, SMALLER), (10, 4, SMALLER)])
def test_samplers_and_neighbours_are_compared_class_by_class(tmp_path, claim, n, classes, said):
    _write(tmp_path, "mnist-one-class", *_classes("mnist", "released", 1.0, n, classes))
    best, last = _find(tmp_path, claim, "one-class MNIST")
    assert "best epoch on test images, as published" in best[1]
    assert [best[2], last[2]] == [f"*{said}*", f"*{NOT}*"]
    assert best[4] == f"AUROC in percent, {classes} classes; paired"
    assert [best[3][:5], last[3][:5]] == ["+1.1 ", "−0.9 "]


@pytest.mark.parametrize("claim", ["SGHMC detects", "better than 1-NN"])
def test_half_the_width_is_a_smaller_scale(tmp_path, claim):
    _write(tmp_path, "cifar10-one-class", *_classes("cifar10", "released, half width", 1.0, n=10))
    best, _ = _find(tmp_path, claim, "one-class CIFAR-10")
    assert best[2] == f"*{SMALLER}*"
    _write(tmp_path, "cifar10-one-class", *_classes("cifar10", "released, half width", 1.0, classes=1))
    assert {line[2] for line in _find(tmp_path, claim, "one-class CIFAR-10")} == {NOT_RUN}


def test_a_short_run_counts_where_the_whole_one_is_missing(tmp_path):
    claim = "SGHMC detects"
    short = [row for row in _classes("mnist", "released, short", 1.0) if row.method != "1-NN"]
    _write(tmp_path, "mnist-one-class", *_classes("mnist", "released", 1.0, classes=1), *short)
    best, _ = _find(tmp_path, claim, "one-class MNIST")
    assert (best[1].split("`")[1], best[2]) == ("released, short", f"*{SMALLER}*")
    _write(tmp_path, "mnist-one-class", *_classes("mnist", "released", 1.0, n=10), *short)
    best, _ = _find(tmp_path, claim, "one-class MNIST")
    assert (best[1].split("`")[1], best[2]) == ("released", f"*{REPRODUCED}*")


def test_quoted_numbers_are_not_ours(tmp_path):
    quoted = [
        Row(f"inclusive-NRF, {s}", "AUROC", v, case=case, column="oracle", quoted=True)
        for s, v in (("SGHMC", 90.0), ("SGLD", 80.0))
        for case in NAMES["cifar10"]
    ]
    _write(tmp_path, "cifar10-one-class", *quoted)
    assert {line[2] for line in _find(tmp_path, "SGHMC detects", "one-class CIFAR-10")} == {NOT_RUN}


def test_in_short_each_claim_has_one_line_and_counts_the_rest():
    records = Records(RESULTS)
    long, short = claims(records).rows, claims_in_short(records).rows
    assert [line[0] for line in short] == list(dict.fromkeys(line[0] for line in long))
    for claim, said, where, rest in short:
        mine = [line for line in long if line[0] == claim]
        run = [line for line in mine if line[2] != NOT_RUN]
        first = run[0] if run else mine[0]
        assert said == first[2]
        assert where.startswith(first[1])
        assert first[3] in where
        assert 1 + sum(int(part.split()[0]) for part in rest.split(", ") if part) == len(mine)


def test_in_short_the_comparison_closest_to_the_paper_comes_first():
    where = {line[0]: line[2] for line in claims_in_short(Records(RESULTS)).rows}
    assert where[MNIST[REVISION]].startswith("MNIST, SGLD, L = 10: ")  # the row whose scores the claim quotes
    assert where["SGHMC detects better than SGLD."].startswith("KDDCUP, `released, 118 columns`, best epoch")


def test_revision_on_cifar10_is_a_comparison_of_its_own_and_a_fall_of_the_distance_is_better(tmp_path):
    rows = [
        Row(f"inclusive-NRF: {REVISION}", metric, mean, 0.01, 3, preset="best")
        for metric, mean in (("IS-c10", 0.1), ("FID-c10", -0.2))
    ]
    Record("cifar10-generation", "nrf", rows=rows).write(tmp_path / "cifar10-generation.json")
    found = [line for line in claims(Records(tmp_path)).rows if line[1] == "CIFAR-10, standard CNN"]
    assert [(line[0], line[2]) for line in found[:2]] == [(MNIST[REVISION], f"*{SMALLER}*")] * 2
    assert [line[3][:6] for line in found[:2]] == ["+0.100", "+0.200"]


def test_in_short_a_comparison_that_was_not_run_is_never_put_before_one_that_was(tmp_path):
    rows = [
        Row(name, "covered modes", mean, 1.0, 10, preset="paper", case="generation, last weights")
        for name, mean in (("inclusive-NRF", 27.0), ("GAN", 20.0))
    ]
    rows += [Row(name, "iterations", 200_000, preset="paper") for name in ("inclusive-NRF", "GAN")]
    Record("gmm", "nrf", rows=rows).write(tmp_path / "gmm.json")
    line = next(line for line in claims_in_short(Records(tmp_path)).rows if "than GAN" in line[0])
    assert line[1:3] == [f"*{REPRODUCED}*", line[2]]
    assert line[2].startswith("mixture, `paper`: +7.00")
    assert line[3] == f"2 {NOT_RUN}"
