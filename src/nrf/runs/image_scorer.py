"""Scores of generated images by the features of one network, named after it so that they are not mixed with others.

With the standard weights of Inception they are `IS` and `FID`; with the project's own classifiers of CIFAR-10 and MNIST
`IS-c10`, `FID-c10`, `IS-mnist` and `FID-mnist`, which have the same form but other values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.data import Splits
from nrf.metrics.images import Extracted, Extractor, extract, frechet_distance, inception_score, precision_recall
from nrf.metrics.inception import read_inception
from nrf.runs.c10 import c10_classifier, mnist_classifier

Images = NDArray[np.float32]

PRECISION_ROWS = 5000
"""Number of real and of generated images that precision and recall use."""


@dataclass(frozen=True)
class ImageScorer:
    """Scores images against real ones.

    Args:
        extractor: Maps images, as the splits have them, to features and logits.
        suffix: Suffix of every metric's name.
        splits: The real images: test images for the protocol of the paper, training images for the other.
    """

    extractor: Extractor
    suffix: str
    splits: Splits

    @cached_property
    def _test(self) -> Tensor:
        assert self.splits.test is not None
        return extract(self.extractor, torch.from_numpy(self.splits.test)).features

    @cached_property
    def _train(self) -> Tensor:
        return extract(self.extractor, torch.from_numpy(self.splits.train)).features

    def extract(self, images: Images) -> Extracted:
        """Features and logits of images: the input of the other methods."""
        return extract(self.extractor, torch.from_numpy(images))

    def scores(self, seen: Extracted, draws: int = 1) -> dict[str, float]:
        """Inception score over draws, and Fréchet distance to the test images.

        Args:
            seen: Images of all draws, one draw after the other; the distance is of the first draw.
            draws: Number of draws; the paper has ten of 5,000 images.
        """
        mean, sd = inception_score(seen.logits, draws)
        spread = {} if sd is None else {f"IS{self.suffix} SD": sd}
        first = seen.features[: len(seen.features) // draws]
        return {f"IS{self.suffix}": mean, **spread, f"FID{self.suffix}": frechet_distance(self._test, first)}

    def precision_recall(self, seen: Extracted) -> dict[str, float]:
        """Share of images that look real, and of real ones that are covered."""
        precision, recall = precision_recall(self._test[:PRECISION_ROWS], seen.features[:PRECISION_ROWS])
        return {f"precision{self.suffix}": precision, f"recall{self.suffix}": recall}

    def against_training(self, seen: Extracted) -> dict[str, float]:
        """The Fréchet distance in its other protocol: all training images against as many samples."""
        return {f"FID{self.suffix}, training images": frechet_distance(self._train, seen.features)}


def cifar10_scorer(splits: Splits, inception_weights: Path | str | None = None, *, quiet: bool = True) -> ImageScorer:
    """Scores by Inception if its weights are given, else by the project's classifier, which is trained if it is
    missing.

    Args:
        splits: CIFAR-10.
        inception_weights: The file that torch-fidelity uses.
        quiet: No progress bar while the classifier is trained.
    """
    if inception_weights is not None:
        return ImageScorer(read_inception(inception_weights), "", splits)
    return ImageScorer(c10_classifier(quiet=quiet), "-c10", splits)


def mnist_scorer(splits: Splits, *, quiet: bool = True) -> ImageScorer:
    """Scores by the project's classifier of MNIST, which is trained if it is missing.

    Args:
        splits: MNIST, rows of 784 pixels in [0, 1].
        quiet: No progress bar while the classifier is trained.
    """
    network = mnist_classifier(quiet=quiet)

    def extractor(rows: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = network(2 * rows.reshape(-1, 1, 28, 28) - 1)
        return features, logits

    return ImageScorer(extractor, "-mnist", splits)
