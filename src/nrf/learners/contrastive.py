"""Learning a random field without a generator: contrastive divergence, with and without memory.

All three learners (CD, PCD, replay) step the potential up the likelihood; they differ in where the sampler's chains
start. The generator of the pair is not trained.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.learners.base import LearnerConfig, Metrics, SamplingLearner, checked
from nrf.learners.inclusive import likelihood_step
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator
from nrf.samplers import Sampler
from nrf.seeds import Rng, places


@dataclass(frozen=True)
class ContrastiveConfig(LearnerConfig):
    """Settings that the three learners share."""

    generator_lr: float = 0.0
    """The generator is not trained."""
    control_weight: float = 0.0
    """Weight α_p of the potential control loss."""

    def __post_init__(self) -> None:
        if self.generator_lr != 0:
            raise InputError("this learner does not train the generator; leave generator_lr at 0")
        if not 0 < self.potential_lr < math.inf:
            raise InputError(f"potential_lr must be positive and finite, got {self.potential_lr}")
        self.check_betas()


def require_memory(chains: int, batch: int) -> None:
    """Require a chain for each row of a batch, since an iteration moves as many different chains."""
    if batch > chains:
        raise InputError(f"the memory holds {chains} chains, fewer than a batch has rows ({batch}); enlarge it")


class Contrastive(SamplingLearner):
    """One iteration: start chains, run the sampler on p(x), step the potential, store the chains in memory.

    Args:
        potential: ``u``.
        generator: Stored, but not used.
        sampler: Any sampler of x.
        revision: Its target must be x.
        config: Losses and optimisers.
        memory: Keeps chains between iterations; without one they start at the batch.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        config: ContrastiveConfig,
        memory: Memory | None = None,
    ) -> None:
        if revision.target != "x":
            raise InputError("contrastive learning has no codes: set the revision's target to x")
        more: dict[str, tuple[nn.Module, float]] = {} if memory is None else {"memory": (memory, 0.0)}
        super().__init__(potential, generator, sampler, revision, config, more)
        self.config = config

    @property
    def memory(self) -> Memory | None:
        """The chains that are kept between iterations, if there are any."""
        return cast("Memory | None", self.modules.get("memory"))

    def samples(self, batch: Tensor, rng: Rng) -> Tensor:
        start = batch
        if self.memory is not None and len(self.memory.chains) > 0:
            start, _ = self.memory.begin(batch, rng)
        return self.revise(start, batch.new_zeros(0), rng)[0]

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        start, chosen = (batch, None) if self.memory is None else self.memory.begin(batch, rng)
        samples, _ = self.revise(start, batch.new_zeros(0), rng)
        metrics = likelihood_step(self, batch, samples, self.config.control_weight)
        distance = (samples - start).flatten(1).norm(dim=1).mean()
        metrics |= {"revision_distance": distance, **self.revise.diagnostics}
        checked(metrics, batch=batch, revised_samples=samples)
        if self.memory is not None and chosen is not None:
            self.memory.keep(chosen, samples)
        return metrics


class Memory(nn.Module):
    """Chains that are kept between iterations, as a buffer, so that checkpoints hold them like weights.

    The buffer is created with the first batch, which has the shape of an event, or when a checkpoint is loaded.

    Args:
        size: Number of chains.
    """

    chains: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise InputError(f"the memory must hold at least 1 chain, got {size}")
        self.size = size
        self.register_buffer("chains", torch.zeros(0))

    @abstractmethod
    def fresh(self, n: int, like: Tensor, rng: Rng) -> Tensor:
        """``n`` new chains."""

    def begin(self, batch: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Starting points, one per row of the batch, and their indices in memory."""
        if len(self.chains) == 0:
            self.chains = self.fresh(self.size, batch, rng)
        chosen = places(self.size, len(batch), rng, repeat=False)
        return self.chains[chosen], chosen

    def keep(self, chosen: Tensor, samples: Tensor) -> None:
        """Store chains at their indices."""
        self.chains[chosen] = samples.detach()

    def stacked(self, memories: Sequence[Self]) -> Self:
        """One memory for all replicas: their chains one after the other."""
        together = copy.deepcopy(self)
        together.size = sum(memory.size for memory in memories)
        together.chains = torch.cat([memory.chains for memory in memories])
        return together

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state.get(prefix + "chains")
        if stored is not None:
            self.chains = torch.empty_like(stored, device=self.chains.device)
        super()._load_from_state_dict(state, prefix, *rest)
