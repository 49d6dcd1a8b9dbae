"""Replay: most chains continue from a buffer, a few restart from noise.

Reference:
    Du & Mordatch, "Implicit generation and generalization with energy-based models" (IGEBM).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.learners.base import Learner
from nrf.learners.contrastive import Contrastive, ContrastiveConfig, Memory, require_memory
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator
from nrf.samplers import Sampler
from nrf.seeds import Rng, rand


@dataclass(frozen=True)
class ReplayConfig(ContrastiveConfig):
    """Chains start at earlier samples from a buffer, a share of them at uniform noise."""

    buffer_size: int = 10_000
    """Number of samples in the buffer."""
    noise_share: float = 0.05
    """Share of chains that restart from noise."""
    noise_range: tuple[float, float] = (-1.0, 1.0)
    """(low, high) of the noise: the range of the data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.noise_share <= 1 or not self.noise_range[0] < self.noise_range[1]:
            raise InputError(
                f"noise_share must lie in [0, 1] and noise_range have low < high, got {self.noise_share} and "
                f"{self.noise_range}"
            )

    def require_batch(self, size: int) -> None:
        require_memory(self.buffer_size, size)

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        memory = ReplayBuffer(self.buffer_size, self.noise_share, self.noise_range)
        return Contrastive(potential, generator, sampler, revision, self, memory)


class ReplayBuffer(Memory):
    """A buffer of earlier samples; some chains start from noise instead."""

    def __init__(self, size: int, noise_share: float, noise_range: tuple[float, float]) -> None:
        super().__init__(size)
        self.noise_share, self.noise_range = noise_share, noise_range

    def fresh(self, n: int, like: Tensor, rng: Rng) -> Tensor:
        low, high = self.noise_range
        noise = rand((n, *like.shape[1:]), rng, like.dtype)
        return low + (high - low) * noise

    def begin(self, batch: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        start, chosen = super().begin(batch, rng)
        anew = rand((len(batch),), rng) < self.noise_share
        noise = self.fresh(len(batch), batch, rng)
        return torch.where(anew.reshape(-1, *(1,) * (batch.ndim - 1)), noise, start), chosen
