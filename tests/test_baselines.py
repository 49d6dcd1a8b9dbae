"""The compared detectors: each against what its equations say, and on a task it must solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from nrf.detect.baselines import DAGMM, DSEBM
from nrf.detect.baselines.dagmm import RIDGE, Mixture
from nrf.errors import InputError
from nrf.metrics import auroc

SMALL = {"batch_size": 64, "learning_rate": 3e-3}


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    centres = np.array([[2, 0, 0, 1], [-2, 1, 0, -1]])
    normal = (centres[rng.integers(2, size=900)] + 0.3 * rng.normal(size=(900, 4))).astype(np.float32)
    odd = rng.uniform(-3, 3, (300, 4)).astype(np.float32)
    return normal[:600], normal[600:], odd


@pytest.mark.parametrize(
    "model",
    [
        DSEBM(epochs=60, **SMALL),
        DSEBM(epochs=60, score="reconstruction", noise=0.3, **SMALL),
        DAGMM(epochs=60, widths=(8, 2), n_components=2, **SMALL),
    ],
    ids=["DSEBM-e", "DSEBM-r", "DAGMM"],
)
def test_each_tells_noise_from_blobs_and_repeats(model, blobs):
    train, normal, odd = blobs
    rows, labels = np.concatenate([normal, odd]), np.repeat([0, 1], [len(normal), len(odd)])
    scores = model.fit(train).score_samples(rows)
    assert auroc(scores, labels) > 0.85
    torch.manual_seed(5)  # the global state is not what it hangs on
    np.testing.assert_array_equal(model.fit(train).score_samples(rows), scores)


def test_a_reconstruction_is_a_step_down_the_energy():
    model = DSEBM(epochs=1, batch_size=8, widths=(5, 3)).fit(np.zeros((16, 2), np.float32))
    x = torch.randn(4, 2, dtype=torch.float32)
    found = x - model.reconstruct(x)
    h = 1e-2
    for column in range(2):
        step = torch.zeros(2)
        step[column] = h
        slope = (model.network(x + step) - model.network(x - step)) / (2 * h)
        torch.testing.assert_close(found[:, column].detach(), slope.detach(), atol=1e-3, rtol=1e-3)


def test_the_energy_is_that_of_the_mixture():
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    memberships = torch.softmax(3 * z[:, :2], 1)
    mixture = Mixture.of(z, memberships)
    density = 0.0
    for k in range(2):
        weight = memberships[:, k].numpy()
        mean = np.average(z.numpy(), axis=0, weights=weight)
        covariance = np.cov(z.numpy().T, aweights=weight, ddof=0) + RIDGE * np.eye(3)
        density = density + weight.mean() * multivariate_normal(mean, covariance).pdf(z.numpy())
    np.testing.assert_allclose(mixture.energy(z).numpy(), -np.log(density), rtol=1e-6)
    inverse = sum((1 / np.diag((f @ f.T).numpy())).sum() for f in mixture.factors)
    assert float(mixture.penalty()) == pytest.approx(inverse)


def test_baselines_say_what_is_wrong():
    with pytest.raises(InputError, match="not fitted yet"):
        DSEBM().score_samples(np.zeros((2, 2), np.float32))
    with pytest.raises(InputError, match="table of numbers"):
        DAGMM().fit(np.zeros(3, np.float32))
