"""Base classes of learners: a learner is built by a configuration, owns networks, and updates them batch by batch."""

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
    """Base class of all learners. A learner owns its modules and optimisers: the order of updates *is* the algorithm.

    ``modules`` is everything a checkpoint must hold; a module without trained parameters needs no optimiser.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]
    ranks: Ranks = ALONE
    """The processes that train this model together."""

    @abstractmethod
    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        """Run one iteration on one batch of data.

        Args:
            batch: Rows of data, ``(n, *event)``.
            rng: Source of all randomness.

        Returns:
            Named scalars of the iteration.
        """

    def compile(self) -> bool:
        """Compile whatever can be compiled, and return whether anything can. Results differ by rounding only."""
        return False


@dataclass(frozen=True)
class LearnerConfig(ABC):
    """Base class of all learners' configurations, with the optimisers of both networks."""

    optimizer: OptimizerName = "adam"
    """Optimiser of both networks."""
    betas: tuple[float, float] = (0.5, 0.9)
    """Adam's (β1, β2); RMSprop takes them as momentum and smoothing."""
    generator_betas: tuple[float, float] | None = None
    """The same for all networks but the potential; those of the potential if not given."""
    potential_lr: float = 1e-3
    """Learning rate of the potential."""
    generator_lr: float = 1e-3
    """Learning rate of the generator."""

    generator_optional: ClassVar[bool] = False
    """Whether the generator's learning rate may be 0, which leaves it untrained."""

    def __post_init__(self) -> None:
        rests = self.generator_optional and self.generator_lr == 0
        if not (0 < self.potential_lr < math.inf and (rests or 0 < self.generator_lr < math.inf)):
            raise InputError(
                f"learning rates must be positive and finite, got {self.potential_lr} for the potential and "
                f"{self.generator_lr} for the generator"
            )
        self.check_betas()

    def check_betas(self) -> None:
        """Require betas in [0, 1)."""
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
        """Build the learner of these networks.

        Args:
            potential: ``u``.
            generator: ``q(x, h)``.
            sampler: Any sampler; a learner that does not sample ignores it.
            revision: Target and length of the revision; ignored likewise.
        """


class PairLearner(Learner):
    """A learner of a potential and a generator.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        config: The optimisers' settings.
        more: Further modules with the learning rate of each; 0 for one that is not trained.
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
        """Take over these modules, with new optimisers."""
        self.modules = dict(modules)
        self.replicas = replicas_of(modules["potential"])
        self.__dict__.pop("optimizers", None)

    @cached_property
    def optimizers(self) -> dict[str, Optimizer]:  # type: ignore[override]
        """One for each trained module; created on first use, since torch then imports its compiler for a second."""
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
        """Samples like those that the potential is trained on together with a batch; nothing is trained or stored."""
        with frozen(self.generator):
            return self.generator.propose(len(batch), rng)[0]

    def descend(self, loss: Tensor, *names: str) -> None:
        """Step the optimisers of these modules down the gradient of a loss.

        With replicas, the loss is the mean over the rows of all of them. Times their number it is the sum of their
        losses, so the parameters of each get the gradient of their own loss.

        Args:
            loss: The loss, a scalar.
            names: Names of the modules.
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
        """Multiply the step sizes of the sampler by a factor."""
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
    """Combine learners into one that trains all of them at once, as replicas.

    The parameters of all replicas are stacked (:func:`nrf.networks.stack`), so one update trains them all. It
    takes the batches of all, one after the other, and :class:`nrf.seeds.Streams`.

    Args:
        learners: The replicas; they must differ in their weights only.
    """
    first = learners[0]
    if len(learners) == 1:
        return first
    if not isinstance(first, PairLearner):
        raise InputError(f"{type(first).__name__} cannot train replicas: it is not a PairLearner")
    first.adopt({name: stack([learner.modules[name] for learner in learners]) for name in first.modules})
    return first


def make_optimizer(module: nn.Module, name: OptimizerName, lr: float, betas: tuple[float, float]) -> Optimizer:
    """An optimiser over the trained parameters; RMSprop uses ``betas`` as momentum and smoothing."""
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
