"""Averaged weights have batch norm statistics of their own; and what is set aside is seen by nothing that trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.optim.swa_utils import update_bn

from nrf.learners import GANConfig, InclusiveConfig, PCDConfig, Revision
from nrf.models import joined
from nrf.networks import MLPGenerator, MLPPotential, batch_norms
from nrf.runs.pictures import model_of
from nrf.runs.presets import PRESETS
from nrf.runs.spec import load_splits
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGLD
from nrf.seeds import stream, streams
from nrf.training import RunFolder, TrainConfig, Trainer, set_aside
from nrf.training import checkpoint as ckpt
from nrf.training.averages import PASSES, REVISED_PASSES

BASE = replace(
    PRESETS["gmm-short"],
    train=TrainConfig(iterations=12, batch_size=50, log_every=4, checkpoint_every=6, keep=9, threads=1, ema_decay=0.95),
)


def _statistics(module):
    return {n: (m.running_mean.clone(), m.running_var.clone()) for n, m in batch_norms(module).items()}


def _far(found, other):
    return max(float((a - b).abs().max()) for n in found for a, b in zip(found[n], other[n], strict=True))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_averaged_generators_statistics_are_those_of_its_own_weights(tmp_path, replicas):
    train("t", replace(BASE, replicas=replicas), tmp_path / "run", quiet=True)
    for i in range(replicas):
        model = TrainedModel.load(tmp_path / "run", averaged=True, replica=i)
        found = _statistics(model.generator)
        rng = stream(BASE.seed + i, "averages")
        update_bn([torch.randn(50, 2, generator=rng) for _ in range(PASSES)], model.generator.train())
        want = _statistics(model.generator)
        last = _statistics(TrainedModel.load(tmp_path / "run", replica=i).generator)
        assert _far(found, want) < 1e-4
        assert _far(last, want) > 0.05


@pytest.mark.parametrize(
    "learner", [InclusiveConfig(), GANConfig(), PCDConfig(n_chains=200)], ids=["inclusive", "gan", "pcd"]
)
def test_those_of_an_averaged_potential_are_over_data_and_samples(learner):
    """In memory, without a folder: the trainer's own averaged networks."""
    preset = replace(BASE, potential=MLPPotential(widths=(20, 20), norm="batch"), learner=learner, replicas=2)
    if not isinstance(learner, InclusiveConfig):
        preset = replace(preset, sampler=SGLD(0.01), revision=Revision(2, "x"))
    data = torch.from_numpy(load_splits(preset.data).train)
    trainer = _trained(preset, data)
    before = {k: v.clone() for m in trainer.learner.modules.values() for k, v in m.state_dict().items()}
    averaged = trainer.averaged()
    found = _statistics(averaged["potential"])
    rng = streams([0, 1], "averages")
    for _ in range(PASSES):
        averaged["generator"].sample_latent(100, rng)
    rows = []
    for i in range(REVISED_PASSES):
        batch = trainer.batches.at(i)
        rows.append(joined(2, batch, trainer.learner.samples(batch, rng)))
    layer = next(iter(batch_norms(averaged["potential"])))
    first = averaged["potential"].body[1]
    entering = torch.stack([first(batch).reshape(2, 100, -1) for batch in rows]).detach()
    torch.testing.assert_close(found[layer][0], entering.mean((0, 2)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[layer][1], entering.var(2).mean(0), rtol=1e-4, atol=1e-4)
    assert _far(found, _statistics(trainer.learner.modules["potential"])) > 0.01
    after = {k: v for m in trainer.learner.modules.values() for k, v in m.state_dict().items()}
    assert all(torch.equal(before[k], after[k]) for k in before)


def _trained(preset, data):
    trainer = Trainer(preset.build(data, preset.seeds), data, preset.train, preset.seeds)
    trainer.fit(quiet=True)
    return trainer


def test_looking_at_them_changes_nothing_of_the_run(tmp_path):
    preset = replace(BASE, potential=MLPPotential(widths=(20, 20), norm="batch"))
    train("t", preset, tmp_path / "plain", quiet=True)
    state = torch.get_rng_state()
    train(
        "t", preset, tmp_path / "looked at", quiet=True, on_log=lambda trainer, row: bool(trainer.averaged()) and None
    )
    assert torch.equal(state, torch.get_rng_state())
    plain, looked = (dict(ckpt.read(RunFolder(tmp_path / n).latest()).tensors) for n in ("plain", "looked at"))
    assert all(torch.equal(plain[k], looked[k]) for k in plain)


def test_pictures_and_files_have_the_same_averaged_networks(tmp_path):
    seen = []

    def keep(trainer, row):
        seen[:] = [model_of(BASE, trainer)]

    train("t", BASE, tmp_path / "run", quiet=True, on_log=keep)
    stored = TrainedModel.load(tmp_path / "run", averaged=True)
    assert _far(_statistics(seen[0].generator), _statistics(stored.generator)) == 0


def test_a_network_without_batch_norm_is_left_alone(tmp_path):
    preset = replace(BASE, generator=MLPGenerator(latent_dim=2, norm="none"))
    train("t", preset, tmp_path / "run", quiet=True)
    assert TrainedModel.load(tmp_path / "run", averaged=True).sample(3)[0].shape == (3, 2)


# ------------------------------------------------------------------------------------------------------- rows set aside


@pytest.mark.parametrize("replicas", [1, 2])
def test_rows_that_are_watched_are_not_initialised_on(replicas):
    preset = replace(BASE, seed=3, replicas=replicas, train=replace(BASE.train, watch_share=0.25))
    assert preset.potential.data_init
    data = torch.from_numpy(load_splits(preset.data).train)
    watched, _ = set_aside(data, 0.25, 3)
    other = data.clone()
    other[(data[:, None] == watched[None]).all(-1).any(1)] = 100.0
    one, same = (preset.build(rows, preset.seeds).modules["potential"].state_dict() for rows in (data, other))
    plain = preset.networks((2,), preset.seed)[0].state_dict()
    assert all(torch.equal(one[k], same[k]) for k in one)
    assert replicas > 1 or any(not torch.equal(one[k], plain[k]) for k in one)


def test_other_buffers_are_the_last_models(tmp_path):
    """The vectors of spectral norm: their mean would not have length 1."""
    preset = replace(BASE, potential=MLPPotential(widths=(20, 20), norm="spectral"))
    train("t", preset, tmp_path / "run", quiet=True)
    tensors = ckpt.read(RunFolder(tmp_path / "run").latest()).tensors
    vectors = [name for name in tensors if name.startswith("module/potential/") and name.endswith(("._u", "._v"))]
    assert len(vectors) == 6
    for name in vectors:
        averaged = name.replace("module/potential/", "averaged/potential/module.")
        assert torch.equal(tensors[averaged], tensors[name])
