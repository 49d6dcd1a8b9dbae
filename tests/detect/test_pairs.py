"""The tree of pairs in the detector of a mixed table: it finds swapped cells, and is stored, exported and explained."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from nrf import NRFDetector
from nrf.detect.explain import explain
from nrf.detect.rows import MOST_PAIRED, RowReader
from nrf.fields import DetectionField


def frame(n=900, seed=0):
    """A category that decides another one and two numbers, one of which is missing at times, among noise."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 12, n)
    price = np.round(np.exp(0.3 * (kind % 5) + 0.4 * draw.normal(size=n)), 2)
    return pd.DataFrame(
        {
            "kind": np.array([f"k{i}" for i in range(12)])[kind],
            "maker": np.where(draw.random(n) < 0.97, kind * 7 % 9, draw.integers(0, 9, n)).astype(str),
            "price": np.where(draw.random(n) < 0.1, np.nan, price),
            "size": (kind % 4) + 0.4 * draw.normal(size=n),
        }
        | {f"noise {i}": draw.normal(size=n) for i in range(4)}
    )


def swapped(table, seed=0):
    """Every fifth row with the maker of another row: usual values, which do not go together."""
    draw, table = np.random.default_rng(seed), table.copy()
    makers, chosen = table["maker"].to_numpy(), np.arange(len(table)) % 5 == 0
    table["maker"] = np.where(chosen, makers[draw.permutation(len(table))], makers)
    return table, table["maker"].to_numpy() != makers


def fitted(table, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(**{"random_state": 0, "verbose": 0} | settings).fit(table)


def field_of(detector) -> DetectionField:
    return detector.fitted_.replicas.module("potential")


@pytest.fixture(scope="module")
def detector():
    return fitted(frame())


@pytest.fixture(scope="module")
def members():
    return fitted(frame(), n_estimators=2)


def test_swapped_cells_are_found_better_than_without(detector, monkeypatch):
    rows, odd = swapped(frame(1000, seed=1))
    found = roc_auc_score(odd, -detector.score_samples(rows))
    monkeypatch.setattr(RowReader, "pairs", None)
    without = fitted(frame())
    assert field_of(without).pairs is None
    assert found > roc_auc_score(odd, -without.score_samples(rows)) + 0.02


def test_the_tree_has_all_columns_as_they_are_encoded(detector):
    pairs = field_of(detector).pairs
    assert pairs is not None
    assert pairs.is_fitted
    # kind has 12 outputs, maker 9, price one and a flag; outputs of unseen levels are not among them
    assert pairs.config.categories == ((0, 12), (12, 21))
    assert pairs.config.numbers == ((21, 23), *((i, i + 1) for i in range(23, 28)))
    assert {frozenset(pair) for pair in pairs.edges.tolist()} >= {frozenset((6, 7)), frozenset((1, 6))}


def test_levels_that_are_hashed_are_in_the_tree(tmp_path):
    table = frame()
    table["code"] = table["kind"] + np.random.default_rng(7).integers(0, 8, len(table)).astype(str)
    detector = fitted(table)
    pairs = field_of(detector).pairs
    start, signs, stop = pairs.config.codes[0]
    assert (signs - start, stop) == (32, detector.fitted_.replicas.shape[0])
    detector.save(tmp_path / "model")
    again = NRFDetector.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(table), detector.score_samples(table))


def test_tables_without_levels_have_no_tree():
    numbers = frame()[["price", "size", "noise 0"]]
    assert field_of(fitted(numbers)).pairs is None
    assert field_of(fitted(frame()[["kind"]])).pairs is None  # nor does a single column
    draw = np.random.default_rng(0)
    wide = pd.DataFrame(draw.normal(size=(60, MOST_PAIRED))).rename(columns=str)
    wide["kind"] = draw.choice(["a", "b"], 60)
    assert RowReader.fit(wide).pairs is None
    assert RowReader.fit(wide.drop(columns="0")).pairs is not None


def test_few_rows_have_no_say_in_pairs():
    """With none to hold out there is no knee."""
    detector = fitted(frame(20))
    assert not field_of(detector).pairs.is_fitted
    assert np.isfinite(detector.score_samples(frame(50, seed=1))).all()


@pytest.mark.parametrize("which", ["detector", "members"])
def test_it_is_saved_and_pickled_bit_by_bit(which, tmp_path, request):
    detector = request.getfixturevalue(which)
    rows = pd.concat([frame(200, seed=1), frame(3, seed=2).assign(kind="new")], ignore_index=True)
    scores = detector.score_samples(rows)
    detector.save(tmp_path / "model")
    np.testing.assert_array_equal(NRFDetector.load(tmp_path / "model").score_samples(rows), scores)
    np.testing.assert_array_equal(copy.deepcopy(detector).score_samples(rows), scores)
    again = pickle.loads(pickle.dumps(detector))  # noqa: S301
    np.testing.assert_array_equal(again.score_samples(rows), scores)


@pytest.mark.parametrize("which", ["detector", "members"])
def test_onnx_gives_the_same_scores(which, tmp_path, request):
    onnxruntime = pytest.importorskip("onnxruntime")
    detector = request.getfixturevalue(which)
    detector.export(tmp_path / "d.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "d.onnx")
    rows = pd.concat([swapped(frame(500, seed=1))[0], frame(5, seed=2).assign(kind="new")], ignore_index=True)
    feed = {
        i.name: rows[i.name].to_numpy(object if "string" in i.type else np.float32)[:, None]
        for i in session.get_inputs()
    }
    (scores,) = session.run(["score"], feed)
    numbers = rows.select_dtypes("number").astype(np.float32)
    np.testing.assert_allclose(scores, detector.score_samples(rows.assign(**numbers)), rtol=1e-5, atol=1e-5)


def test_contributions_sum_to_the_difference(detector):
    rows, odd = swapped(frame(200, seed=3))
    scores = detector.score_samples(rows)
    lowest = np.argsort(np.where(odd, scores, np.inf))[:5]
    for found in explain(detector, rows.iloc[lowest]):
        assert found.changes
        assert sum(found.contributions.values()) == pytest.approx(found.score - found.revised_score, abs=1e-4)


def test_rows_are_added(detector):
    before = field_of(detector).pairs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = fitted(frame(), warm_start=False)
        more.partial_fit(frame(600, seed=5))
    after = field_of(more).pairs
    assert after.is_fitted
    assert not torch.equal(before.knee, after.knee)
    rows, odd = swapped(frame(1000, seed=1))
    assert roc_auc_score(odd, -more.score_samples(rows)) > 0.8
