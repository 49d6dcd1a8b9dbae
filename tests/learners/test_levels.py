"""Learning at many noise levels: what the losses are least for, and fields that are known."""

from __future__ import annotations

import math

import pytest
import torch

from nrf.errors import InputError
from nrf.fields import annealed_integral, log_density, quadrature
from nrf.fields.normaliser import box_of
from nrf.learners import InclusiveConfig, LevelsConfig, Revision
from nrf.learners.levels import spread_levels
from nrf.losses import level_loss, score_loss
from nrf.metrics import mixture_log_density
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential, data_dependent_init
from nrf.samplers import SGLD
from nrf.seeds import DrawsFrom, streams

MEANS = torch.tensor([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]])
WIDTH = 0.5


def _mixture(n, seed):
    g = torch.Generator().manual_seed(seed)
    return MEANS[torch.randint(3, (n,), generator=g)] + WIDTH * torch.randn(n, 2, generator=g)


def _learner(config, rows, learner=None, revision=None, sampler=None):
    with DrawsFrom(torch.Generator().manual_seed(0)):
        u = config.build((2,))
        q = MLPGenerator(latent_dim=2, widths=(16,), sigma=0.2).build((2,))
    data_dependent_init(u, rows)
    return (learner or LevelsConfig()).build(u, q, sampler or SGLD(0.01), revision or Revision(2))


def _train(learner, rows, n, rate, seed=1):
    """With a learning rate that falls to 0."""
    rng, order = streams([0], "learner"), torch.Generator().manual_seed(seed)
    for step in range(n):
        learner.optimizers["potential"].param_groups[0]["lr"] = rate * (1 - step / n)
        learner.update(rows[torch.randint(len(rows), (200,), generator=order)], rng)
    return learner.potential.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def trained():
    """A field of three modes."""
    rows = _mixture(4000, 0)
    config = LevelsMLPPotential(widths=(48, 48), n_levels=6, sigma_min=0.1, sigma_max=3.0, n_waves=16, wave_scale=3.0)
    return _train(_learner(config, rows), rows, 1200, 5e-3)


def test_the_density_integrates_to_one(trained):
    """No constant is fitted."""
    assert quadrature(lambda x: log_density(trained, x), box_of(trained)).value == pytest.approx(1.0, abs=0.06)


def test_annealed_importance_sampling_and_quadrature_agree_on_what_was_learned(trained, rng):
    """Within two of its own standard errors, with and without a constant that makes the field wrong."""
    for lift in (0.0, 0.7):
        with torch.no_grad():
            trained.body[-1].bias.add_(lift)
        exact = quadrature(lambda x: log_density(trained, x), box_of(trained)).log_value
        found = annealed_integral(trained, torch.zeros(0, 2), rng, n_chains=500, n_between=20)
        with torch.no_grad():
            trained.body[-1].bias.sub_(lift)
        assert exact == pytest.approx(lift, abs=0.06)
        assert 0 < found.standard_error < 0.06
        assert abs(found.log_value - exact) < 2 * found.standard_error


@pytest.mark.parametrize("level", [0, 2, 5])
def test_the_density_is_the_mixtures(trained, level):
    sigma = math.hypot(WIDTH, trained.sigmas[level])
    rows = _mixture(4000, 2) + trained.sigmas[level] * torch.randn(4000, 2, generator=torch.Generator().manual_seed(3))
    exact, found = mixture_log_density(rows, MEANS, sigma), log_density(trained, rows, level).double()
    assert float((exact - found).mean().abs()) < 0.06  # KL in nats
    centred = exact - exact.mean()
    assert float((centred * found).sum() / centred.square().sum()) == pytest.approx(1.0, abs=0.08)


def test_the_classifier_of_levels_has_the_exact_posteriors(trained):
    rows = _mixture(2000, 4) + 0.6 * torch.randn(2000, 2, generator=torch.Generator().manual_seed(5))
    exact = [mixture_log_density(rows, MEANS, math.hypot(WIDTH, sigma)) for sigma in trained.sigmas]
    known = trained.known(rows).double()[:, None]
    want = torch.cat([torch.stack(exact, 1), known], 1).softmax(1)
    found = torch.cat([trained.levels(rows).double(), known], 1).softmax(1)
    assert float((want - found).abs().sum(1).mean()) / 2 < 0.03  # total variation


def test_modes_have_their_weights():
    """What score matching alone cannot see: one mode in five rows, far from the other."""
    g = torch.Generator().manual_seed(0)
    side = torch.where(torch.rand(4000, generator=g) < 0.2, -3.0, 3.0)
    rows = torch.stack([side, torch.zeros(4000)], 1) + 0.5 * torch.randn(4000, 2, generator=g)
    config = LevelsMLPPotential(widths=(32, 32), n_levels=6, sigma_min=0.2, sigma_max=4.0, n_waves=8, wave_scale=2.0)
    shares = []
    for weight in (1.0, 1e-6):
        u = _train(_learner(config, rows, LevelsConfig(level_weight=weight)), rows, 400, 5e-3)
        half = quadrature(
            lambda x, u=u: log_density(u, x), (torch.tensor([-6.0, -4.0]), torch.tensor([0.0, 4.0])), 40_000
        )
        whole = quadrature(
            lambda x, u=u: log_density(u, x), (torch.tensor([-6.0, -4.0]), torch.tensor([6.0, 4.0])), 40_000
        )
        shares.append(half.value / whole.value)
    assert shares[0] == pytest.approx(0.2, abs=0.04)
    assert abs(shares[1] - 0.2) > 0.08


def test_losses_are_least_at_the_truth():
    """One Gaussian: the reference alone is right, and every constant, scale or shift added makes it worse."""
    g = torch.Generator().manual_seed(0)
    n, sigmas = 60_000, torch.tensor([0.3, 1.0, 2.0])
    levels, x, noise = torch.arange(n) % 3, torch.randn(n, 1, generator=g), torch.randn(n, 1, generator=g)
    sigma = sigmas[levels][:, None]
    y, known = x + sigma * noise, math.sqrt(5) * torch.randn(20_000, 1, generator=g)

    def u(rows, scale=1.0, shift=0.0, lift=(0.0, 0.0, 0.0)):
        variance = scale * (1 + sigmas**2)
        return -((rows - shift) ** 2) / (2 * variance) - torch.log(2 * math.pi * variance) / 2 + torch.tensor(lift)

    def level(**wrong):
        log_known = [-(rows**2) / 10 - math.log(10 * math.pi) / 2 for rows in (y, known)]
        return float(level_loss(u(y, **wrong), levels, u(known, **wrong), *(v[:, 0] for v in log_known)))

    def score(scale=1.0, shift=0.0):
        return float(score_loss(-(y - shift) / (scale * (1 + sigma**2)), noise, sigma))

    for wrong in ({"scale": 0.8}, {"scale": 1.25}, {"shift": 0.2}):
        assert score() < score(**wrong)
        assert level() < level(**wrong)
    for lift in ((0.15, 0.15, 0.15), (-0.15, -0.15, -0.15), (0.2, 0.0, 0.0), (0.0, -0.2, 0.0)):
        assert level() < level(lift=lift)


def test_the_number_of_known_draws_does_not_move_the_best_constant():
    """A class with few draws counts as much as one with many."""
    g = torch.Generator().manual_seed(0)
    u, levels, known = torch.randn(12, 3, generator=g), torch.arange(12) % 3, torch.randn(4, 3, generator=g)
    densities = torch.randn(12, generator=g), torch.randn(4, generator=g)
    once = level_loss(u, levels, known, *densities)
    twice = level_loss(u, levels, torch.cat([known, known]), densities[0], torch.cat([densities[1], densities[1]]))
    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize("n", [6, 64, 100])
def test_levels_are_spread_evenly(n, rng):
    """Every level has its share to within one row in each draw, and exactly in the mean."""
    counts = torch.stack([torch.bincount(spread_levels(n, 12, 1, rng), minlength=12) for _ in range(4000)]).float()
    assert (counts - n / 12).abs().max() <= 1
    torch.testing.assert_close(counts.mean(0), torch.full((12,), n / 12), rtol=0.05, atol=0)


def test_the_generator_learns_from_pairs_revised_down_the_levels():
    """Its proposals begin at 0 and come to where the data are."""
    rows = 3 + 0.5 * torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    config = LevelsMLPPotential(widths=(16,), n_levels=5, sigma_min=0.2, sigma_max=2.0)
    learner = _learner(
        config, rows, LevelsConfig(generator_lr=2e-2), Revision(5, "joint", start_level=2), SGLD(0.02, 1e-3)
    )
    rng = streams([0], "learner")
    for step in range(150):
        metrics = learner.update(rows[100 * (step % 10) : 100 * (step % 10 + 1)], rng)
    assert {"generator_loss", "revision_distance"} <= set(metrics)
    proposed, _ = learner.generator.eval().propose(500, torch.Generator().manual_seed(0))
    assert (proposed.mean(0) - 3).abs().max() < 0.6


class Fixed(SGLD):
    """A sampler whose chains all end between two modes."""

    def move(self, z, delta, size, rng):
        return torch.tensor([0.0, 0.5]).expand_as(z)


def test_the_likelihoods_step_lowers_the_samples_and_leaves_the_generator():
    rows, values = _mixture(200, 0), []
    config = LevelsMLPPotential(widths=(16,), n_levels=5, sigma_min=0.2)
    for weight in (1e-6, 100.0):
        learner = _learner(config, rows, LevelsConfig(likelihood_weight=weight), Revision(1, start_level=-1), Fixed())
        before = {k: v.clone() for k, v in learner.generator.state_dict().items()}
        rng = streams([0], "learner")
        for _ in range(60):
            metrics = learner.update(rows, rng)
        values.append(float(metrics["u_revised"] - metrics["u_data"]))
        assert all(torch.equal(v, before[k]) for k, v in learner.generator.state_dict().items())
    assert values[1] < values[0] - 0.3


def test_what_cannot_be_learned_is_said():
    u, q = MLPPotential().build((2,)), MLPGenerator(latent_dim=2, sigma=0.1).build((2,))
    with pytest.raises(InputError, match="PlainPotential has no noise levels"):
        LevelsConfig().build(u, q, SGLD(), Revision(2))
    with pytest.raises(InputError, match="has no noise levels"):
        InclusiveConfig().build(u, q, SGLD(), Revision(2, start_level=1))
    levels = LevelsMLPPotential(widths=(4,), n_levels=3).build((2,))
    with pytest.raises(InputError, match="start_level must be from 0 to 2"):
        LevelsConfig(generator_lr=1e-3).build(levels, q, SGLD(), Revision(2, start_level=3))
    with pytest.raises(InputError, match="there are no codes"):
        LevelsConfig(likelihood_weight=1.0).build(levels, q, SGLD(), Revision(2, "joint"))
    with pytest.raises(InputError, match="that of the levels positive"):
        LevelsConfig(level_weight=0.0)
    with pytest.raises(InputError, match="set likelihood_weight, too"):
        LevelsConfig(control_weight=0.1)
    with pytest.raises(InputError, match="learning rates must be positive"):
        InclusiveConfig(generator_lr=0.0)
