"""Fully connected networks; the GMM, KDDCUP and MNIST pairs of the paper are these two in different sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from nrf.errors import InputError
from nrf.networks.base import DataInitialised, Latent, Shape, size_of
from nrf.networks.closed_form import Plain, PlainPotential
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
from nrf.networks.waves import Waves, check_waves


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

    initial_std: float | None = None
    """With weight norm: start from directions drawn from N(0, std²), gains of 1 and biases of 0, as the released
    scripts do. If not given, PyTorch's own start."""
    confinement: float | None = None
    """Standard deviation s of a Gaussian factor of the density: −‖x‖²/(2s²) is added, so that u falls far away."""

    def __post_init__(self) -> None:
        if self.confinement is not None and not self.confinement > 0:
            raise InputError(f"confinement must be positive, got {self.confinement}")

    def build(self, event_shape: Shape) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        n_in = size_of(event_shape)
        for n_out in self.widths:
            layers.append(self._normalised(nn.Linear(n_in, n_out), train_gain=self.train_gain == "all"))
            if self.norm == "batch":
                layers.append(batch_norm(n_out, 1, "running"))
            layers.append(activation(self.activation, self.slope))
            n_in = n_out
        layers.append(self._normalised(nn.Linear(n_in, 1), train_gain=self.train_gain != "none"))
        if self.norm == "batch":
            return Scalar(nn.Sequential(*layers), self.confinement)
        return PlainPotential(Plain(*layers), self.confinement)

    def _normalised(self, layer: nn.Module, *, train_gain: bool) -> nn.Module:
        return normalised(layer, self.norm, train_gain=train_gain, initial_std=self.initial_std)


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
    initial_std: float | None = None
    """The same start for the last layer, where it has weight norm; see the potential's."""
    n_waves: int = 0
    """Number of sines of random projections added to the code. Useful for few latents and many narrow modes."""
    wave_scale: float = 5.0
    """Root mean square length of their wave vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_waves(self.n_waves, self.wave_scale)

    def network(self, event_shape: Shape) -> nn.Module:
        layers: list[nn.Module] = []
        n_in = self.latent_dim
        if self.n_waves > 0:
            layers.append(Waves(n_in, self.n_waves, self.wave_scale))
            n_in += self.n_waves
        for n_out in self.widths:
            layers.append(nn.Linear(n_in, n_out))
            if self.norm == "batch":
                layers.append(batch_norm(n_out, 1, self.statistics))
            layers.append(activation(self.activation))
            n_in = n_out
        last = nn.Linear(n_in, size_of(event_shape))
        layers.append(normalised(last, self.output_norm, initial_std=self.initial_std))
        layers += [OUTPUTS[self.output](), nn.Unflatten(1, event_shape)]
        return Plain(*layers)
