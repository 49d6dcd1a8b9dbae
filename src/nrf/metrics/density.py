"""In the plane a random field can be normalised: its likelihood and its distance from a known density are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nrf.errors import InputError

LogDensity = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PlaneGrid:
    """Midpoints of a square grid over ``[-half_width, half_width]²``.

    A field is taken as restricted to the square: outside, a piecewise linear potential need not fall at all.
    """

    half_width: float = 6.0
    side: int = 600

    def __post_init__(self) -> None:
        if self.half_width <= 0 or self.side < 2:
            raise InputError(f"a grid needs half_width > 0 and side ≥ 2, got {self.half_width} and {self.side}")

    @property
    def log_cell(self) -> float:
        """Logarithm of the area of a cell."""
        return 2 * math.log(2 * self.half_width / self.side)

    def points(self) -> Tensor:
        """All midpoints, ``(side², 2)``."""
        step = 2 * self.half_width / self.side
        axis = -self.half_width + step * (torch.arange(self.side, dtype=torch.float64) + 0.5)
        return torch.cartesian_prod(axis, axis).float()


def log_partition(potential: LogDensity, grid: PlaneGrid) -> float:
    """``log Z = log ∫ exp u(x) dx`` over the square, by the midpoint rule.

    Example:
        >>> round(log_partition(lambda x: -x.square().sum(1) / 2, PlaneGrid()), 4)  # log 2π
        1.8379
    """
    return float(torch.logsumexp(_on(grid, potential), 0)) + grid.log_cell


def mean_log_likelihood(potential: LogDensity, rows: Tensor, grid: PlaneGrid) -> float:
    """``E log p(x)`` over rows, with the field normalised on the square."""
    return float(potential(rows).double().mean()) - log_partition(potential, grid)


def kl_from(truth: LogDensity, potential: LogDensity, grid: PlaneGrid) -> float:
    """``KL[truth ‖ p]`` over the square; both are normalised there.

    Example:
        >>> narrow, wide = (lambda x, v=v: -x.square().sum(1) / (2 * v) for v in (1.0, 2.0))
        >>> round(kl_from(narrow, wide, PlaneGrid(half_width=9.0)), 4)  # log 2 − 1/2
        0.1931
    """
    log_p, log_q = (value - torch.logsumexp(value, 0) for value in (_on(grid, truth), _on(grid, potential)))
    return float((log_p.exp() * (log_p - log_q)).sum())


def mixture_log_density(x: Tensor, means: Tensor, sigma: float) -> Tensor:
    """Log density of equally weighted round Gaussians, up to nothing: it is normalised.

    Example:
        >>> at_mean = mixture_log_density(torch.zeros(1, 2), torch.zeros(1, 2), 1.0)
        >>> round(float(at_mean), 4)  # −log 2π
        -1.8379
    """
    squared = torch.cdist(x.double(), means.double()).square()
    d = x.shape[1]
    constant = math.log(len(means)) + d / 2 * math.log(2 * math.pi * sigma**2)
    return torch.logsumexp(-squared / (2 * sigma**2), 1) - constant


@torch.no_grad()
def _on(grid: PlaneGrid, function: LogDensity) -> Tensor:
    """Values on the grid in double precision, a strip at a time."""
    return torch.cat([function(strip).double() for strip in torch.split(grid.points(), 65_536)])
