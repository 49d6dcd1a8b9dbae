"""Alg. 1: the gradients that are taken are those of the equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nrf.errors import InputError
from nrf.learners import (
    CDConfig,
    CoopNetConfig,
    ExclusiveConfig,
    GANConfig,
    Inclusive,
    InclusiveConfig,
    PCDConfig,
    ReplayConfig,
    Revision,
    SNGANConfig,
    WGANGPConfig,
)
from nrf.learners.exclusive import batch_norm_gains
from nrf.learners.gan import log_loss
from nrf.learners.sngan import hinge_loss
from nrf.learners.wgan_gp import gradient_penalty
from nrf.losses import adversarial_loss, control_loss, potential_loss, regression_loss
from nrf.models import LatentGenerator
from nrf.networks import MLPGenerator
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


# ------------------------------------------------------------------------------------------------- the other learners


def _built(config, revision=None, sampler=None, a=1.0, sigma=0.0):
    generator = LatentGenerator(Shift(), 2, sigma)
    return config.build(Quadratic(a), generator, sampler or SGLD(0.1, temperature=0.0), revision or Revision(2, "x"))


def _drawn(n, times):
    """What a generator with seed 0 draws for codes, one draw after another."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(n, 2, generator=rng) for _ in range(times)]


def test_log_loss_is_cross_entropy():
    u_data, u_samples = torch.tensor([0.3, -1.0]), torch.tensor([2.0, 0.5])
    want = nn.functional.binary_cross_entropy_with_logits
    expected = want(u_data, torch.ones(2)) + want(u_samples, torch.zeros(2))
    torch.testing.assert_close(log_loss(u_data, u_samples), expected)


def test_hinge_loss():
    assert hinge_loss(torch.tensor([2.0, 0.0]), torch.tensor([-3.0, 1.0])).item() == pytest.approx(0.5 + 1.0)


def test_gradient_penalty_of_a_linear_potential():
    u = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        u.weight.copy_(torch.tensor([[3.0, 4.0]]))
    rng = torch.Generator().manual_seed(0)
    got = gradient_penalty(u, torch.zeros(5, 2), torch.ones(5, 2), rng, weight=10.0)
    assert got.item() == pytest.approx(10 * (5 - 1) ** 2)
    got.backward()
    torch.testing.assert_close(u.weight.grad, 20 * 4 * torch.tensor([[0.6, 0.8]]))


def test_gradient_penalty_is_taken_between_data_and_samples():
    """u = ‖x‖²/2 has slope ‖x‖; between 0 and (1, 0) that is a uniform number, and E(U − 1)² = 1/3."""
    u = lambda x: x.square().sum(1) / 2  # noqa: E731
    end = torch.tensor([[1.0, 0.0]]).expand(20_000, 2)
    got = gradient_penalty(u, end, torch.zeros(20_000, 2), torch.Generator().manual_seed(0), weight=1.0)
    assert got.item() == pytest.approx(1 / 3, abs=0.01)


SLOPES = [(GANConfig, lambda u: -torch.sigmoid(-u)), (SNGANConfig, lambda u: -1 + 0 * u)]


@pytest.mark.parametrize(("config", "slope"), SLOPES)
def test_generators_of_gans_follow_their_loss(config, slope):
    """d loss / d b with x = h + b is the mean of (dloss/du)(du/dx), and du/dx = −x here."""
    learner = _built(config(potential_lr=1e-12))
    learner.update(torch.ones(50, 2), torch.Generator().manual_seed(0))
    x = _drawn(50, 2)[1]
    u = -x.square().sum(1) / 2
    torch.testing.assert_close(learner.generator.network.b.grad, (slope(u)[:, None] * -x).mean(0))


def test_wgan_takes_its_critic_steps():
    counts = []
    for n_critic in (1, 3):
        learner = _built(WGANGPConfig(n_critic=n_critic))
        learner.update(torch.ones(10, 2), torch.Generator().manual_seed(0))
        counts.append(int(learner.optimizers["potential"].state[learner.potential.a]["step"]))
        assert int(learner.optimizers["generator"].state[learner.generator.network.b]["step"]) == 1
    assert counts == [1, 3]


def test_cd_begins_at_the_data():
    data = torch.randn(50, 2, generator=torch.Generator().manual_seed(3))
    learner = _built(CDConfig(), a=0.7)
    learner.update(data, torch.Generator().manual_seed(0))
    half = data.square().sum(1).mean() / 2
    torch.testing.assert_close(learner.potential.a.grad, half - (1 - 0.07) ** 4 * half)


def test_pcd_goes_on_where_it_stopped():
    """With one row in memory and no noise, the chain shrinks by 0.9 a step, over iterations, whatever the data do."""
    learner = _built(PCDConfig(n_chains=1, potential_lr=1e-12), Revision(1, "x"))
    rng = torch.Generator().manual_seed(0)
    learner.update(torch.full((1, 2), 8.0), rng)
    for _ in range(4):
        learner.update(torch.zeros(1, 2), rng)
    torch.testing.assert_close(learner.memory.chains, torch.full((1, 2), 8 * 0.9**5))


def test_replay_mixes_noise_and_the_past():
    config = ReplayConfig(buffer_size=4000, noise_share=0.25, noise_range=(2.0, 4.0), potential_lr=1e-12)
    learner = _built(config, Revision(0, "x"))
    batch, rng = torch.zeros(4000, 2), torch.Generator().manual_seed(0)
    first, _ = learner.memory.begin(batch, rng)
    assert first.min() >= 2
    assert first.max() <= 4
    assert first.mean().item() == pytest.approx(3.0, abs=0.05)
    learner.memory.chains = torch.zeros(4000, 2)
    start, places = learner.memory.begin(batch, rng)
    assert (start != 0).any(1).float().mean().item() == pytest.approx(0.25, abs=0.03)
    learner.memory.keep(places, start + 1)
    assert (learner.memory.chains[places] >= 1).all()


def test_exclusive_raises_the_gains_of_batch_norm():
    """−w Σ log γ² has the gradient −2w/γ; a flat potential leaves nothing else."""
    with torch.random.fork_rng():
        generator = MLPGenerator(latent_dim=2, widths=(6,)).build((2,))
    config = ExclusiveConfig(entropy_weight=0.3, potential_lr=1e-12)
    learner = config.build(Quadratic(1e-12), generator, SGLD(), Revision())
    learner.update(torch.ones(20, 2), torch.Generator().manual_seed(0))
    (gain,) = batch_norm_gains(learner.generator)
    torch.testing.assert_close(gain.grad, torch.full((6,), -0.6), atol=1e-5, rtol=0)


def test_exclusive_bound_learns_to_read_codes_and_spreads_the_samples():
    """On u = −‖x‖²/2 a linear generator collapses to a point without entropy; the bound keeps it wide."""
    spreads = {}
    for weight in (1.0, 1e-6):
        config = ExclusiveConfig(entropy="variational", entropy_weight=weight, potential_lr=1e-12, generator_lr=0.01)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            generator = LatentGenerator(nn.Linear(2, 2), 2, sigma=0.1)
            learner = config.build(Quadratic(1.0), generator, SGLD(), Revision())
        rng = torch.Generator().manual_seed(0)
        for _ in range(400):
            metrics = learner.update(torch.ones(100, 2), rng)
        spreads[weight] = generator.network.weight.detach().norm().item()
        if weight == 1.0:
            assert metrics["entropy"] > -0.7  # codes are read back better than by guessing, which has −1
    assert spreads[1.0] > 5 * spreads[1e-6]


def test_learners_that_cannot_be_built_say_so():
    with pytest.raises(InputError, match="sampler to coopnet"):
        _built(CoopNetConfig(), sigma=1.0)
    with pytest.raises(InputError, match="target to x"):
        _built(CDConfig(), Revision(2, "joint"), sigma=1.0)
    with pytest.raises(InputError, match="batch norm"):
        _built(ExclusiveConfig())
    with pytest.raises(InputError, match="does not train the generator"):
        CDConfig(generator_lr=0.1)
    with pytest.raises(InputError, match="learning rates must be positive"):
        InclusiveConfig(generator_lr=0.0)
    with pytest.raises(InputError, match="n_critic"):
        GANConfig(n_critic=0)
    with pytest.raises(InputError, match="noise_share"):
        ReplayConfig(noise_share=2.0)
    with pytest.raises(InputError, match="at least 1 chain"):
        _built(PCDConfig(n_chains=0))


def test_noise_on_data_is_what_the_potential_sees():
    """At x̃ = 0 the mean of u = −‖x̃‖²/2 is −d s²/2 for noise of deviation s."""
    batch = torch.zeros(20_000, 2)
    for noise, level in ((0.0, 0.0), (3.0, -9.0)):
        generator = LatentGenerator(nn.Linear(2, 2), 2, sigma=0.1)
        learner = InclusiveConfig(data_noise=noise).build(Quadratic(1.0), generator, SGLD(0.01), Revision(1))
        metrics = learner.update(batch, torch.Generator().manual_seed(0))
        assert metrics["u_data"].item() == pytest.approx(level, abs=0.3)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InputError, match="data_noise"):
            InclusiveConfig(data_noise=wrong)


def test_the_generator_may_have_betas_of_its_own():
    generator = LatentGenerator(nn.Linear(2, 2), 2, sigma=0.1)
    config = InclusiveConfig(betas=(0.0, 0.9), generator_betas=(0.9, 0.99))
    learner = config.build(Quadratic(1.0), generator, SGLD(0.01), Revision(1))
    found = {name: optimizer.param_groups[0]["betas"] for name, optimizer in learner.optimizers.items()}
    assert found == {"potential": (0.0, 0.9), "generator": (0.9, 0.99)}
    with pytest.raises(InputError, match="generator_betas"):
        InclusiveConfig(generator_betas=(1.0, 0.9))


def test_a_learning_rate_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="positive and finite"):
        InclusiveConfig(potential_lr=float("nan"))
    with pytest.raises(InputError, match="positive and finite"):
        PCDConfig(potential_lr=float("inf"))
