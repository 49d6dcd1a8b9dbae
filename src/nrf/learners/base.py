"""What a learner is: a configuration that builds it, a pair of networks it owns, one update at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer, RMSprop

from nrf.errors import InputError, NonFiniteError
from nrf.learners.reviser import Reviser
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator, frozen, replicas_of
from nrf.networks import require_levels, stack
from nrf.ranks import ALONE, Ranks
from nrf.samplers import Sampler
from nrf.seeds import Rng

Metrics = dict[str, Tensor]
"""Named scalars of one iteration, detached."""

OptimizerName = Literal["adam", "rmsprop"]


class Learner(ABC):
    """Owns its modules and optimisers, for the order of updates *is* the algorithm.

    ``modules`` is everything a checkpoint must hold; a module without trained parameters needs no optimiser.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]
    ranks: Ranks = ALONE
    """The processes that train this model together."""

    @abstractmethod
    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        """One iteration on one batch of data; all randomness comes from ``rng``."""

    def compile(self) -> bool:
        """Compile what can be; False if there is nothing. Results stay equal but for rounding."""
        return False


@dataclass(frozen=True)
class LearnerConfig(ABC):
    """What every learner's configuration has: the optimisers of both networks."""

    optimizer: OptimizerName = "adam"
    """Optimiser of both networks."""
    betas: tuple[float, float] = (0.5, 0.9)
    """Adam's (β1, β2); RMSprop takes them as momentum and smoothing."""
    generator_betas: tuple[float, float] | None = None
    """The same of all networks but the potential; the potential's if not given."""
    potential_lr: float = 1e-3
    """Learning rate of the potential."""
    generator_lr: float = 1e-3
    """Learning rate of the generator."""

    generator_optional: ClassVar[bool] = False
    """Whether a learning rate of 0 may leave the generator as it is."""

    def __post_init__(self) -> None:
        rests = self.generator_optional and self.generator_lr == 0
        if not (0 < self.potential_lr < math.inf and (rests or 0 < self.generator_lr < math.inf)):
            raise InputError(
                f"learning rates must be positive and finite, got {self.potential_lr} for the potential and "
                f"{self.generator_lr} for the generator"
            )
        self.check_betas()

    def check_betas(self) -> None:
        """Both must be shares."""
        for name in ("betas", "generator_betas"):
            betas = getattr(self, name)
            if betas is not None and not all(0 <= beta < 1 for beta in betas):
                raise InputError(f"{name} must lie in [0, 1), got {betas}")

    def betas_of(self, name: str) -> tuple[float, float]:
        """The betas of the network of that name."""
        return self.betas if name == "potential" or self.generator_betas is None else self.generator_betas

    def require_batch(self, size: int) -> None:  # noqa: B027
        """Refuse a batch size the learner cannot work with; most can with any."""

    @abstractmethod
    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        """The learner of these networks; one that does not sample leaves the last two alone."""


class PairLearner(Learner):
    """A learner of a potential and a generator.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        config: The optimisers' settings.
        more: Further modules with the learning rate of each; 0 for one that is only kept.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        config: LearnerConfig,
        more: Mapping[str, tuple[nn.Module, float]] | None = None,
    ) -> None:
        parts: dict[str, tuple[nn.Module, float]] = {
            "potential": (potential, config.potential_lr),
            "generator": (generator, config.generator_lr),
            **(more or {}),
        }
        self._rates = {name: rate for name, (_, rate) in parts.items()}
        self._config = config
        self.adopt({name: module for name, (module, _) in parts.items()})

    def adopt(self, modules: Mapping[str, nn.Module]) -> None:
        """Own these modules, with fresh optimisers."""
        self.modules = dict(modules)
        self.replicas = replicas_of(modules["potential"])
        self.__dict__.pop("optimizers", None)

    @cached_property
    def optimizers(self) -> dict[str, Optimizer]:  # type: ignore[override]
        """One for each module that is trained; made when first asked for, as torch's import its compiler, a second."""
        config = self._config
        return {
            name: make_optimizer(module, config.optimizer, self._rates[name], config.betas_of(name))
            for name, module in self.modules.items()
            if self._rates[name] > 0
        }

    @property
    def potential(self) -> nn.Module:
        """``u``."""
        return self.modules["potential"]

    @property
    def generator(self) -> LatentGenerator:
        """``q(x, h)``."""
        return cast(LatentGenerator, self.modules["generator"])

    def samples(self, batch: Tensor, rng: Rng) -> Tensor:
        """Samples such as the potential learns from beside a batch; nothing is learned here, and nothing kept."""
        with frozen(self.generator):
            return self.generator.propose(len(batch), rng)[0]

    def descend(self, loss: Tensor, *names: str) -> None:
        """Step the optimisers of these modules down the gradient of a loss.

        With replicas a loss is the mean over all their rows, so that times their number is the sum of their losses:
        each one's parameters feel their own.
        """
        for name in names:
            self.optimizers[name].zero_grad(set_to_none=True)
        if self.replicas > 1:
            loss = self.replicas * loss
        loss.backward()  # type: ignore[no-untyped-call]
        self.step(*names)

    def step(self, *names: str) -> None:
        """Step the optimisers of these modules down the gradients that their parameters hold."""
        for name in names:
            self.ranks.average_gradients(self.modules[name])
            self.optimizers[name].step()


class SamplingLearner(PairLearner):
    """A learner that revises samples.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        sampler: Any sampler.
        revision: Target and length of the revision.
        config: The optimisers' settings.
        more: Further modules, as for :class:`PairLearner`.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        config: LearnerConfig,
        more: Mapping[str, tuple[nn.Module, float]] | None = None,
    ) -> None:
        revision.check(sampler, generator)
        if revision.start_level != 0:
            revision.levels_of(require_levels(potential))
        self.sampler, self.revision = sampler, revision
        super().__init__(potential, generator, config, more)

    def adopt(self, modules: Mapping[str, nn.Module]) -> None:
        super().adopt(modules)
        self.revise = Reviser(self.potential, self.generator, self.sampler, self.revision)

    def samples(self, batch: Tensor, rng: Rng) -> Tensor:
        with frozen(self.generator):
            x, h = self.generator.propose(len(batch), rng)
            return self.revise(x, h, rng)[0]

    def compile(self) -> bool:
        self.revise.compile()
        return self.revise.is_compiled

    def shorten_steps(self, factor: float) -> None:
        """Go on with a sampler whose steps are shorter by this factor."""
        latent = self.sampler.latent_step_size
        self.sampler = replace(
            self.sampler,
            step_size=factor * self.sampler.step_size,
            latent_step_size=None if latent is None else factor * latent,
        )
        compiled = self.revise.is_compiled
        self.revise = Reviser(self.potential, self.generator, self.sampler, self.revision)
        if compiled:
            self.revise.compile()


def as_replicas(learners: Sequence[Learner]) -> Learner:
    """One learner of which each one given is a replica; they must differ in their weights alone.

    The parameters of all replicas are stacked (:func:`nrf.networks.stack`), so one update trains them all. It
    takes the batches of all, one after the other, and :class:`nrf.seeds.Streams`.
    """
    first = learners[0]
    if len(learners) == 1:
        return first
    if not isinstance(first, PairLearner):
        raise InputError(f"{type(first).__name__} cannot train replicas: it is not a PairLearner")
    first.adopt({name: stack([learner.modules[name] for learner in learners]) for name in first.modules})
    return first


def make_optimizer(module: nn.Module, name: OptimizerName, lr: float, betas: tuple[float, float]) -> Optimizer:
    """An optimiser over the trained parameters; RMSprop takes momentum and smoothing from the same pair as Adam."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if name == "adam":
        return Adam(parameters, lr=lr, betas=betas, fused=True)
    return RMSprop(parameters, lr=lr, alpha=betas[1], momentum=betas[0])


def checked(metrics: Metrics, **tensors: Tensor) -> Metrics:
    """The metrics, if they are finite; else an error that names the first of the tensors, then metrics, that is not."""
    total = torch.stack([value.float() for value in metrics.values()]).sum()
    if not torch.isfinite(total):
        require_finite(**tensors, **metrics)
    return metrics


def require_finite(**tensors: Tensor) -> None:
    """Raise with the name of the first tensor, in the order given, that holds a NaN or an infinity."""
    for name, tensor in tensors.items():
        finite = torch.isfinite(tensor)
        if not finite.all():
            bad = int((~finite).sum())
            raise NonFiniteError(f"{name.replace('_', ' ')} has {bad} non-finite of {tensor.numel()} values")
