"""Metrics of fields in the plane, which a grid can normalise: likelihoods, and distances from known densities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from nrf.errors import InputError

LogDensity = Callable[[Tensor], Tensor]

KERNEL_WIDTHS = (0.04, 0.06, 0.08, 0.11, 0.15, 0.2, 0.3, 0.5, 0.8)


@dataclass(frozen=True)
class PlaneGrid:
    """Midpoints of a square grid over ``[-half_width, half_width]²``.

    Fields are restricted to the square, since outside a piecewise linear potential need not fall at all.

    Args:
        half_width: Half the side of the square.
        side: Number of cells along each side.
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

    Args:
        potential: ``u``.
        grid: The square and its cells.

    Example:
        >>> round(log_partition(lambda x: -x.square().sum(1) / 2, PlaneGrid()), 4)  # log 2π
        1.8379
    """
    return float(torch.logsumexp(_on(grid, potential), 0)) + grid.log_cell


def mean_log_likelihood(potential: LogDensity, rows: Tensor, grid: PlaneGrid) -> float:
    """``E log p(x)`` over rows, with the field normalised on the square.

    Args:
        potential: ``u``.
        rows: The rows, ``(n, 2)``.
        grid: The square and its cells.
    """
    return float(potential(rows).double().mean()) - log_partition(potential, grid)


def fitted_inverse_temperature(potential: LogDensity, rows: Tensor, grid: PlaneGrid) -> float:
    """The ``s`` for which ``exp(s u)`` makes rows most likely, between 10⁻³ and 10³.

    A field that was trained with samples at another temperature, or with a sampler that did not converge, has a wrong
    scale but may have the right shape. The likelihood is concave in ``s``, so a bracketing search finds its maximum.

    Args:
        potential: ``u``.
        rows: The rows, ``(n, 2)``.
        grid: The square and its cells.

    Example:
        >>> rows = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
        >>> s = fitted_inverse_temperature(lambda x: -x.square().sum(1), rows, PlaneGrid())
        >>> 0.48 < s < 0.52
        True
    """
    on_grid, level = _on(grid, potential), float(potential(rows).detach().double().mean())

    def loss(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return float(torch.logsumexp(scale * on_grid, 0)) - scale * level

    found = minimize_scalar(loss, bounds=(math.log(1e-3), math.log(1e3)), method="bounded")
    return math.exp(float(found.x))


def kernel_log_likelihood(samples: Tensor, rows: Tensor, widths: Sequence[float] = KERNEL_WIDTHS) -> float:
    """``E log q̂(x)`` over rows, with ``q̂`` a Gaussian kernel estimate from samples, at the width that is best for it.

    It is a measure for generators whose density is unknown: missing a part of the data costs much, samples off the data
    cost in proportion to their share.

    Args:
        samples: The samples, ``(n, d)``.
        rows: The rows, ``(m, d)``.
        widths: Kernel widths to choose from.

    Example:
        >>> rows, near, far = (torch.randn(500, 2, generator=torch.Generator().manual_seed(i)) for i in range(3))
        >>> kernel_log_likelihood(near, rows) > kernel_log_likelihood(far + 2, rows)
        True
    """
    squared = torch.cdist(rows.double(), samples.double()).square()
    d = rows.shape[1]

    def mean(width: float) -> float:
        constant = math.log(len(samples)) + d / 2 * math.log(2 * math.pi * width**2)
        return float((torch.logsumexp(-squared / (2 * width**2), 1) - constant).mean())

    return max(mean(width) for width in widths)


def kl_from(truth: LogDensity, potential: LogDensity, grid: PlaneGrid) -> float:
    """``KL[truth ‖ p]`` over the square; both are normalised there.

    Args:
        truth: The true log-density, up to a constant.
        potential: ``u``, which defines ``p``.
        grid: The square and its cells.

    Example:
        >>> narrow, wide = (lambda x, v=v: -x.square().sum(1) / (2 * v) for v in (1.0, 2.0))
        >>> round(kl_from(narrow, wide, PlaneGrid(half_width=9.0)), 4)  # log 2 − 1/2
        0.1931
    """
    log_p, log_q = (value - torch.logsumexp(value, 0) for value in (_on(grid, truth), _on(grid, potential)))
    return float((log_p.exp() * (log_p - log_q)).sum())


def mixture_log_density(x: Tensor, means: Tensor, sigma: float) -> Tensor:
    """Normalised log-density of a mixture of equally weighted, round Gaussians.

    Args:
        x: Rows, ``(n, d)``.
        means: Means of the Gaussians, ``(modes, d)``.
        sigma: Standard deviation of every Gaussian.

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
    """Values on the grid in double precision, computed strip by strip."""
    return torch.cat([function(strip).double() for strip in torch.split(grid.points(), 65_536)])
