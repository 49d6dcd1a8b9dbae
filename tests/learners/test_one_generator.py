"""One g in an iteration: proposal, revision and regression mean the same function, batch norm or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.learners import CoopNetConfig, InclusiveConfig, Revision, as_replicas
from nrf.learners.revision import Revised
from nrf.models import LatentGenerator
from nrf.networks import (
    MLPGenerator,
    MLPPotential,
    ResNetGenerator,
    ResNetPotential,
    StandardCNNGenerator,
    StandardCNNPotential,
    called_with,
    pass_noted,
    stack,
)
from nrf.runs.presets import PRESETS
from nrf.runs.spec import LearnerChoice
from nrf.runs.train import train
from nrf.samplers import SGLD, CoopNet
from nrf.seeds import streams
from nrf.training import RunFolder, TrainConfig

IMAGE = (3, 8, 8)
STILL = {"step_size": 1e-13, "latent_step_size": 1e-13, "temperature": 0.0}


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch._dynamo.reset()


def _pair(kind, sigma):
    match kind:
        case "perceptrons":
            generator = MLPGenerator(latent_dim=3, widths=(8, 6), sigma=sigma, output_norm="weight")
            return MLPPotential(widths=(8, 4)).build((5,)), generator.build((5,))
        case "convolutions":
            generator = StandardCNNGenerator(latent_dim=3, width=2, sigma=sigma)
            return StandardCNNPotential(width=2).build(IMAGE), generator.build(IMAGE)
        case "blocks":
            generator = ResNetGenerator(latent_dim=3, width=4, sigma=sigma)
            return ResNetPotential(width=4).build(IMAGE), generator.build(IMAGE)


def _learner(kind, target, replicas=1, n_steps=1, sigma=1e-6):
    conditional = target == "conditional"
    sampler = CoopNet(**STILL, n_x=1, n_h=1) if conditional else SGLD(**STILL)
    config = (CoopNetConfig if conditional else InclusiveConfig)(generator_lr=0.01)
    revision = Revision(n_steps, target)
    pairs = [_pair(kind, 0.0 if target == "x" else sigma) for _ in range(replicas)]
    return as_replicas([config.build(*pair, sampler, revision) for pair in pairs])


def _update(learner, kind, n=8):
    shape = (5,) if kind == "perceptrons" else IMAGE
    rng = streams(list(range(learner.replicas)), "test")
    return learner.update(torch.randn(n * learner.replicas, *shape), rng)


def _in_motion(learner):
    """Weights that running statistics have not caught up with."""
    with torch.no_grad():
        for parameter in learner.generator.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))


WAYS = [
    ("perceptrons", 1, "x"),
    ("perceptrons", 2, "x"),
    ("perceptrons", 1, "joint"),
    ("perceptrons", 2, "joint"),
    ("perceptrons", 2, "conditional"),
    ("convolutions", 1, "x"),
    ("convolutions", 2, "joint"),
    ("blocks", 1, "joint"),
]


def _nothing_to_do(kind, replicas, target, n_steps, *, compiled):
    learner = _learner(kind, target, replicas, n_steps)
    _in_motion(learner)
    assert learner.compile() == compiled
    metrics = _update(learner, kind)
    assert metrics["generator_loss"] < 1e-8
    assert not compiled or learner._whole.works, "it fell back to the parts"


@pytest.mark.parametrize(("kind", "replicas", "target"), WAYS)
def test_samples_that_are_not_revised_leave_the_regression_nothing_to_do(kind, replicas, target):
    _nothing_to_do(kind, replicas, target, 0, compiled=False)


@pytest.mark.parametrize(("replicas", "target"), [(1, "x"), (2, "joint")])
def test_nor_does_a_compiled_iteration_of_steps_that_move_nothing(replicas, target):
    _nothing_to_do("perceptrons", replicas, target, 1, compiled=True)


WAYS_OF_CODES = [(*way, False) for way in WAYS if way[-1] != "x"] + [("perceptrons", 1, "joint", True)]


@pytest.mark.parametrize(("kind", "replicas", "target", "compiled"), WAYS_OF_CODES)
def test_the_g_of_the_revision_is_the_g_of_the_regression(kind, replicas, target, compiled, monkeypatch):
    """A revision that moves codes far and puts x where its own g has these codes is one that g agrees with."""

    def far(self, potential, generator, sampler, x, h, rng):
        moved = 2 * h + 1
        return Revised(generator.pull(moved) * generator.sigma**2, moved, {})

    monkeypatch.setattr(Revision, "revised", far)
    learner = _learner(kind, target, replicas, sigma=0.1)
    _in_motion(learner)
    assert not compiled or learner.compile()
    metrics = _update(learner, kind)
    assert metrics["revision_distance"] > 0.01
    assert metrics["generator_loss"] < 1e-8
    assert not compiled or learner._whole.works, "it fell back to the parts"


@pytest.mark.parametrize(("target", "compiled"), [("x", False), ("joint", False), ("joint", True)])
def test_running_statistics_are_moved_once(target, compiled):
    learner = _learner("perceptrons", target)
    layer, norm = learner.generator.network[0], learner.generator.network[1]
    entering = layer(learner.generator.sample_latent(8, streams([0], "test"))).detach()
    assert not compiled or learner.compile()
    _update(learner, "perceptrons")
    torch.testing.assert_close(norm.running_mean, 0.1 * entering.mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * entering.var(0), rtol=1e-4, atol=1e-6)
    assert norm.num_batches_tracked == 1


def test_gradients_flow_through_the_statistics_of_other_codes():
    """By hand: a layer, its outputs at other codes normalised by what it makes of the first ones, another layer."""
    generator = MLPGenerator(latent_dim=3, widths=(6,), sigma=0.1).build((5,)).double()
    first, norm, _, last = list(generator.network)[:4]
    h, other = torch.randn(9, 3, dtype=torch.float64), 2 + torch.randn(7, 3, dtype=torch.float64)
    a, b = first(h), first(other)
    hidden = (b - a.mean(0)) / (a.var(0, correction=0) + norm.eps).sqrt() * norm.weight + norm.bias
    want = last(hidden.relu())
    parameters = [p for p in generator.parameters() if p is not first.bias]
    expected = torch.autograd.grad(want.square().sum(), parameters)
    _, statistics = pass_noted(generator, h)
    got = called_with(generator.eval(), statistics, {}, other)
    torch.testing.assert_close(got, want)
    found = torch.autograd.grad(got.square().sum(), parameters)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_batch_norm_without_gain_and_in_a_network_of_ones_own():
    layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4, affine=False), torch.nn.Tanh(), torch.nn.Linear(4, 5)
    generator = LatentGenerator(torch.nn.Sequential(*layers), 3, sigma=0.1)
    h = torch.randn(9, 3)
    want, statistics = pass_noted(generator, h)
    torch.testing.assert_close(called_with(generator.eval(), statistics, {}, h), want)
    assert list(generator.state_dict()) == [k for k in generator.state_dict() if "hook" not in k]


def test_replicas_have_statistics_of_their_own():
    alone = [MLPGenerator(latent_dim=3, widths=(6,)).build((5,)) for _ in range(2)]
    together, h = stack(alone), torch.randn(10, 3)
    out, statistics = pass_noted(together, h)
    for i, generator in enumerate(alone):
        mine, own = pass_noted(generator, h[5 * i : 5 * i + 5])
        torch.testing.assert_close(out[5 * i : 5 * i + 5], mine)
        for name, values in own.items():
            for both, one in zip(statistics[name], values, strict=True):
                torch.testing.assert_close(both[i], one)


def test_a_revision_that_fails_leaves_running_statistics_in_place(monkeypatch):
    def fails(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Revision, "revised", fails)
    learner = _learner("perceptrons", "joint")
    with pytest.raises(KeyboardInterrupt):
        _update(learner, "perceptrons")
    norm = learner.generator.network[1]
    assert norm.training
    assert (norm.running_var >= 0.9).all()  # moved a tenth of the way from 1, not put in its place


def test_stored_settings_that_name_the_statistics_of_proposals_are_read():
    for stored, kind in (
        (to_json(InclusiveConfig(control_weight=0.5)), InclusiveConfig),
        (to_json(CoopNetConfig()), CoopNetConfig),
    ):
        for name in ("running", "batch"):
            found = from_json(LearnerChoice, stored | {"proposal_statistics": name})
            assert to_json(found) == stored
            assert type(found) is kind
        with pytest.raises(InputError, match="unknown"):
            from_json(LearnerChoice, stored | {"proposal_statistic": "running"})


def test_a_run_that_names_them_is_taken_up_again(tmp_path):
    preset = replace(PRESETS["gmm-short"], train=TrainConfig(iterations=4, checkpoint_every=2, keep=3, threads=1))
    train("t", replace(preset, train=replace(preset.train, iterations=2)), tmp_path, quiet=True)
    folder = RunFolder(tmp_path)
    described = folder.describe()
    described["config"]["learner"]["proposal_statistics"] = "running"
    folder.write_description(described)
    assert train("t", preset, tmp_path, resume=True, quiet=True).step == 4
