"""Scores of images against independent implementations, and the Inception network's form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from torch.nn.functional import interpolate

from nrf.errors import InputError
from nrf.metrics.images import extract, frechet_distance, inception_score, precision_recall
from nrf.metrics.inception import CLASSES, FEATURES, Inception, read_inception, resized


@pytest.fixture
def clouds():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    return rng.normal(size=(700, 6)) @ mix, 0.7 * rng.normal(size=(500, 6)) @ mix.T + 0.5


def test_the_frechet_distance_is_that_of_its_formula(clouds):
    real, fake = clouds
    covariances = [np.cov(x, rowvar=False) for x in clouds]
    root = sqrtm(covariances[0] @ covariances[1]).real
    expected = ((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)
    found = frechet_distance(*(torch.from_numpy(x) for x in clouds))
    assert found == pytest.approx(expected, rel=1e-6)


def _score_by_hand(logits):
    p = np.exp(logits.numpy())
    p /= p.sum(1, keepdims=True)
    return np.exp((p * np.log(p / p.mean(0))).sum(1).mean())


def test_the_inception_score_is_that_of_its_formula():
    logits = 2 * torch.randn(400, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    assert inception_score(logits, draws=1) == (pytest.approx(_score_by_hand(logits), rel=1e-9), None)


def test_the_inception_score_is_mean_and_spread_of_its_draws():
    logits = 2 * torch.randn(400, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    scores = [_score_by_hand(draw) for draw in logits.split(40)]
    expected = (pytest.approx(np.mean(scores), rel=1e-9), pytest.approx(np.std(scores, ddof=1), rel=1e-9))
    assert inception_score(logits) == expected
    assert inception_score(logits)[0] < inception_score(logits, draws=1)[0]  # a rough p(y) lowers it


def test_the_score_of_sure_and_even_logits_is_the_number_of_classes():
    logits = 50 * torch.eye(4).repeat(25, 1)
    assert inception_score(logits, draws=1)[0] == pytest.approx(4.0)
    assert inception_score(torch.zeros(100, 4), draws=1)[0] == pytest.approx(1.0)


def test_precision_and_recall_are_those_of_the_definition(clouds):
    real, fake = clouds
    expected = []
    for rows, others in ((fake, real), (real, fake)):
        radius = np.sort(cdist(others, others), 1)[:, 3]
        expected.append((cdist(rows, others) <= radius).any(1).mean())
    found = precision_recall(*(torch.from_numpy(x) for x in clouds))
    assert found == pytest.approx(expected)
    assert 0 < min(expected) < 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: frechet_distance(torch.zeros(5, 3), torch.zeros(5, 4)),
        lambda: frechet_distance(torch.zeros(1, 3), torch.zeros(5, 3)),
        lambda: inception_score(torch.zeros(10, 3), draws=10),
        lambda: inception_score(torch.zeros(25, 3), draws=10),
        lambda: inception_score(torch.zeros(20, 3), draws=0),
        lambda: precision_recall(torch.zeros(5, 2), torch.zeros(5, 2), neighbours=5),
    ],
)
def test_what_cannot_be_scored_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_extraction_goes_batch_by_batch():
    images = torch.rand(7, 3, 4, 4)
    seen = []

    def network(x):
        seen.append(len(x))
        return x.flatten(1), x.mean((2, 3))

    found = extract(network, images, batch=3)
    assert seen == [3, 3, 1]
    torch.testing.assert_close(found.features, images.flatten(1))
    torch.testing.assert_close(found.logits, images.mean((2, 3)))
    torch.testing.assert_close(found[2:5].features, images[2:5].flatten(1))
    torch.testing.assert_close(found[2:5].logits, images[2:5].mean((2, 3)))


@pytest.fixture(scope="module")
def inception():
    torch.manual_seed(0)
    return Inception().eval()


def test_inception_has_the_size_of_the_published_one(inception):
    assert sum(p.numel() for n, p in inception.named_parameters() if not n.startswith("fc")) == 21_785_568
    assert inception.fc.weight.shape == (CLASSES, FEATURES)
    features, logits = inception(torch.zeros(2, 3, 32, 32))
    assert features.shape == (2, FEATURES)
    assert logits.shape == (2, CLASSES)
    torch.testing.assert_close(features[0], features[1])


def test_weights_are_read_from_a_file_and_wrong_files_are_named(inception, tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(inception.state_dict(), path)
    images = torch.rand(1, 3, 32, 32) * 2 - 1
    torch.testing.assert_close(read_inception(path)(images), inception(images))
    with pytest.raises(InputError, match="does not exist"):
        read_inception(tmp_path / "nowhere.pth")
    torch.save({"x": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="does not hold"):
        read_inception(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="can be read safely"):
        read_inception(path)


def test_resizing_has_the_corners_of_tensorflow_1():
    x = torch.rand(2, 3, 5, 5, dtype=torch.double)
    found = resized(x, 15)
    torch.testing.assert_close(found[:, :, ::3, ::3], x)  # old pixels stand at every third place
    torch.testing.assert_close(found[:, :, 0, 1], x[:, :, 0, 0] + (x[:, :, 0, 1] - x[:, :, 0, 0]) / 3)
    assert (found - interpolate(x, 15, mode="bilinear")).abs().max() > 0.01  # not those of torch
