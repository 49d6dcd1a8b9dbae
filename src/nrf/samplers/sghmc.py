"""Stochastic gradient Hamiltonian Monte Carlo (the paper's second sampler, Eq. SGHMC)."""

from __future__ import annotations

from dataclasses import dataclass

from nrf.samplers.base import SecondOrder


@dataclass(frozen=True)
class SGHMC(SecondOrder):
    """Stochastic gradient Hamiltonian Monte Carlo: ``v ← (1−β)v + δΔ + √(2βδτ) η;  z ← z + v``.

    The gradient may be stochastic. The friction is the paper's β. The released scripts multiply the momentum by their
    "β" instead: their 0.3 is a friction of 0.7 here.

    Example:
        >>> import torch
        >>> from nrf.samplers import SGHMC, run
        >>> climb = SGHMC(step_size=0.5, friction=0.5, temperature=0.0)
        >>> chain = run(climb, (torch.tensor([4.0]),), lambda z, l: (-z[0],), 2, torch.Generator())
        >>> chain.position[0], chain.state.momentum[0]
        (tensor([0.]), tensor([-2.]))
    """
