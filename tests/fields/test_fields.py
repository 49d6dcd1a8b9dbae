"""Fields as densities: the integral by two ways, samples down the levels."""

from __future__ import annotations

import math

import pytest
import torch

from nrf.errors import InputError
from nrf.fields import anneal, annealed_integral, at_level, denoised, draw_widest, log_density, quadrature, sample
from nrf.fields.normaliser import box_of
from nrf.models import frozen
from nrf.networks import LevelsMLPPotential, MLPPotential, stack
from nrf.samplers import SGHMC, SGLD
from nrf.seeds import streams


def _field(dim=2, bend=0.0, **settings):
    """A field of Gaussians with covariance diag(1, 4, …), plus what a random network with bounded outputs adds."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        u = LevelsMLPPotential(widths=(16,), activation="tanh", n_levels=6, sigma_min=0.1, **settings).build((dim,))
        u.reference.variances.copy_(torch.arange(1.0, dim + 1) ** 2)
        torch.nn.init.normal_(u.body[-1].weight, std=bend)
    return u.eval().requires_grad_(False)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_quadrature_of_a_gaussian(dim):
    u = _field(dim)
    box = box_of(u, 7.0)
    assert quadrature(lambda x: log_density(u, x), box, 200_000).log_value == pytest.approx(0.0, abs=1e-3)
    assert quadrature(lambda x: log_density(u, x, 3) + 2, box, 200_000).log_value == pytest.approx(2.0, abs=1e-3)


def test_quadrature_is_for_few_columns():
    with pytest.raises(InputError, match="one to three columns, got 4"):
        quadrature(lambda x: x.sum(1), (torch.zeros(4), torch.ones(4)))


def test_annealed_importance_sampling_agrees_with_quadrature(rng):
    u = _field(bend=1.0)
    u.body[-1].bias[0] = 1.0
    exact = quadrature(lambda x: log_density(u, x), box_of(u, 8.0)).log_value
    assert abs(exact) > 0.5  # there is something to find
    found = annealed_integral(u, torch.zeros(0, 2), rng, n_chains=1000, n_between=20)
    assert 0 < found.standard_error < 0.1
    assert abs(found.log_value - exact) < 2 * found.standard_error
    assert found.value == pytest.approx(math.exp(found.log_value))


def test_annealed_importance_sampling_in_many_columns(rng):
    """Gaussians at all levels: the integral is 1, whatever the way."""
    found = annealed_integral(_field(12), torch.zeros(0, 12), rng, n_chains=400)
    assert found.standard_error < 0.1
    assert abs(found.log_value) < 3 * found.standard_error


def test_annealed_importance_sampling_refuses(rng):
    like = torch.zeros(0, 2)
    with pytest.raises(InputError, match="one model at a time"):
        annealed_integral(stack([_field(), _field()]), like, rng)
    with pytest.raises(InputError, match="at least 1"):
        annealed_integral(_field(), like, rng, n_moves=0)


@pytest.mark.parametrize("sampler", [SGLD(0.003), SGHMC(0.003, friction=0.3)], ids=["SGLD", "SGHMC"])
def test_samples_have_the_law_of_the_smallest_level(sampler, rng):
    u = _field()
    with frozen(u):
        x = sample(u, 20_000, torch.zeros(0, 2), sampler, 20, rng)
    want = torch.diag(torch.tensor([1.0, 4.0])) + 0.1**2 * torch.eye(2)
    torch.testing.assert_close(torch.cov(x.T), want, rtol=0.1, atol=0.1)


def test_denoising_is_exact_for_a_point(rng):
    """Blurred by σ_3 and denoised to σ_2, rows at one place lie as if they had been blurred by σ_2."""
    u = _field()
    u.reference.variances.fill_(1e-8)
    x = u.sigmas[3] * torch.randn(50_000, 2, generator=rng)
    found = denoised(u, x, 3, rng)
    assert float(found.std()) == pytest.approx(u.sigmas[2], rel=0.02)
    torch.testing.assert_close(
        denoised(u, x, 3, rng, temperature=0.0), x * (u.sigmas[2] / u.sigmas[3]) ** 2, rtol=1e-3, atol=1e-4
    )


def test_draws_of_the_widest_level_are_exact(rng):
    u = _field()
    x = draw_widest(u, 100_000, torch.zeros(0, 2), rng)
    assert float(u.known(x).mean()) == pytest.approx(
        -1 - sum(0.5 * math.log(2 * math.pi * (v + 9)) for v in (1, 4)), abs=0.02
    )


def test_steps_grow_with_the_variance_of_the_level_and_those_of_codes_do_not():
    u = _field()
    wide = at_level(SGLD(0.01), u, 5)
    assert wide.step_size == pytest.approx(0.01 * (3.0 / 0.1) ** 2)
    assert wide.step_sizes(0, 2)[1] == 0.01
    assert at_level(SGLD(0.01), u, 0).step_size == 0.01


def test_annealing_goes_through_the_levels_from_the_widest_down(rng):
    u, seen = _field(), []

    def target(here):
        def grad(position, l):
            seen.append(here.level)
            return tuple(torch.zeros_like(z) for z in position)

        return grad

    anneal(u, SGLD(0.01), (torch.zeros(3, 2), torch.zeros(3, 1)), 2, rng, start=3, target=target)
    assert seen == [3, 3, 2, 2, 1, 1, 0, 0]


def test_replicas_are_sampled_as_each_alone():
    fields = [_field(bend=b) for b in (0.5, 1.0)]
    like, sampler = torch.zeros(0, 2), SGLD(0.003)
    both = stack(fields)
    with frozen(both):
        ours = sample(both, 10, like, sampler, 2, streams([0, 1], "test"))
    for i, u in enumerate(fields):
        alone = sample(u, 5, like, sampler, 2, streams([i], "test"))
        torch.testing.assert_close(ours.chunk(2)[i], alone, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="7 samples cannot be shared evenly by 2 replicas"):
        sample(both, 7, like, sampler, 2, streams([0, 1], "test"))


def test_only_fields_with_levels_have_a_log_density():
    with pytest.raises(InputError, match="has no noise levels"):
        log_density(MLPPotential().build((2,)), torch.zeros(1, 2))
