"""One spec, one builder: networks, initialisation and replicas, for presets and detector alike."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
import torch
from torch import nn

from nrf.config import from_json, to_json
from nrf.detect.defaults import spec_for
from nrf.errors import InputError
from nrf.learners import PCDConfig
from nrf.models import LatentGenerator, replicas_of
from nrf.networks import MLPGenerator, MLPPotential, StandardCNNGenerator, StandardCNNPotential, replica_state
from nrf.runs import spec as spec_module
from nrf.runs.presets import find_preset
from nrf.runs.spec import PairSpec, Preset
from nrf.runs.train import train
from nrf.samplers import SGLD
from nrf.training import TrainConfig

DATA = 3 + 2 * torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
SPEC = PairSpec(
    potential=MLPPotential(widths=(8,), data_init=True),
    generator=MLPGenerator(latent_dim=3, widths=(8,)),
    sampler=SGLD(),
    train=TrainConfig(batch_size=20, iterations=3),
)


def _states(learner):
    return {f"{n}/{k}": v for n, m in learner.modules.items() for k, v in m.state_dict().items()}


def _equal(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[k], other[k]) for k in one)


def test_a_preset_is_a_spec_with_data_and_seed():
    preset = find_preset("gmm-short")
    plain = PairSpec(**{f.name: getattr(preset, f.name) for f in fields(PairSpec)})
    assert [f.name for f in fields(Preset)] == ["data", *(f.name for f in fields(PairSpec)), "seed", "replicas"]
    assert _equal(_states(preset.build(DATA, [7])), _states(plain.build(DATA, [7])))
    assert not _equal(_states(preset.build(DATA, [7])), _states(preset.build(DATA, [8])))


def test_a_replica_is_what_its_seed_builds_alone(no_global_randomness):
    learner = replace(SPEC, learner=PCDConfig(n_chains=40)).build(DATA, [4, 0, 9])
    assert replicas_of(learner.modules["potential"]) == 3
    for r, seed in enumerate([4, 0, 9]):
        alone = replace(SPEC, learner=PCDConfig(n_chains=40)).build(DATA, [seed])
        for name in ("potential", "generator"):
            state = replica_state(learner.modules[name].state_dict(), r)
            assert _equal(state, alone.modules[name].state_dict())


def test_the_networks_alone_are_those_before_initialisation():
    learner, (u, q) = SPEC.build(DATA, [5]), SPEC.networks((2,), 5)
    assert _equal(q.state_dict(), learner.modules["generator"].state_dict())
    assert not _equal(u.state_dict(), learner.modules["potential"].state_dict())
    plain = replace(SPEC, potential=replace(SPEC.potential, data_init=False)).build(DATA, [5])
    assert _equal(u.state_dict(), plain.modules["potential"].state_dict())


def test_rows_kept_out_of_training_initialise_nothing():
    watching = replace(SPEC, train=replace(SPEC.train, watch_share=0.5))
    watched, learned = spec_module.set_aside(torch.arange(300.0)[:, None], 0.5, 5)
    other = DATA.clone()
    other[watched[:, 0].long()] = 1e6
    assert _equal(_states(watching.build(DATA, [5])), _states(watching.build(other, [5])))
    other[learned[0, 0].long()] = 1e6
    assert not _equal(_states(watching.build(DATA, [5])), _states(watching.build(other, [5])))


def _own():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        u = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0))
        return u, LatentGenerator(nn.Linear(3, 2), 3, 0.5)


def test_modules_of_ones_own_are_copied_as_they_are():
    u, q = _own()
    learner = SPEC.build(DATA, [0, 1], potential=u, generator=q)
    for own, module in zip((u, q), learner.modules.values(), strict=True):
        assert all(_equal(replica_state(module.state_dict(), r), own.state_dict()) for r in range(2))
    alone = SPEC.build(DATA, [0], potential=u).modules["potential"]
    with torch.no_grad():
        next(alone.parameters()).fill_(0.0)
    assert next(u.parameters()).abs().min() > 0


def test_a_generator_of_ones_own_leaves_the_potential_its_initialisation():
    plain, own = SPEC.build(DATA, [3]), SPEC.build(DATA, [3], generator=_own()[1])
    assert _equal(plain.modules["potential"].state_dict(), own.modules["potential"].state_dict())


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"potential": nn.Linear(2, 1)}, "one number per row"),
        ({"potential": nn.Linear(5, 1)}, "does not take rows of shape"),
        ({"generator": nn.Linear(3, 2)}, "must be a nrf.models.LatentGenerator"),
        ({"generator": LatentGenerator(nn.Linear(3, 4), 3, 0.5)}, r"events of shape \(4,\), the data have \(2,\)"),
    ],
)
def test_modules_that_do_not_fit_are_refused(own, message):
    with pytest.raises(InputError, match=message):
        SPEC.build(DATA, [0], **own)


def test_batch_norm_of_single_rows_is_refused_but_not_that_of_pixels():
    single = replace(SPEC, train=replace(SPEC.train, batch_size=1))
    with pytest.raises(InputError, match="batch norm needs batches of at least 2 rows"):
        single.build(DATA, [0])
    images = replace(single, potential=StandardCNNPotential(width=4), generator=StandardCNNGenerator(width=4))
    images.build(torch.rand(5, 1, 16, 16, generator=torch.Generator().manual_seed(0)), [0])


def test_a_recipe_of_earlier_versions_is_a_spec():
    spec = spec_for(200, (4,), {})
    stored = json.loads(json.dumps(to_json(spec)))
    assert stored["type"] == "PairSpec"
    assert from_json(PairSpec, stored | {"type": "Recipe"}) == spec
    with pytest.raises(InputError, match="does not hold a Preset"):
        from_json(Preset, to_json(find_preset("digits")) | {"type": "Recipe"})


def test_the_former_functions_say_what_to_call():
    preset = replace(find_preset("gmm-short"), replicas=2)
    with pytest.warns(DeprecationWarning, match=r"use preset.build\(data, preset.seeds\)") as caught:
        learner = spec_module.build_learner(preset, DATA)
    assert caught[0].filename == __file__
    assert _equal(_states(learner), _states(preset.build(DATA, preset.seeds)))
    with pytest.warns(DeprecationWarning, match="use preset.networks"):
        u, _ = spec_module.build_models(preset, (2,))
    assert _equal(u.state_dict(), preset.networks((2,), 0)[0].state_dict())


def test_a_run_without_iterations_is_refused(tmp_path):
    preset = find_preset("gmm-short")
    with pytest.raises(InputError, match="at least one iteration"):
        train("mine", replace(preset, train=replace(preset.train, iterations=0)), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
