"""The classifier behind FID-c10: learns, repeats, and is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf.data import Splits
from nrf.errors import InputError
from nrf.runs import c10
from nrf.runs.c10 import ClassifierConfig, c10_classifier, train_classifier
from nrf.training.classify import ClassifierTraining

TINY = ClassifierConfig(width=4, training=ClassifierTraining(epochs=6, batch_size=25, peak_rate=0.1, shift=1))


def _stripes(n, seed):
    """Stripes lying or upright, in noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    x = 0.3 * rng.normal(size=(n, 3, 32, 32)).astype(np.float32)
    wave = np.sin(np.arange(32) * 0.8).astype(np.float32)
    x += np.where(labels[:, None, None, None] == 0, wave[:, None], wave[None, :])
    return x.clip(-1, 1), labels


@pytest.fixture(scope="module")
def splits():
    return Splits("stripes", *_stripes(200, 0), *_stripes(100, 1), bounds=(-1.0, 1.0))


def test_it_learns_and_repeats(splits):
    network, right = train_classifier(splits, TINY, quiet=True)
    assert right > 0.9
    again, _ = train_classifier(splits, TINY, quiet=True)
    images = torch.from_numpy(splits.test[:5])
    assert all((a == b).all() for a, b in zip(network(images), again(images), strict=True))


def test_it_learns_in_16_bits(splits):
    halved = replace(TINY, training=replace(TINY.training, precision="bfloat16"))
    network, right = train_classifier(splits, halved, quiet=True)
    assert right > 0.9
    whole, _ = train_classifier(splits, TINY, quiet=True)
    assert not torch.equal(network.head.weight, whole.head.weight)
    assert network.head.weight.dtype == torch.float32


def test_it_is_trained_once_and_a_poor_one_is_not_kept(splits, tmp_path, monkeypatch):
    calls = []

    def train(splits, config, *, quiet):
        calls.append(config)
        torch.manual_seed(0)
        return c10.Classifier(config.width).eval(), 0.5 if len(calls) == 1 else 0.9

    monkeypatch.setattr(c10, "train_classifier", train)
    monkeypatch.setattr(c10, "resolve", lambda name: splits)
    with pytest.raises(InputError, match=r"accuracy of 0\.500"):
        c10_classifier(tmp_path)
    first, second = c10_classifier(tmp_path), c10_classifier(tmp_path)
    assert len(calls) == 2
    images = torch.rand(3, 3, 32, 32)
    assert (first(images)[0] == second(images)[0]).all()


def test_the_one_of_mnist_is_another_file_with_a_floor_of_its_own(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).random((20, 784)).astype(np.float32)
    given, found = [], [0.97, 0.99]

    def train(splits, config, *, quiet):
        given.append((splits.train.shape, float(splits.train.min()) < 0, config.channels))
        return c10.Classifier(config.width, channels=config.channels).eval(), found[len(given) - 1]

    monkeypatch.setattr(c10, "train_classifier", train)
    monkeypatch.setattr(c10, "resolve", lambda name: Splits(name, rows, None, rows, None))
    with pytest.raises(InputError, match=r"less than 0\.98"):
        c10.mnist_classifier(tmp_path)
    network = c10.mnist_classifier(tmp_path)
    assert given == [((20, 1, 28, 28), True, 1)] * 2
    assert network(torch.zeros(2, 1, 28, 28))[1].shape == (2, 10)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [c10.FILE_MNIST]
