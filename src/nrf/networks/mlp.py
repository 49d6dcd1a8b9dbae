"""Fully connected networks: the GMM, KDDCUP and MNIST pairs of the paper are sizes of these two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.networks.base import DataInitialised, Latent, Shape, size_of
from nrf.networks.layers import (
    OUTPUTS,
    Activation,
    OutputActivation,
    PotentialNorm,
    Scalar,
    TrainedGain,
    activation,
    batch_norm,
    normalised,
)
from nrf.networks.stacked import StackedLinear


@dataclass(frozen=True)
class MLPPotential(DataInitialised):
    """A multilayer perceptron with one output.

    Example:
        >>> import torch
        >>> u = MLPPotential(widths=(8, 4)).build((3,))
        >>> u(torch.zeros(5, 3)).shape
        torch.Size([5])
    """

    widths: tuple[int, ...] = (100, 100)
    """Units of the hidden layers."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    slope: float = 0.2
    """Slope of the leaky ReLU."""
    norm: PotentialNorm = "weight"
    """Weight norm, spectral norm, batch norm of the hidden layers, or none."""
    train_gain: TrainedGain = "all"
    """Which layers' weight-norm gains are trained; the released scripts train the last layer's only."""

    def build(self, event_shape: Shape) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        n_in = size_of(event_shape)
        for n_out in self.widths:
            layers.append(normalised(nn.Linear(n_in, n_out), self.norm, train_gain=self.train_gain == "all"))
            if self.norm == "batch":
                layers.append(batch_norm(n_out, 1, "running"))
            layers.append(activation(self.activation, self.slope))
            n_in = n_out
        layers.append(normalised(nn.Linear(n_in, 1), self.norm, train_gain=self.train_gain != "none"))
        body = nn.Sequential(*layers)
        return Scalar(body) if self.norm == "batch" else Perceptron(body)


class Perceptron(Scalar):
    """A potential of linear layers and activations alone, which knows its gradient in closed form."""

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        """``∇u`` row by row: one pass forward and one back, without a graph, and without the value of ``u``."""
        *hidden, last = self.body.children()
        back: list[Callable[[Tensor], Tensor]] = []
        z = x
        for layer in hidden:
            if isinstance(layer, nn.Flatten):
                z = layer(z)
            elif isinstance(layer, nn.Linear | StackedLinear):
                z = layer(z)
                back.append(partial(pull_back, layer))
            else:
                out = layer(z)
                back.append(partial(slope_of(layer), z, out))
                z = out
        grad = pull_back(last, z.new_ones(len(z), 1))
        for step in reversed(back):
            grad = step(grad)
        return grad.reshape(x.shape)


def pull_back(layer: nn.Module, grad: Tensor) -> Tensor:
    """A gradient's way from the output of a linear layer to its input."""
    if isinstance(layer, StackedLinear):
        return layer.pull_back(grad)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return grad @ weight


def slope_of(layer: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A gradient's way through an activation, from its input, its output and the gradient at its output."""
    aten = torch.ops.aten
    match layer:
        case nn.LeakyReLU():
            slope = layer.negative_slope
            return lambda z, out, grad: aten.leaky_relu_backward(grad, z, slope, False)
        case nn.ReLU():
            return lambda z, out, grad: aten.threshold_backward(grad, z, 0)
        case nn.Tanh():
            return lambda z, out, grad: aten.tanh_backward(grad, out)
        case nn.Softplus():
            beta, threshold = layer.beta, layer.threshold
            return lambda z, out, grad: aten.softplus_backward(grad, z, beta, threshold)
    raise InputError(f"no closed-form slope of {type(layer).__name__}")


@dataclass(frozen=True)
class MLPGenerator(Latent):
    """A multilayer perceptron from codes to events.

    Example:
        >>> import torch
        >>> q = MLPGenerator(latent_dim=2, widths=(8,)).build((1, 4, 4))
        >>> q(torch.zeros(5, 2)).shape
        torch.Size([5, 1, 4, 4])
    """

    widths: tuple[int, ...] = (50, 50)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    norm: Literal["batch", "none"] = "batch"
    """Batch norm of the hidden layers, or none."""
    statistics: Literal["running", "batch"] = "running"
    """What batch norm uses when the generator is evaluated: running averages, or the batch's own."""
    output_norm: Literal["weight", "none"] = "none"
    """Weight norm on the last layer, or none."""
    output: OutputActivation = "identity"
    """Activation of the last layer."""

    def network(self, event_shape: Shape) -> nn.Module:
        layers: list[nn.Module] = []
        n_in = self.latent_dim
        for n_out in self.widths:
            layers.append(nn.Linear(n_in, n_out))
            if self.norm == "batch":
                layers.append(batch_norm(n_out, 1, self.statistics))
            layers.append(activation(self.activation))
            n_in = n_out
        layers.append(normalised(nn.Linear(n_in, size_of(event_shape)), self.output_norm))
        layers += [OUTPUTS[self.output](), nn.Unflatten(1, event_shape)]
        return nn.Sequential(*layers)
