"""Langevin dynamics with exact gradients: the reference that SGLD is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nrf.samplers.base import FirstOrder


@dataclass(frozen=True)
class Langevin(FirstOrder):
    """Langevin dynamics: the step of :class:`~nrf.samplers.sgld.SGLD`, on exact gradients only.

    A stochastic target is refused.
    """

    exact: ClassVar[bool] = True
