"""AnoGAN: a GAN of normal images, and for each image the code whose image is nearest to it.

Reference:
    Schlegl et al., "Unsupervised anomaly detection with generative adversarial networks to guide marker discovery",
    2017: residual and feature matching, weighted 0.9 and 0.1, after hundreds of steps of the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

from nrf.errors import InputError, NonFiniteError
from nrf.models import frozen
from nrf.reproduce.baselines.base import Baseline, Scores
from nrf.seeds import DrawsFrom, randn, stream
from nrf.training.batches import Batches

CHUNK = 250
"""Images whose codes are searched at a time."""
BETAS = (0.5, 0.999)


class Features(nn.Module):
    """Two convolutions of stride 2, and one number, the discriminator's, of what they give."""

    def __init__(self, channels: int, side: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width * (side // 4) ** 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x)).squeeze(1)
        return out


def image_generator(channels: int, side: int, width: int, latent_dim: int) -> nn.Sequential:
    """A linear layer and two transposed convolutions, to pixels in [−1, 1]."""
    start = side // 4
    return nn.Sequential(
        nn.Linear(latent_dim, 2 * width * start**2, bias=False),
        nn.BatchNorm1d(2 * width * start**2),
        nn.ReLU(),
        nn.Unflatten(1, (2 * width, start, start)),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
        nn.Tanh(),
    )


@dataclass
class AnoGAN(Baseline):
    """A small DCGAN pair; the score is how near its images come to an image, by pixels and by features, negated.

    Example:
        >>> images = np.random.default_rng(0).random((64, 1, 28, 28)).astype(np.float32)
        >>> AnoGAN(epochs=1, search_steps=2, width=2).fit(images).score_samples(images).shape
        (64,)
    """

    epochs: int = 30
    """Passes over the images."""
    batch_size: int = 100
    learning_rate: float = 2e-4
    """Of both networks, by Adam."""
    width: int = 16
    """Channels next to the image; twice as many further in."""
    latent_dim: int = 32
    """Length of the code."""
    search_steps: int = 300
    """Steps of Adam on the code of each image that is scored."""
    search_rate: float = 0.05
    feature_weight: float = 0.1
    """Weight of the discriminator's features beside the pixels."""

    module: ClassVar[str] = "torch"

    def learn(self, rows: NDArray[np.float32]) -> None:
        """Train the pair on normal images."""
        if rows.ndim != 4 or rows.shape[2] != rows.shape[3] or rows.shape[2] % 4:
            raise InputError(f"AnoGAN needs square images (n, channels, side, side), 4 dividing side, got {rows.shape}")
        data = torch.as_tensor(rows, dtype=torch.float32)
        self.bounds: tuple[float, float] = (float(data.min()), float(data.max()))
        channels, side = data.shape[1], data.shape[2]
        with DrawsFrom(stream(self.seed, "weights")):
            self.generator = image_generator(channels, side, self.width, self.latent_dim)
            self.discriminator = Features(channels, side, self.width)
        steps = [
            torch.optim.Adam(network.parameters(), lr=self.learning_rate, betas=BETAS)
            for network in (self.discriminator, self.generator)
        ]
        batches, rng = Batches(self._scaled(data), self.batch_size, [self.seed]), stream(self.seed, "learner")
        for step in range(self.epochs * batches.per_epoch):
            real = batches.at(step)
            fake = self.generator(randn((len(real), self.latent_dim), rng))
            told = softplus(-self.discriminator(real)).mean() + softplus(self.discriminator(fake.detach())).mean()
            _descend(steps[0], told)
            fooled = softplus(-self.discriminator(fake)).mean()
            _descend(steps[1], fooled)
            if not bool(torch.isfinite(told + fooled)):
                raise NonFiniteError(f"AnoGAN: the loss is not finite at step {step + 1}")

    def scores(self, rows: NDArray[np.float32]) -> Scores:
        """One number per image, high = normal."""
        if not hasattr(self, "generator"):
            raise InputError("this AnoGAN is not fitted yet; call fit first")
        rng = stream(self.seed, "search")
        images = self._scaled(torch.as_tensor(rows, dtype=torch.float32))
        with frozen(self.generator, self.discriminator):
            parts = [-self._distance(part, rng) for part in torch.split(images, CHUNK)]
        return torch.cat(parts).double().numpy()

    def _distance(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """Of the nearest image that was found, by the search's own loss."""
        with torch.no_grad():
            seen = self.discriminator.body(images)
        codes = randn((len(images), self.latent_dim), rng).requires_grad_(True)
        optimizer = torch.optim.Adam([codes], lr=self.search_rate)
        for _ in range(self.search_steps):
            _descend(optimizer, self._loss(codes, images, seen).sum())
        with torch.no_grad():
            return self._loss(codes, images, seen)

    def _loss(self, codes: Tensor, images: Tensor, seen: Tensor) -> Tensor:
        made = self.generator(codes)
        residual: Tensor = (made - images).abs().flatten(1).sum(1)
        features: Tensor = (self.discriminator.body(made) - seen).abs().sum(1)
        return (1 - self.feature_weight) * residual + self.feature_weight * features

    def _scaled(self, images: Tensor) -> Tensor:
        low, high = self.bounds
        return 2 * (images - low) / max(high - low, 1e-6) - 1


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
