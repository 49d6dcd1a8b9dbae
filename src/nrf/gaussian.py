"""Gaussian ``p(x)`` and ``q(x, h)``, for which everything that samplers estimate is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.samplers.base import Position
from nrf.seeds import Rng, randn


def random_covariance(dim: int, rng: torch.Generator, scale: float = 1.0) -> Tensor:
    """A random covariance ``scale · A Aᵀ + I``, where the square matrix ``A`` has independent standard normal entries.

    The eigenvalues of ``A Aᵀ`` fill the range from near 0 to about ``4 dim``; the identity keeps the smallest from
    vanishing, so the condition number is about ``1 + 4 dim · scale``.

    Args:
        dim: Number of rows and columns.
        rng: Source of all randomness.
        scale: Factor of the random part.

    Example:
        >>> values = torch.linalg.eigvalsh(random_covariance(50, torch.Generator().manual_seed(0)))
        >>> 1.0 < float(values[0]) < 1.1, 120 < float(values[-1]) < 220
        (True, True)
    """
    if dim < 1 or scale < 0:
        raise InputError(f"a random covariance needs dim ≥ 1 and scale ≥ 0, got {dim} and {scale}")
    a = torch.randn(dim, dim, generator=rng, dtype=torch.float64)
    covariance: Tensor = scale * a @ a.T + torch.eye(dim, dtype=torch.float64)
    return covariance


@dataclass(frozen=True)
class GaussianPotential:
    """The potential ``u(x) = −xᵀ P x / 2`` of a Gaussian with mean 0.

    Args:
        precision: The inverse covariance ``P``.
    """

    precision: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return -(x @ self.precision * x).sum(1) / 2

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u(x) = −P x``."""
        return -x @ self.precision


class GaussianGenerator:
    """A joint Gaussian over ``(x, h)`` with any covariance, with the methods that Alg. 2 needs.

    Args:
        covariance: Joint covariance of ``(x, h)``.
        dim_x: Number of coordinates of x; they come first.
        dtype: Type of the numbers that samplers compute with.
    """

    def __init__(self, covariance: Tensor, dim_x: int, dtype: torch.dtype = torch.float64) -> None:
        precision = torch.linalg.inv(covariance)
        self.dim_x = dim_x
        self.cross = precision[:dim_x, dim_x:].to(dtype).contiguous()
        self.latent = precision[dim_x:, dim_x:].to(dtype).contiguous()
        self._root = torch.linalg.cholesky(covariance).to(dtype)

    def propose(self, n: int, rng: Rng) -> tuple[Tensor, Tensor]:
        """Draw ``n`` pairs ``(x, h)``."""
        z = randn((n, len(self._root)), rng, self._root.dtype) @ self._root.T
        return z[:, : self.dim_x], z[:, self.dim_x :]

    def latent_gradient(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """``∇_h log q(x, h)`` and ``pull(h)``."""
        return -(x @ self.cross + h @ self.latent), self.pull(h)

    def pull(self, h: Tensor) -> Tensor:
        """The part of ``∇_x log q(x, h)`` that depends on ``h``."""
        pull: Tensor = -h @ self.cross.T
        return pull


@dataclass(frozen=True)
class AugmentedGaussian:
    """The augmented target ``p(x) q(h | x)`` of two Gaussians, with its exact gradient and exact draws.

    Args:
        precision: The inverse covariance of ``(x, h)``.
        dim_x: Number of coordinates of x; they come first.
    """

    precision: Tensor
    dim_x: int
    exact = True

    @classmethod
    def of(cls, potential: GaussianPotential, generator: GaussianGenerator) -> AugmentedGaussian:
        """Build the target of a potential and a generator, in double precision."""
        cross, latent = generator.cross.double(), generator.latent.double()
        # h | x has mean −Λ_hh⁻¹ Λ_hx x and precision Λ_hh.
        through_x = cross @ torch.linalg.solve(latent, cross.T)
        top = torch.cat([potential.precision.double() + through_x, cross], dim=1)
        return cls(torch.cat([top, torch.cat([cross.T, latent], dim=1)]), generator.dim_x)

    def __call__(self, position: Position, l: int) -> Position:
        z = torch.cat(position, dim=1)
        grad = -z @ self.precision.to(z.dtype)
        return grad[:, : self.dim_x], grad[:, self.dim_x :]

    def value_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """``log p(x) q(h | x)`` up to a constant, and its gradient."""
        grad = self(position, 0)
        return (torch.cat(position, dim=1) * torch.cat(grad, dim=1)).sum(1) / 2, grad

    def draw(self, n: int, rng: torch.Generator) -> Tensor:
        """``n`` exact draws of ``(x, h)``."""
        root = torch.linalg.cholesky(torch.linalg.inv(self.precision))
        draws: Tensor = torch.randn(n, len(root), generator=rng, dtype=torch.float64) @ root.T
        return draws
