"""Convolutional pairs: the one-class CIFAR-10 pair of the paper, and the SNGAN paper's standard CNN (its table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from nrf.networks.base import DataInitialised, Latent, Shape, require_image
from nrf.networks.closed_form import Plain, PlainPotential
from nrf.networks.layers import (
    PotentialNorm,
    Scalar,
    TrainedGain,
    activation,
    batch_norm,
    normalised,
)


@dataclass(frozen=True)
class OneClassCNNPotential(DataInitialised):
    """Nine convolutions, global mean, one unit: the potential of the one-class CIFAR-10 table.

    The seventh convolution has no padding, as in the released network.
    """

    width: int = 96
    """Channels of the first three convolutions; the others have twice as many."""
    slope: float = 0.2
    """Slope of the leaky ReLU."""
    norm: PotentialNorm = "weight"
    """Weight norm, spectral norm, batch norm after every convolution but the first, or none."""
    train_gain: TrainedGain = "all"
    """Which layers' weight-norm gains are trained; the released scripts train the last layer's only."""
    initial_std: float | None = None
    """With weight norm: start from directions drawn from N(0, std²), gains of 1 and biases of 0, as the released
    scripts do. If not given, PyTorch's own start."""

    def build(self, event_shape: Shape) -> nn.Module:
        n_in, _ = require_image(self, event_shape, multiple=4)
        w = self.width
        # (channels, kernel, stride, padding)
        plan = [
            (w, 3, 1, 1),
            (w, 3, 1, 1),
            (w, 3, 2, 1),
            (2 * w, 3, 1, 1),
            (2 * w, 3, 1, 1),
            (2 * w, 3, 2, 1),
        ]
        plan += [(2 * w, 3, 1, 0), (2 * w, 1, 1, 0), (2 * w, 1, 1, 0)]
        start = {"initial_std": self.initial_std}
        layers = _convolutions(n_in, plan, self.norm, self.slope, train_gain=self.train_gain == "all", **start)
        head = normalised(nn.Linear(2 * w, 1), self.norm, train_gain=self.train_gain != "none", **start)
        return _potential([*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head], self.norm)


@dataclass(frozen=True)
class OneClassCNNGenerator(Latent):
    """A linear layer and three 5×5 transposed convolutions of stride 2: the generator of the one-class table."""

    width: int = 128
    """Channels before the last layer; twice and four times as many before that."""
    norm: Literal["first", "all", "none"] = "first"
    """Batch norm after the linear layer only (the paper), after every hidden layer (the released scripts), or none."""
    statistics: Literal["running", "batch"] = "running"
    """What batch norm uses when the generator is evaluated: running averages, or the batch's own."""
    output_norm: Literal["weight", "none"] = "none"
    """Weight norm on the last layer, or none."""
    initial_std: float | None = None
    """The same start for the last layer, where it has weight norm; see the potential's."""

    def network(self, event_shape: Shape) -> nn.Module:
        n_out, side = require_image(self, event_shape, multiple=8)
        w, start = self.width, side // 8
        layers: list[nn.Module] = [nn.Linear(self.latent_dim, 4 * w * start * start)]
        if self.norm != "none":
            layers.append(batch_norm(4 * w * start * start, 1, self.statistics))
        layers += [nn.ReLU(), nn.Unflatten(1, (4 * w, start, start))]
        for n_in, n in ((4 * w, 2 * w), (2 * w, w)):
            layers.append(nn.ConvTranspose2d(n_in, n, 5, stride=2, padding=2, output_padding=1))
            if self.norm == "all":
                layers.append(batch_norm(n, 2, self.statistics))
            layers.append(nn.ReLU())
        last = nn.ConvTranspose2d(w, n_out, 5, stride=2, padding=2, output_padding=1)
        layers += [normalised(last, self.output_norm, initial_std=self.initial_std), nn.Tanh()]
        return nn.Sequential(*layers)


@dataclass(frozen=True)
class StandardCNNPotential(DataInitialised):
    """Seven convolutions and one unit: the SNGAN paper's standard discriminator."""

    width: int = 64
    """Channels of the first convolutions; they double at each level up to eight times as many."""
    slope: float = 0.1
    """Slope of the leaky ReLU."""
    norm: PotentialNorm = "spectral"
    """Spectral norm, weight norm, batch norm after every convolution but the first, or none."""

    def build(self, event_shape: Shape) -> nn.Module:
        n_in, side = require_image(self, event_shape, multiple=8)
        w = self.width
        plan = [(w, 3, 1, 1), (w, 4, 2, 1), (2 * w, 3, 1, 1), (2 * w, 4, 2, 1)]
        plan += [(4 * w, 3, 1, 1), (4 * w, 4, 2, 1), (8 * w, 3, 1, 1)]
        layers = _convolutions(n_in, plan, self.norm, self.slope, train_gain=True)
        head = normalised(nn.Linear(8 * w * (side // 8) ** 2, 1), self.norm)
        return _potential([*layers, nn.Flatten(), head], self.norm)


@dataclass(frozen=True)
class StandardCNNGenerator(Latent):
    """A linear layer, three 4×4 transposed convolutions and a 3×3 one: the SNGAN paper's standard generator."""

    latent_dim: int = 128
    """Size of the latent code h."""
    width: int = 64
    """Channels before the last layer; two, four and eight times as many before that."""

    def network(self, event_shape: Shape) -> nn.Module:
        n_out, side = require_image(self, event_shape, multiple=8)
        w, start = self.width, side // 8
        layers: list[nn.Module] = [
            nn.Linear(self.latent_dim, 8 * w * start * start),
            nn.Unflatten(1, (8 * w, start, start)),
        ]
        for n_in, n in ((8 * w, 4 * w), (4 * w, 2 * w), (2 * w, w)):
            layers += [
                nn.ConvTranspose2d(n_in, n, 4, stride=2, padding=1),
                batch_norm(n, 2, "running"),
                nn.ReLU(),
            ]
        layers += [nn.Conv2d(w, n_out, 3, padding=1), nn.Tanh()]
        return nn.Sequential(*layers)


def _potential(layers: list[nn.Module], norm: PotentialNorm) -> Scalar:
    """The potential of layers, with its gradient in closed form unless batch norm may mix the rows."""
    return Scalar(nn.Sequential(*layers)) if norm == "batch" else PlainPotential(Plain(*layers))


def _convolutions(
    n_in: int,
    plan: list[tuple[int, int, int, int]],
    norm: PotentialNorm,
    slope: float,
    *,
    train_gain: bool,
    initial_std: float | None = None,
) -> list[nn.Module]:
    """Convolutions with leaky ReLUs; batch norm, if chosen, leaves out the first layer, which sees the pixels."""
    layers: list[nn.Module] = []
    for i, (n_out, kernel, stride, padding) in enumerate(plan):
        convolution = nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=padding)
        layers.append(normalised(convolution, norm, train_gain=train_gain, initial_std=initial_std))
        if norm == "batch" and i > 0:
            layers.append(batch_norm(n_out, 2, "running"))
        layers.append(activation("leaky_relu", slope))
        n_in = n_out
    return layers
