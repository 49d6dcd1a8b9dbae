"""Quadrature against closed forms."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from nrf.data import gmm
from nrf.errors import InputError
from nrf.metrics.density import PlaneGrid, kl_from, log_partition, mean_log_likelihood, mixture_log_density

MEANS = torch.from_numpy(gmm.means())
MIXTURE = partial(mixture_log_density, means=MEANS, sigma=gmm.SIGMA)


def test_the_mixture_is_normalised_on_the_grid():
    assert log_partition(MIXTURE, PlaneGrid()) == pytest.approx(0.0, abs=1e-4)


def test_a_level_of_the_potential_does_not_matter():
    grid, rows = PlaneGrid(), torch.from_numpy(gmm.draw(3)[0]).float()
    lifted = lambda x: MIXTURE(x) + 7  # noqa: E731
    assert log_partition(lifted, grid) == pytest.approx(7.0, abs=1e-4)
    assert mean_log_likelihood(lifted, rows, grid) == pytest.approx(mean_log_likelihood(MIXTURE, rows, grid), abs=1e-6)
    assert kl_from(MIXTURE, lifted, grid) == pytest.approx(0.0, abs=1e-9)


def test_likelihood_of_the_truth_is_minus_its_entropy():
    """The modes hardly overlap: the entropy is log 32 plus that of one Gaussian."""
    rows = torch.from_numpy(gmm.draw(3)[0]).float()
    entropy = math.log(32) + 1 + math.log(2 * math.pi * gmm.SIGMA**2)
    got = mean_log_likelihood(MIXTURE, rows, PlaneGrid())
    assert got == pytest.approx(-entropy, abs=4.5 / math.sqrt(len(rows)))


def test_kl_of_gaussians():
    narrow, wide = (lambda x, v=v: -x.square().sum(1) / (2 * v) for v in (0.5, 1.5))
    ratio = 0.5 / 1.5
    assert kl_from(narrow, wide, PlaneGrid(8.0)) == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-4)


def test_kl_is_the_loss_of_likelihood():
    """E log p_true − E log p_model over draws from the truth."""
    broad = partial(mixture_log_density, means=MEANS, sigma=0.2)
    rows = torch.from_numpy(gmm.draw(5)[0]).float()
    gap = mean_log_likelihood(MIXTURE, rows, PlaneGrid()) - mean_log_likelihood(broad, rows, PlaneGrid())
    assert kl_from(MIXTURE, broad, PlaneGrid()) == pytest.approx(gap, abs=0.08)


def test_density_against_torch():
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    parts = torch.distributions.Independent(torch.distributions.Normal(means, 0.7), 1)
    want = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(torch.ones(2)), parts).log_prob(x)
    torch.testing.assert_close(mixture_log_density(x, means, 0.7), want)


def test_a_grid_must_have_a_size():
    with pytest.raises(InputError, match="half_width"):
        PlaneGrid(half_width=0.0)
