"""A trained model as a density: nats, samples down the levels, the integral; and clear words where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from nrf.errors import InputError
from nrf.learners import InclusiveConfig, LevelsConfig, Revision
from nrf.networks import LevelsMLPPotential, MLPGenerator
from nrf.runs.presets import find_preset
from nrf.runs.trained import CHUNK, TrainedModel
from nrf.samplers import MALA, SGHMC, CoopNet

MEAN = torch.tensor([1.0, -2.0])
COVARIANCE = torch.tensor([[1.5, 0.9], [0.9, 1.0]])


def _gaussian(size=2, *, learner=None, revision=None, sigma_min=0.1):
    """A model whose network says nothing, so that the Gaussian beside it is the whole field."""
    potential = LevelsMLPPotential(widths=(4,), n_levels=12, sigma_min=sigma_min, sigma_max=3.0)
    preset = replace(
        find_preset("gmm-levels"),
        potential=potential,
        sampler=SGHMC(0.3 * sigma_min**2, friction=0.3),
        revision=revision or Revision(10, start_level=-1),
        learner=learner or LevelsConfig(),
    )
    u, g = potential.build((size,)), MLPGenerator(latent_dim=3, widths=(4,)).build((size,))
    with torch.no_grad():
        for parameter in u.parameters():
            parameter.zero_()
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(20_000, size, generator=rng)
    if size == 2:
        rows = MEAN + rows @ torch.linalg.cholesky(COVARIANCE).T
    u.start_from(rows)
    return TrainedModel(preset, u.eval(), g.eval(), (size,), 0), rows


def test_log_density_is_in_nats():
    trained, rows = _gaussian()
    blurred = torch.cov(rows.T, correction=0) + 0.01 * torch.eye(2)
    exact = MultivariateNormal(rows.mean(0), blurred).log_prob(rows[:50]).numpy()
    np.testing.assert_allclose(trained.log_density(rows[:50]), exact, atol=1e-3)
    np.testing.assert_array_equal(trained.log_density(rows[:50].numpy()), trained.score_samples(rows[:50]))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_integral_is_checked_by_every_way_there_is(size):
    found = _gaussian(size)[0].normaliser(n_chains=200)
    assert abs(found.annealed.log_value) < 4 * found.annealed.standard_error + 1e-3
    assert 0 < found.annealed.standard_error < 0.2
    if size > 3:
        assert found.quadrature is None
    else:
        assert found.quadrature.value == pytest.approx(1.0, abs=2e-3)


def test_a_field_that_is_not_normalised_is_seen():
    trained, _ = _gaussian()
    with torch.no_grad():
        trained.potential.body[-1].bias.fill_(0.5)
    found = trained.normaliser(n_chains=200)
    assert found.quadrature.log_value == pytest.approx(0.5, abs=0.01)
    assert found.annealed.log_value == pytest.approx(0.5, abs=4 * found.annealed.standard_error + 1e-3)


def test_a_seed_repeats_the_check():
    trained, _ = _gaussian()
    one, again, other = (trained.normaliser(seed=seed, n_chains=50, n_between=2) for seed in (1, 1, 2))
    assert one == again
    assert one.annealed != other.annealed


@pytest.mark.parametrize("sampler", [None, MALA(0.003), CoopNet(0.003, n_x=2)])
def test_samples_come_down_from_the_widest_level(sampler):
    """Whatever level the training's revision began at; without a generator there are no codes."""
    trained, rows = _gaussian(revision=Revision(10, "x" if sampler is None else "conditional", start_level=2))
    x, h = trained.sample(1500, revise=True, sampler=sampler)
    assert h.shape == (1500, 0)
    np.testing.assert_allclose(x.mean(0), rows.mean(0), atol=0.12)
    # The widest level has variances above 10; steps of denoising between few levels leave a little less than there is.
    np.testing.assert_allclose(np.cov(x.T), torch.cov(rows.T) + 0.01 * torch.eye(2), atol=0.35)


def test_annealed_samples_are_of_their_seed_alone():
    trained, _ = _gaussian()
    few, many, other = (trained.sample(n, seed=s, revise=True)[0] for n, s in ((10, 3), (CHUNK + 1, 3), (10, 4)))
    np.testing.assert_array_equal(few, many[:10])
    assert not np.isclose(few, other).all(1).any()


def test_steps_and_temperature_are_those_that_are_given():
    trained, rows = _gaussian(sigma_min=0.5)
    assert not np.array_equal(trained.sample(5, revise=True)[0], trained.sample(5, revise=True, n_steps=1)[0])
    cold = trained.sample(500, revise=True, temperature=0.0, n_steps=100)[0]
    np.testing.assert_allclose(cold.mean(0), rows.mean(0), atol=0.1)
    assert cold.std(0).max() < 0.1 * trained.sample(500, revise=True)[0].std(0).min()


def test_with_a_generator_its_proposals_are_revised():
    learner = LevelsConfig(generator_lr=1e-3)
    trained, _ = _gaussian(learner=learner, revision=Revision(0, start_level=0))
    x, h = trained.sample(5)
    assert h.shape == (5, 3)
    np.testing.assert_array_equal(x, trained.sample(5, revise=True)[0])  # no step, no level: the proposals
    annealed, _ = _gaussian(learner=learner, revision=Revision(5, start_level=8))
    revised, codes = annealed.sample(5, revise=True)
    assert np.abs(revised - x).max() > 0.1
    np.testing.assert_array_equal(codes, h)


def test_given_rows_are_kept_unless_a_level_is_given():
    trained, _ = _gaussian()
    far = np.full((400, 2), 6.0, np.float32)
    near, wide = (trained.revise(far, start_level=level).mean(0) for level in (0, -1))
    assert np.abs(near - 6).max() < 2
    np.testing.assert_allclose(wide, MEAN, atol=0.6)


def test_what_has_no_log_density_is_said():
    preset = find_preset("gmm-short")
    plain = TrainedModel(preset, preset.potential.build((2,)), preset.generator.build((2,)), (2,), 0)
    levels, rows = _gaussian(learner=InclusiveConfig())  # noise levels that nothing has normalised
    for trained in (plain, levels):
        for ask in (lambda t=trained: t.log_density(rows), trained.normaliser):
            with pytest.raises(InputError, match=r"up to a constant only; .* `levels`, as in the presets gmm-levels"):
                ask()


def test_what_cannot_be_drawn_is_said():
    trained, rows = _gaussian()
    with pytest.raises(InputError, match=r"Levels trained no generator to draw from; add --revise \(revise=True\)"):
        trained.sample(5)
    with pytest.raises(InputError, match="trained no generator"):
        trained.interpolate(2, 2)
    with pytest.raises(InputError, match="start_level must be from 0 to 11"):
        trained.revise(rows[:3], start_level=12)
