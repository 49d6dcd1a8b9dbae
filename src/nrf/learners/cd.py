"""Contrastive divergence: chains start at the data.

Reference:
    Hinton, "Training products of experts by minimizing contrastive divergence".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from nrf.learners.base import Learner
from nrf.learners.contrastive import Contrastive, ContrastiveConfig
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator
from nrf.samplers import Sampler


@dataclass(frozen=True)
class CDConfig(ContrastiveConfig):
    """Chains start at the rows of the batch."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Contrastive(potential, generator, sampler, revision, self)
