"""Potentials for many noise levels: ``u(x, σ_k)`` is the log-density of the data blurred by noise of size ``σ_k``.

One network has an output for each level, so one pass gives all of them, as the classification of levels needs it.
To each output the log-density of a Gaussian is added, blurred like the data: the network learns the difference.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.models import Potential, apart, replicas_of
from nrf.networks.base import DataInitialised, Shape, require_image, size_of
from nrf.networks.closed_form import Plain, linearised
from nrf.networks.layers import Activation, PotentialNorm, activation, batch_norm, normalised
from nrf.networks.waves import Waves, check_waves

Level = int | Tensor
"""A level for all rows, counted from the smallest noise, or one for each row."""

FLOOR = 1e-4
"""Smallest variance of the reference, as a share of the mean one. Any is valid: the network learns the difference."""


class Reference(nn.Module):
    """The Gaussian ``N(m, S)`` that is added to the network; standard normal until :meth:`fit`.

    Replicas each have their own, as one more dimension in front of all buffers.

    Args:
        size: Values in one event.
        covariance: ``full``, or ``diagonal`` where there are too many values for a matrix.
    """

    mean: Tensor
    variances: Tensor
    rotation: Tensor

    def __init__(self, size: int, covariance: Literal["full", "diagonal"]) -> None:
        super().__init__()
        self.n, self.full = 1, covariance == "full"
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variances", torch.ones(size))
        self.register_buffer("rotation", torch.eye(size if self.full else 0))

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Set mean and covariance to those of rows."""
        rows = x.flatten(1).double()
        mean = rows.mean(0)
        if self.full:
            variances, rotation = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
            self.rotation.copy_(rotation)
        else:
            variances = (rows - mean).square().mean(0)
        self.mean.copy_(mean)
        self.variances.copy_(variances.clamp_min(FLOOR * variances.mean().clamp_min(1e-12)))

    def scaled(self, x: Tensor) -> Tensor:
        """Rows scaled to mean 0 and a mean variance of 1, as the network takes them."""
        return ((self._apart(x) - self.mean.view(self.n, 1, -1)) / self.scale()).reshape(x.shape)

    def scale(self) -> Tensor:
        """The root of the mean variance, one per replica."""
        return self.variances.view(self.n, 1, -1).mean(2, keepdim=True).sqrt()

    def log_densities(self, x: Tensor, sigmas: Sequence[float]) -> Tensor:
        """``log N(x; m, S + σ² I)`` for every σ: ``(n, len(sigmas))``."""
        variances = self._blurred(sigmas)  # (replicas, size, levels)
        squared = self._turned(x).square() @ (1 / variances)
        constant = torch.log(2 * math.pi * variances).sum(1, keepdim=True)
        return (-(squared + constant) / 2).flatten(0, 1)

    def gradient(self, x: Tensor, sigma: Tensor) -> Tensor:
        """``∇ log N(x; m, S + σ² I)`` with a σ for each row."""
        variances = self.variances.view(self.n, 1, -1) + apart(sigma, self.n)[:, :, None] ** 2
        found = -self._turned(x) / variances
        if self.full:
            found = found @ self.rotation.view(self.n, *self.rotation.shape[-2:]).mT
        return found.reshape(x.shape)

    def shaped(self, noise: Tensor, sigma: float) -> Tensor:
        """Turn standard normal draws into draws of ``N(m, S + σ² I)``."""
        draws = self._apart(noise) * (self.variances.view(self.n, 1, -1) + sigma**2).sqrt()
        if self.full:
            draws = draws @ self.rotation.view(self.n, *self.rotation.shape[-2:]).mT
        return (draws + self.mean.view(self.n, 1, -1)).reshape(noise.shape)

    def stacked(self, references: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        together = copy.deepcopy(self)
        together.n = len(references)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in references]))
        return together

    def _apart(self, x: Tensor) -> Tensor:
        return apart(x.flatten(1), self.n)

    def _turned(self, x: Tensor) -> Tensor:
        """Centred rows along the principal axes."""
        centred = self._apart(x) - self.mean.view(self.n, 1, -1)
        return centred @ self.rotation.view(self.n, *self.rotation.shape[-2:]) if self.full else centred

    def _blurred(self, sigmas: Sequence[float]) -> Tensor:
        squares = self.variances.new_tensor([sigma**2 for sigma in sigmas])
        return self.variances.view(self.n, -1, 1) + squares


class NoiseLevelPotential(nn.Module):
    """``u(x, σ_k) = log N(x; m, S + σ_k² I) + r_k(x)``, with all ``r_k`` the outputs of one network.

    Called with rows alone it is the potential of the smallest level, so it can be used wherever a potential can.

    Args:
        body: The network, ``(n, *event)`` to ``(n, levels)``.
        sigmas: Noise of each level, ascending.
        reference: The Gaussian that is added to it.

    Example:
        >>> u = LevelsMLPPotential(widths=(8,), n_levels=4).build((3,))
        >>> x = torch.zeros(5, 3)
        >>> u(x).shape, u.levels(x).shape, bool((u(x, 2) == u.levels(x)[:, 2]).all())
        (torch.Size([5]), torch.Size([5, 4]), True)
    """

    def __init__(self, body: nn.Module, sigmas: Sequence[float], reference: Reference) -> None:
        super().__init__()
        self.body, self.reference = body, reference
        self.sigmas = tuple(sigmas)

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.sigmas)

    def forward(self, x: Tensor, level: Level = 0) -> Tensor:
        found = self.levels(x)
        return found[:, level] if isinstance(level, int) else found.gather(1, level[:, None])[:, 0]

    def levels(self, x: Tensor) -> Tensor:
        """The potential at every level, ``(n, levels)``."""
        out: Tensor = self.body(self.reference.scaled(x))
        return out.to(x.dtype) + self.reference.log_densities(x, self.sigmas)

    def known(self, x: Tensor) -> Tensor:
        """``log N(x; m, S + σ_K² I)``: a normalised density that the widest level is close to."""
        return self.reference.log_densities(x, self.sigmas[-1:])[:, 0]

    def gradient(self, x: Tensor, level: Level = 0) -> Tensor:
        """``∇u`` row by row, in closed form where the network has one."""
        at = self._of_rows(level, x)
        if isinstance(self.body, Plain) and self.body.has_closed_form:
            with torch.no_grad():
                out, pull_back = linearised(self.body, self.reference.scaled(x))
                back = pull_back(nn.functional.one_hot(at, out.shape[1]).to(out.dtype))
                slope = (apart(back.flatten(1), self.reference.n) / self.reference.scale()).reshape(x.shape)
                return slope + self.reference.gradient(x, x.new_tensor(self.sigmas)[at])
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (found,) = torch.autograd.grad(self(x, at).sum(), x)
        return found

    def at(self, level: int) -> AtLevel:
        """This potential at one level, as a potential without levels."""
        if not 0 <= level < self.n_levels:
            raise InputError(f"there are noise levels from 0 to {self.n_levels - 1}, got {level}")
        return AtLevel(self, level)

    def start_from(self, x: Tensor, rng: torch.Generator | None = None) -> None:
        """Data-dependent initialisation: fit the reference to rows; ``rng`` is not used."""
        self.reference.fit(x)

    def _of_rows(self, level: Level, x: Tensor) -> Tensor:
        return torch.full((len(x),), level, device=x.device) if isinstance(level, int) else level


@dataclass(frozen=True)
class AtLevel:
    """A noise-level potential at one level, as a potential.

    Args:
        potential: The noise-level potential.
        level: The level, counted from the smallest noise.
    """

    potential: NoiseLevelPotential
    level: int

    def __call__(self, x: Tensor) -> Tensor:
        found: Tensor = self.potential(x, self.level)
        return found

    @property
    def replicas(self) -> int:
        """Number of replicas that the potential holds."""
        return replicas_of(self.potential)

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u`` at this level."""
        return self.potential.gradient(x, self.level)


def require_levels(potential: Potential | nn.Module) -> NoiseLevelPotential:
    """The potential as one that has noise levels, or the one inside as its attribute ``density``.

    Args:
        potential: Any potential.

    Raises:
        InputError: It has no noise levels.
    """
    potential = getattr(potential, "density", potential)
    if not isinstance(potential, NoiseLevelPotential):
        raise InputError(
            f"{type(potential).__name__} has no noise levels; take LevelsMLPPotential or LevelsCNNPotential"
        )
    return potential


@dataclass(frozen=True)
class WithLevels(DataInitialised):
    """Settings that all noise-level potentials share."""

    data_init: bool = True
    """Give the reference Gaussian the mean and covariance of training rows before training."""
    n_levels: int = 12
    """Number of noise levels. Neighbouring levels should overlap, so a wide range or many columns need more of them."""
    sigma_min: float = 0.05
    """Noise of the smallest level, in units of the data: what is learned is the data blurred by this much."""
    sigma_max: float = 3.0
    """Noise of the widest level: beyond the spread of the data, so that the blurred data are close to a Gaussian."""
    covariance: Literal["full", "diagonal"] = "full"
    """Covariance of the reference Gaussian: full, or diagonal where there are too many columns for a matrix."""

    def __post_init__(self) -> None:
        if self.n_levels < 2 or not 0 < self.sigma_min < self.sigma_max < math.inf:
            raise InputError(
                "noise levels need n_levels ≥ 2 and 0 < sigma_min < sigma_max, got "
                f"{self.n_levels}, {self.sigma_min} and {self.sigma_max}"
            )
        if self.bias_spread != 0:
            raise InputError("noise-level potentials have no bias_spread; leave it at 0")

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise of each level, a geometric sequence."""
        ratio = (self.sigma_max / self.sigma_min) ** (1 / (self.n_levels - 1))
        return tuple(self.sigma_min * ratio**k for k in range(self.n_levels))

    def around(self, body: nn.Module, event_shape: Shape) -> NoiseLevelPotential:
        """Build the potential of a network with an output for each level."""
        return NoiseLevelPotential(body, self.sigmas, Reference(size_of(event_shape), self.covariance))

    def head(self, n_in: int, norm: PotentialNorm) -> nn.Module:
        """The last layer; it begins near 0, so that training begins near the Gaussian."""
        layer = nn.Linear(n_in, self.n_levels)
        with torch.no_grad():
            layer.weight.mul_(0.01)
            layer.bias.zero_()
        return normalised(layer, norm)


@dataclass(frozen=True)
class LevelsMLPPotential(WithLevels):
    """A multilayer perceptron with one output for each noise level."""

    widths: tuple[int, ...] = (128, 128, 128)
    """Units of the hidden layers."""
    activation: Activation = "silu"
    """Activation of the hidden layers; score matching needs a smooth one."""
    n_waves: int = 0
    """Number of sines of random projections added to the columns. Useful for few columns with narrow modes."""
    wave_scale: float = 5.0
    """Root mean square length of their wave vectors, per standard deviation of the data."""
    norm: PotentialNorm = "none"
    """Weight norm, spectral norm, batch norm of the hidden layers, or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_waves(self.n_waves, self.wave_scale)

    def build(self, event_shape: Shape) -> nn.Module:
        n_in = size_of(event_shape)
        layers: list[nn.Module] = [nn.Flatten()]
        if self.n_waves > 0:
            layers.append(Waves(n_in, self.n_waves, self.wave_scale))
            n_in += self.n_waves
        for n_out in self.widths:
            layers.append(normalised(nn.Linear(n_in, n_out), self.norm))
            if self.norm == "batch":
                layers.append(batch_norm(n_out, 1, "running"))
            layers.append(activation(self.activation))
            n_in = n_out
        return self.around(Plain(*layers, self.head(n_in, self.norm)), event_shape)


@dataclass(frozen=True)
class LevelsCNNPotential(WithLevels):
    """Five convolutions, two of them of stride 2, and one linear layer with an output for each noise level."""

    covariance: Literal["full", "diagonal"] = "diagonal"
    """Covariance of the reference Gaussian."""
    width: int = 32
    """Channels of the first two convolutions; twice as many in the next two, four times in the last."""
    activation: Activation = "silu"
    """Activation of the hidden layers; score matching needs a smooth one."""
    norm: PotentialNorm = "none"
    """Weight norm, spectral norm, batch norm after every convolution but the first, or none."""
    image: tuple[int, int, int] | None = None
    """Shape (channels, side, side) of the images that flat rows hold; if not given, events are images already."""

    def build(self, event_shape: Shape) -> nn.Module:
        n_in, side = require_image(self, self.image or event_shape, multiple=4)
        w = self.width
        layers: list[nn.Module] = []
        if self.image is not None:
            if event_shape != (size_of(self.image),):
                raise InputError(f"rows of shape {event_shape} do not hold images of shape {self.image}")
            layers.append(nn.Unflatten(1, self.image))
        # (channels, kernel, stride)
        for i, (n_out, kernel, stride) in enumerate(
            [(w, 3, 1), (w, 4, 2), (2 * w, 3, 1), (2 * w, 4, 2), (4 * w, 3, 1)]
        ):
            layers.append(normalised(nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=1), self.norm))
            if self.norm == "batch" and i > 0:
                layers.append(batch_norm(n_out, 2, "running"))
            layers.append(activation(self.activation))
            n_in = n_out
        layers += [nn.Flatten(), self.head(4 * w * (side // 4) ** 2, self.norm)]
        body = nn.Sequential(*layers) if self.norm == "batch" else Plain(*layers)
        return self.around(body, event_shape)
