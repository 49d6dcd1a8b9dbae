"""Samplers by name. To add one, write a file here and a line in ``SAMPLERS``; the contract tests pick it up."""

from __future__ import annotations

from nrf.samplers.baoab import BAOAB
from nrf.samplers.base import Chain, Density, GradFn, Position, Sampler, polynomial, require_gradient, run
from nrf.samplers.coopnet import CoopNet
from nrf.samplers.hmc import HMC
from nrf.samplers.langevin import Langevin
from nrf.samplers.mala import MALA
from nrf.samplers.second_order_langevin import SecondOrderLangevin
from nrf.samplers.sghmc import SGHMC
from nrf.samplers.sgld import SGLD

SAMPLERS: dict[str, type[Sampler]] = {
    "sgld": SGLD,
    "sghmc": SGHMC,
    "langevin": Langevin,
    "second-order-langevin": SecondOrderLangevin,
    "mala": MALA,
    "hmc": HMC,
    "coopnet": CoopNet,
    "baoab": BAOAB,
}
"""Samplers by name: `sampler:NAME` on the command line."""

__all__ = [
    "BAOAB",
    "HMC",
    "MALA",
    "SAMPLERS",
    "SGHMC",
    "SGLD",
    "Chain",
    "CoopNet",
    "Density",
    "GradFn",
    "Langevin",
    "Position",
    "Sampler",
    "SecondOrderLangevin",
    "polynomial",
    "require_gradient",
    "run",
]
