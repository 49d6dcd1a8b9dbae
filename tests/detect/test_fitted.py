"""What a fit returns: one record, which the detector holds, and which is explained, exported and copied."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from nrf.detect import Fitted, NRFDetector, Training
from nrf.detect.explain import explain, revised_rows
from nrf.detect.onnx import export_onnx

FAST = {"max_iter": 20, "random_state": 0, "training": Training(widths=(8,), n_steps=2)}
X = np.random.default_rng(0).normal(size=(200, 3))


@pytest.fixture(scope="module")
def detector():
    return NRFDetector(**FAST).fit(X)


def test_fitted_attributes_are_those_of_the_record(detector):
    fitted = detector.fitted_
    assert isinstance(fitted, Fitted)
    assert {name for name in vars(detector) if name.endswith("_")} == {"fitted_", "n_features_in_"}
    assert detector.threshold_rule_ is fitted.rule
    assert detector.offset_ == fitted.rule.threshold
    assert detector.calibration_ is fitted.calibrated.scores
    assert detector.encoder_ is fitted.reader.encoder
    assert detector.n_iter_ == fitted.n_iter == 20
    assert [line["step"] for line in detector.history_] == [10, 20]
    assert set(fitted.provenance.versions) == {"nrf", "torch", "numpy", "python"}
    with pytest.raises(FrozenInstanceError):
        fitted.n_iter = 3


def test_what_is_not_fitted_has_no_record(tmp_path):
    new = NRFDetector()
    assert not hasattr(new, "fitted_")
    assert not hasattr(new, "threshold_rule_")
    with pytest.raises(AttributeError, match="no attribute 'history_'"):
        _ = new.history_
    for use in (lambda: new.explain(X), lambda: explain(new, X), lambda: export_onnx(new, tmp_path / "x.onnx")):
        with pytest.raises(NotFittedError):
            use()


def test_parameters_set_after_a_fit_wait_for_the_next_one(detector):
    later = copy.deepcopy(detector).set_params(combine="rank", training__widths=(4,))
    np.testing.assert_array_equal(later.score_samples(X), detector.score_samples(X))
    assert later.fitted_.combine == "potential"


def test_another_threshold_is_another_record(detector):
    before, other = detector.fitted_, copy.copy(detector)
    other.set_threshold(false_alarm_rate=0.2).calibrate(X[:100])
    assert other.fitted_ is not before
    assert (other.calibrated_on_, other.threshold_rule_.n_calibration) == ("given rows", 100)
    assert detector.fitted_ is before
    assert (before.rule.rate, before.calibrated.on) == (0.05, "held-out rows")


def test_a_refit_that_is_refused_leaves_the_record(detector):
    again = copy.copy(detector)
    with pytest.raises(ValueError, match="contains infinity"):
        again.fit(np.full((50, 2), np.inf))
    with pytest.raises(ZeroDivisionError):
        again.set_params(callbacks=[lambda d, n: 1 / 0]).fit(X[:, :2])
    assert again.fitted_ is detector.fitted_
    assert again.n_features_in_ == 3


def test_callbacks_get_a_copy_and_the_detector_is_written_to_once(monkeypatch):
    shown = []
    detector = NRFDetector(**FAST, contamination=0.1)

    def look(copied, numbers):
        assert not hasattr(detector, "fitted_"), "nothing is set while it trains"
        shown.append((copied is detector, copied.n_iter_, copied.predict(X[:5]).shape, len(copied.history_)))

    detector.set_params(callbacks=[look]).fit(X)
    assert shown == [(False, 10, (5,), 1), (False, 20, (5,), 2)]
    assert (detector.predict(X) == -1).mean() == pytest.approx(0.1, abs=0.02)


def test_explanations_and_graphs_are_made_of_a_record(detector, tmp_path):
    pytest.importorskip("onnx")
    fitted, far = detector.fitted_, X[:2] + 9
    assert explain(fitted, far) == detector.explain(far)
    assert revised_rows(fitted, far, n_steps=3) == revised_rows(detector, far, n_steps=3)
    export_onnx(fitted, str(tmp_path / "record.onnx"))
    detector.export(str(tmp_path / "detector.onnx"))
    assert (tmp_path / "record.onnx").read_bytes() == (tmp_path / "detector.onnx").read_bytes()


def test_paths_may_be_strings(detector, tmp_path):
    detector.save(str(tmp_path / "model"))
    again = NRFDetector.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(again.score_samples(X), detector.score_samples(X))
    assert type(again) is NRFDetector


class Named(NRFDetector):
    """A detector of a user's own."""


def test_a_subclass_loads_itself(detector, tmp_path):
    detector.save(tmp_path / "model")
    assert type(Named.load(tmp_path / "model")) is Named


def test_where_a_fit_comes_from_stays_when_it_goes_on(detector, tmp_path):
    further = copy.deepcopy(detector)
    provenance = replace(further.fitted_.provenance, file=replace(further.file_columns_, label="class"))
    further.fitted_ = replace(further.fitted_, provenance=provenance)
    further.partial_fit(X)
    assert further.file_columns_.label == "class"
    assert further.fitted_.provenance.split_seed == detector.fitted_.provenance.split_seed
    assert further.set_params(warm_start=True).fit(X).file_columns_.label == "class"
    assert further.set_params(warm_start=False).fit(X).file_columns_.label is None
