"""Inclusive-NRF learning (Alg. 1): maximum likelihood for the potential, KL[p‖q] for the generator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.learners.base import Learner, LearnerConfig, Metrics, PairLearner, SamplingLearner, checked
from nrf.learners.iteration import Iterated, Iteration
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss, likelihood_loss, regression_loss
from nrf.models import LatentGenerator, frozen, in_evaluation_mode, together
from nrf.networks import Statistics, batch_norms, called_with, held, pass_noted
from nrf.samplers import Sampler
from nrf.seeds import Rng, randn


@dataclass(frozen=True)
class InclusiveConfig(LearnerConfig):
    """Alg. 1: propose, revise, then step both networks on the revised samples."""

    RETIRED: ClassVar[tuple[str, ...]] = ("proposal_statistics",)
    """Fields of earlier versions, which are ignored in stored configurations."""

    control_weight: float = 0.0
    """Weight α_p of the potential control loss."""
    generator_loss: Literal["regression", "potential"] = "regression"
    """Train g by regression on revised pairs (Alg. 1), or by −u(g(h)) on fresh codes (the released CIFAR-10 script)."""

    data_noise: float = 0.0
    """Standard deviation of Gaussian noise that is added to the data, whose field is then that of the smoothed data.
    Columns with few distinct values have no density without it, and the potential would grow without bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.data_noise < math.inf:
            raise InputError(f"data_noise must be finite and not negative, got {self.data_noise}")

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Inclusive(potential, generator, sampler, revision, self)


@dataclass(frozen=True)
class Proposal:
    """Where the chains start, and what is needed to use the same g again for the revision and the regression."""

    x: Tensor
    h: Tensor
    mean: Tensor
    """g(h), with its graph if g learns from it."""
    statistics: Statistics
    """Batch norm statistics, to evaluate the same g at other codes."""


class Inclusive(SamplingLearner):
    """One iteration: propose with the generator, revise with the sampler, then step both networks.

    In all passes of an iteration, batch norm in the generator uses the statistics of the batch of proposals.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        sampler: Any sampler.
        revision: Target and length of the revision.
        config: Losses and optimisers.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        config: InclusiveConfig,
    ) -> None:
        super().__init__(potential, generator, sampler, revision, config)
        self.config = config

    def adopt(self, modules: Mapping[str, nn.Module]) -> None:
        super().adopt(modules)
        self._whole: Iteration | None = None

    def compile(self) -> bool:
        found = super().compile()
        # A potential with buffers changes them in training, and only the regression does not evaluate u a second time.
        if found and self.config.generator_loss == "regression" and not any(True for _ in self.potential.buffers()):
            weight = self.config.control_weight
            self._whole = Iteration(self.potential, self.generator, self.sampler, self.revision, weight)
        return found

    def shorten_steps(self, factor: float) -> None:
        super().shorten_steps(factor)
        if self._whole is not None:
            self.compile()

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        if self.config.data_noise > 0:
            batch = batch + self.config.data_noise * randn(batch.shape, rng, batch.dtype)
        if self._whole is not None and not torch.is_autocast_enabled(batch.device.type):
            found = self._whole(batch, rng)
            if found is not None:
                return self._take(self._whole, found, batch)
        proposal = self.propose(len(batch), rng)
        x, h = self.revised(proposal, rng)
        metrics = likelihood_step(self, batch, x, self.config.control_weight)
        metrics |= {"generator_loss": self.step_generator(proposal, x, h, rng)}
        distance = (x - proposal.x).flatten(1).norm(dim=1).mean()
        metrics |= {"revision_distance": distance, **self.revise.diagnostics}
        return _checked(metrics, batch, proposal.x, x, h)

    def propose(self, n: int, rng: Rng) -> Proposal:
        """Draw ``n`` proposals of the generator in training mode."""
        h = self.generator.sample_latent(n, rng)
        with torch.set_grad_enabled(self.config.generator_loss == "regression"):
            mean, statistics = (self.generator(h), {}) if self.revision.target == "x" else pass_noted(self.generator, h)
        x = mean.detach()
        if self.generator.sigma > 0:
            x = x + self.generator.sigma * randn(x.shape, rng)
        return Proposal(x, h, mean, statistics)

    def revised(self, proposal: Proposal, rng: Rng) -> tuple[Tensor, Tensor]:
        """Revise a proposal, with the g that it comes from."""
        with held(self.generator, proposal.statistics):
            return self.revise(proposal.x, proposal.h, rng)

    def _take(self, whole: Iteration, found: Iterated, batch: Tensor) -> Metrics:
        """Step both networks down the gradients that a compiled iteration found."""
        for name, parameters in whole.trained.items():
            for key, parameter in parameters.items():
                gradient = found.gradients[name][key]
                # Fused optimisers work on memory as it is: a gradient must have the strides of its parameter.
                same = gradient.stride() == parameter.stride()
                parameter.grad = gradient if same else torch.empty_like(parameter).copy_(gradient)
        for key, buffer in whole.buffers.items():
            buffer.copy_(found.statistics[key])
        self.step("potential", "generator")
        return _checked(found.metrics, batch, found.proposed, found.x, found.h)

    def step_generator(self, proposal: Proposal, x: Tensor, h: Tensor, rng: Rng) -> Tensor:
        """Step the generator on pairs revised from a proposal, or on fresh codes; returns its loss."""
        if self.config.generator_loss == "regression":
            mean = proposal.mean if self.revision.target == "x" else self._mean(proposal, h)
            loss = regression_loss(x, mean)
            self.descend(loss, "generator")
        else:
            fresh = self.generator.sample_latent(len(x), rng)
            with frozen(self.potential):
                loss = adversarial_loss(self.potential(self.generator(fresh)))
                self.descend(loss, "generator")
        return loss.detach()

    def _mean(self, proposal: Proposal, h: Tensor) -> Tensor:
        """The proposal's g, evaluated at other codes."""
        with in_evaluation_mode(*batch_norms(self.generator).values()):
            return called_with(self.generator, proposal.statistics, {}, h)


def _checked(metrics: Metrics, batch: Tensor, proposed: Tensor, x: Tensor, h: Tensor) -> Metrics:
    return checked(metrics, batch=batch, proposed_samples=proposed, revised_samples=x, revised_codes=h)


def likelihood_step(
    learner: PairLearner, data: Tensor, samples: Tensor, control_weight: float, kind: str = "revised"
) -> Metrics:
    """Step the potential up the likelihood, with samples in place of the model's expectation."""
    u_data, u_samples = together(learner.potential, data, samples)
    loss = likelihood_loss(u_data, u_samples, control_weight)
    learner.descend(loss, "potential")
    means = {"u_data": u_data.detach().mean(), f"u_{kind}": u_samples.detach().mean()}
    return means | {"potential_loss": loss.detach()}
