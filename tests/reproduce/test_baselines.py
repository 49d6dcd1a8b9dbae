"""The compared detectors: each against what its equations say, and on a task it must solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from nrf.errors import InputError
from nrf.metrics import auroc
from nrf.reproduce.baselines import DAGMM, DCAE, DSEBM, DeepSVDD
from nrf.reproduce.baselines.dagmm import RIDGE, Mixture

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


def _bars(n, seed, *, upright):
    """A bright bar at a random place on a noisy 28×28 image, lying or upright."""
    rng = np.random.default_rng(seed)
    images = 0.1 * rng.random((n, 1, 28, 28)).astype(np.float32)
    for image, place in zip(images, rng.integers(2, 24, n), strict=True):
        image[0, place : place + 3, 4:24] += 0.8
    return images.swapaxes(2, 3).copy() if upright else images


@pytest.mark.parametrize(
    "model",
    [DCAE(epochs=6, batch_size=50), DeepSVDD(epochs=25, pretrain_epochs=3, batch_size=50, learning_rate=1e-3)],
    ids=["DCAE", "Deep SVDD"],
)
def test_images_are_told_by_their_shape_and_scores_repeat(model):
    train = _bars(400, 0, upright=False)
    rows = np.concatenate([_bars(100, 1, upright=False), _bars(100, 2, upright=True)])
    scores = model.fit(train).score_samples(rows)
    assert auroc(scores, np.repeat([0, 1], 100)) > 0.9
    np.testing.assert_array_equal(model.fit(train).score_samples(rows), scores)
    brighter = model.score_samples(0.5 * rows + 0.2)
    np.testing.assert_allclose(brighter, scores, rtol=1e-3, atol=1e-3)  # contrast and brightness are taken out


def test_no_coordinate_of_the_centre_is_close_to_zero():
    model = DeepSVDD(epochs=1, pretrain_epochs=1, batch_size=50).fit(_bars(100, 0, upright=False))
    assert (model.centre.abs() >= 0.1 - 1e-6).all()


@pytest.mark.parametrize("shape", [(3, 30, 30), (1, 28, 24)])
def test_images_that_do_not_fit_the_layers_are_refused(shape):
    with pytest.raises(InputError, match="square"):
        DCAE(epochs=1).fit(np.zeros((10, *shape), np.float32))


def test_a_table_is_no_stack_of_images():
    with pytest.raises(InputError, match="images"):
        DCAE(epochs=1).fit(np.zeros((10, 5), np.float32))
