"""The metric against numbers known otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nrf.data import gmm
from nrf.errors import InputError
from nrf.metrics import auroc, mode_coverage, most_covered, nearest_neighbour_score


def test_oracle_agrees_with_theory_and_with_the_paper():
    """100 draws from 32 equal modes: each is hit with 1 − (1 − r/32)¹⁰⁰, r the share within 3σ of its mean."""
    draw = np.random.default_rng(0)
    modes = draw.integers(0, 32, 40_000)
    samples = gmm.means()[modes] + gmm.SIGMA * draw.normal(size=(40_000, 2))
    got = mode_coverage(torch.from_numpy(samples), torch.from_numpy(gmm.means()), gmm.SIGMA)
    r = 1 - np.exp(-9 / 2)
    assert got.realistic == pytest.approx(r, abs=0.002)
    assert got.covered == pytest.approx(32 * (1 - (1 - r / 32) ** 100), abs=0.2)
    assert got.covered == pytest.approx(30.70, abs=0.25)  # the paper's oracle


@pytest.mark.parametrize("seed", range(3))
def test_independent_draws_cover_no_more_than_they_can(seed):
    """An exact sampler of the mixture, and one without spread, against the bound; 1,000 draws have a standard error."""
    draw = np.random.default_rng(seed)
    means = torch.from_numpy(gmm.means())
    centres = means[torch.from_numpy(draw.integers(0, 32, 100_000))]
    covered = [
        mode_coverage(centres + spread * torch.from_numpy(draw.normal(size=(100_000, 2))), means, gmm.SIGMA).covered
        for spread in (0.0, gmm.SIGMA)
    ]
    error = 1.15 / np.sqrt(1000)  # a draw's own SD is about 1.15
    assert covered[0] == pytest.approx(most_covered(32), abs=3 * error)
    assert covered[1] < most_covered(32) + 3 * error
    stratified = means.repeat(4, 1)[:100].repeat(1000, 1)  # samples that know of each other
    assert mode_coverage(stratified, means, gmm.SIGMA).covered == 32 > most_covered(32) + 3 * error


def test_one_mode_only():
    samples = torch.zeros(200, 2)
    means = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert mode_coverage(samples, means, 0.1) == (1.0, 1.0)
    assert mode_coverage(samples + 0.5, means, 0.1) == (0.0, 0.0)


def test_draws_must_be_whole():
    with pytest.raises(InputError, match="150 samples do not make whole draws of 100"):
        mode_coverage(torch.zeros(150, 2), torch.zeros(1, 2), 0.1)


def test_auroc_is_the_share_of_right_pairs():
    score, anomaly = np.array([3.0, 1.0, 2.0, 0.0]), np.array([0, 0, 1, 1])
    assert auroc(score, anomaly) == pytest.approx(3 / 4)
    assert auroc(-score, anomaly) == pytest.approx(1 / 4)
    with pytest.raises(InputError, match="both"):
        auroc(score, np.zeros(4, dtype=int))


def test_nearest_neighbour_is_the_smallest_distance():
    draw = np.random.default_rng(0)
    train, rows = draw.normal(size=(30, 2, 2)), draw.normal(size=(5, 2, 2))
    want = [-min(np.linalg.norm(t - r) for t in train) for r in rows]
    np.testing.assert_allclose(nearest_neighbour_score(train, rows), want)
