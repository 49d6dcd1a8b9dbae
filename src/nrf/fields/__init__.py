"""What is learned, as a density: log-densities in nats, samples down the noise levels, and checks of the normaliser."""

from __future__ import annotations

from nrf.fields.annealing import anneal, at_level, denoised, draw_widest, sample
from nrf.fields.nats import log_density
from nrf.fields.normaliser import Integral, Normaliser, annealed_integral, check_normaliser, quadrature

__all__ = [
    "Integral",
    "Normaliser",
    "anneal",
    "annealed_integral",
    "at_level",
    "check_normaliser",
    "denoised",
    "draw_widest",
    "log_density",
    "quadrature",
    "sample",
]
