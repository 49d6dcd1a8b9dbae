"""Learners by name. A new one is a file here and a line in ``LEARNERS``; the contract tests pick it up."""

from __future__ import annotations

from nrf.learners.base import Learner, Metrics
from nrf.learners.inclusive import Inclusive, InclusiveConfig
from nrf.learners.revision import Revision

LEARNERS: dict[str, type[Inclusive]] = {"inclusive": Inclusive}

__all__ = ["LEARNERS", "Inclusive", "InclusiveConfig", "Learner", "Metrics", "Revision"]
