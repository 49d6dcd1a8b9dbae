"""MALA: Langevin dynamics with an accept–reject step, which removes the bias of the step size."""

from __future__ import annotations

from dataclasses import dataclass

from nrf.samplers.metropolis import Metropolis


@dataclass(frozen=True)
class MALA(Metropolis):
    """Propose ``z + δΔ + √(2δτ) η``, accept with the Metropolis–Hastings probability, else stay.

    The proposal is the step of :class:`~nrf.samplers.langevin.Langevin`; the law is ``p(z)^(1/τ)`` itself. Steps that
    are too long show as a low acceptance rate in place of a wrong law: aim at 0.5 to 0.9.

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
