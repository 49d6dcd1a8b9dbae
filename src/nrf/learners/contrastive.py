"""Learning a random field without a generator's help: contrastive divergence, with and without memory.

All three step the potential up the likelihood; they differ in where the sampler's chains begin. The generator of the
pair is kept as it is.
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
    """What the three have in common."""

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
    """An iteration moves as many different chains as the batch has rows."""
    if batch > chains:
        raise InputError(f"the memory holds {chains} chains, fewer than a batch has rows ({batch}); enlarge it")


class Contrastive(SamplingLearner):
    """One iteration: begin chains, run the sampler on p(x), step the potential, keep what is to be kept.

    Args:
        potential: ``u``.
        generator: Kept, not used.
        sampler: Any sampler of x.
        revision: Its target must be x.
        config: Losses and optimisers.
        memory: Where chains are kept between iterations.
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
        """Where chains are kept, if they are."""
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
    """Chains that outlive an iteration, as a buffer: checkpoints hold them like weights.

    The first batch tells the shape of an event, so the buffer is made then; loading a checkpoint makes it, too.

    Args:
        size: How many chains are kept.
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
        """``n`` chains that have no past."""

    def begin(self, batch: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Starting points for as many chains as the batch has rows, and their places in memory."""
        if len(self.chains) == 0:
            self.chains = self.fresh(self.size, batch, rng)
        chosen = places(self.size, len(batch), rng, repeat=False)
        return self.chains[chosen], chosen

    def keep(self, chosen: Tensor, samples: Tensor) -> None:
        """Put the chains back."""
        self.chains[chosen] = samples.detach()

    def stacked(self, memories: Sequence[Self]) -> Self:
        """The memory of replicas: their chains one after the other."""
        together = copy.deepcopy(self)
        together.size = sum(memory.size for memory in memories)
        together.chains = torch.cat([memory.chains for memory in memories])
        return together

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state.get(prefix + "chains")
        if stored is not None:
            self.chains = torch.empty_like(stored, device=self.chains.device)
        super()._load_from_state_dict(state, prefix, *rest)
