"""The classifier behind `IS-c10` and `FID-c10`: trained once on CIFAR-10, then read from the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
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
"""Below this its features are not worth a score."""
FILE = "c10-classifier-1.safetensors"


@dataclass(frozen=True)
class ClassifierConfig:
    """The network, and how it is trained."""

    width: int = 24
    training: ClassifierTraining = field(default_factory=ClassifierTraining)
    seed: int = 0


def train_classifier(splits: Splits, config: ClassifierConfig, *, quiet: bool = False) -> tuple[Classifier, float]:
    """A trained classifier and its share of right answers on the test images."""
    if splits.train_labels is None or splits.test is None or splits.test_labels is None:
        raise InputError(f"{splits.name} lacks labels or test images; a classifier needs both")
    labels = torch.from_numpy(np.asarray(splits.train_labels)).long()
    with DrawsFrom(stream(config.seed, "weights")):
        network = Classifier(config.width, int(labels.max()) + 1)
    images = torch.from_numpy(splits.train)
    fit_classifier(network, images, lambda x, rows: (x, labels[rows]), config.training, config.seed, quiet=quiet)
    return network, accuracy(network, torch.from_numpy(splits.test), splits.test_labels)


@torch.no_grad()
def accuracy(network: Classifier, images: Tensor, labels: np.ndarray) -> float:
    """Share of right answers."""
    found = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return float((found.numpy() == labels).mean())


def c10_classifier(folder: Path | str | None = None, *, quiet: bool = False) -> Classifier:
    """The classifier from the cache folder; trained there first, where it is not yet (about half an hour on two cores).

    Args:
        folder: In place of the cache folder.
        quiet: No progress bar.
    """
    path = Path(folder or cache_dir()) / FILE
    config = ClassifierConfig()
    if not path.is_file():
        network, right = train_classifier(resolve("cifar10"), config, quiet=quiet)
        if right < LEAST_ACCURACY:
            raise InputError(f"the classifier has an accuracy of {right:.3f}, less than {LEAST_ACCURACY}; not kept")
        ckpt.write(path, ckpt.Checkpoint(network.state_dict(), {"accuracy": right}))
    network = Classifier(config.width)
    ckpt.load_state(network, ckpt.read(path).tensors, path, "classifier")
    return network.eval().requires_grad_(False)
