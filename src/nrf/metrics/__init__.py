"""What is measured."""

from __future__ import annotations

from nrf.metrics.detection import auroc, nearest_neighbour_score
from nrf.metrics.modes import ModeCoverage, mode_coverage

__all__ = ["ModeCoverage", "auroc", "mode_coverage", "nearest_neighbour_score"]
