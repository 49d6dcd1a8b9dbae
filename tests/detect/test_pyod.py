"""The detector under PyOD's conventions."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from nrf.detect import NRFDetector, Training
from nrf.errors import InputError

pytest.importorskip("pyod")

from pyod.models.base import BaseDetector

from nrf.detect.pyod import NRF

QUICK = {"max_iter": 200, "training": Training(widths=(32, 16))}


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(200, 3))


@pytest.fixture(scope="module")
def fitted(rows):
    return NRF(contamination=0.1, random_state=0, **QUICK).fit(rows)


def test_scores_are_the_detectors_upside_down(rows, fitted):
    alone = NRFDetector(random_state=0, **QUICK).fit(rows)
    np.testing.assert_array_equal(fitted.decision_scores_, -alone.score_samples(rows))
    np.testing.assert_array_equal(fitted.decision_function(rows[:7]), -alone.score_samples(rows[:7]))
    assert isinstance(fitted, BaseDetector)
    assert isinstance(fitted.detector_, NRFDetector)


def test_contamination_sets_threshold_and_labels(rows, fitted):
    assert fitted.labels_.shape == (200,)
    assert set(fitted.labels_) == {0, 1}
    assert fitted.labels_.sum() == 20
    np.testing.assert_array_equal(fitted.labels_, fitted.decision_scores_ > fitted.threshold_)
    stricter = NRF(contamination=0.02, random_state=0, **QUICK).fit(rows)
    assert stricter.threshold_ > fitted.threshold_
    np.testing.assert_array_equal(stricter.decision_scores_, fitted.decision_scores_)


def test_what_pyod_brings_works(rows, fitted):
    far = np.full((1, 3), 30.0)
    assert fitted.predict(far).tolist() == [1]
    np.testing.assert_array_equal(fitted.predict(rows), fitted.labels_)
    for method in ("linear", "unify"):
        shares = fitted.predict_proba(rows, method=method)
        assert shares.shape == (200, 2)
        np.testing.assert_allclose(shares.sum(1), 1)
        assert fitted.predict_proba(far, method=method)[0, 1] == pytest.approx(1)
    labels, confidence = fitted.predict(rows, return_confidence=True)
    assert labels.shape == confidence.shape == (200,)
    assert ((confidence >= 0) & (confidence <= 1)).all()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_fit_predict_gives_the_labels(rows, fitted):
    found = NRF(random_state=0, **QUICK).fit_predict(rows)
    np.testing.assert_array_equal(found, fitted.labels_)


def test_labels_given_to_fit_change_nothing(rows, fitted):
    one_class = NRF(random_state=0, **QUICK).fit(rows, np.zeros(200))
    np.testing.assert_array_equal(one_class.decision_scores_, fitted.decision_scores_)
    assert one_class.predict_proba(rows[:3]).shape == (3, 2)


def test_parameters_can_be_read_set_and_cloned():
    detector = NRF(contamination=0.2, random_state=3, n_estimators=2, training=Training(sigma=0.5, widths=(8,)))
    params = detector.get_params()
    assert params["contamination"] == 0.2
    assert params["training__widths"] == (8,)
    copied = clone(detector)
    assert copied is not detector
    assert copied.get_params() == params
    assert detector.set_params(max_iter=7).max_iter == 7
    assert "n_estimators=2" in repr(detector)


def test_every_parameter_reaches_the_detector(rows):
    """All but the contamination, with names and defaults as they are there."""
    ours = {n: p.default for n, p in inspect.signature(NRF).parameters.items() if n != "contamination"}
    theirs = {n: p.default for n, p in inspect.signature(NRFDetector).parameters.items()}
    assert ours == {name: theirs[name] for name in ours}
    given = {
        "n_estimators": 2,
        "combine": "rank",
        "calibration_fraction": 0.3,
        "training": Training(sigma=0.7, n_steps=3),
        "max_iter": 5,
    }
    inner = NRF(random_state=1, **given).fit(rows).detector_.get_params()
    assert {name: inner[name] for name in given} == given
    assert inner["random_state"] == 1


@pytest.mark.usefixtures("no_global_randomness")
def test_a_seed_decides(rows):
    first, second, other = (NRF(random_state=seed, max_iter=10).fit(rows).decision_scores_ for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_tables_are_taken():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=60), "colour": rng.choice(["red", "blue"], 60)})
    detector = NRF(random_state=0, **QUICK).fit(table)
    assert detector.decision_function(table).shape == (60,)
    assert detector.predict_proba(table).shape == (60, 2)


def test_a_fitted_one_can_be_copied(rows, fitted):
    again = copy.deepcopy(fitted)
    np.testing.assert_array_equal(again.decision_function(rows), fitted.decision_function(rows))


def test_what_is_wrong_is_said(rows):
    with pytest.raises(NotFittedError):
        NRF().decision_function(rows)
    with pytest.raises(ValueError, match="contamination"):
        NRF(contamination=0.7)
    with pytest.raises(InputError, match="n_estimators"):
        NRF(n_estimators=0).fit(rows)


def test_a_missing_pyod_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "nrf.detect.pyod")
    monkeypatch.setitem(sys.modules, "pyod.models.base", None)
    with pytest.raises(InputError, match=r'pip install "nrf\[pyod\]"'):
        importlib.import_module("nrf.detect.pyod")


def test_threads_are_left_as_they_were(rows):
    before = torch.get_num_threads()
    NRF(random_state=0, **QUICK).fit(rows)
    assert torch.get_num_threads() == before
