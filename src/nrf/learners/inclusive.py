"""Inclusive-NRF learning (Alg. 1): maximum likelihood for the potential, KL[p‖q] for the generator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.learners.base import Learner, LearnerConfig, Metrics, PairLearner, SamplingLearner, checked
from nrf.learners.iteration import Iterated, Iteration
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss, likelihood_loss, regression_loss
from nrf.models import LatentGenerator, frozen, together
from nrf.samplers import Sampler
from nrf.seeds import Rng, randn


@dataclass(frozen=True)
class InclusiveConfig(LearnerConfig):
    """Alg. 1: propose, revise, then step both networks on the revised samples."""

    control_weight: float = 0.0
    """Weight α_p of the potential control loss."""
    generator_loss: Literal["regression", "potential"] = "regression"
    """Train g by regression on revised pairs (Alg. 1), or by −u(g(h)) on fresh codes (the released CIFAR-10 script)."""

    proposal_statistics: Literal["running", "batch"] = "running"
    """What batch norm in the generator uses for proposals in training: running averages, which make each proposal a
    function of its code alone but lag behind a generator that moves fast, or the batch's own, as its loss does."""

    data_noise: float = 0.0
    """Standard deviation of Gaussian noise on data: the field of the smoothed data is learned. Columns with few values
    have no density without it, and the potential would grow without bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.data_noise < math.inf:
            raise InputError(f"data_noise must be finite and not negative, got {self.data_noise}")

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        if self.proposal_statistics == "batch" and revision.target != "x":
            raise InputError(
                f"the revision of codes ({revision.target!r}) has g(h) with running statistics; with "
                'proposal_statistics="batch" revise x alone: target="x"'
            )
        return Inclusive(potential, generator, sampler, revision, self)


class Inclusive(SamplingLearner):
    """One iteration: propose with the generator, revise with the sampler, then step both networks.

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
        # A potential with buffers changes them as it learns; the regression is what needs no second look at u.
        plain = self.config.generator_loss == "regression" and self.config.proposal_statistics == "running"
        if found and plain and not any(True for _ in self.potential.buffers()):
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
        proposed, latent = self.propose(len(batch), rng)
        x, h = self.revise(proposed, latent, rng)
        metrics = likelihood_step(self, batch, x, self.config.control_weight)
        metrics |= {"generator_loss": self.step_generator(x, h, rng)}
        distance = (x - proposed).flatten(1).norm(dim=1).mean()
        return _checked(metrics | {"revision_distance": distance}, batch, proposed, x, h)

    def propose(self, n: int, rng: Rng) -> tuple[Tensor, Tensor]:
        """Samples of the generator and their codes, without a graph."""
        if self.config.proposal_statistics == "batch":
            with torch.no_grad():
                return self.generator.propose(n, rng)
        with frozen(self.generator):
            return self.generator.propose(n, rng)

    def _take(self, whole: Iteration, found: Iterated, batch: Tensor) -> Metrics:
        """Step both networks down the gradients that a compiled iteration found."""
        for name, parameters in whole.trained.items():
            for key, parameter in parameters.items():
                gradient = found.gradients[name][key]
                # Fused optimisers go by memory: a gradient must lie there in its parameter's order.
                same = gradient.stride() == parameter.stride()
                parameter.grad = gradient if same else torch.empty_like(parameter).copy_(gradient)
        for key, buffer in whole.buffers.items():
            buffer.copy_(found.statistics[key])
        self.step("potential", "generator")
        return _checked(found.metrics, batch, found.proposed, found.x, found.h)

    def step_generator(self, x: Tensor, h: Tensor, rng: Rng) -> Tensor:
        """Step the generator on revised pairs, or on fresh codes; returns its loss."""
        if self.config.generator_loss == "regression":
            loss = regression_loss(x, self.generator(h))
            self.descend(loss, "generator")
        else:
            fresh = self.generator.sample_latent(len(x), rng)
            with frozen(self.potential):
                loss = adversarial_loss(self.potential(self.generator(fresh)))
                self.descend(loss, "generator")
        return loss.detach()


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
