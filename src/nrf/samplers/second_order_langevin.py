"""Second-order Langevin dynamics with exact gradients, which the paper calls HMC: the reference for SGHMC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nrf.samplers.base import SecondOrder


@dataclass(frozen=True)
class SecondOrderLangevin(SecondOrder):
    """Second-order Langevin dynamics: the step of :class:`~nrf.samplers.sghmc.SGHMC`, on exact gradients only.

    A stochastic target is refused. There is no accept–reject step, so the step size causes a discretisation bias. Up to
    version 0.1 this class was called ``HMC``, and configurations that were stored then are read as this one.
    """

    exact: ClassVar[bool] = True
    FORMER_NAMES: ClassVar[tuple[str, ...]] = ("HMC",)
    """Names that stand for this class in stored configurations."""
