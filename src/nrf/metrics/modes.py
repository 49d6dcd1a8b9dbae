"""Covered modes and realistic ratio: how well samples fit a mixture whose means are known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nrf.errors import InputError


class ModeCoverage(NamedTuple):
    """Result of :func:`mode_coverage`.

    Attributes:
        covered: Number of covered modes, averaged over draws.
        realistic: Share of realistic samples.
    """

    covered: float
    realistic: float


def mode_coverage(samples: Tensor, means: Tensor, sigma: float, draw_size: int = 100) -> ModeCoverage:
    """Covered modes and realistic ratio, the metric of the paper's GMM table.

    The samples are cut into draws of ``draw_size``. In each, a mode is covered if a sample lies within 3σ of it, and a
    sample is realistic if it lies within 3σ of a mode; both are averaged over the draws. The paper takes 100 draws of
    100.

    Args:
        samples: ``(draws · draw_size, d)``.
        means: ``(modes, d)``.
        sigma: Standard deviation of a mode.
        draw_size: Samples in one draw.

    Example:
        >>> means = torch.tensor([[0.0, 0.0], [5.0, 5.0]])
        >>> mode_coverage(torch.tensor([[0.1, 0.0], [1.0, 1.0]]), means, sigma=0.1, draw_size=2)
        ModeCoverage(covered=1.0, realistic=0.5)
    """
    if len(samples) == 0 or len(samples) % draw_size:
        raise InputError(f"{len(samples)} samples do not make whole draws of {draw_size}")
    near = torch.cdist(samples, means) < 3 * sigma
    covered = near.reshape(-1, draw_size, len(means)).any(1).sum(1)
    return ModeCoverage(covered.float().mean().item(), near.any(1).float().mean().item())


def most_covered(n_modes: int, draw_size: int = 100) -> float:
    """The largest number of modes that independent samples can cover in expectation.

    It is reached if all samples are realistic and all modes equally likely, and holds for modes farther apart than 6σ.
    A mean above it, by more than chance, shows that samples are not independent.

    Args:
        n_modes: Number of modes.
        draw_size: Samples in one draw.

    Example:
        >>> round(most_covered(32), 2)
        30.66
    """
    return n_modes * (1 - (1 - 1 / n_modes) ** draw_size)
