"""Exact laws of discretised samplers on Gaussian targets: every update is linear, so its stationary law is known.

An update ``s ← B s + ε`` with ``ε ~ N(0, Q)`` has the stationary covariance that solves ``S = B S Bᵀ + Q``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import nn

from nrf.models import LatentGenerator
from nrf.samplers import run


@dataclass
class Linear:
    """An affine-free linear map with Gaussian noise, and what comes of applying one after another."""

    B: np.ndarray
    Q: np.ndarray

    def then(self, other: Linear) -> Linear:
        return Linear(other.B @ self.B, other.B @ self.Q @ other.B.T + other.Q)

    def stationary(self) -> np.ndarray:
        assert np.abs(np.linalg.eigvals(self.B)).max() < 1, "the test's own step size is unstable"
        return solve_discrete_lyapunov(self.B, self.Q)


def first_order(drift: np.ndarray, sizes: np.ndarray, temperature: float, gradient_noise: np.ndarray | None = None):
    """``z ← z + D(G z + ξ) + √(2Dτ) η`` for the gradient ``G z + ξ``, ``ξ ~ N(0, gradient_noise)``."""
    D = np.diag(sizes)
    noise = np.zeros_like(D) if gradient_noise is None else D @ gradient_noise @ D
    return Linear(np.eye(len(D)) + D @ drift, 2 * temperature * D + noise)


def second_order(drift, sizes, temperature, friction, gradient_noise=None):
    """The same with momentum; the state is ``(z, v)``."""
    D, n = np.diag(sizes), len(sizes)
    noise = 2 * friction * temperature * D
    if gradient_noise is not None:
        noise = noise + D @ gradient_noise @ D
    keep = (1 - friction) * np.eye(n)
    return Linear(
        np.block([[np.eye(n) + D @ drift, keep], [D @ drift, keep]]), np.block([[noise, noise], [noise, noise]])
    )


def baoab(drift, sizes, temperature, friction, gradient_noise=None):
    """Kick, half drift, friction, half drift; the state is ``(z, v)`` with v a velocity."""
    n, T = len(sizes), np.diag(np.sqrt(sizes))
    eye, zero = np.eye(n), np.zeros((n, n))
    xi = zero if gradient_noise is None else T @ gradient_noise @ T
    kick = Linear(np.block([[eye, zero], [T @ drift, eye]]), np.block([[zero, zero], [zero, xi]]))
    move = Linear(np.block([[eye, T / 2], [zero, eye]]), np.zeros((2 * n, 2 * n)))
    heat = friction * (2 - friction) * temperature * eye
    rub = Linear(np.block([[eye, zero], [zero, (1 - friction) * eye]]), np.block([[zero, zero], [zero, heat]]))
    return kick.then(move).then(rub).then(move)


def z_scores(samples: torch.Tensor, covariance: np.ndarray) -> np.ndarray:
    """Every entry of the empirical second moment (the mean is known to be 0) in standard errors from the exact one."""
    x = samples.double().numpy()
    empirical = x.T @ x / len(x)
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(x))
    return (empirical - covariance) / error


def simulate(sampler, target, blocks: list[int], n_chains: int, n_steps: int, seed: int = 0) -> torch.Tensor:
    """Independent chains from 0, run long enough to forget it; the last positions side by side."""
    rng = torch.Generator().manual_seed(seed)
    start = tuple(torch.zeros(n_chains, d, dtype=torch.float64) for d in blocks)
    return torch.cat(run(sampler, start, target, n_steps, rng).position, dim=1)


class LinearGaussian:
    """``p(x) = N(0, P⁻¹)`` and ``q(x, h) = N(h; 0, I) N(x; W h, σ² I)``, with everything about them in closed form."""

    def __init__(self, dim_x: int = 2, dim_h: int = 2, sigma: float = 0.8, seed: int = 3) -> None:
        draw = np.random.default_rng(seed)
        root = draw.normal(size=(dim_x, dim_x))
        self.P = root @ root.T / dim_x + 0.5 * np.eye(dim_x)
        self.W = draw.normal(size=(dim_x, dim_h))
        self.sigma, self.dim_x, self.dim_h = sigma, dim_x, dim_h
        network = nn.utils.skip_init(nn.Linear, dim_h, dim_x, bias=False, dtype=torch.float64)
        with torch.no_grad():
            network.weight.copy_(torch.from_numpy(self.W))
        self.generator = LatentGenerator(network, dim_h, sigma).requires_grad_(False)
        self.latent_drift_x = self.W.T / sigma**2
        self.latent_drift_h = -(self.W.T @ self.W / sigma**2 + np.eye(dim_h))

    def potential(self, x: torch.Tensor) -> torch.Tensor:
        return -(x @ torch.from_numpy(self.P) * x).sum(1) / 2

    def joint_drift(self, inner_step: float, n_inner: int) -> tuple[np.ndarray, np.ndarray]:
        """Matrix of Alg. 2's expected gradient, and the covariance its random ``h*`` adds."""
        n, M = self.dim_h, np.eye(self.dim_h) + inner_step * self.latent_drift_h
        powers = [np.linalg.matrix_power(M, k) for k in range(n_inner)]
        star_h = np.linalg.matrix_power(M, n_inner)
        star_x = inner_step * sum(powers) @ self.latent_drift_x
        star_noise = 2 * inner_step * sum(p @ p.T for p in powers)
        V = self.W / self.sigma**2
        drift = np.block([[-self.P - V @ star_x, V @ (np.eye(n) - star_h)], [self.latent_drift_x, self.latent_drift_h]])
        noise = np.zeros_like(drift)
        noise[: self.dim_x, : self.dim_x] = V @ star_noise @ V.T
        return drift, noise

    def exact_gradient(self, x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``∇ log p(x) q(h | x)`` without any estimate."""
        covariance = np.linalg.inv(-self.latent_drift_h)
        mean = x @ (covariance @ self.latent_drift_x).T
        grad_x = -x @ self.P + (h - mean) @ (self.W / self.sigma**2).T
        return grad_x, x @ self.latent_drift_x.T + h @ self.latent_drift_h.T

    def exact_drift(self) -> np.ndarray:
        """The same as a matrix."""
        covariance = np.linalg.inv(-self.latent_drift_h)
        V = self.W / self.sigma**2
        return np.block(
            [[-self.P - V @ covariance @ self.latent_drift_x, V], [self.latent_drift_x, self.latent_drift_h]]
        )

    def truth(self) -> np.ndarray:
        """Covariance of ``p(x) q(h | x)``."""
        return np.linalg.inv(-self.exact_drift())
