"""Files that earlier versions wrote, kept here as they were: a run and a detector. They must go on being readable.

``run-0.1.0`` is of `nrf train gmm-released` with tiny networks and four iterations, by a commit from before
``proposal_statistics``; ``detector-0.1.0`` is of three iterations on 60 rows of three columns. ``detector-format-3`` is
the last one of that format, with all its fields: two models by rank on 60 rows of a mixed table, with its rows.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nrf import NRFDetector
from nrf.cli import main
from nrf.detect import Training
from nrf.detect.storage import _digest
from nrf.errors import CheckpointError, InputError
from nrf.runs.train import stored_preset, train
from nrf.runs.trained import TrainedModel

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def old_run(tmp_path):
    return shutil.copytree(FIXTURES / "run-0.1.0", tmp_path / "run")


@pytest.fixture
def old_detector(tmp_path):
    return shutil.copytree(FIXTURES / "detector-0.1.0", tmp_path / "detector")


def _edit(path, change):
    """Change a detector's description, with a digest that fits."""
    description = json.loads(path.read_text())
    change(description)
    description["digest"] = _digest(description)
    path.write_text(json.dumps(description))


def _without_data_noise(run):
    """The run as one from before there was that field."""
    path = run / "config.json"
    description = json.loads(path.read_text())
    del description["config"]["learner"]["data_noise"]
    path.write_text(json.dumps(description))


def test_a_run_from_before_a_field_has_its_default(old_run):
    _without_data_noise(old_run)
    name, preset = stored_preset(old_run)
    assert name == "gmm-released"
    assert preset.learner.data_noise == 0
    assert preset.potential.widths == (4,)
    assert preset.train.batch_size == 8


def test_its_checkpoint_is_read(old_run):
    trained = TrainedModel.load(old_run)
    assert trained.step == 4
    expected = [0.2028268, -0.2083615]
    np.testing.assert_allclose(
        trained.score_samples(np.array([[0.0, 0.0], [2.0, 1.0]], np.float32)), expected, rtol=1e-4
    )


def test_it_is_resumed_from_python_and_from_the_shell(old_run):
    _, preset = stored_preset(old_run)
    assert train("gmm-released", preset, old_run, resume=True, quiet=True).step == 4
    command = ["train", "gmm-released", "--out", str(old_run), "--resume", "--quiet", "--train.iterations", "6"]
    assert main(command) == 0
    assert TrainedModel.load(old_run).step == 6


def test_another_value_of_the_new_field_makes_it_another_run(old_run):
    _without_data_noise(old_run)
    _, preset = stored_preset(old_run)
    changed = replace(preset, learner=replace(preset.learner, data_noise=0.1))
    with pytest.raises(InputError, match=r"learner.data_noise was 0.0, now 0.1"):
        train("gmm-released", changed, old_run, resume=True, quiet=True)


def test_a_run_of_a_later_version_is_refused_by_name(old_run):
    path = old_run / "config.json"
    description = json.loads(path.read_text())
    description["config"]["learner"]["of_the_future"] = 1
    path.write_text(json.dumps(description))
    _, preset = stored_preset(FIXTURES / "run-0.1.0")
    with pytest.raises(CheckpointError, match=r"unknown \['of_the_future'\]"):
        train("gmm-released", preset, old_run, resume=True, quiet=True)


def test_a_detector_is_read_and_scores_as_it_did(old_detector):
    rows = np.random.default_rng(0).normal(size=(60, 3))[:4]
    expected = [-0.0922641, -0.0288540, -1.1244036, 0.3194949]
    np.testing.assert_allclose(NRFDetector.load(old_detector).score_samples(rows), expected, rtol=1e-4)


def test_a_detector_of_the_last_format_is_read_and_scores_as_it_did():
    detector = NRFDetector.load(str(FIXTURES / "detector-format-3"))
    assert (detector.max_iter, detector.n_estimators, detector.calibration_fraction) == (3, 2, 0.25)
    assert detector.training == Training(widths=(4,), latent_dim=2, sigma=0.8, learning_rate=0.004, batch_size=16)
    assert (detector.combine, detector.fitted_.combine, detector.keep_examples) == ("rank", "rank", True)
    assert detector.fitted_.calibrated.rows.shape[0] == 15
    assert str(detector.threshold_rule_) == "threshold 0.124862: flags at most 10 % of normal rows, by 15 held-out rows"
    rng = np.random.default_rng(0)
    size, colour = rng.normal(50, 10, 60), rng.choice(["red", "green"], 60)
    pd = pytest.importorskip("pandas")
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 60) * 7919, unit="min")
    table = pd.DataFrame({"size": size, "colour": colour, "day": days, "ok": rng.random(60) > 0.5})
    table.loc[::9, "size"] = np.nan
    expected = [0.4823063823, 0.5159243479, 0.2168010593, 0.2939286906]
    np.testing.assert_allclose(detector.score_samples(table)[:4], expected, rtol=1e-4)


def test_a_detector_of_an_old_format_is_saved_in_the_present_one(old_detector, tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    detector = NRFDetector.load(old_detector)
    detector.save(tmp_path / "new")
    description = json.loads((tmp_path / "new" / "detector.json").read_text())
    assert description["version"] == 4
    assert description["parameters"]["training"]["batch_size"] == 16
    assert description["versions"]["nrf"] == "0.1.0", "those of the fit"
    again = NRFDetector.load(tmp_path / "new")
    assert again.get_params() == detector.get_params()
    np.testing.assert_array_equal(again.p_values(rows), detector.p_values(rows))


def test_a_setting_of_training_that_is_missing_or_unknown(old_detector, tmp_path):
    NRFDetector.load(old_detector).save(tmp_path / "new")
    path = tmp_path / "new" / "detector.json"
    _edit(path, lambda d: d["parameters"]["training"].pop("sigma"))
    _edit(path, lambda d: d.pop("combine"))
    assert NRFDetector.load(tmp_path / "new").training.sigma is None
    _edit(path, lambda d: d["parameters"]["training"].update(of_the_future=1))
    with pytest.raises(CheckpointError, match=r"training \(Training\).*unknown \['of_the_future'\]"):
        NRFDetector.load(tmp_path / "new")
    _edit(path, lambda d: d["parameters"].update(training=None, iterations=3))
    with pytest.raises(CheckpointError, match="parameters that are not known: iterations"):
        NRFDetector.load(tmp_path / "new")


def test_a_detector_from_before_a_field_has_its_default(old_detector):
    def older(description):
        for name in ("pixels", "custom_modules", "feature_names_in"):
            del description[name]
        del description["parameters"]["scaling"]
        del description["recipe"]["train"]["flip"]

    _edit(old_detector / "detector.json", older)
    detector = NRFDetector.load(old_detector)
    assert detector.scaling == "quartiles"
    assert detector.recipe_.train.flip is False
    assert detector.pixels_ is None
    assert (detector.calibration_.tolerance, detector.threshold_rule_.tolerance) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("recipe"), "fields missing or unknown: recipe"),
        (lambda d: d["recipe"].pop("potential"), r"config \(PairSpec\).*missing \['potential'\]"),
        (lambda d: d.update(of_the_future=1), "fields missing or unknown: of_the_future"),
        (lambda d: d["parameters"].update(of_the_future=1), "of_the_future"),
        (lambda d: d["recipe"]["train"].update(of_the_future=1), r"unknown \['of_the_future'\]"),
    ],
)
def test_what_has_no_default_or_is_not_known_is_named(old_detector, change, message):
    _edit(old_detector / "detector.json", change)
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(old_detector)
