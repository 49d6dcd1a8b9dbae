"""Files that earlier versions wrote, kept here as they were: a run and a detector. They must go on being readable.

``run-0.1.0`` is of `nrf train gmm-released` with tiny networks and four iterations, by a commit from before
``proposal_statistics``; ``detector-0.1.0`` is of three iterations on 60 rows of three columns.
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
        (lambda d: d["recipe"].pop("potential"), r"config \(Recipe\).*missing \['potential'\]"),
        (lambda d: d.update(of_the_future=1), "fields missing or unknown: of_the_future"),
        (lambda d: d["parameters"].update(of_the_future=1), "of_the_future"),
        (lambda d: d["recipe"]["train"].update(of_the_future=1), r"unknown \['of_the_future'\]"),
    ],
)
def test_what_has_no_default_or_is_not_known_is_named(old_detector, change, message):
    _edit(old_detector / "detector.json", change)
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(old_detector)
