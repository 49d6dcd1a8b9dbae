"""One contract for every registered learner."""

from __future__ import annotations

import pytest
import torch

from nrf.errors import NonFiniteError
from nrf.learners import LEARNERS, InclusiveConfig, Revision
from nrf.networks import MLPGenerator, MLPPotential
from nrf.samplers import SGLD

SETTINGS = {
    "x only": (Revision(3, "x"), InclusiveConfig(control_weight=0.1)),
    "joint": (Revision(3, "joint", n_inner=2), InclusiveConfig(optimizer="rmsprop")),
    "by the potential": (Revision(1, "x"), InclusiveConfig(generator_loss="potential")),
}


@pytest.fixture(params=[(name, s) for name in LEARNERS for s in SETTINGS], ids=lambda p: f"{p[0]}, {p[1]}")
def make(request):
    """A function that builds the same fresh learner each time."""
    name, setting = request.param

    def build(sampler=None):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            u = MLPPotential(widths=(8, 8)).build((3,))
            q = MLPGenerator(latent_dim=2, widths=(8,), sigma=0.3).build((3,))
        return LEARNERS[name](u, q, sampler or SGLD(0.01, latent_step_size=1e-3), *SETTINGS[setting])

    return build


def _batch():
    return torch.randn(16, 3, generator=torch.Generator().manual_seed(1))


def _state(learner):
    return {f"{n}.{k}": v.clone() for n, m in learner.modules.items() for k, v in m.state_dict().items()}


def _train(learner, steps=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        metrics = learner.update(_batch(), rng)
    return metrics


def test_every_module_has_an_optimiser_and_both_learn(make, no_global_randomness):
    learner = make()
    assert set(learner.optimizers) == set(learner.modules)
    before = {n: [p.clone() for p in m.parameters() if p.requires_grad] for n, m in learner.modules.items()}
    _train(learner)
    for name, module in learner.modules.items():
        now = [p for p in module.parameters() if p.requires_grad]
        moved = [not torch.equal(a, b) for a, b in zip(before[name], now, strict=True)]
        # A bias before batch norm has no gradient worth the name; all weights must move.
        assert sum(moved) >= len(moved) - 1, name


def test_same_seed_same_bytes(make):
    one, same, other = make(), make(), make()
    _train(one, seed=0), _train(same, seed=0), _train(other, seed=1)
    a, b, c = _state(one), _state(same), _state(other)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


def test_metrics_are_finite_scalars_without_graph(make):
    metrics = _train(make())
    for name, value in metrics.items():
        assert value.ndim == 0, name
        assert not value.requires_grad, name
        assert torch.isfinite(value), name


def test_modules_stay_in_training_mode_with_their_gradients(make):
    learner = make()
    trained = {n: [p.requires_grad for p in m.parameters()] for n, m in learner.modules.items()}
    _train(learner)
    for name, module in learner.modules.items():
        assert module.training, name
        assert [p.requires_grad for p in module.parameters()] == trained[name]


def test_nan_in_a_batch_is_named(make):
    batch = _batch()
    batch[3, 1] = float("nan")
    with pytest.raises(NonFiniteError, match="batch has 1 non-finite of 48 values"):
        make().update(batch, torch.Generator().manual_seed(0))


class Broken(SGLD):
    """A sampler whose first coordinate runs away."""

    def move(self, z, delta, size, rng):
        return torch.where(torch.arange(z.shape[1]) == 0, float("inf"), z)


def test_a_sampler_that_runs_away_is_named(make):
    with pytest.raises(NonFiniteError, match="revised samples has 16 non-finite of 48 values"):
        _train(make(Broken()))
