"""The classifiers behind `IS-c10`, `FID-c10` and `IS-mnist`, `FID-mnist`: trained once, then read from the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nrf.data import Splits, resolve
from nrf.data.base import cache_dir
from nrf.errors import InputError
from nrf.networks.classifier import Classifier
from nrf.seeds import DrawsFrom, stream
from nrf.training import checkpoint as ckpt
from nrf.training.classify import ClassifierTraining, fit_classifier

LEAST_ACCURACY = 0.85
"""Least accuracy of the CIFAR-10 classifier: with a lower one its features give no useful scores."""
LEAST_ACCURACY_MNIST = 0.98
FILE = "c10-classifier-1.safetensors"
FILE_MNIST = "mnist-classifier-1.safetensors"


@dataclass(frozen=True)
class ClassifierConfig:
    """The network, and how it is trained."""

    width: int = 24
    channels: int = 3
    training: ClassifierTraining = field(default_factory=ClassifierTraining)
    seed: int = 0


def train_classifier(splits: Splits, config: ClassifierConfig, *, quiet: bool = False) -> tuple[Classifier, float]:
    """Train a classifier; returns it and its accuracy on the test images."""
    if splits.train_labels is None or splits.test is None or splits.test_labels is None:
        raise InputError(f"{splits.name} lacks labels or test images; a classifier needs both")
    labels = torch.from_numpy(np.asarray(splits.train_labels)).long()
    with DrawsFrom(stream(config.seed, "weights")):
        network = Classifier(config.width, int(labels.max()) + 1, config.channels)
    images = torch.from_numpy(splits.train)
    fit_classifier(network, images, lambda x, rows: (x, labels[rows]), config.training, config.seed, quiet=quiet)
    return network, accuracy(network, torch.from_numpy(splits.test), splits.test_labels)


@torch.no_grad()
def accuracy(network: Classifier, images: Tensor, labels: np.ndarray) -> float:
    """Share of images that are classified correctly."""
    found = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return float((found.numpy() == labels).mean())


C10 = ClassifierConfig(training=ClassifierTraining(precision="bfloat16"))


def c10_classifier(folder: Path | str | None = None, *, quiet: bool = False) -> Classifier:
    """The classifier from the cache folder; trained first if it is not there.

    Products are in 16 bits, which takes ten minutes or so of one core that has instructions for them, and longer
    elsewhere.

    Args:
        folder: In place of the cache folder.
        quiet: No progress bar.
    """
    return _kept(FILE, C10, LEAST_ACCURACY, lambda: resolve("cifar10"), folder, quiet=quiet)


MNIST = ClassifierConfig(
    width=8, channels=1, training=ClassifierTraining(epochs=4, batch_size=250, peak_rate=0.2, shift=2, flip=False)
)


def mnist_classifier(folder: Path | str | None = None, *, quiet: bool = False) -> Classifier:
    """The classifier of MNIST images ``(n, 1, 28, 28)`` in [−1, 1]; trained first if needed (two minutes on one core).

    Args:
        folder: In place of the cache folder.
        quiet: No progress bar.
    """
    return _kept(FILE_MNIST, MNIST, LEAST_ACCURACY_MNIST, lambda: digit_images(resolve("mnist")), folder, quiet=quiet)


def digit_images(splits: Splits) -> Splits:
    """MNIST's rows in [0, 1] as images that the classifier takes."""
    assert splits.test is not None
    train, test = (2 * rows.reshape(-1, 1, 28, 28) - 1 for rows in (splits.train, splits.test))
    return replace(splits, train=train, test=test, bounds=(-1.0, 1.0))


def _kept(
    file: str,
    config: ClassifierConfig,
    least: float,
    data: Callable[[], Splits],
    folder: Path | str | None,
    *,
    quiet: bool,
) -> Classifier:
    path = Path(folder or cache_dir()) / file
    if not path.is_file():
        network, right = train_classifier(data(), config, quiet=quiet)
        if right < least:
            raise InputError(f"the classifier has an accuracy of {right:.3f}, less than {least}; not kept")
        ckpt.write(path, ckpt.Checkpoint(network.state_dict(), {"accuracy": right}))
    network = Classifier(config.width, channels=config.channels)
    ckpt.load_state(network, ckpt.read(path).tensors, path, "classifier")
    return network.eval().requires_grad_(False)
