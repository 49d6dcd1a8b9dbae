"""What is measured."""

from __future__ import annotations

from nrf.metrics.detection import auroc, nearest_neighbour_score
from nrf.metrics.gaussian import fitted_gaussian_kl, perfect_kl
from nrf.metrics.modes import ModeCoverage, mode_coverage

__all__ = [
    "ModeCoverage",
    "auroc",
    "fitted_gaussian_kl",
    "mode_coverage",
    "nearest_neighbour_score",
    "perfect_kl",
]
