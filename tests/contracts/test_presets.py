"""Every preset for a few steps, on rows of the right shape: it must build, learn, and go through JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nrf.config import from_json, to_json
from nrf.runs.presets import PRESETS
from nrf.runs.spec import Preset


@pytest.mark.parametrize("name", PRESETS)
def test_goes_through_json(name):
    assert from_json(Preset, to_json(PRESETS[name])) == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_learns_for_a_few_steps(name, fake_splits, no_global_randomness):
    preset = PRESETS[name]
    images = len(fake_splits(preset.data.name, 2).event_shape) == 3
    if images and "resnet" in name:
        preset = replace(
            preset, potential=replace(preset.potential, width=8), generator=replace(preset.generator, width=8)
        )
    batch = torch.from_numpy(fake_splits(preset.data.name, 4 if images else 48).train)
    learner = preset.build(batch, preset.seeds)
    before = [p.detach().clone() for m in learner.modules.values() for p in m.parameters()]
    rng = torch.Generator().manual_seed(0)
    for _ in range(2 if images else 4):
        learner.update(batch, rng)
    after = [p for m in learner.modules.values() for p in m.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(torch.isfinite(p).all() for p in after)
