"""How far samples are from a known Gaussian, and how close exact draws come to it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nrf.errors import InputError


def fitted_gaussian_kl(samples: Tensor, precision: Tensor) -> float:
    """``KL[N(m, S) ‖ N(0, P⁻¹)]`` for the mean m and covariance S of the samples: the metric of the sampler study.

    Args:
        samples: ``(n, d)``, with n > d + 1.
        precision: The known inverse covariance P.

    Example:
        >>> x = torch.randn(100_000, 2, generator=torch.Generator().manual_seed(0))
        >>> fitted_gaussian_kl(x, torch.eye(2)) < 1e-3
        True
    """
    n, d = samples.shape
    if n <= d + 1:
        raise InputError(f"{n} samples do not determine a covariance in {d} dimensions; take more than {d + 1}")
    z, precision = samples.double(), precision.double()
    mean, covariance = z.mean(0), torch.cov(z.T)
    trace = (precision * covariance).sum()
    log_ratio = torch.logdet(precision) + torch.logdet(covariance)
    return float((trace + mean @ precision @ mean - d - log_ratio) / 2)


def perfect_kl(n: int, d: int) -> float:
    """The mean of :func:`fitted_gaussian_kl` for ``n`` exact draws in ``d`` dimensions, below which no sampler can be.

    The sample covariance is a Wishart matrix, whose expected log-determinant is a sum of digamma functions.

    Args:
        n: Number of draws.
        d: Number of dimensions.

    Example:
        >>> round(perfect_kl(500, 100), 2)
        5.54
    """
    from scipy.special import digamma

    if n <= d + 1:
        raise InputError(f"{n} draws do not determine a covariance in {d} dimensions; take more than {d + 1}")
    log_det = sum(digamma((n - i) / 2) for i in range(1, d + 1)) + d * math.log(2 / (n - 1))
    return float((d / n - log_det) / 2)
