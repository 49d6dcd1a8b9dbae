"""Noise-level potentials: the Gaussian beside them, their gradients, replicas."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from nrf.errors import InputError
from nrf.models import frozen, gradient
from nrf.networks import (
    LevelsCNNPotential,
    LevelsMLPPotential,
    MLPPotential,
    data_dependent_init,
    replica_state,
    require_levels,
    stack,
)
from nrf.networks.levels import Reference

CONFIGS = {
    "perceptron": (LevelsMLPPotential(widths=(7, 6), n_levels=4), (3,)),
    "waves": (LevelsMLPPotential(widths=(7,), n_levels=4, n_waves=5, norm="weight"), (3,)),
    "diagonal": (LevelsMLPPotential(widths=(7,), n_levels=4, covariance="diagonal", activation="softplus"), (2, 2)),
    "batch norm": (LevelsMLPPotential(widths=(7,), n_levels=4, norm="batch"), (3,)),
    "convolutions": (LevelsCNNPotential(width=2, n_levels=4), (1, 8, 8)),
    "convolutions of flat rows": (LevelsCNNPotential(width=2, n_levels=4, image=(1, 8, 8)), (64,)),
    "convolutions, batch norm": (LevelsCNNPotential(width=2, n_levels=4, norm="batch"), (1, 8, 8)),
}


@pytest.fixture(autouse=True)
def in_double_precision():
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_default_dtype(torch.float32)


def _potential(config, event, shift=0.0):
    """With a reference of its own and outputs that are not near 0."""
    u = config.build(event)
    rows = torch.randn(200, *event)
    data_dependent_init(u, rows.flatten(1).cumsum(1).reshape(rows.shape) + shift)
    for p in u.body[-1].parameters():
        torch.nn.init.normal_(p)
    return u


def test_the_reference_is_a_blurred_gaussian():
    rows = torch.randn(50, 3) @ torch.randn(3, 3) + 2
    reference = Reference(3, "full")
    reference.fit(rows)
    covariance = torch.cov(rows.T, correction=0)
    x, sigmas = torch.randn(7, 3), (0.2, 1.5)
    for k, sigma in enumerate(sigmas):
        exact = MultivariateNormal(rows.mean(0), covariance + sigma**2 * torch.eye(3))
        torch.testing.assert_close(reference.log_densities(x, sigmas)[:, k], exact.log_prob(x))
        slope = gradient(exact.log_prob, x)
        torch.testing.assert_close(reference.gradient(x, torch.full((7,), sigma)), slope)
    draws = reference.shaped(torch.randn(200_000, 3), 1.5)
    torch.testing.assert_close(torch.cov(draws.T), covariance + 1.5**2 * torch.eye(3), rtol=0.02, atol=0.05)
    torch.testing.assert_close(draws.mean(0), rows.mean(0), rtol=0, atol=0.05)


def test_a_diagonal_reference_has_the_variances_alone():
    rows = torch.randn(50, 3) * torch.tensor([0.5, 1.0, 2.0])
    reference = Reference(3, "diagonal")
    reference.fit(rows)
    exact = MultivariateNormal(rows.mean(0), torch.diag(rows.var(0, correction=0) + 0.3**2))
    x = torch.randn(7, 3)
    torch.testing.assert_close(reference.log_densities(x, (0.3,))[:, 0], exact.log_prob(x))


def test_a_column_that_never_changes_leaves_the_reference_a_density():
    reference = Reference(2, "full")
    reference.fit(torch.stack([torch.randn(50), torch.ones(50)], 1))
    assert (reference.variances > 0).all()


@pytest.mark.parametrize("case", CONFIGS.values(), ids=CONFIGS)
def test_the_gradient_is_that_of_the_level_asked_for(case):
    config, event = case
    u, x = _potential(config, event), torch.randn(6, *event)
    levels = torch.tensor([0, 3, 1, 2, 3, 0])
    with frozen(u):
        alone = torch.cat(
            [gradient(lambda row, k=int(k): u(row, k), row) for k, row in zip(levels, x.split(1), strict=True)]
        )
        torch.testing.assert_close(u.gradient(x, levels), alone)
        torch.testing.assert_close(u.at(2).gradient(x), gradient(lambda rows: u(rows, 2), x))
        torch.testing.assert_close(gradient(u, x), u.at(0).gradient(x))
        torch.testing.assert_close(u(x, levels), u.levels(x)[torch.arange(6), levels])
        assert torch.equal(u(x), u.levels(x)[:, 0])


@pytest.mark.parametrize("case", CONFIGS.values(), ids=CONFIGS)
def test_replicas_are_each_model(case):
    config, event = case
    models = [_potential(config, event, shift=float(i)) for i in range(3)]
    stacked, x = stack(models), torch.randn(12, *event)
    levels = torch.tensor([0, 3, 1, 2] * 3)
    parts = list(zip(models, x.chunk(3), levels.chunk(3), strict=True))
    torch.testing.assert_close(stacked.levels(x), torch.cat([u.levels(rows) for u, rows, _ in parts]))
    with frozen(stacked, *models):
        each = torch.cat([u.gradient(rows, k) for u, rows, k in parts])
        torch.testing.assert_close(stacked.gradient(x, levels), each)
        torch.testing.assert_close(stacked.known(x), torch.cat([u.known(rows) for u, rows, _ in parts]))
    for i, u in enumerate(models):
        mine = replica_state(stacked.state_dict(), i)
        assert set(mine) == set(u.state_dict())
        assert all(torch.equal(mine[name], value) for name, value in u.named_parameters())
        torch.testing.assert_close(mine, dict(u.state_dict()))  # running statistics are sums, rounded in some order


def test_training_begins_near_the_gaussian():
    u, x = LevelsMLPPotential(widths=(64, 64)).build((3,)), torch.randn(50, 3)
    exact = u.reference.log_densities(x, u.sigmas)
    assert (u.levels(x) - exact).abs().max() < 0.05
    assert torch.equal(u.known(x), exact[:, -1])


def test_levels_are_a_geometric_row():
    sigmas = torch.tensor(LevelsMLPPotential(n_levels=5, sigma_min=0.1, sigma_max=10.0).sigmas)
    torch.testing.assert_close(sigmas[1:] / sigmas[:-1], torch.full((4,), 10**0.5))
    assert sigmas[0] == 0.1


def test_what_cannot_be_is_said():
    with pytest.raises(InputError, match="0 < sigma_min < sigma_max"):
        LevelsMLPPotential(sigma_min=3.0, sigma_max=1.0)
    with pytest.raises(InputError, match="n_levels ≥ 2"):
        LevelsCNNPotential(n_levels=1)
    with pytest.raises(InputError, match="do not hold images"):
        LevelsCNNPotential(image=(1, 8, 8)).build((63,))
    with pytest.raises(InputError, match="no bias_spread"):
        LevelsMLPPotential(bias_spread=1.0)
    with pytest.raises(InputError, match="wave_scale > 0"):
        LevelsMLPPotential(wave_scale=0.0)
    with pytest.raises(InputError, match="levels from 0 to 11, got 12"):
        LevelsMLPPotential().build((2,)).at(12)
    with pytest.raises(InputError, match="PlainPotential has no noise levels"):
        require_levels(MLPPotential().build((2,)))
