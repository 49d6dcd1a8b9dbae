"""The classifier behind `IS-c10` and `FID-c10`: trained once on CIFAR-10, then read from the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nrf.data import Splits, resolve
from nrf.data.base import cache_dir
from nrf.errors import InputError
from nrf.networks.classifier import Classifier
from nrf.seeds import derive, stream
from nrf.training import ProgressBar
from nrf.training import checkpoint as ckpt
from nrf.training.augment import augmented
from nrf.training.batches import Batches

LEAST_ACCURACY = 0.85
"""Below this its features are not worth a score."""
FILE = "c10-classifier-1.safetensors"


@dataclass(frozen=True)
class ClassifierConfig:
    """How it is trained: SGD with momentum, one cycle of the learning rate, shifts and flips."""

    width: int = 24
    epochs: int = 12
    batch_size: int = 256
    peak_rate: float = 0.4
    """Learning rate at its highest, after a fifth of the run."""
    weight_decay: float = 5e-4
    smoothing: float = 0.1
    """Of the labels."""
    shift: int = 4
    seed: int = 0


def train_classifier(splits: Splits, config: ClassifierConfig, *, quiet: bool = False) -> tuple[Classifier, float]:
    """A trained classifier and its share of right answers on the test images."""
    if splits.train_labels is None or splits.test is None or splits.test_labels is None:
        raise InputError(f"{splits.name} lacks labels or test images; a classifier needs both")
    data, labels = torch.from_numpy(splits.train), torch.from_numpy(np.asarray(splits.train_labels)).long()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "weights"))
        network = Classifier(config.width, int(labels.max()) + 1)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Batches(torch.arange(len(data)), config.batch_size, [config.seed])
    total = config.epochs * batches.per_epoch
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=config.weight_decay
    )
    rng = stream(config.seed, "augment")
    network.train()
    with ProgressBar("classifier", total, 0, quiet=quiet) as bar:
        for step in range(total):
            rows = batches.at(step)
            images = augmented(data[rows], config.shift, True, rng).contiguous(memory_format=torch.channels_last)
            _, logits = network(images)
            loss = torch.nn.functional.cross_entropy(logits, labels[rows], label_smoothing=config.smoothing)
            for group in optimizer.param_groups:
                group["lr"] = config.peak_rate * _cycle(step / total)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            bar.advance()
    network.eval().requires_grad_(False)
    return network, accuracy(network, torch.from_numpy(splits.test), splits.test_labels)


def _cycle(done: float) -> float:
    """Up to 1 in the first fifth, then down to nothing."""
    return done / 0.2 if done < 0.2 else (1 - done) / 0.8


@torch.no_grad()
def accuracy(network: Classifier, images: Tensor, labels: np.ndarray) -> float:
    """Share of right answers."""
    found = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return float((found.numpy() == labels).mean())


def c10_classifier(folder: Path | None = None, *, quiet: bool = False) -> Classifier:
    """The classifier from the cache folder; trained there first, where it is not yet (about half an hour on two cores).

    Args:
        folder: In place of the cache folder.
        quiet: No progress bar.
    """
    path = (folder or cache_dir()) / FILE
    config = ClassifierConfig()
    if not path.is_file():
        network, right = train_classifier(resolve("cifar10"), config, quiet=quiet)
        if right < LEAST_ACCURACY:
            raise InputError(f"the classifier has an accuracy of {right:.3f}, less than {LEAST_ACCURACY}; not kept")
        ckpt.write(path, ckpt.Checkpoint(network.state_dict(), {"accuracy": right}))
    network = Classifier(config.width)
    ckpt.load_state(network, ckpt.read(path).tensors, path, "classifier")
    return network.eval().requires_grad_(False)
