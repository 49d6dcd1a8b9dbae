"""Persistent contrastive divergence: chains go on where they stopped.

Reference:
    Tieleman, "Training restricted Boltzmann machines using approximations to the likelihood gradient".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nrf.learners.base import Learner
from nrf.learners.contrastive import Contrastive, ContrastiveConfig, Memory, require_memory
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator
from nrf.samplers import Sampler
from nrf.seeds import Rng, places


@dataclass(frozen=True)
class PCDConfig(ContrastiveConfig):
    """Chains begin where earlier ones ended; the very first at rows of data."""

    n_chains: int = 1000
    """Chains that are kept; an iteration moves as many of them as the batch has rows."""

    def require_batch(self, size: int) -> None:
        require_memory(self.n_chains, size)

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Contrastive(potential, generator, sampler, revision, self, PersistentChains(self.n_chains))


class PersistentChains(Memory):
    """Chains that began at rows of the first batch."""

    def fresh(self, n: int, like: Tensor, rng: Rng) -> Tensor:
        rows = places(len(like), n, rng, repeat=True)
        return like[rows].clone()
