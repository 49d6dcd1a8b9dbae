"""Learned densities: log-densities in nats, samples by annealing down the noise levels, checks of the normaliser."""

from __future__ import annotations

from nrf.fields.annealing import anneal, at_level, denoised, draw_widest, flow, sample
from nrf.fields.contributions import contributions
from nrf.fields.detection import Detection, DetectionField, Ground, HeldOut, ground_of, settle
from nrf.fields.nats import log_density
from nrf.fields.neighbours import NeighbourField, Neighbours
from nrf.fields.normaliser import (
    Integral,
    Normaliser,
    annealed_integral,
    check_normaliser,
    importance_integral,
    quadrature,
)
from nrf.fields.pairs import PairField, PairTree
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
    "Detection",
    "DetectionField",
    "GaussianReference",
    "Ground",
    "HeldOut",
    "Integral",
    "KernelReference",
    "MixtureReference",
    "NeighbourField",
    "Neighbours",
    "NoReference",
    "Normaliser",
    "PairField",
    "PairTree",
    "ProductField",
    "ReferenceMeasure",
    "Referenced",
    "ReferencedLevels",
    "ReferencedPotential",
    "anneal",
    "annealed_integral",
    "at_level",
    "check_normaliser",
    "choose_strength",
    "contributions",
    "denoised",
    "draw_widest",
    "flow",
    "ground_of",
    "importance_integral",
    "log_density",
    "normalise",
    "quadrature",
    "sample",
    "settle",
]
