"""MALA: Langevin dynamics with an accept–reject step, which removes the bias of the step size."""

from __future__ import annotations

from dataclasses import dataclass

from nrf.samplers.metropolis import Metropolis


@dataclass(frozen=True)
class MALA(Metropolis):
    """Metropolis-adjusted Langevin: propose ``z + δΔ + √(2δτ) η``, then accept or reject by Metropolis–Hastings.

    The proposal is the step of :class:`~nrf.samplers.langevin.Langevin`; the stationary law is exactly ``p(z)^(1/τ)``.
    Steps that are too long lower the acceptance rate, but do not make the law wrong: aim for a rate of 0.5 to 0.9.

    Reference:
        Roberts & Tweedie, "Exponential convergence of Langevin distributions and their discrete approximations".

    Example:
        >>> import torch
        >>> from nrf.samplers import run
        >>> from nrf.targets import PotentialTarget
        >>> narrow = PotentialTarget(lambda x: -x.square().sum(1) / (2 * 0.1**2))
        >>> rng = torch.Generator().manual_seed(0)
        >>> chain = run(MALA(step_size=0.01), (torch.zeros(4000, 1),), narrow, 100, rng)
        >>> round(chain.position[0].std().item(), 2), round(chain.state.acceptance.mean().item(), 1)
        (0.1, 0.8)
    """

    @property
    def leapfrog_steps(self) -> int:
        """One: a leapfrog step with a fresh momentum is the Langevin proposal."""
        return 1
