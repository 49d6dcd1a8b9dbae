"""What is learned, as a density: log-densities in nats, samples down the noise levels, and checks of the normaliser."""

from __future__ import annotations

from nrf.fields.annealing import anneal, at_level, denoised, draw_widest, sample
from nrf.fields.density import log_density
from nrf.fields.normaliser import Integral, annealed_integral, importance_integral, quadrature
from nrf.fields.product import ProductField
from nrf.fields.referenced import (
    Choice,
    Referenced,
    ReferencedLevels,
    ReferencedPotential,
    choose_strength,
    normalise,
)
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
    "Choice",
    "GaussianReference",
    "Integral",
    "KernelReference",
    "MixtureReference",
    "NoReference",
    "ProductField",
    "ReferenceMeasure",
    "Referenced",
    "ReferencedLevels",
    "ReferencedPotential",
    "anneal",
    "annealed_integral",
    "at_level",
    "choose_strength",
    "denoised",
    "draw_widest",
    "importance_integral",
    "log_density",
    "normalise",
    "quadrature",
    "sample",
]
