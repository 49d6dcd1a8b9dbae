"""What is learned, as a density: log-densities in nats, samples down the noise levels, and checks of the normaliser."""

from __future__ import annotations

from nrf.fields.annealing import anneal, at_level, denoised, draw_widest, sample
from nrf.fields.density import log_density
from nrf.fields.normaliser import Integral, annealed_integral, quadrature
from nrf.fields.references import (
    REFERENCES,
    GaussianReference,
    KernelReference,
    MixtureReference,
    NoReference,
    ReferenceMeasure,
)

__all__ = [
    "REFERENCES",
    "GaussianReference",
    "Integral",
    "KernelReference",
    "MixtureReference",
    "NoReference",
    "ReferenceMeasure",
    "anneal",
    "annealed_integral",
    "at_level",
    "denoised",
    "draw_widest",
    "log_density",
    "quadrature",
    "sample",
]
