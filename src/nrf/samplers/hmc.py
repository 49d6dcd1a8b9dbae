"""Hamiltonian Monte Carlo: long proposals with momentum, accepted or rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nrf.errors import InputError
from nrf.samplers.metropolis import Metropolis


@dataclass(frozen=True)
class HMC(Metropolis):
    """Hamiltonian Monte Carlo: draw a momentum, take ``n_leapfrog`` leapfrog steps of time √(2δ), accept or reject.

    With one leapfrog step it is :class:`~nrf.samplers.mala.MALA`. A step of the chain costs ``n_leapfrog`` gradients.
    Up to version 0.1 this name stood for :class:`~nrf.samplers.second_order_langevin.SecondOrderLangevin`, which has
    neither trajectories nor an accept–reject step.

    Reference:
        Neal, "MCMC using Hamiltonian dynamics".
    """

    n_leapfrog: int = 5
    """Leapfrog steps in a proposal."""

    STORED_NAME: ClassVar[str] = "MetropolisHMC"
    """Name in stored configurations, where plain ``HMC`` means what it meant in 0.1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_leapfrog < 1:
            raise InputError(f"n_leapfrog must be at least 1, got {self.n_leapfrog}")

    @property
    def leapfrog_steps(self) -> int:
        """``n_leapfrog``."""
        return self.n_leapfrog
