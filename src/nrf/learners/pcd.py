"""Persistent contrastive divergence: chains continue where they stopped.

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
    """Chains start where earlier ones ended; the very first start at rows of data."""

    n_chains: int = 1000
    """Number of chains that are kept; an iteration moves one per row of the batch."""

    def require_batch(self, size: int) -> None:
        require_memory(self.n_chains, size)

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Contrastive(potential, generator, sampler, revision, self, PersistentChains(self.n_chains))


class PersistentChains(Memory):
    """Chains that started at rows of the first batch."""

    def fresh(self, n: int, like: Tensor, rng: Rng) -> Tensor:
        rows = places(len(like), n, rng, repeat=True)
        return like[rows].clone()
