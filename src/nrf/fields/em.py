"""Fitting references: mixtures of Gaussians by EM, and bandwidths of kernels by leave-one-out likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nrf.errors import InputError

TOLERANCE = 1e-3
"""Gain in nats per row below which EM ends."""
LEAST_BANDWIDTH = 1e-3
"""Smallest bandwidth, as a share of the rows' root mean variance."""
N_QUERIES = 1000
RIDGES = (0.02, 2e-3, 2e-4, 2e-5)
"""Ridges that are compared for a mixture."""
HELD_OUT = 0.2
"""Share of the rows that is held out to compare them."""
LEAST_HELD_OUT = 20
"""Fewest held-out rows for such a comparison."""


@dataclass(frozen=True)
class FittedMixture:
    """``Σ_k w_k N(x; c + V m_k, V diag(v_k) Vᵀ)`` with one rotation ``V`` for all components.

    Attributes:
        centre: ``c``.
        rotation: ``V``.
        means: ``m_k``, in the rotated coordinates.
        variances: ``v_k``, in the rotated coordinates.
        log_weights: ``log w_k``.
        objectives: The objective of the second EM at each iteration: log-likelihood plus log-prior, per row.
    """

    centre: Tensor
    rotation: Tensor
    means: Tensor
    variances: Tensor
    log_weights: Tensor
    objectives: tuple[float, ...]

    def log_likelihood(self, rows: Tensor) -> float:
        """Mean log-density of rows, in nats."""
        points = (rows - self.centre) @ self.rotation
        precisions = 1 / self.variances
        squared = points.square() @ precisions.T - 2 * points @ (self.means * precisions).T
        constant = (self.means.square() * precisions - torch.log(precisions / (2 * math.pi))).sum(1)
        return float(torch.logsumexp(self.log_weights - (squared + constant) / 2, 1).mean())


def fit_mixture(
    rows: Tensor,
    rng: torch.Generator,
    *,
    n_components: int = 40,
    max_rows: int = 5000,
    min_rows: int = 20,
    ridge: float | None = None,
    diagonal_share: float = 0.1,
    prior_rows: float = 10.0,
    n_tied: int = 8,
    n_own: int = 25,
) -> FittedMixture:
    """Fit a mixture of Gaussians by EM, in a way that suits many columns and few rows.

    k-means++ gives the start. A first EM has one covariance for all components, shrunk towards its diagonal and with a
    ridge. In coordinates whitened by it, a second EM gives every component variances of its own, with an inverse
    gamma prior whose mode is the common variance, 1; its objective never falls. Up to a scale of each axis, these
    coordinates are a rotation of the rows, so noise on rows only adds to the variances.

    Args:
        rows: ``(n, size)``, in double precision.
        rng: Source of all randomness.
        n_components: Largest number of components.
        max_rows: Largest number of rows that are used, drawn at random.
        min_rows: Fewest rows per component; with fewer rows, fewer components are fitted.
        ridge: Added to the common covariance, as a share of the columns' mean variance; :func:`choose_ridge` chooses
            it if not given.
        diagonal_share: How far the common covariance is shrunk towards its diagonal, from 0 to 1.
        prior_rows: Number of rows that the common variance counts for in a component's own variances.
        n_tied: Largest number of iterations of the first EM.
        n_own: Largest number of iterations of the second EM.
    """
    if len(rows) < 2:
        raise InputError(f"a mixture needs at least 2 rows, got {len(rows)}")
    rows = rows[torch.randperm(len(rows), generator=rng)[:max_rows]]
    if ridge is None:
        fit = partial(
            fit_mixture,
            n_components=n_components,
            max_rows=max_rows,
            min_rows=min_rows,
            diagonal_share=diagonal_share,
            prior_rows=prior_rows,
            n_tied=n_tied,
            n_own=n_own,
        )
        ridge = choose_ridge(rows, rng, fit)
    n, size = rows.shape
    centre = rows.mean(0)
    rows = rows - centre
    spread = float(rows.square().mean().clamp_min(1e-12))
    shares = _clusters(rows, max(1, min(n_components, n // min_rows)), rng)
    second = rows.T @ rows
    before = -math.inf
    for _ in range(n_tied):
        counts = shares.sum(0) + 1e-6
        means = (shares.T @ rows) / counts[:, None]
        within = (second - (means * counts[:, None]).T @ means) / n
        within = torch.lerp(within, torch.diag(torch.diagonal(within)), diagonal_share)
        values, rotation = torch.linalg.eigh(within + ridge * spread * torch.eye(size, dtype=rows.dtype))
        values = values.clamp_min(ridge * spread / 2)
        white, means = rows @ rotation / values.sqrt(), means @ rotation / values.sqrt()
        logits = white @ means.T - means.square().sum(1) / 2 + torch.log(counts / counts.sum())
        shares = torch.softmax(logits, 1)
        gain = torch.logsumexp(logits, 1).mean() - white.square().sum(1).mean() / 2 - torch.log(values).sum() / 2
        if float(gain) - before < TOLERANCE:
            break
        before = float(gain)
    objectives: list[float] = []
    for _ in range(n_own):
        counts = shares.sum(0) + 1e-6
        means = (shares.T @ white) / counts[:, None]
        variances = ((shares.T @ white.square()) / counts[:, None] - means.square()).clamp_min(0)
        variances = (counts[:, None] * variances + prior_rows) / (counts[:, None] + prior_rows)
        log_weights = torch.log(counts / counts.sum())
        constant = (means.square() / variances + torch.log(2 * math.pi * variances)).sum(1) / 2
        logits = white @ (means / variances).T - white.square() @ (0.5 / variances).T + log_weights - constant
        shares = torch.softmax(logits, 1)
        prior = prior_rows / 2 * (torch.log(variances) + 1 / variances).sum()
        objectives.append(float(torch.logsumexp(logits, 1).mean() - prior / n))
        if len(objectives) > 1 and objectives[-1] - objectives[-2] < TOLERANCE:
            break
    return FittedMixture(centre, rotation, means * values.sqrt(), variances * values, log_weights, tuple(objectives))


def choose_ridge(rows: Tensor, rng: torch.Generator, fit: Callable[..., FittedMixture]) -> float:
    """Choose the ridge whose mixture, fitted to the other rows, makes a held-out fifth of the rows most likely.

    With fewer than a hundred rows the largest ridge is used.

    Args:
        rows: Rows in random order.
        rng: Source of all randomness; every ridge gets the same random numbers.
        fit: Fits a mixture, given rows, ``rng`` and ``ridge``.
    """
    n = round(HELD_OUT * len(rows))
    if n < LEAST_HELD_OUT:
        return RIDGES[0]
    state, gains = rng.get_state(), {}
    for ridge in RIDGES:
        rng.set_state(state)
        gains[ridge] = fit(rows[n:], rng, ridge=ridge).log_likelihood(rows[:n])
    return max(gains, key=gains.__getitem__)


def _clusters(rows: Tensor, k: int, rng: torch.Generator, n_steps: int = 8) -> Tensor:
    """The cluster of each row, one-hot among ``k``: k-means++, then a few steps of k-means."""
    centres = rows[:1]
    distances = torch.full((len(rows),), math.inf, dtype=rows.dtype)
    for _ in range(k - 1):
        distances = torch.minimum(distances, (rows - centres[-1]).square().sum(1) + 1e-9)
        centres = torch.cat([centres, rows[torch.multinomial(distances, 1, generator=rng)]])
    for _ in range(n_steps):
        shares = one_hot(torch.cdist(rows, centres).argmin(1), k).to(rows)
        counts = shares.sum(0)[:, None]
        centres = torch.where(counts > 0, (shares.T @ rows) / counts.clamp_min(1), centres)
    return one_hot(torch.cdist(rows, centres).argmin(1), k).to(rows)


def loo_bandwidth(anchors: Tensor, n_grid: int = 9, n_rounds: int = 3) -> float:
    """The bandwidth with the greatest leave-one-out likelihood, found on finer and finer grids of its logarithm.

    Equal rows are left out together, since they would favour kernels without width; the bandwidth is at least a
    thousandth of the rows' spread.

    Args:
        anchors: Rows in random order; the likelihood is that of the first thousand.
        n_grid: Number of bandwidths on each grid.
        n_rounds: Number of grids, each around the best bandwidth of the one before.
    """
    size = anchors.shape[1]
    exact = "donot_use_mm_for_euclid_dist"  # so that equal rows have a distance of 0
    squared = torch.cdist(anchors[:N_QUERIES], anchors, compute_mode=exact).square()
    squared = torch.where(squared > 0, squared, math.inf)
    squared = squared[torch.isfinite(squared).any(1)]
    spread = float((anchors - anchors.mean(0)).square().mean().sqrt())
    if len(squared) == 0 or spread == 0:
        return 1.0  # rows do not differ, so they say nothing about a scale

    def gain(log_h: float) -> float:
        return float(torch.logsumexp(-squared / (2 * math.exp(2 * log_h)), 1).mean()) - size * log_h

    nearest = float(squared.min(1).values.median().sqrt()) / math.sqrt(size)
    high = math.log(2 * spread)
    low = min(math.log(max(LEAST_BANDWIDTH * spread, nearest / 4)), high - 1)
    for _ in range(n_rounds):
        step = (high - low) / (n_grid - 1)
        best = max((low + i * step for i in range(n_grid)), key=gain)
        low, high = max(low, best - step), min(high, best + step)
    return math.exp(best)
