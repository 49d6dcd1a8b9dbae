"""Densities that are known: mixtures of Gaussians, all of them, so that draws and log-densities are exact.

The moons and the rings are mixtures of many round Gaussians along curves, far nearer to each other than they are wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nrf.data import gmm
from nrf.errors import InputError
from nrf.seeds import stream

MODES, MOONS, RINGS = "32 modes", "two moons", "rings"
PLANE = (MODES, MOONS, RINGS)
COLUMNS = (2, 5, 10, 20)
N_COMPONENTS = 8
ON_A_CURVE = 256
"""Components along each curve."""
STRIP = 8192


@dataclass(frozen=True)
class Known:
    """A mixture of Gaussians ``Σ w_i N(m_i, L_i L_iᵀ)``.

    Attributes:
        means: ``(components, d)``.
        factors: ``L_i``, lower triangular, ``(components, d, d)``.
        weights: ``(components,)``.
    """

    means: Tensor
    factors: Tensor
    weights: Tensor

    @property
    def d(self) -> int:
        """Columns."""
        return self.means.shape[1]

    @property
    def spread(self) -> float:
        """Root of the mean variance of a column."""
        mean = self.weights @ self.means
        between = self.weights @ (self.means - mean).square().sum(1)
        within = self.weights @ self.factors.square().sum((1, 2))
        return math.sqrt(float(between + within) / self.d)

    def draw(self, n: int, rng: torch.Generator) -> Tensor:
        """Independent rows."""
        chosen = torch.multinomial(self.weights, n, replacement=True, generator=rng)
        noise = torch.randn(n, self.d, generator=rng, dtype=torch.float64)
        return (self.means[chosen] + (self.factors[chosen] @ noise[:, :, None])[:, :, 0]).float()

    def log_density(self, x: Tensor) -> Tensor:
        """In nats, in double precision."""
        inverse = torch.linalg.inv(self.factors)
        constant = torch.log(self.weights) - torch.log(torch.diagonal(self.factors, dim1=1, dim2=2)).sum(1)
        constant = constant - self.d / 2 * math.log(2 * math.pi)
        found = []
        for rows in torch.split(x.double(), STRIP):
            away = torch.einsum("mij,nmj->nmi", inverse, rows[:, None] - self.means)
            found.append(torch.logsumexp(constant - away.square().sum(2) / 2, 1))
        return torch.cat(found)

    def box(self, reach: float = 5.0) -> tuple[Tensor, Tensor]:
        """Corners of a box that holds all components, and one Gaussian of this spread, to so many deviations."""
        wide = reach * self.factors.square().sum(2).sqrt()
        mean = self.weights @ self.means
        low = torch.minimum((self.means - wide).amin(0), mean - reach * self.spread)
        high = torch.maximum((self.means + wide).amax(0), mean + reach * self.spread)
        return low, high


def names() -> list[str]:
    """All densities."""
    return [*PLANE, *(mixture_name(d) for d in COLUMNS)]


def mixture_name(d: int) -> str:
    """Name of the mixture in so many columns."""
    return f"mixture, {d} columns"


def known(name: str) -> Known:
    """The density of that name; the same one every time.

    Example:
        >>> [known(name).d for name in names()]
        [2, 2, 2, 2, 5, 10, 20]
    """
    if name == MODES:
        return _round(torch.from_numpy(gmm.means()), gmm.SIGMA)
    if name == MOONS:
        t = math.pi * (torch.arange(ON_A_CURVE, dtype=torch.float64) + 0.5) / ON_A_CURVE
        upper = torch.stack([torch.cos(t), torch.sin(t)], 1)
        lower = torch.stack([1 - torch.cos(t), 0.5 - torch.sin(t)], 1)
        return _round(torch.cat([upper, lower]), 0.1)
    if name == RINGS:
        t = 2 * math.pi * torch.arange(ON_A_CURVE, dtype=torch.float64) / ON_A_CURVE
        ring = torch.stack([torch.cos(t), torch.sin(t)], 1)
        return _round(torch.cat([radius * ring for radius in (1.0, 2.0, 3.0)]), 0.1)
    for d in COLUMNS:
        if name == mixture_name(d):
            return _mixture(d)
    raise InputError(f"no density of the name {name!r}; there are {', '.join(names())}")


def training_rows(name: str, n: int, seed: int) -> Tensor:
    """Rows to learn from: of the 32 modes those of the data set, every time, else draws of that seed."""
    if name == MODES:
        return torch.from_numpy(gmm.load().train)
    return known(name).draw(n, stream(seed, "density", "training", name))


def reported_rows(name: str, n: int, seed: int) -> Tensor:
    """Rows whose likelihood is reported, by which nothing is chosen."""
    if name == MODES:
        return torch.from_numpy(gmm.reported())
    return known(name).draw(n, stream(seed, "density", "test", name))


def _round(means: Tensor, sigma: float) -> Known:
    n, d = means.shape
    factors = (sigma * torch.eye(d, dtype=torch.float64)).expand(n, d, d)
    return Known(means, factors, torch.full((n,), 1 / n, dtype=torch.float64))


def _mixture(d: int) -> Known:
    """Means of standard deviation 2, and turned ellipsoids of variances from 0.05 to 1."""
    rng = np.random.default_rng(1000 + d)
    means = 2 * rng.standard_normal((N_COMPONENTS, d))
    factors = []
    for _ in range(N_COMPONENTS):
        turn, _ = np.linalg.qr(rng.standard_normal((d, d)))
        variances = np.exp(rng.uniform(math.log(0.05), 0.0, d))
        factors.append(np.linalg.cholesky((turn * variances) @ turn.T))
    weights = rng.dirichlet(np.full(N_COMPONENTS, 5.0))
    return Known(torch.from_numpy(means), torch.from_numpy(np.stack(factors)), torch.from_numpy(weights))
