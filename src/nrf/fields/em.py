"""Fitting what references are made of: mixtures of Gaussians by EM, the bandwidth of kernels by leave-one-out."""

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
"""As a share of the rows' root mean variance."""
N_QUERIES = 1000
RIDGES = (0.02, 2e-3, 2e-4, 2e-5)
"""Ridges of a mixture that are compared."""
HELD_OUT = 0.2
"""Share of the rows that compare them."""
LEAST_HELD_OUT = 20
"""Rows below which they say too little."""


@dataclass(frozen=True)
class FittedMixture:
    """``Σ_k w_k N(x; c + V m_k, V diag(v_k) Vᵀ)`` with one rotation ``V`` for all components."""

    centre: Tensor
    rotation: Tensor
    means: Tensor
    variances: Tensor
    log_weights: Tensor
    objectives: tuple[float, ...]
    """What the second EM climbs, at each of its iterations: log-likelihood and log-prior, per row."""

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
    """A mixture of Gaussians by EM, with many columns and few rows in mind.

    k-means++ gives the start. A first EM has one covariance for all components, shrunk to its diagonal and with a
    ridge. In coordinates that are white by it, a second EM gives every component variances of its own, with an inverse
    gamma prior whose mode is the common variance, 1: its objective never falls. A rotation takes these coordinates to
    the rows', but for a scale of each axis, so noise on rows only adds to the variances.

    Args:
        rows: ``(n, size)``, in double precision.
        rng: All randomness.
        n_components: At most so many.
        max_rows: Rows that are used, drawn at random.
        min_rows: Rows that there must be for each component.
        ridge: Added to the common covariance, as a share of the columns' mean variance; :func:`choose_ridge` chooses
            it if not given.
        diagonal_share: How far the common covariance is shrunk to its diagonal.
        prior_rows: Rows that the common variance counts for.
        n_tied: Iterations of the first EM at most.
        n_own: Iterations of the second EM at most.
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
    """The ridge with which a mixture makes a fifth of the rows most likely, fitted to the others.

    Args:
        rows: In random order.
        rng: All randomness; every ridge has the same.
        fit: Takes rows, ``rng`` and ``ridge``. With fewer than a hundred rows the widest ridge is taken.
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
    """Which of ``k`` clusters each row is in, as shares of 0 and 1: k-means++, then a few steps of k-means."""
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
    """The bandwidth with the greatest leave-one-out likelihood: grids in its logarithm, each around the best before.

    Rows that equal each other are left out together, since they would have kernels without width; the bandwidth is at
    least a thousandth of the rows' spread.

    Args:
        anchors: Rows, in random order: the likelihood is that of the first thousand.
        n_grid: Bandwidths on each grid.
        n_rounds: Grids.
    """
    size = anchors.shape[1]
    exact = "donot_use_mm_for_euclid_dist"  # equal rows have a distance of 0 then
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
