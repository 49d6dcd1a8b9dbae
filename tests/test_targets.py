"""Alg. 2's gradient against autograd, and the unbiasedness it rests on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gaussian import LinearGaussian
from nrf.errors import InputError
from nrf.models import LatentGenerator
from nrf.targets import ConditionalTarget, JointTarget, PotentialTarget


@pytest.fixture
def pair():
    """Smooth nonlinear networks in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        u = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0)).double()
        g = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    h = torch.randn(5, 2, generator=draw, dtype=torch.float64)
    return u, LatentGenerator(g, 2, sigma=0.3), x, h


def _autograd(function, *inputs):
    inputs = [z.clone().requires_grad_(True) for z in inputs]
    return torch.autograd.grad(function(*inputs).sum(), inputs)


@pytest.mark.parametrize("n_inner", [1, 2])
def test_joint_gradient_is_that_of_the_formula(pair, n_inner):
    u, q, x, h = pair
    inner = 0.02
    star = h
    for _ in range(n_inner):
        star = star + inner * _autograd(lambda k: q.log_joint(x, k), star)[0]
    star = star.detach()
    want_x = _autograd(lambda y: u(y) + q.log_joint(y, h) - q.log_joint(y, star), x)[0]
    want_h = _autograd(lambda k: q.log_joint(x, k), h)[0]
    target = JointTarget(u, q, inner, torch.Generator(), n_inner=n_inner, inner_temperature=0.0)
    got_x, got_h = target((x, h), 1)
    torch.testing.assert_close(got_x, want_x)
    torch.testing.assert_close(got_h, want_h)


def test_at_the_first_step_there_is_no_correction(pair):
    u, q, x, h = pair
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    got_x, _ = JointTarget(u, q, 0.02, rng)((x, h), 0)
    torch.testing.assert_close(got_x, _autograd(u, x)[0])
    assert torch.equal(rng.get_state(), before)


def test_the_inner_noise_has_the_stated_size(pair):
    """g(h*) moves by J √(2δ*) η to first order; at δ* → 0 its covariance is known."""
    _, q, x, h = pair
    inner, n = 1e-8, 20_000
    x, h = x[:1].expand(n, 3), h[:1].expand(n, 2)
    target = JointTarget(lambda y: 0 * y.sum(1), q, inner, torch.Generator().manual_seed(0))
    correction = target((x, h), 1)[0]
    jacobian = torch.autograd.functional.jacobian(q, h[:1])[0, :, 0]
    want = 2 * inner * jacobian @ jacobian.T / q.sigma**4
    got = torch.cov(correction.T)
    torch.testing.assert_close(got, want, rtol=0.06, atol=0.02 * want.abs().max().item())


def test_proposition_2_unbiased_with_exact_codes():
    """With enough inner moves, h* is a draw from q(h | x) and the mean gradient is the exact one."""
    model, n, inner = LinearGaussian(), 40_000, 0.01
    draw = np.random.default_rng(0)
    x, h = draw.normal(size=(1, 2)), draw.normal(size=(1, 2))
    many = (torch.from_numpy(x).expand(n, 2), torch.from_numpy(h).expand(n, 2))
    target = JointTarget(model.potential, model.generator, inner, torch.Generator().manual_seed(0), n_inner=600)
    got = target(many, 1)[0]
    want = torch.from_numpy(model.exact_gradient(x, h)[0])
    z = (got.mean(0) - want) / (got.std(0) / n**0.5)
    assert z.abs().max() < 4.5
    # One inner move from h is far from a draw, and its bias is visible: the test above can fail.
    biased = JointTarget(model.potential, model.generator, inner, torch.Generator().manual_seed(0))(many, 1)[0]
    assert ((biased.mean(0) - want) / (got.std(0) / n**0.5)).abs().max() > 20


def test_x_only_and_conditional(pair):
    u, q, x, h = pair
    torch.testing.assert_close(PotentialTarget(u)((x,), 5)[0], _autograd(u, x)[0])
    target = ConditionalTarget(u, q)
    torch.testing.assert_close(target((x, h), 0)[0], _autograd(u, x)[0])
    torch.testing.assert_close(target.block((x, h), 0, 1), _autograd(lambda k: q.log_joint(x, k), h)[0])


@pytest.mark.parametrize("target", [ConditionalTarget, lambda u, q: JointTarget(u, q, 0.1, torch.Generator())])
def test_revising_codes_needs_a_density(target):
    u, position = nn.Linear(3, 1), (torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(InputError, match="sigma > 0"):
        target(u, LatentGenerator(nn.Linear(2, 3), 2, sigma=0.0))(position, 0)
    with pytest.raises(InputError, match="normal prior"):
        target(u, LatentGenerator(nn.Linear(2, 3), 2, sigma=0.1, prior="uniform"))(position, 0)
