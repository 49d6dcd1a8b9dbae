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
from nrf.reproduce.gmm.cells import TUNED
from nrf.reproduce.gmm.experiment import BETTER_BY_REVISION
from nrf.reproduce.kddcup.experiment import MOMENTUM_GAIN
from nrf.reproduce.pages import Records
from nrf.reproduce.pages.claims import NOT, REPRODUCED, SMALLER, Difference, claims, verdict
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
    assert found.text(".1f") == "+4.0, no interval from one value"
    assert not Difference.of_pairs(Row("a", "m", 5.0)).clear


def test_verdicts():
    clear, unclear = Difference(1.0, 0.9, True, 10), Difference(1.0, 1.1, True, 10)
    assert [verdict(clear, smaller=s) for s in (False, True)] == [REPRODUCED, SMALLER]
    assert verdict(unclear, smaller=False) == NOT
    assert clear.text(".1f") == "+1.0 [+0.1, +1.9]"
    assert replace(clear, mean=-1.0).text(".1f") == "−1.0 [−1.9, −0.1]"


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
    assert not _find(results, f"`{TUNED}`")
    row = Row("GAN", "covered modes", 30.0, 0.1, 10, preset=TUNED, case="generation, last weights")
    _changed(results, "gmm", [row])
    ((claim, where, said, difference, _),) = _find(results, f"`{TUNED}`", "GAN")
    assert claim == "The generator of inclusive-NRF covers more modes than GAN."
    assert where == "`released` against `tuned`"
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
    ((_, _, found, _, of),) = _find(results, "SGHMC detects", "`released`, best epoch")
    assert found == f"*{said}*"
    assert "paired" in of
    metric = BETTER_BY_REVISION["covered modes"]
    _changed(
        results,
        "gmm",
        [Row("inclusive-NRF", metric, gain, 0.1, 10, preset="released", case="last weights")],
        lambda row: row.metric == metric,
    )
    ((_, _, found, _, of),) = _find(results, "(covered modes)", "`released`")
    assert found == f"*{said}*"
    assert of == "covered modes, 10 models; paired"
