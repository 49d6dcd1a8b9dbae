"""Langevin dynamics with exact gradients: the yardstick for SGLD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nrf.samplers.base import FirstOrder


@dataclass(frozen=True)
class Langevin(FirstOrder):
    """The step of :class:`~nrf.samplers.sgld.SGLD`, on exact gradients only: a stochastic target is refused."""

    exact: ClassVar[bool] = True
