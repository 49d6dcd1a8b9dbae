"""Closed forms against autograd and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from nrf.errors import InputError
from nrf.gaussian import AugmentedGaussian, GaussianGenerator, GaussianPotential, random_covariance
from nrf.metrics import fitted_gaussian_kl, perfect_kl
from nrf.models import gradient

X, H = 3, 2


@pytest.fixture
def pair():
    draw = torch.Generator().manual_seed(0)
    covariance = random_covariance(X + H, draw)
    precision = torch.linalg.inv(random_covariance(X, draw))
    x, h = (
        torch.randn(4, X, generator=draw, dtype=torch.float64),
        torch.randn(4, H, generator=draw, dtype=torch.float64),
    )
    return GaussianPotential(precision), GaussianGenerator(covariance, X), covariance, x, h


def _grad(function, z):
    z = z.clone().requires_grad_(True)
    return torch.autograd.grad(function(z).sum(), z)[0]


def test_potential_gradient(pair):
    potential, _, _, x, _ = pair
    torch.testing.assert_close(gradient(potential, x), _grad(potential.__call__, x))


def test_generator_gradients_are_those_of_its_density(pair):
    _, generator, covariance, x, h = pair
    density = MultivariateNormal(torch.zeros(X + H, dtype=torch.float64), covariance)
    joint = lambda x, h: density.log_prob(torch.cat([x, h], dim=1))  # noqa: E731
    delta_h, pull = generator.latent_gradient(x, h)
    torch.testing.assert_close(delta_h, _grad(lambda k: joint(x, k), h))
    other = torch.flip(h, [0])
    want = _grad(lambda y: joint(y, h), x) - _grad(lambda y: joint(y, other), x)
    torch.testing.assert_close(pull - generator.pull(other), want)


def test_truth_is_p_of_x_times_q_of_h_given_x(pair):
    potential, generator, covariance, x, h = pair
    q_x = MultivariateNormal(torch.zeros(X, dtype=torch.float64), covariance[:X, :X])
    q = MultivariateNormal(torch.zeros(X + H, dtype=torch.float64), covariance)
    log_truth = lambda x, h: potential(x) + q.log_prob(torch.cat([x, h], dim=1)) - q_x.log_prob(x)  # noqa: E731
    truth = AugmentedGaussian.of(potential, generator)
    grad_x, grad_h = truth((x, h), 0)
    torch.testing.assert_close(grad_x, _grad(lambda y: log_truth(y, h), x))
    torch.testing.assert_close(grad_h, _grad(lambda k: log_truth(x, k), h))


def test_draws_and_proposals_have_their_covariance(pair, rng):
    potential, generator, covariance, _, _ = pair
    truth = AugmentedGaussian.of(potential, generator)
    for samples, want in (
        (truth.draw(40_000, rng), torch.linalg.inv(truth.precision)),
        (torch.cat(generator.propose(40_000, rng), dim=1), covariance),
    ):
        got = torch.cov(samples.T)
        error = ((torch.outer(want.diag(), want.diag()) + want**2) / 40_000).sqrt()
        assert ((got - want) / error).abs().max() < 4.5


def test_random_covariance_is_seeded_and_scaled():
    one, same, other = (random_covariance(4, torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    narrow = random_covariance(4, torch.Generator().manual_seed(0), scale=0.1)
    torch.testing.assert_close(narrow - torch.eye(4).double(), 0.1 * (one - torch.eye(4).double()))
    with pytest.raises(InputError, match="scale"):
        random_covariance(4, torch.Generator(), scale=-1.0)


def test_kl_is_that_of_the_fitted_gaussian(rng):
    samples = torch.randn(50, 3, generator=rng, dtype=torch.float64) + 0.3
    covariance = random_covariance(3, rng)
    fitted = MultivariateNormal(samples.mean(0), torch.cov(samples.T))
    want = kl_divergence(fitted, MultivariateNormal(torch.zeros(3, dtype=torch.float64), covariance))
    assert fitted_gaussian_kl(samples, torch.linalg.inv(covariance)) == pytest.approx(want.item())


@pytest.mark.parametrize(("n", "d"), [(40, 3), (500, 20)])
def test_floor_is_the_mean_over_perfect_draws(n, d, rng):
    values = [fitted_gaussian_kl(torch.randn(n, d, generator=rng), torch.eye(d)) for _ in range(400)]
    z = (np.mean(values) - perfect_kl(n, d)) / (np.std(values) / 20)
    assert abs(z) < 4.5


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match="more than 4"):
        fitted_gaussian_kl(torch.zeros(4, 3), torch.eye(3))
    with pytest.raises(InputError, match="more than 4"):
        perfect_kl(4, 3)
