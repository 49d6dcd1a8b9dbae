"""What the last noise of a sampler allows on the mixture: the formulas against chains in a mode of the mixture."""

from __future__ import annotations

import math

import pytest
import torch

from nrf.data import gmm
from nrf.metrics import mixture_log_density, mode_coverage
from nrf.reproduce.gmm.step_noise import chain_variance, fitting_curvature, longest_step, most_realistic
from nrf.runs.presets import find_preset
from nrf.samplers import MALA, SGLD, run
from nrf.targets import PotentialTarget

N = 20_000
DELTA = find_preset("gmm-paper").sampler.step_size
MEANS = torch.from_numpy(gmm.means()).float()


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


def _realistic(samples):
    return mode_coverage(samples, MEANS, gmm.SIGMA, 100)[1]


def test_the_last_noise_alone_caps_the_text_at_0_895():
    """Samples that lay exactly on a mean before their last step; any other place is worse."""
    cap = most_realistic(DELTA)
    assert cap == pytest.approx(1 - math.exp(-2.25))
    assert round(cap, 3) == 0.895
    at_means = MEANS[torch.arange(N) % len(MEANS)]
    flat = PotentialTarget(lambda x: 0 * x.sum(1))
    stepped = run(SGLD(step_size=DELTA), (at_means,), flat, 1, _rng()).position[0]
    error = math.sqrt(cap * (1 - cap) / N)
    assert _realistic(stepped) == pytest.approx(cap, abs=4.5 * error)
    drawn = at_means + gmm.SIGMA * torch.randn(N, 2, generator=_rng(1))
    spread = run(SGLD(step_size=DELTA), (drawn,), flat, 1, _rng()).position[0]
    expected = 1 - math.exp(-0.09 / (2 * (2 * DELTA + gmm.SIGMA**2)))  # 0.777: noise on top of the data's own
    assert _realistic(spread) == pytest.approx(expected, abs=4.5 * error)
    assert most_realistic(DELTA, temperature=0.0) == 1.0
    assert most_realistic(DELTA, temperature=0.005) == pytest.approx(1.0)  # the scripts' noise of 0.01


@pytest.mark.parametrize(("delta", "curvature"), [(0.01, 100.0), (0.01, 30.0), (0.01, 180.0), (0.004, 60.0)])
def test_chains_in_a_parabola_have_the_variance_of_the_formula(delta, curvature):
    parabola = PotentialTarget(lambda x: -curvature * x.square().sum(1) / 2)
    x = run(SGLD(step_size=delta), (torch.zeros(N, 2),), parabola, 60, _rng()).position[0]
    expected = chain_variance(delta, curvature)
    assert float(x.square().mean()) == pytest.approx(expected, rel=4.5 / math.sqrt(N))


def test_no_curvature_fits_beyond_half_the_variance_of_the_data():
    assert longest_step() == pytest.approx(0.005)
    assert fitting_curvature(DELTA) is None
    least = min(chain_variance(DELTA, k) for k in torch.linspace(1, 199, 400).tolist())
    assert least == pytest.approx(2 * DELTA, rel=1e-3)  # twice the variance of the data
    for delta in (0.001, 0.005):
        assert chain_variance(delta, fitting_curvature(delta)) == pytest.approx(gmm.SIGMA**2)
    assert fitting_curvature(1e-6) == pytest.approx(1 / gmm.SIGMA**2, rel=1e-3)  # small steps: that of the density
    assert fitting_curvature(0.0051) is None


def test_metropolis_adjustment_lifts_the_cap():
    """In the true field, with the text's step: SGLD ends at the cap, MALA where the data are."""
    truth = PotentialTarget(lambda x: mixture_log_density(x, MEANS, gmm.SIGMA))
    start = MEANS[torch.arange(8000) % len(MEANS)]
    start = start + gmm.SIGMA * torch.randn(start.shape, generator=_rng(1))
    found = {}
    for sampler in (SGLD(step_size=DELTA), MALA(step_size=DELTA)):
        found[type(sampler)] = _realistic(run(sampler, (start,), truth, 10, _rng(2)).position[0])
    margin = 4.5 * math.sqrt(0.1 * 0.9 / 8000)
    assert found[SGLD] < most_realistic(DELTA) + margin
    assert found[MALA] == pytest.approx(1 - math.exp(-4.5), abs=margin)  # 0.989, the data's own
    assert found[MALA] > most_realistic(DELTA) + margin
