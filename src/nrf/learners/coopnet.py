"""CoopNet learning: the updates of Alg. 1 with CoopNet's interleaved sampler in place of the joint one.

Reference:
    Xie et al., "Cooperative learning of energy-based model and latent variable model via MCMC teaching".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from nrf.errors import InputError
from nrf.learners.base import Learner
from nrf.learners.inclusive import Inclusive, InclusiveConfig
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator
from nrf.samplers import CoopNet, Sampler


@dataclass(frozen=True)
class CoopNetConfig(InclusiveConfig):
    """x is revised along ∇u, then h along ∇_h log q(x, h); both networks learn from the pair."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        if not isinstance(sampler, CoopNet) or revision.target != "conditional":
            raise InputError(
                "CoopNet learning samples in its own way: set the sampler to coopnet and the revision's target to "
                "conditional"
            )
        return Inclusive(potential, generator, sampler, revision, self)
