"""Metrics of densities, detectors, samples and images."""

from __future__ import annotations

from nrf.metrics.density import (
    PlaneGrid,
    fitted_inverse_temperature,
    kernel_log_likelihood,
    kl_from,
    log_partition,
    mean_log_likelihood,
    mixture_log_density,
)
from nrf.metrics.detection import auroc, flagged_metrics, nearest_neighbour_score
from nrf.metrics.energy import energy_distance
from nrf.metrics.fitted_gaussian import fitted_gaussian_kl, perfect_kl
from nrf.metrics.modes import ModeCoverage, mode_coverage, most_covered

__all__ = [
    "ModeCoverage",
    "PlaneGrid",
    "auroc",
    "energy_distance",
    "fitted_gaussian_kl",
    "fitted_inverse_temperature",
    "flagged_metrics",
    "kernel_log_likelihood",
    "kl_from",
    "log_partition",
    "mean_log_likelihood",
    "mixture_log_density",
    "mode_coverage",
    "most_covered",
    "nearest_neighbour_score",
    "perfect_kl",
]
