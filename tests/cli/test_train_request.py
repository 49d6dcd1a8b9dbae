"""A preset as the command line reads it: nothing is lost on the way there and back."""

from __future__ import annotations

import json

import pytest

from nrf.cli import main
from nrf.cli.train_request import PresetOptions
from nrf.learners import LEARNERS
from nrf.networks import MLPPotential
from nrf.runs.presets import PRESETS
from nrf.runs.spec import Preset
from nrf.runs.train import stored_preset
from nrf.samplers import SAMPLERS, SGHMC


@pytest.mark.parametrize("name", PRESETS)
def test_there_and_back(name):
    preset = PresetOptions.of(PRESETS[name]).as_preset()
    assert type(preset) is Preset
    assert preset == PRESETS[name]


def test_overrides_are_written_as_a_plain_preset(tmp_path):
    options = ["--sampler.step-size", "0.02", "--potential.widths", "5", "4", "--train.iterations", "2", "--seed", "3"]
    assert main(["train", "gmm-short", "--out", str(tmp_path / "run"), "--quiet", "sampler:sghmc", *options]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["type"] == "Preset"
    _, preset = stored_preset(tmp_path / "run")
    assert (preset.sampler, preset.seed) == (SGHMC(step_size=0.02, friction=0.3, temperature=0.02), 3)
    assert isinstance(preset.potential, MLPPotential)
    assert preset.potential.widths == (5, 4)


def test_every_sampler_and_learner_is_offered_by_its_name(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "digits", "--help"])
    said = capsys.readouterr().out
    missing = [name for name in SAMPLERS if f"• sampler:{name}" not in said]
    missing += [name for name in LEARNERS if f"• learner:{name}" not in said]
    assert missing == []
    assert "--data.name" in said
    assert "potential:" not in said, "the kind of network is the preset's"
