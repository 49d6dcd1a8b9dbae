"""Training a classifier of images, whose features are used for scores of samples and for detection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nrf.seeds import stream
from nrf.training.augment import augmented
from nrf.training.batches import Batches
from nrf.training.progress import ProgressBar

WARM = 0.2
"""Share of the run in which the learning rate rises."""


@dataclass(frozen=True)
class ClassifierTraining:
    """Settings of :func:`fit_classifier`: SGD with momentum, one cycle of the learning rate, image augmentation."""

    epochs: int = 12
    """Length of the training, in epochs."""
    batch_size: int = 256
    """Rows per batch."""
    peak_rate: float = 0.4
    """Learning rate at its highest."""
    weight_decay: float = 5e-4
    """Weight decay."""
    smoothing: float = 0.1
    """Label smoothing."""
    shift: int = 4
    """Largest random shift in each direction, in pixels."""
    flip: bool = True
    """Mirror images, left to right, at random."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the products; weights and sums stay in 32 bits."""


Batch = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes the images of a batch and their row numbers; returns the images and labels to train on."""


def fit_classifier(
    network: nn.Module,
    images: Tensor,
    labelled: Batch,
    training: ClassifierTraining,
    seed: int,
    *,
    label: str = "classifier",
    quiet: bool = False,
    piped: bool = False,
) -> None:
    """Train a network that returns features and logits; afterwards it is frozen and in evaluation mode.

    Args:
        network: Takes images ``(n, channels, side, side)``.
        images: Training images.
        labelled: Gives the labels of a batch; it may change the images, too.
        training: Settings of the training.
        seed: Seed of the order of the data and of the augmentation.
        label: Label of the progress bar.
        quiet: Show no progress bar.
        piped: Show progress as plain lines where standard error is not a terminal.
    """
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Batches(torch.arange(len(images)), training.batch_size, [seed])
    total = training.epochs * batches.per_epoch
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=training.weight_decay
    )
    rng = stream(seed, "augment")
    network.train()
    with ProgressBar(label, total, 0, quiet=quiet, piped=piped) as bar:
        for step in range(total):
            rows = batches.at(step)
            batch, labels = labelled(augmented(images[rows], training.shift, training.flip, rng), rows)
            with torch.autocast(batch.device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
                _, logits = network(batch.contiguous(memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=training.smoothing)
            for group in optimizer.param_groups:
                group["lr"] = training.peak_rate * _cycle(step / total)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            bar.advance()
    network.eval().requires_grad_(False)


def _cycle(done: float) -> float:
    """Share of the peak learning rate: up to 1, then down to 0."""
    return done / WARM if done < WARM else (1 - done) / (1 - WARM)
