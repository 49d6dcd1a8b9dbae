"""Configurations through JSON, and what does not fit."""

from __future__ import annotations

import json

import pytest

from nrf.config import differences, from_json, to_json
from nrf.errors import InputError
from nrf.learners import Revision
from nrf.runs.presets import PRESETS
from nrf.runs.spec import DataConfig, Preset
from nrf.samplers import SGHMC, SGLD
from nrf.seeds import derive, stream


def _stored():
    return json.loads(json.dumps(to_json(PRESETS["gmm-paper"])))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("seed",), "zero", r"config.seed is 'zero', not of type int"),
        (("seed",), True, r"config.seed is True, not of type int"),
        (("sampler", "type"), "Gibbs", r"config.sampler is of type 'Gibbs', not one of SGLD, SGHMC"),
        (("sampler", "step_size"), None, r"config.sampler.step_size is None"),
        (("sampler", "box"), [1.0], r"config.sampler.box is \[1.0\], which fits none"),
        (("revision", "target"), "y", r"config.revision.target is 'y', not one of x, joint, conditional"),
        (("learner", "momentum"), 1, r"config.learner \(InclusiveConfig\).*unknown \['momentum'\]"),
        (("train",), 3, r"config.train does not hold a TrainConfig"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place(place, value, message):
    stored = _stored()
    inner = stored
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError, match=message):
        from_json(Preset, stored)


def test_a_missing_field_has_its_default():
    stored = _stored()
    del stored["train"]["keep"]
    stored["learner"].pop("data_noise")
    del stored["revision"]  # by a factory
    found = from_json(Preset, stored)
    assert found.train == PRESETS["gmm-paper"].train
    assert found.learner == PRESETS["gmm-paper"].learner
    assert found.revision == Revision()


def test_a_missing_field_without_default_is_named():
    stored = _stored()
    del stored["data"]["name"]
    with pytest.raises(InputError, match=r"config.data \(DataConfig\).*missing \['name'\], unknown \[\]"):
        from_json(Preset, stored)


def test_integers_serve_as_floats_and_paths_as_text(tmp_path):
    assert from_json(SGLD, {**to_json(SGLD()), "step_size": 1}).step_size == 1.0
    config = DataConfig("gmm", path=tmp_path)
    assert from_json(DataConfig, json.loads(json.dumps(to_json(config)))) == config


def test_differences_by_dotted_name():
    assert differences(to_json(SGLD(0.1)), to_json(SGLD(0.1))) == {}
    assert differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}) == {"a.b": (1, 3)}
    assert "friction" in differences(to_json(SGLD()), to_json(SGHMC()))


def test_streams_are_apart_and_fixed():
    """The values are part of the format: a changed derivation would change every seeded result."""
    assert derive(0, "learner") == 3264009910978777473
    draws = {name: stream(0, name).initial_seed() for name in ("learner", "weights", "sample")}
    assert len(set(draws.values())) == 3
    assert derive(0, "order", 12) != derive(0, "order", 1, 2)
