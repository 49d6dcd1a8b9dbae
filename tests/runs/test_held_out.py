"""Runs of fields around a reference: λ and Z after the last iteration, stored, resumed, averaged, in replicas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.fields import GaussianReference, KernelReference, MixtureReference, NoReference, Referenced, quadrature
from nrf.learners import InclusiveConfig, LevelsConfig, PCDConfig, ReplayConfig, Revision
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential
from nrf.runs.spec import DataConfig, Preset
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGLD
from nrf.training import RunFolder, TrainConfig
from nrf.training import checkpoint as ckpt

LEARNERS = {
    "inclusive": InclusiveConfig(),
    "pcd": PCDConfig(n_chains=40),
    "replay": ReplayConfig(buffer_size=40),
    "levels": LevelsConfig(potential_lr=1e-2),
}
REFERENCES = {
    "gaussian": GaussianReference(),
    "mixture": MixtureReference(n_components=3),
    "kernel": KernelReference(n_anchors=60),
}
BOX = torch.full((2,), -9.0), torch.full((2,), 10.0)


def _preset(learner="inclusive", reference="mixture", **train):
    network = (
        LevelsMLPPotential(widths=(8,), n_levels=3, sigma_min=0.3, sigma_max=2.0)
        if learner == "levels"
        else MLPPotential(widths=(8,), data_init=True)
    )
    settings = {"batch_size": 20, "iterations": 6, "log_every": 2, "checkpoint_every": 3, "watch_share": 0.25} | train
    return Preset(
        data=DataConfig("gmm"),
        potential=Referenced(network, REFERENCES[reference], bound=2.0),
        generator=MLPGenerator(latent_dim=2, widths=(6,), sigma=0.1),
        sampler=SGLD(0.005),
        revision=Revision(2, target="x"),
        learner=LEARNERS[learner],
        train=TrainConfig(**settings),
    )


@pytest.fixture
def splits(fake_splits):
    """A half moon, scaled: no Gaussian."""
    found = fake_splits("gmm", 160)
    turn, rng = np.pi * found.train[:, 0], np.random.default_rng(0)
    rows = 2 * np.stack([np.cos(turn), np.sin(turn)], 1) + 0.3 * rng.normal(size=(160, 2))
    return replace(found, train=rows.astype(np.float32))


def _run(preset, out, splits, **more):
    return train("mine", preset, out, quiet=True, splits=splits, **more)


def _tensors(folder):
    return ckpt.read(RunFolder(folder).latest()).tensors


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_ends_as_a_density(learner, reference, tmp_path, splits):
    preset = _preset(learner, reference, ema_decay=0.5)
    assert from_json(Preset, to_json(preset)) == preset
    trainer = _run(preset, tmp_path, splits)
    *before, last = RunFolder(tmp_path).metrics()
    assert all("strength" not in line for line in before)
    for averaged, prefix in ((False, ""), (True, "averaged_")):
        trained = TrainedModel.load(tmp_path, averaged=averaged)
        strength = float(trained.potential.tilt.strength)
        assert last[f"{prefix}strength"] == pytest.approx(strength)
        assert last[f"{prefix}strength_gain"] >= 0
        found = quadrature(lambda x, t=trained: torch.from_numpy(t.log_density(x)), BOX, 40_000)
        assert found.value == pytest.approx(1.0, abs=0.03)
        assert float(trained.potential.tilt.log_normaliser.abs().max()) > 0 or strength == 0
    trained = TrainedModel.load(tmp_path)
    now = trainer.learner.modules["potential"].eval()
    with torch.no_grad():
        np.testing.assert_array_equal(trained.log_density(splits.train), now(torch.from_numpy(splits.train)).numpy())
    check = trained.normaliser(n_chains=50, n_between=2)
    assert check.quadrature.value == pytest.approx(1.0, abs=0.03)
    assert (check.annealed is None) == (learner != "levels")
    way = check.importance if learner != "levels" else check.annealed
    assert abs(way.log_value) < 4 * way.standard_error + 0.02


@pytest.mark.parametrize("learner", ["inclusive", "levels"])
def test_the_reference_sees_training_rows_and_the_strength_held_out_ones(learner, tmp_path, splits):
    """No watched row is an anchor of the kernel."""
    trainer = _run(_preset(learner, "kernel"), tmp_path, splits)
    anchors = trainer.learner.modules["potential"].measure
    own = anchors.own(trainer.batches.data)
    assert int((own >= 0).sum()) == 60
    assert int((anchors.own(trainer.health.watched) >= 0).sum()) == 0


@pytest.mark.parametrize("learner", LEARNERS)
def test_resumed_runs_end_with_the_same_bits(learner, tmp_path, splits):
    """Stopped on the way, and made longer after an end at which λ and Z had been set."""
    preset = _preset(learner, ema_decay=0.5)
    _run(preset, tmp_path / "whole", splits)
    stopped = _run(preset, tmp_path / "stopped", splits, on_log=lambda trainer, _: trainer.step == 4)
    assert stopped.step == 4
    short = replace(preset, train=replace(preset.train, iterations=4))
    _run(short, tmp_path / "longer", splits)
    assert bool(_tensors(tmp_path / "longer")["module/potential/tilt.known"])
    want = _tensors(tmp_path / "whole")
    for name in ("stopped", "longer"):
        _run(preset, tmp_path / name, splits, resume=True)
        found = _tensors(tmp_path / name)
        assert found.keys() == want.keys()
        assert [key for key in want if not torch.equal(found[key], want[key])] == []
    _run(preset, tmp_path / "whole", splits, resume=True)  # nothing is left to do, and nothing is undone
    assert all(torch.equal(value, want[key]) for key, value in _tensors(tmp_path / "whole").items())


@pytest.mark.parametrize("learner", ["inclusive", "levels"])
def test_replicas_get_their_own_strengths(learner, tmp_path, splits):
    share = 0.25 if learner == "levels" else 0.0
    preset = _preset(learner, "kernel", iterations=12, ema_decay=0.5, watch_share=share)
    _run(replace(preset, replicas=2), tmp_path / "both", splits)
    x, found = splits.train[:9], []
    # Rows are watched by the seed of the first replica, so that one alone is comparable.
    _run(preset, tmp_path / "alone", splits)
    for averaged in (False, True):
        alone = TrainedModel.load(tmp_path / "alone", averaged=averaged)
        both = [TrainedModel.load(tmp_path / "both", averaged=averaged, replica=i) for i in range(2)]
        np.testing.assert_allclose(both[0].log_density(x), alone.log_density(x), atol=2e-3)
        found += [one.potential.tilt.log_normaliser for one in both]
        for one in both:
            value = quadrature(lambda rows, t=one: torch.from_numpy(t.log_density(rows)), BOX, 40_000).value
            assert value == pytest.approx(1.0, abs=0.03)
    assert not torch.equal(found[0], found[1])


def test_without_held_out_rows_the_strength_is_1(tmp_path, splits):
    _run(_preset(watch_share=0.0), tmp_path, splits)
    last = RunFolder(tmp_path).metrics()[-1]
    assert last["strength"] == 1.0
    assert "strength_gain" not in last
    trained = TrainedModel.load(tmp_path)
    assert quadrature(lambda x: torch.from_numpy(trained.log_density(x)), BOX, 40_000).value == pytest.approx(
        1.0, abs=0.03
    )


def test_before_the_end_there_is_no_density(tmp_path, splits):
    _run(_preset(keep=9), tmp_path, splits)
    with pytest.raises(InputError, match="normalised at the end of its run"):
        TrainedModel.load(tmp_path, step=3).log_density(splits.train[:2])
    preset = _preset()
    _run(replace(preset, potential=replace(preset.potential, reference=NoReference())), tmp_path / "none", splits)
    assert "strength" not in RunFolder(tmp_path / "none").metrics()[-1]
    with pytest.raises(InputError, match="up to a constant only"):
        TrainedModel.load(tmp_path / "none").log_density(splits.train[:2])


def test_the_network_inside_starts_from_the_rows():
    """Weight-normed layers are set by data, as those of a potential without a reference are."""
    rows = 5 + 3 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    field = _preset(watch_share=0.0).build(rows, [0]).modules["potential"]
    with torch.no_grad():
        out = field.network(rows)
    assert float(out.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(out.std()) == pytest.approx(1.0, abs=1e-2)
