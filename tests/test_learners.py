"""Alg. 1: the gradients that are taken are those of the equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nrf.learners import Inclusive, InclusiveConfig, Revision
from nrf.losses import adversarial_loss, control_loss, potential_loss, regression_loss
from nrf.models import LatentGenerator
from nrf.samplers import SGHMC, SGLD, CoopNet, Langevin


class Quadratic(nn.Module):
    """u(x) = −a ‖x‖²/2 with one parameter: every gradient can be written down."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))

    def forward(self, x):
        return -self.a * x.square().sum(1) / 2


class Shift(nn.Module):
    """g(h) = h + b."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.zeros(2))

    def forward(self, h):
        return h + self.b


def _learner(config, revision, sampler=None, a=1.0, sigma=0.0):
    sampler = sampler or SGLD(0.1, temperature=0.0)
    return Inclusive(Quadratic(a), LatentGenerator(Shift(), 2, sigma), sampler, revision, config)


def test_losses():
    u_data, u_model = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0])
    assert potential_loss(u_data, u_model).item() == pytest.approx(-1.5)
    assert control_loss(u_data).item() == pytest.approx(5.0)
    assert regression_loss(torch.ones(2, 3), torch.zeros(2, 3)).item() == pytest.approx(3.0)
    assert adversarial_loss(u_data).item() == pytest.approx(-2.0)


def test_potential_gradient_is_the_likelihoods():
    """∂/∂a of the loss is E_data‖x‖²/2 − E_model‖x‖²/2 plus the control's, whatever the optimiser does with it."""
    learner = _learner(InclusiveConfig(control_weight=0.5), Revision(2, "x"), a=0.7)
    data = torch.randn(50, 2, generator=torch.Generator().manual_seed(3))
    rng = torch.Generator().manual_seed(0)
    samples = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)) * (1 - 0.07) ** 2
    learner.update(data, rng)
    half = lambda x: x.square().sum(1) / 2  # noqa: E731
    control = 0.5 * (2 * 0.7 * half(data).square()).mean()
    want = half(data).mean() - half(samples).mean() + control
    torch.testing.assert_close(learner.potential.a.grad, want)


def test_generator_regresses_on_revised_pairs():
    learner = _learner(InclusiveConfig(), Revision(2, "x"))
    h = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    learner.update(torch.randn(50, 2, generator=torch.Generator().manual_seed(3)), torch.Generator().manual_seed(0))
    want = 2 * (h - 0.81 * h).mean(0)  # d/db E‖0.9² h − (h + b)‖² at b = 0
    torch.testing.assert_close(learner.generator.network.b.grad, want)


def test_generator_by_the_potential_uses_fresh_codes_and_spares_the_potential():
    learner = _learner(InclusiveConfig(generator_loss="potential", potential_lr=1e-12), Revision(1, "x"))
    rng = torch.Generator().manual_seed(0)
    torch.randn(50, 2, generator=rng)  # the proposal's codes
    fresh = torch.randn(50, 2, generator=rng)
    learner.update(torch.ones(50, 2), torch.Generator().manual_seed(0))
    torch.testing.assert_close(learner.generator.network.b.grad, fresh.mean(0))
    a_grad = learner.potential.a.grad.clone()
    torch.testing.assert_close(a_grad, torch.tensor(1.0) - (0.9 * _first(50)).square().sum(1).mean() / 2)


def _first(n):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("target", "sampler"), [("x", Langevin(0.1)), ("joint", SGHMC(0.1)), ("conditional", CoopNet(0.1, n_x=2, n_h=2))]
)
def test_any_sampler_and_target(target, sampler):
    learner = _learner(InclusiveConfig(), Revision(2, target), sampler, sigma=1.0)
    metrics = learner.update(torch.ones(10, 2), torch.Generator().manual_seed(0))
    assert metrics["revision_distance"] > 0


def test_learns_the_scale_of_a_gaussian():
    """Data N(0, 1/4) under u = −a‖x‖²/2: maximum likelihood has a = 4, and a well-mixed sampler finds it."""
    config = InclusiveConfig(potential_lr=0.02, generator_lr=0.02, betas=(0.5, 0.9))
    learner = _learner(config, Revision(30, "x"), SGLD(0.1), a=1.0)
    rng = torch.Generator().manual_seed(0)
    estimates = []
    for step in range(800):
        learner.update(0.5 * torch.randn(256, 2, generator=rng), rng)
        if step >= 400:
            estimates.append(learner.potential.a.item())
    # The chain at step 0.1 on precision a has variance 1/(a(1 − 0.05a)); it matches 1/4 at a = 5.528.
    want = (1 - math.sqrt(1 - 0.8)) / 0.1
    assert sum(estimates) / len(estimates) == pytest.approx(want, rel=0.05)
