"""Checks of whether a field is normalised, independent of how it was learned.

By quadrature, by importance sampling from a reference, and by annealed importance sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.fields.annealing import draw_widest
from nrf.fields.referenced import ReferencedPotential
from nrf.fields.references import ReferenceMeasure
from nrf.models import frozen
from nrf.networks import NoiseLevelPotential
from nrf.seeds import Rng, rand, randn

STRIP = 65_536
QUADRATURE_COLUMNS = 3
REACH = 4.0
"""Half the side of a quadrature's default box, in standard deviations of the reference."""
SPREAD_DRAWS = 4096
"""Number of draws from which the spread of a reference is estimated."""
GOOD_ACCEPTANCE = 0.6


@dataclass(frozen=True)
class Integral:
    """``∫ exp u(x) dx``: 1 if the field is normalised."""

    log_value: float
    """Logarithm of the integral."""
    standard_error: float
    """Standard error of the logarithm due to random draws; 0 for a quadrature."""

    @property
    def value(self) -> float:
        """The integral itself."""
        return math.exp(self.log_value)


@dataclass(frozen=True)
class Normaliser:
    """The integral of one field by every method that applies to it."""

    annealed: Integral | None
    """By annealed importance sampling, for a field with noise levels."""
    quadrature: Integral | None
    """By quadrature, for one to three columns."""
    importance: Integral | None = None
    """By fresh draws of the reference, as it is and blurred, for a field around a reference without noise levels."""


@torch.no_grad()
def quadrature(
    log_density: Callable[[Tensor], Tensor], box: tuple[Tensor, Tensor], n_points: int = 360_000
) -> Integral:
    """The integral over a box by the midpoint rule, for one to three columns.

    Args:
        log_density: Log-density of rows ``(n, d)``.
        box: Lower and upper corner, each ``(d,)``; :func:`box_of` gives one.
        n_points: Total number of points. Cells should be narrower than the narrowest mode.

    Example:
        >>> half = torch.full((2,), 8.0)
        >>> gauss = quadrature(lambda x: -x.square().sum(1) / 2 - math.log(2 * math.pi), (-half, half))
        >>> abs(gauss.log_value) < 1e-6
        True
    """
    low, high = (corner.double() for corner in box)
    d = len(low)
    if not 1 <= d <= QUADRATURE_COLUMNS:
        raise InputError(f"quadrature is for one to three columns, got {d}; use annealed_integral")
    side = max(2, round(n_points ** (1 / d)))
    step = (high - low) / side
    axes = [low[i] + step[i] * (torch.arange(side, dtype=torch.float64) + 0.5) for i in range(d)]
    points = torch.cartesian_prod(*axes).reshape(-1, d).float()
    values = torch.cat([log_density(strip).double() for strip in torch.split(points, STRIP)])
    return Integral(float(torch.logsumexp(values, 0) + torch.log(step).sum()), 0.0)


def box_of(potential: NoiseLevelPotential, reach: float = REACH) -> tuple[Tensor, Tensor]:
    """A box around the data of one model: its mean, plus and minus a multiple of the widest standard deviation.

    Args:
        potential: One noise-level potential, not replicas.
        reach: That multiple.
    """
    reference = potential.reference
    half = reach * math.sqrt(float(reference.variances.max()) + potential.sigmas[0] ** 2)
    return reference.mean - half, reference.mean + half


@torch.no_grad()
def importance_integral(
    log_density: Callable[[Tensor], Tensor],
    measure: ReferenceMeasure,
    rng: torch.Generator,
    *,
    n_draws: int = 16_384,
    sigmas: Sequence[float] = (0.0,),
) -> Integral:
    """The integral by importance sampling from a reference, for any number of columns.

    The proposals must cover the density: if its tails are wider than those of the reference, use blurred references,
    too (``sigmas``). If the standard error is above a half, the draws have missed the tail of the weights.

    Args:
        log_density: Log-density of rows, known up to a constant.
        measure: A fitted reference.
        rng: Source of all randomness.
        n_draws: Total number of draws.
        sigmas: Noise levels that the reference is blurred by, each in an equal share of the draws.

    Example:
        >>> from nrf.fields.references import GaussianReference
        >>> r = GaussianReference().build((2,))
        >>> found = importance_integral(lambda x: -x.square().sum(1) / 2, r, torch.Generator())
        >>> abs(found.value - 2 * math.pi) < 1e-4
        True
    """
    if not measure.normalised:
        raise InputError("importance sampling needs a reference with a known normaliser, and draws of it")
    if not sigmas or n_draws < 2 * len(sigmas):
        raise InputError(f"importance sampling needs two draws for each of some sigmas, got {n_draws} and {sigmas}")
    share = n_draws // len(sigmas)
    weights = []
    for sigma in sigmas:
        for rows in torch.split(measure.sample(share, rng, sigma), STRIP):
            proposed = torch.logsumexp(measure.log_densities(rows, sigmas).double(), 1) - math.log(len(sigmas))
            weights.append(log_density(rows).double() - proposed)
    return _mean_of(torch.cat(weights))


def annealed_integral(
    potential: NoiseLevelPotential,
    like: Tensor,
    rng: torch.Generator,
    *,
    n_chains: int = 500,
    n_between: int = 10,
    n_moves: int = 2,
) -> Integral:
    """The integral by annealed importance sampling (Neal, 2001), for any number of columns.

    Chains start at exact draws of the Gaussian that the widest level is close to, and go down the levels through
    ``n_between`` geometric means of neighbouring densities, by Metropolis-adjusted Langevin moves. Pilot chains set the
    step sizes beforehand. The mean weight is an unbiased estimate of the integral at the smallest level; its standard
    error is that of the mean of independent weights. If it is above a half, the chains have missed the tail of the
    weights: use more steps.

    Args:
        potential: One noise-level potential, not replicas.
        like: A batch; only its dtype and event shape are used.
        rng: Source of all randomness.
        n_chains: Number of independent chains.
        n_between: Number of densities between two levels.
        n_moves: Number of moves at each of these densities.
    """
    if potential.reference.n != 1:
        raise InputError("annealed importance sampling takes one model at a time, not replicas")
    if min(n_chains, n_between, n_moves) < 1 or n_chains < 2:
        raise InputError("n_between and n_moves must be at least 1, n_chains 2")
    with torch.no_grad(), frozen(potential):
        path = _Path(potential, n_between)
        pilot = draw_widest(potential, min(n_chains, 200), like, rng)
        sizes: list[float] = []
        size = potential.sigmas[-1] ** 2
        for place in path.places:
            for _ in range(n_moves):
                pilot, accepted = path.move(pilot, place, size, rng)
                sizes.append(size)
                size *= math.exp(accepted - GOOD_ACCEPTANCE)
        x = draw_widest(potential, n_chains, like, rng)
        weights = torch.zeros(n_chains, dtype=torch.float64)
        before, steps = 0.0, iter(sizes)
        for place in path.places:
            weights += path.gain(x, before, place).double().cpu()
            for _ in range(n_moves):
                x, _ = path.move(x, place, next(steps), rng)
            before = place
    return _mean_of(weights)


def _mean_of(weights: Tensor) -> Integral:
    """The mean of independent weights, given their logarithms."""
    shares = torch.exp(weights - weights.max())
    error = float(shares.std() / shares.mean()) / math.sqrt(len(weights))
    return Integral(float(torch.logsumexp(weights, 0)) - math.log(len(weights)), error)


def check_normaliser(
    potential: NoiseLevelPotential | ReferencedPotential,
    like: Tensor,
    rng: torch.Generator,
    *,
    n_chains: int = 500,
    n_between: int = 10,
    n_moves: int = 2,
) -> Normaliser:
    """The integral by annealed importance sampling and, where events are up to three columns, by quadrature.

    A potential around a reference without noise levels cannot be annealed. There, importance sampling is used instead,
    with draws of the reference, half of them blurred by its own spread.

    Args:
        potential: One noise-level potential or potential around a reference, not replicas.
        like: A batch; only its dtype and event shape are used.
        rng: Source of all randomness.
        n_chains: Number of independent chains of :func:`annealed_integral`.
        n_between: Number of densities between two levels.
        n_moves: Number of moves at each of these densities.
    """
    few = like.ndim == 2 and like.shape[1] <= QUADRATURE_COLUMNS
    if isinstance(potential, ReferencedPotential):
        draws = potential.measure.sample(SPREAD_DRAWS, rng)
        spread = float(draws.flatten(1).std(0).max())
        with torch.no_grad(), frozen(potential):
            drawn = importance_integral(potential, potential.measure, rng, sigmas=(0.0, spread))
            box = draws.mean(0) - REACH * spread, draws.mean(0) + REACH * spread
            return Normaliser(None, quadrature(potential, box) if few else None, drawn)
    annealed = annealed_integral(potential, like, rng, n_chains=n_chains, n_between=n_between, n_moves=n_moves)
    with frozen(potential):
        return Normaliser(annealed, quadrature(potential.at(0), box_of(potential)) if few else None)


class _Path:
    """Densities from the known Gaussian at place 0 to the smallest level at place K, geometric means in between."""

    def __init__(self, potential: NoiseLevelPotential, n_between: int) -> None:
        self.potential = potential
        self.places = [(i + 1) / n_between for i in range(potential.n_levels * n_between)]

    def move(self, x: Tensor, place: float, size: float, rng: Rng) -> tuple[Tensor, float]:
        """A Metropolis-adjusted Langevin move that leaves the density at a place invariant, and the share accepted."""
        value, slope = self._value_and_slope(x, place)
        there = x + size * slope + math.sqrt(2 * size) * randn(x.shape, rng, x.dtype)
        value_there, slope_there = self._value_and_slope(there, place)
        forth = (there - x - size * slope).flatten(1).square().sum(1)
        back = (x - there - size * slope_there).flatten(1).square().sum(1)
        log_ratio = value_there - value + (forth - back) / (4 * size)
        accepted = torch.log(rand((len(x),), rng)) < log_ratio
        moved = torch.where(accepted.view(-1, *(1,) * (x.ndim - 1)), there, x)
        return moved, float(accepted.float().mean())

    def gain(self, x: Tensor, before: float, place: float) -> Tensor:
        """Log-density at a place minus that at the place before."""
        rows = self._all(x)
        return rows @ (self._weights(place, x) - self._weights(before, x))

    def _value_and_slope(self, x: Tensor, place: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            value = self._all(x) @ self._weights(place, x)
            (slope,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), slope

    def _all(self, x: Tensor) -> Tensor:
        """The known log-density and those of all levels, the widest first."""
        return torch.cat([self.potential.known(x)[:, None], self.potential.levels(x).flip(1)], 1)

    def _weights(self, place: float, like: Tensor) -> Tensor:
        weights = like.new_zeros(self.potential.n_levels + 1)
        lower = min(int(place), self.potential.n_levels - 1)
        weights[lower + 1] = place - lower
        weights[lower] = 1 - (place - lower)
        return weights
