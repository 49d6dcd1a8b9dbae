"""Base classes of network configurations: frozen dataclasses that build a module for a given event shape."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from nrf.errors import InputError
from nrf.models import LatentGenerator, Prior

Shape = tuple[int, ...]
"""Shape of an event: one row or image, without the batch."""


class PotentialConfig(Protocol):
    """Builds ``u: (n, *event) → (n,)``."""

    @property
    def data_init(self) -> bool: ...

    @property
    def bias_spread(self) -> float: ...

    def build(self, event_shape: Shape) -> nn.Module: ...


class GeneratorConfig(Protocol):
    """Builds ``q(x, h)`` over events of a shape."""

    def build(self, event_shape: Shape) -> LatentGenerator: ...


@dataclass(frozen=True)
class DataInitialised:
    """Settings that all potentials share: how they may start from data."""

    data_init: bool = False
    """Set gains and biases from a batch of data before training (weight norm only)."""
    bias_spread: float = 0.0
    """With data_init: standard deviation of the hidden units' initial biases; spreads their kinks over the data."""


@dataclass(frozen=True)
class Latent(ABC):
    """Settings that all generators share."""

    latent_dim: int = 100
    """Size of the latent code h."""
    sigma: float = 0.0
    """Standard deviation σ of x given h: noise on the proposal, and the stiffness of the joint target."""
    prior: Prior = "normal"
    """Prior of h: the paper's N(0, I), or uniform on [0, 1]."""

    def __post_init__(self) -> None:
        if self.latent_dim < 1:
            raise InputError(f"latent_dim must be at least 1, got {self.latent_dim}")

    @abstractmethod
    def network(self, event_shape: Shape) -> nn.Module:
        """Build the network of the mean g: ``(n, latent_dim)`` to ``(n, *event)``."""

    def build(self, event_shape: Shape) -> LatentGenerator:
        """Build the generator with that mean."""
        return LatentGenerator(self.network(event_shape), self.latent_dim, self.sigma, self.prior)


def require_image(who: object, event_shape: Shape, *, multiple: int) -> tuple[int, int]:
    """Channels and side of a square image event, or an error that says which images the network takes."""
    if len(event_shape) != 3 or event_shape[1] != event_shape[2] or event_shape[1] % multiple:
        raise InputError(
            f"{type(who).__name__} takes square images (channels, side, side) with a side divisible by {multiple}, "
            f"got events of shape {event_shape}; use an MLP for other shapes"
        )
    return event_shape[0], event_shape[1]


def size_of(event_shape: Shape) -> int:
    """Number of values in one event."""
    return math.prod(event_shape)
