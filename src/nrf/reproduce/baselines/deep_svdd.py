"""One-class detectors of images: a convolutional autoencoder, and Deep SVDD on its encoder.

Reference:
    Ruff et al., "Deep one-class classification", 2018: the layers, the local contrast of the images, the centre, and
    training in two parts, autoencoder and then distance to the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.reproduce.baselines.network import CHUNK, NetworkBaseline

SMALL, LARGE = ((8, 4), 32), ((32, 64, 128), 128)
"""Channels and length of the code, for MNIST's size and for CIFAR-10's."""
LEAST_CENTRE = 0.1
"""A coordinate of the centre is at least that far from 0, where the network could reach it without looking."""


def encoder(shape: tuple[int, ...]) -> nn.Sequential:
    """5×5 convolutions and pooling down to a code. Without biases, for with them a constant code would do."""
    channels, length = SMALL if shape[0] == 1 else LARGE
    n_in, side, layers = shape[0], shape[1], list[nn.Module]()
    if shape[1] != shape[2] or side % 2 ** len(channels):
        raise InputError(f"images must be square with a side that {2 ** len(channels)} divides, got {shape}")
    for n_out in channels:
        convolution = nn.Conv2d(n_in, n_out, 5, padding=2, bias=False)
        layers += [convolution, nn.BatchNorm2d(n_out, affine=False), nn.LeakyReLU(), nn.MaxPool2d(2)]
        n_in, side = n_out, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(n_in * side**2, length, bias=False))


def decoder(shape: tuple[int, ...]) -> nn.Sequential:
    """From a code back to an image with pixels in [0, 1]."""
    channels, length = SMALL if shape[0] == 1 else LARGE
    side = shape[1] // 2 ** len(channels)
    layers: list[nn.Module] = [nn.Linear(length, channels[-1] * side**2), nn.Unflatten(1, (channels[-1], side, side))]
    for n_in, n_out in zip(channels[::-1], (*channels[-2::-1], shape[0]), strict=True):
        layers += [nn.BatchNorm2d(n_in), nn.LeakyReLU(), nn.Upsample(scale_factor=2)]
        layers += [nn.Conv2d(n_in, n_out, 5, padding=2)]
    return nn.Sequential(*layers, nn.Sigmoid())


class Autoencoder(nn.Module):
    """Code and reconstruction."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder(shape), decoder(shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]


@dataclass
class DCAE(NetworkBaseline):
    """A deep convolutional autoencoder; the error of reconstruction is the score, negated.

    Example:
        >>> import numpy as np
        >>> images = np.random.default_rng(0).random((64, 1, 28, 28)).astype(np.float32)
        >>> DCAE(epochs=1, batch_size=32).fit(images).score_samples(images).shape
        (64,)
    """

    batch_size: int = 200
    learning_rate: float = 1e-3
    n_axes: ClassVar[int] = 4

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return _channels_last(Autoencoder(shape))

    def prepare(self, data: Tensor) -> Tensor:
        """Local contrast, and the training images' range brought to [0, 1]."""
        contrast = _contrast(data)
        self.bounds: tuple[float, float] = (float(contrast.min()), float(contrast.max()))
        return self.scaled(data)

    def scaled(self, images: Tensor) -> Tensor:
        """Images as the network takes them."""
        low, high = self.bounds
        return (_contrast(images) - low) / max(high - low, 1e-6)

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        error: Tensor = (self.network(batch) - batch).square().flatten(1).sum(1)
        return error.mean()

    @torch.no_grad()
    def normality(self, rows: Tensor) -> Tensor:
        images = self.scaled(rows)
        error: Tensor = (self.network(images) - images).square().flatten(1).sum(1)
        return -error


@dataclass
class DeepSVDD(DCAE):
    """An encoder that maps normal images close to a fixed centre; the distance to it is the score, negated.

    Example:
        >>> import numpy as np
        >>> images = np.random.default_rng(0).random((64, 1, 28, 28)).astype(np.float32)
        >>> DeepSVDD(epochs=1, pretrain_epochs=1, batch_size=32).fit(images).score_samples(images).shape
        (64,)
    """

    learning_rate: float = 1e-4
    pretrain_epochs: int = 30
    """Epochs of the autoencoder whose encoder is taken over."""
    start: DCAE | None = None
    """That autoencoder, where it is fitted already; then there is none to train before."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return _channels_last(encoder(shape))

    def prepare(self, data: Tensor) -> Tensor:
        before = self.start
        if before is None:
            before = DCAE(epochs=self.pretrain_epochs, batch_size=self.batch_size, seed=self.seed, quiet=self.quiet)
            before.fit(data.numpy())
        self.bounds = before.bounds
        self.network.load_state_dict(before.network.encoder.state_dict())  # type: ignore[union-attr]
        images = self.scaled(data)
        with torch.no_grad():
            self.network.eval()
            codes = torch.cat([self.network(part) for part in torch.split(images, CHUNK)])
        centre = codes.mean(0)
        near = centre.abs() < LEAST_CENTRE
        self.centre = torch.where(near, LEAST_CENTRE * torch.where(centre < 0, -1.0, 1.0), centre)
        return images

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        return self._distance(batch).mean()

    @torch.no_grad()
    def normality(self, rows: Tensor) -> Tensor:
        return -self._distance(self.scaled(rows))

    def _distance(self, images: Tensor) -> Tensor:
        return (self.network(images) - self.centre).square().sum(1)  # type: ignore[no-any-return]


def _channels_last(network: nn.Module) -> nn.Module:
    """With weights in the order in which convolutions are fastest, 1.2 to 1.3 times for an autoencoder's step."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]


def _contrast(images: Tensor) -> Tensor:
    """Each image less its mean, in units of its mean deviation."""
    flat = images.flatten(1)
    flat = flat - flat.mean(1, keepdim=True)
    return (flat / flat.abs().mean(1, keepdim=True).clamp_min(1e-6)).reshape(images.shape)
