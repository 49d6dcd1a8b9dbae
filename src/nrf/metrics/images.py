"""Quality of generated images by the features of a network: Fréchet distance, inception score, precision and recall.

Features are extracted once and given to all of them. Numbers of different networks cannot be compared, so always name
the network with them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nrf.errors import InputError, needs

Extractor = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From images ``(n, 3, height, width)`` in [−1, 1] to features ``(n, d)`` and logits ``(n, classes)``."""

NEIGHBOURS = 3
"""k of precision and recall: the distance to the k-th neighbour is the radius of a ball."""
ROWS = 2000
"""Number of rows in a block of distances."""


@dataclass(frozen=True)
class Extracted:
    """Features and logits of images, from one network."""

    features: Tensor
    logits: Tensor

    def __getitem__(self, rows: slice) -> Extracted:
        return Extracted(self.features[rows], self.logits[rows])


@torch.no_grad()
def extract(extractor: Extractor, images: Tensor, batch: int = 100) -> Extracted:
    """Compute features and logits of images.

    Args:
        extractor: The network.
        images: ``(n, 3, height, width)``, in [−1, 1].
        batch: Number of images per pass.
    """
    parts = [extractor(part) for part in torch.split(images, batch)]
    features, logits = (torch.cat(found) for found in zip(*parts, strict=True))
    return Extracted(features, logits)


def frechet_distance(real: Tensor, fake: Tensor) -> float:
    """Fréchet distance between normal distributions fitted to two sets of features; with Inception's it is the FID.

    Args:
        real: Features of real images, ``(n, d)``.
        fake: Features of generated images, ``(m, d)``.

    Example:
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> round(frechet_distance(x, x + 1), 4)
        3.0
    """
    _require_rows(real, fake)
    given = nn.Identity()
    given.num_features = real.shape[1]  # type: ignore[assignment]
    metric = _torchmetrics("image.fid").FrechetInceptionDistance(feature=given)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    return float(metric.compute())


def inception_score(logits: Tensor, draws: int = 10) -> tuple[float, float | None]:
    """Inception score ``exp E KL[p(y|x) ‖ p(y)]``: mean and standard deviation over several draws of images.

    p(y) is estimated in each draw, and few images give a rough estimate, so the score depends on the size of a draw:
    the paper has ten draws of 5,000 images.

    Args:
        logits: Logits of a classifier, for the images of all draws, one draw after the other.
        draws: Number of draws; with one there is no standard deviation.

    Example:
        >>> mean, sd = inception_score(50 * torch.eye(4).repeat(20, 1), draws=2)
        >>> round(mean, 6), sd
        (4.0, 0.0)
    """
    if draws < 1 or len(logits) % draws or len(logits) < 2 * draws:
        raise InputError(f"{len(logits)} images do not make {draws} draws of one size; give a multiple of the draws")
    scores = torch.stack([_one_inception_score(draw.double()) for draw in logits.chunk(draws)])
    return scores.mean().item(), None if draws == 1 else scores.std().item()


def _one_inception_score(logits: Tensor) -> Tensor:
    log_p = logits.log_softmax(1)
    log_marginal = log_p.logsumexp(0) - math.log(len(log_p))
    return (log_p.exp() * (log_p - log_marginal)).sum(1).mean().exp()


def precision_recall(real: Tensor, fake: Tensor, neighbours: int = NEIGHBOURS) -> tuple[float, float]:
    """Precision and recall: the share of fake rows among the real ones, and of real rows among the fake ones.

    A row is among others if it is no farther from one of them than that one's k-th neighbour.

    Args:
        real: Features of real images, ``(n, d)``.
        fake: Features of generated images, ``(m, d)``.
        neighbours: k.

    Reference:
        Kynkäänniemi et al., "Improved precision and recall metric for assessing generative models", 2019.

    Example:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> precision_recall(x, x), precision_recall(x, x + 100)
        ((1.0, 1.0), (0.0, 0.0))
    """
    _require_rows(real, fake)
    if not 1 <= neighbours < min(len(real), len(fake)):
        raise InputError(f"neighbours must be at least 1 and fewer than the images, got {neighbours}")
    return _share_within(fake, real, neighbours), _share_within(real, fake, neighbours)


def _share_within(rows: Tensor, others: Tensor, neighbours: int) -> float:
    blocks = torch.split(others, ROWS)
    radius = torch.cat([torch.cdist(block, others).kthvalue(neighbours + 1).values for block in blocks])
    inside = [(torch.cdist(part, others) <= radius).any(1) for part in torch.split(rows, ROWS)]
    return float(torch.cat(inside).float().mean())


def _require_rows(real: Tensor, fake: Tensor) -> None:
    if real.ndim != 2 or fake.ndim != 2 or real.shape[1] != fake.shape[1] or min(len(real), len(fake)) < 2:
        raise InputError(
            f"features must be two tables with the same columns and at least two rows, got {tuple(real.shape)} and "
            f"{tuple(fake.shape)}"
        )


def _torchmetrics(module: str) -> Any:
    with needs("images", "a score of images"):
        return importlib.import_module(f"torchmetrics.{module}")
