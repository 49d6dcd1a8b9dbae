"""Names of version 0.1.0: they still work, with a warning that says what to write instead."""

from __future__ import annotations

import importlib
import json
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import nrf.detect
from nrf.detect import ClipBenignTail, NRFDetector, RotationFeatures, Training, features
from nrf.detect.selection import synthetic_auroc
from nrf.detect.storage import _digest
from nrf.errors import InputError

X = np.random.default_rng(0).normal(size=(120, 3))
OLD = {"iterations": 5, "n_members": 2, "calibration_share": 0.3, "widths": (8,), "learning_rate": 0.01, "n_steps": 2}
NEW = {
    "max_iter": 5,
    "n_estimators": 2,
    "calibration_fraction": 0.3,
    "training": Training(widths=(8,), learning_rate=0.01, n_steps=2),
}


def test_old_parameters_make_the_same_detector():
    with pytest.warns(DeprecationWarning, match="is deprecated") as caught:
        old = NRFDetector(random_state=0, **OLD)
    said = [str(w.message) for w in caught]
    assert len(said) == len(OLD)
    assert "iterations is deprecated since 0.2 and goes in 0.4; use max_iter" in said
    assert "widths is deprecated since 0.2 and goes in 0.4; use training=Training(widths=…)" in said
    assert {w.filename for w in caught} == {__file__}, "the line that made the detector"
    new = NRFDetector(random_state=0, **NEW)
    assert old.get_params() == new.get_params() == clone(old).get_params()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        np.testing.assert_array_equal(old.fit(X).score_samples(X), new.fit(X).score_samples(X))


def test_old_parameters_are_set_and_read():
    detector = NRFDetector(training=Training(widths=(8,)))
    with pytest.warns(DeprecationWarning, match="sigma is deprecated") as caught:
        detector.set_params(sigma=2.0, max_levels=3)
    assert caught[0].filename == __file__
    assert detector.training == Training(widths=(8,), sigma=2.0)
    with pytest.warns(DeprecationWarning, match=r"sigma is deprecated .* use training\.sigma") as caught:
        assert detector.sigma == 2.0
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="n_members is deprecated since 0.2 and goes in 0.4; use n_estimators"):
        assert detector.n_members == 1
    with pytest.warns(DeprecationWarning, match="batch_size is deprecated"):
        assert NRFDetector().batch_size is None


def test_what_never_was_a_parameter_is_none():
    with pytest.raises(TypeError, match=r"NRFDetector.__init__\(\) got an unexpected keyword argument 'depth'"):
        NRFDetector(depth=3)
    with pytest.raises(ValueError, match="Invalid parameter 'depth' for estimator NRFDetector"):
        NRFDetector().set_params(depth=3)
    with pytest.raises(ValueError, match=r"Invalid parameter 'depth' for Training. Valid parameters are: \['widths'"):
        NRFDetector().set_params(training__depth=3)
    with pytest.raises(AttributeError, match="'NRFDetector' object has no attribute 'depth'"):
        _ = NRFDetector().depth


def test_new_names_say_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        detector = NRFDetector(random_state=0, **NEW).set_params(training__sigma=0.5)
        warnings.simplefilter("ignore", RuntimeWarning)
        detector.fit(X).save(tmp_path / "m")
        assert NRFDetector.load(tmp_path / "m").training == detector.training
        detector.predict_fdr(X, rate=0.1)


def test_settings_of_training_one_by_one():
    detector = NRFDetector(training=Training(n_steps=4))
    deep = detector.get_params()
    assert (deep["training__n_steps"], deep["training__sigma"]) == (4, None)
    assert "training__sigma" not in detector.get_params(deep=False)
    detector.set_params(training=Training(sigma=1.0), training__batch_size=16)
    assert detector.training == Training(sigma=1.0, batch_size=16)
    assert NRFDetector().set_params(training__sigma=0.5).training == Training(sigma=0.5)
    with pytest.raises(InputError, match=r"training must be a nrf.detect.Training or None, got \{'sigma': 1\}"):
        NRFDetector(training={"sigma": 1}).fit(X)
    with pytest.raises(InputError, match=r"training must be a nrf\.detect\.Training"):
        NRFDetector(training={"sigma": 1}).set_params(training__sigma=1)


def test_searches_over_settings_and_over_whole_objects():
    pipeline = Pipeline([("scale", StandardScaler()), ("detector", NRFDetector(max_iter=3, random_state=0))])
    trainings = [Training(widths=(4,)), Training(widths=(8,), sigma=0.5)]
    for grid in ({"detector__training__sigma": [0.5, 1.0]}, {"detector__training": trainings}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            search = GridSearchCV(pipeline, grid, scoring=synthetic_auroc, cv=2, error_score="raise").fit(X)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        ((name, value),) = search.best_params_.items()
        assert search.best_estimator_.get_params()[name] == value


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"widths": ()}, "widths must be whole numbers from 1 on"),
        ({"latent_dim": 0}, "latent_dim must be a whole number from 1 on, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"n_steps": 1.5}, "n_steps must be a whole number"),
        ({"sigma": "wide"}, "sigma must be a number, got 'wide'"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(wrong, message):
    with pytest.raises(InputError, match=message):
        Training(**wrong)


def test_a_training_is_plain():
    assert Training(widths=[8, 4]) == Training(widths=(8, 4))
    assert hash(Training(widths=[8])) == hash(Training(widths=(8,)))
    assert repr(Training(widths=[8], sigma=0.5)) == "Training(widths=(8,), sigma=0.5)"


def test_discoveries_is_predict_fdr():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        detector = NRFDetector(random_state=0, max_iter=20).fit(X)
    rows = np.concatenate([X, X + 30])
    with pytest.warns(DeprecationWarning, match="discoveries is deprecated since 0.2 and goes in 0.4; use predict_fdr"):
        old = detector.discoveries(rows, 0.2)
    assert old.any()
    np.testing.assert_array_equal(old, detector.predict_fdr(rows, 0.2))


@pytest.mark.parametrize(("old", "new"), [("TurnFeatures", RotationFeatures), ("OneSided", ClipBenignTail)])
def test_old_names_of_feature_steps(old, new):
    for module in (features, nrf.detect):
        with pytest.warns(DeprecationWarning, match=f"{old} is deprecated .* use {new.__name__}"):
            assert getattr(module, old) is new
    with pytest.raises(AttributeError, match=r"'nrf\.detect' has no attribute 'Nothing'"):
        _ = importlib.import_module("nrf.detect").Nothing


def test_a_stored_feature_step_by_its_old_name(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        detector = NRFDetector(features=ClipBenignTail("high"), max_iter=3, random_state=0).fit(X)
    detector.save(tmp_path / "m")
    path = tmp_path / "m" / "detector.json"
    description = json.loads(path.read_text())
    assert description["features"]["type"] == "ClipBenignTail"
    description["features"]["type"] = "OneSided"
    path.write_text(json.dumps(description | {"digest": _digest(description)}))
    again = NRFDetector.load(tmp_path / "m")
    assert isinstance(again.features_, ClipBenignTail)
    np.testing.assert_array_equal(again.score_samples(X), detector.score_samples(X))


def test_the_adapter_for_pyod_takes_them_too():
    pyod = pytest.importorskip("nrf.detect.pyod")
    with pytest.warns(DeprecationWarning, match="sigma is deprecated"):
        old = pyod.NRF(iterations=5, sigma=0.5)
    assert old.get_params() == pyod.NRF(max_iter=5, training=Training(sigma=0.5)).get_params()
    assert old.set_params(training__sigma=0.7).training == Training(sigma=0.7)
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        pyod.NRF(depth=3)
