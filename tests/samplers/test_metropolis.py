"""The Metropolis-adjusted samplers: their law is the density's at any step, and what they cost and report is stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, polygamma

from gaussian import LinearGaussian, first_order, simulate, z_scores
from nrf.errors import InputError
from nrf.gaussian import AugmentedGaussian
from nrf.networks import MLPPotential
from nrf.samplers import HMC, MALA, SGLD, Langevin, run
from nrf.targets import ConditionalTarget, PotentialTarget

N, LIMIT = 20_000, 4.5
ADJUSTED = [MALA(step_size=0.3), HMC(step_size=0.15, n_leapfrog=3)]


class Density:
    """A log-density of one coordinate in place of a network; counts how often it is evaluated."""

    exact = True

    def __init__(self, value):
        self.value, self.calls = value, 0

    def __call__(self, position, l):
        return self.value_and_gradient(position)[1]

    def value_and_gradient(self, position):
        self.calls += 1
        z = tuple(p.detach().requires_grad_(True) for p in position)
        with torch.enable_grad():
            value = self.value(*z)
            return value.detach(), torch.autograd.grad(value.sum(), z)


def _var_z(samples, variance):
    """Standard errors between the second moment of one coordinate (mean 0, normal) and its variance."""
    return (samples.square().mean().item() / variance - 1) * math.sqrt(len(samples) / 2)


def test_narrow_modes_have_their_width_where_unadjusted_steps_double_the_variance():
    """Step 0.01 on a mode of width 0.1: x ← 0·x + √0.02 η has variance 0.02, the mode 0.01."""
    target = PotentialTarget(lambda x: -x.square().sum(1) / (2 * 0.1**2))
    adjusted = simulate(MALA(step_size=0.01), target, [1], N, 60)
    plain = simulate(Langevin(step_size=0.01), target, [1], N, 60)
    assert abs(_var_z(adjusted, 0.01)) < LIMIT
    assert abs(_var_z(plain, 0.02)) < LIMIT
    assert abs(_var_z(plain, 0.01)) > 10 * LIMIT  # the test can fail


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("sampler", ADJUSTED, ids=lambda s: type(s).__name__)
def test_no_discretisation_bias_on_a_gaussian(sampler, temperature):
    model = LinearGaussian()
    sampler = type(sampler)(**{**vars(sampler), "temperature": temperature})
    samples = simulate(sampler, PotentialTarget(model.potential), [2], N, 120)
    truth = temperature * np.linalg.inv(model.P)
    assert np.abs(z_scores(samples, truth)).max() < LIMIT
    biased = first_order(-model.P, np.full(2, 0.3), temperature).stationary()
    assert np.abs(z_scores(samples, biased)).max() > 2 * LIMIT  # what the same steps without a rejection would have


@pytest.mark.parametrize("sampler", ADJUSTED, ids=lambda s: type(s).__name__)
def test_blocks_with_step_sizes_of_their_own_keep_the_joint_law(sampler):
    """x and h of the exact augmented Gaussian, accepted or rejected together."""
    model = LinearGaussian()
    truth = AugmentedGaussian(torch.from_numpy(-model.exact_drift()), 2)
    sampler = type(sampler)(**{**vars(sampler), "step_size": 0.1, "latent_step_size": 0.05, "decay": (50.0, 0.5)})
    samples = simulate(sampler, truth, [2, 2], N, 250)
    assert np.abs(z_scores(samples, model.truth())).max() < LIMIT


@pytest.mark.parametrize("sampler", [MALA(step_size=0.5), HMC(step_size=0.2, n_leapfrog=4)], ids=["MALA", "HMC"])
def test_skewed_target(sampler):
    """The logarithm of a Gamma(2) variable, at steps where unadjusted Langevin is far off."""
    density = Density(lambda z: (2 * z - z.exp()).sum(1))
    samples = simulate(sampler, density, [1], N, 150).flatten()
    mean, variance = float(digamma(2.0)), float(polygamma(1, 2.0))
    assert abs(samples.mean().item() - mean) < LIMIT * math.sqrt(variance / N)
    assert samples.var().item() == pytest.approx(variance, rel=0.06)
    skewness = float(polygamma(2, 2.0)) / variance**1.5
    centred = (samples - samples.mean()) / samples.std()
    assert centred.pow(3).mean().item() == pytest.approx(skewness, abs=0.2)
    plain = simulate(SGLD(step_size=0.5), lambda z, l: (2 - z[0].exp(),), [1], N, 150).flatten()
    assert not abs(plain.mean().item() - mean) < 2 * LIMIT * math.sqrt(variance / N)


@pytest.mark.parametrize("sampler", [MALA, HMC])
def test_walls_turn_proposals_round_and_the_law_stays(sampler):
    """An exponential density on (0, 1), whose reflected trajectories stay reversible: P(x < t) = (eᵗ − 1)/(e − 1)."""
    density = Density(lambda z: z.sum(1))
    samples = simulate(sampler(step_size=0.1, box=(0.0, 1.0)), density, [1], N, 100).flatten()
    assert samples.min() >= 0
    assert samples.max() <= 1
    law = (samples.sort().values.exp() - 1) / (math.e - 1)
    distance = (law - torch.linspace(0, 1, N, dtype=torch.float64)).abs().max().item()
    assert distance < 1.95 / math.sqrt(N)  # the 99.9 % point of Kolmogorov and Smirnov


def test_mala_is_hmc_with_one_leapfrog_step():
    target = PotentialTarget(LinearGaussian().potential)
    start = (torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64),)
    ends = [
        run(s, start, target, 20, torch.Generator().manual_seed(1))
        for s in (MALA(step_size=0.4), HMC(step_size=0.4, n_leapfrog=1))
    ]
    assert torch.equal(ends[0].position[0], ends[1].position[0])


def test_the_acceptance_is_that_of_metropolis_and_hastings():
    """Against the textbook's ratio of densities and proposal densities, with the same draws."""
    density, delta, tau = Density(lambda z: -z.pow(4).sum(1)), 0.2, 0.7
    x = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chain = run(MALA(step_size=delta, temperature=tau), (x,), density, 1, torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(1)
    eta = torch.randn(2000, 1, generator=draw, dtype=torch.float64)
    uniform = 1 - torch.rand(2000, generator=draw, dtype=torch.float64)
    drift = lambda z: z + delta * -4 * z**3  # noqa: E731
    y = drift(x) + math.sqrt(2 * delta * tau) * eta
    log_q = lambda a, b: -(b - drift(a)).square().sum(1) / (4 * delta * tau)  # noqa: E731
    ratio = (-y.pow(4).sum(1) + x.pow(4).sum(1)) / tau + log_q(y, x) - log_q(x, y)
    accepted = uniform.log() < ratio
    torch.testing.assert_close(chain.position[0], torch.where(accepted[:, None], y, x))
    assert torch.equal(chain.state.accepted, accepted.double())
    assert 0.2 < accepted.double().mean() < 0.95


def test_the_acceptance_rate_falls_with_the_step_and_counts_all_steps():
    target = PotentialTarget(LinearGaussian().potential)
    rates = []
    for step in (0.01, 0.3, 1.0):
        sampler, seen = MALA(step_size=step), []
        chain = run(
            sampler,
            (torch.zeros(500, 2, dtype=torch.float64),),
            target,
            30,
            torch.Generator().manual_seed(0),
            trace=lambda l, c, seen=seen: seen.append(c.position[0]),
        )
        moved = sum((b != a).any(1).double() for a, b in zip([torch.zeros(500, 2), *seen], seen, strict=False))
        assert torch.equal(chain.state.accepted, moved)
        assert chain.state.n_steps == 30
        rates.append(sampler.diagnostics(chain)["acceptance"].item())
        assert rates[-1] == pytest.approx(moved.mean().item() / 30)
    assert rates[0] > 0.99 > rates[1] > rates[2] + 0.1


@pytest.mark.parametrize(("sampler", "per_step"), [(MALA(), 1), (HMC(n_leapfrog=4), 4)])
def test_the_adjustment_costs_no_evaluation_of_its_own(sampler, per_step):
    density = Density(lambda z: -z.square().sum(1))
    run(sampler, (torch.zeros(3, 1),), density, 7, torch.Generator().manual_seed(0))
    assert density.calls == 7 * per_step + 1  # one where the chains start


def test_a_proposal_that_is_not_finite_is_rejected():
    wall = Density(lambda z: torch.where(z > 0, -z.square() / 2, float("nan")).sum(1))
    chain = run(MALA(step_size=0.5), (torch.full((500, 1), 0.2),), wall, 20, torch.Generator().manual_seed(0))
    assert (chain.position[0] > 0).all()
    assert torch.isfinite(chain.state.log_density).all()
    assert 0 < chain.state.acceptance.mean() < 0.9


def test_images_are_chains_of_their_own():
    """Rows of four dimensions: one decision for each."""
    start = torch.zeros(30, 3, 4, 4)
    target = PotentialTarget(lambda x: -10 * x.flatten(1).square().sum(1))
    chain = run(MALA(step_size=0.01), (start,), target, 1, torch.Generator().manual_seed(0))
    moved = (chain.position[0] != 0).flatten(1)
    assert torch.equal(moved.all(1), moved.any(1))
    assert torch.equal(moved.all(1), chain.state.accepted.bool())
    assert 0 < chain.state.accepted.sum() < 30


def test_networks_give_value_and_gradient_in_one_pass():
    for confinement in (None, 2.0):
        torch.manual_seed(0)
        u = MLPPotential(widths=(8, 8), confinement=confinement).build((3,)).requires_grad_(False)
        x = torch.randn(5, 3)
        value, (grad,) = PotentialTarget(u).value_and_gradient((x,))
        torch.testing.assert_close(value, u(x))
        torch.testing.assert_close(grad, PotentialTarget(u)((x,), 0)[0])


def test_targets_without_one_density_are_refused():
    model = LinearGaussian()
    start = (torch.zeros(1, 2, dtype=torch.float64),) * 2
    with pytest.raises(InputError, match="MALA accepts or rejects by the log-density and ConditionalTarget"):
        run(MALA(), start, ConditionalTarget(model.potential, model.generator), 1, torch.Generator())


def test_a_trajectory_has_a_step():
    with pytest.raises(InputError, match="n_leapfrog must be at least 1"):
        HMC(n_leapfrog=0)
