"""What the noise of the last sampler step leaves of the mixture's metric, whatever was learned.

A step of SGLD ends with noise of variance 2δτ in each coordinate. A sample counts as realistic within 3σ of a mode.
From a point at distance r of the mode the noise stays within 3σ most often at r = 0, so no field, generator or chain
can have a larger share of realistic samples than ``1 − exp(−(3σ)²/(4δτ))``.

Within a mode, where the field is a parabola of curvature k, the chain ``x ← (1 − δk) x + √(2δ) η`` has the variance
``2δ / (1 − (1 − δk)²)``. It is least, 2δ, at δk = 1. So a field whose chains have the data's variance σ² exists only if
``2δ ≤ σ²``: beyond that the learner has no fixed point, and goes on making the field steeper. Metropolis adjustment
has neither limit, for it leaves ``exp u`` itself invariant.
"""

from __future__ import annotations

import math

from nrf.data import gmm


def most_realistic(step_size: float, temperature: float = 1.0, sigma: float = gmm.SIGMA) -> float:
    """The largest share of realistic samples in the plane that the last noise allows.

    Example:
        >>> round(most_realistic(0.01), 3)
        0.895
    """
    variance = 2 * step_size * temperature
    return 1.0 if variance == 0 else 1 - math.exp(-((3 * sigma) ** 2) / (2 * variance))


def chain_variance(step_size: float, curvature: float) -> float:
    """Variance per coordinate of unadjusted Langevin chains in a parabola; infinite where they do not settle.

    Example:
        >>> round(chain_variance(0.01, 100.0), 6), chain_variance(0.01, 250.0)
        (0.02, inf)
    """
    kept = 1 - step_size * curvature
    return math.inf if abs(kept) >= 1 else 2 * step_size / (1 - kept**2)


def fitting_curvature(step_size: float, sigma: float = gmm.SIGMA) -> float | None:
    """The curvature at which chains have the variance σ²; None where no curvature does, for 2δ > σ².

    Example:
        >>> fitting_curvature(0.01) is None, round(chain_variance(0.004, fitting_curvature(0.004)), 6)
        (True, 0.01)
    """
    left = 1 - 2 * step_size / sigma**2
    return None if left < 0 else (1 - math.sqrt(left)) / step_size


def longest_step(sigma: float = gmm.SIGMA) -> float:
    """The longest step at which a field can have chains with the variance σ².

    Example:
        >>> round(longest_step(), 6)
        0.005
    """
    return sigma**2 / 2
