"""Stochastic gradient Langevin dynamics (the paper's first sampler, Eq. SGLD)."""

from __future__ import annotations

from dataclasses import dataclass

from nrf.samplers.base import FirstOrder


@dataclass(frozen=True)
class SGLD(FirstOrder):
    """Stochastic gradient Langevin dynamics: ``z ← z + δΔ + √(2δτ) η`` with a gradient that may be stochastic.

    Example:
        >>> import torch
        >>> from nrf.samplers import SGLD, run
        >>> climb = SGLD(step_size=0.5, temperature=0.0)
        >>> chain = run(climb, (torch.tensor([4.0]),), lambda z, l: (-z[0],), 2, torch.Generator())
        >>> chain.position[0]
        tensor([1.])
    """
