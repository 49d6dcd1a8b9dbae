"""Samples of a trained model: independent of each other, and of their seed alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from nrf.errors import InputError
from nrf.learners import Revision
from nrf.models import LatentGenerator
from nrf.networks import MLPPotential
from nrf.reproduce.gmm.cells import QUICK, Method, methods, samples_of
from nrf.runs.presets import find_preset
from nrf.runs.trained import CHUNK, TrainedModel
from nrf.samplers import SGLD
from nrf.seeds import stream

DRAWS = 60


def _standardising(sigma=0.0, *, revision=None):
    """A generator that standardises its batch of codes, so that a whole batch has mean 0: rows know of each other."""
    norm = nn.BatchNorm1d(2, affine=False, track_running_stats=False)
    preset = replace(
        find_preset("gmm-released"),
        sampler=SGLD(step_size=1e-4, temperature=0.0),
        revision=revision or Revision(2, "x"),
    )
    torch.manual_seed(0)
    return TrainedModel(preset, MLPPotential(widths=(4,)).build((2,)), LatentGenerator(norm, 2, sigma), (2,), 0)


def test_rows_of_another_shape_are_refused():
    trained = _standardising()
    with pytest.raises(InputError, match=r"rows must have the shape \(n, 2\), got \(2,\); put a single row in a list"):
        trained.score_samples([0.0, 0.0])
    with pytest.raises(InputError, match=r"rows must have the shape \(n, 2\), got \(1, 3\)$"):
        trained.revise(torch.zeros(1, 3))
    assert trained.score_samples([[0.0, 0.0]]).shape == (1,)


def _means_of_draws(x):
    return torch.from_numpy(x).unflatten(0, (-1, 100)).mean(1)


@pytest.mark.parametrize("revise", [False, True])
def test_the_hundred_samples_of_a_draw_are_independent(revise):
    """The mean of a hundred independent standard normals has variance 0.01; of one standardised batch it has 0."""
    x, h = _standardising().sample(100 * DRAWS, revise=revise)
    variance = _means_of_draws(x).var(0).numpy()
    np.testing.assert_allclose(variance, 0.01, atol=4 * 0.01 * np.sqrt(2 / DRAWS))
    assert x.var() == pytest.approx(1.0, abs=0.06)
    assert np.corrcoef(x[:, 0], h[:, 0])[0, 1] > 0.98  # still the events of these codes


def test_chains_through_a_generator_that_mixes_rows_are_independent_too():
    """Codes that are revised go through g at each step, so a chain has a batch of its own."""
    trained = _standardising(sigma=0.1, revision=Revision(1, "joint"))
    trained = replace(trained, preset=replace(trained.preset, sampler=SGLD(1e-4, latent_step_size=1e-6)))
    x, _ = trained.sample(100 * 12, revise=True)
    variance = _means_of_draws(x).var(0).mean().item()
    assert variance == pytest.approx(0.01, rel=0.9)


def test_an_event_depends_on_its_own_code_and_company_alone():
    trained = _standardising()
    rng = stream(0, "test")
    codes, company = torch.randn(5, 2, generator=rng), torch.randn(5, 99, 2, generator=rng)
    before = trained._generate(codes, company)
    others = torch.cat([codes[:1], torch.randn(4, 2, generator=rng)])
    after = trained._generate(others, company)
    torch.testing.assert_close(after[0], before[0])
    assert (after[1:] - before[1:]).abs().min() > 1e-4
    beside = torch.cat([codes[:1], company[0]])  # what that is, by hand
    torch.testing.assert_close(before[0], ((beside - beside.mean(0)) / (beside.var(0, correction=0) + 1e-5).sqrt())[0])


def test_the_noise_of_the_proposal_is_there():
    sharp, noisy = (_standardising(sigma).sample(4000)[0].var() for sigma in (0.0, 1.0))
    assert sharp == pytest.approx(1.0, abs=0.1)
    assert noisy == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("preset", ["gmm-released", "gmm-short"])
@pytest.mark.parametrize("revise", [False, True])
def test_a_seed_repeats_its_samples_and_another_has_others(preset, revise):
    trained = _fresh(preset)
    one, again, other = (trained.sample(CHUNK + 1, seed=seed, revise=revise) for seed in (3, 3, 4))
    for a, b, c in zip(one, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.isclose(a, c).all(1).any()


def test_the_first_samples_do_not_depend_on_how_many_are_asked_for():
    trained = _fresh("gmm-released")
    few, many = (trained.sample(n, revise=True)[0] for n in (10, 250))
    np.testing.assert_array_equal(few, many[:10])


def _fresh(name):
    preset = find_preset(name)
    torch.manual_seed(0)
    return TrainedModel(preset, preset.potential.build((2,)), preset.generator.build((2,)), (2,), 0)


@pytest.mark.parametrize("name", ["inclusive-NRF", "CD"])
def test_each_model_of_the_mixture_has_codes_and_noise_of_its_own(name, monkeypatch):
    from nrf.reproduce.gmm import cells as gmm_cells

    method = next(m for m in methods(QUICK) if m.name == name and m.setting == "released")
    trained = replace(_fresh("gmm-released"), preset=replace(method.preset, revision=Revision(2, "x")))
    monkeypatch.setattr(gmm_cells, "LONG_CHAIN", 2)
    one, again, other = (samples_of(method, trained, 100, seed) for seed in (0, 0, 1))
    for kind, samples in one.items():
        torch.testing.assert_close(samples, again[kind], rtol=0, atol=0)
        assert not torch.isclose(samples, other[kind]).all(1).any()

    seeds = []
    monkeypatch.setattr(gmm_cells.TrainedModel, "load", classmethod(lambda cls, *args, **kwargs: trained))
    monkeypatch.setattr(gmm_cells, "samples_of", lambda method, trained, n, seed: seeds.append(seed) or {})
    critic = Method("GAN", "released", replace(method.preset, learner=gmm_cells.GANConfig()))
    for replica in range(2):
        gmm_cells._measure(critic, None, replica, draws=1, grid_side=10)
    assert seeds == [0, 1]
