"""Generative adversarial networks: the discriminator is the potential, high = real.

Reference:
    Goodfellow et al., "Generative adversarial nets", with the log D trick for the generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from nrf.errors import InputError
from nrf.learners.base import Learner, LearnerConfig, Metrics, PairLearner, checked
from nrf.learners.revision import Revision
from nrf.models import LatentGenerator, frozen, together
from nrf.samplers import Sampler
from nrf.seeds import Rng

CriticLoss = Callable[[Tensor, Tensor], Tensor]
Penalty = Callable[[nn.Module, Tensor, Tensor, Rng], Tensor]


@dataclass(frozen=True)
class AdversarialConfig(LearnerConfig):
    """Settings that all adversarial learners share."""

    n_critic: int = 1
    """Steps of the discriminator per step of the generator, each with fresh samples and the same batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_critic < 1:
            raise InputError(f"n_critic must be at least 1, got {self.n_critic}")


@dataclass(frozen=True)
class GANConfig(AdversarialConfig):
    """The discriminator is trained by log loss to separate data from samples; the generator minimises −log D."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Adversarial(potential, generator, self, log_loss, lambda u: softplus(-u).mean())


class Adversarial(PairLearner):
    """Steps of the discriminator, then one of the generator.

    Args:
        potential: The discriminator, before a sigmoid.
        generator: ``q(x, h)``; its proposals, with noise, are the samples.
        config: Optimisers and the number of discriminator steps.
        critic_loss: Loss of the discriminator from its values on data and on samples.
        generator_loss: Loss of the generator from the discriminator's values on its samples.
        penalty: A further loss of the discriminator, from data and samples.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        config: AdversarialConfig,
        critic_loss: CriticLoss,
        generator_loss: Callable[[Tensor], Tensor],
        penalty: Penalty | None = None,
    ) -> None:
        super().__init__(potential, generator, config)
        self.config, self.critic_loss, self.generator_loss, self.penalty = config, critic_loss, generator_loss, penalty

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        for _ in range(self.config.n_critic):
            with torch.no_grad():
                samples, _ = self.generator.draw(len(batch), rng)
            u_data, u_samples = together(self.potential, batch, samples)
            loss = self.critic_loss(u_data, u_samples)
            if self.penalty is not None:
                loss = loss + self.penalty(self.potential, batch, samples, rng)
            self.descend(loss, "potential")
        generated, _ = self.generator.draw(len(batch), rng)
        with frozen(self.potential):
            generator_loss = self.generator_loss(self.potential(generated))
            self.descend(generator_loss, "generator")
        metrics = {
            "u_data": u_data.detach().mean(),
            "u_generated": u_samples.detach().mean(),
            "potential_loss": loss.detach(),
            "generator_loss": generator_loss.detach(),
        }
        return checked(metrics, batch=batch, generated_samples=samples)


def log_loss(u_data: Tensor, u_samples: Tensor) -> Tensor:
    """``−E log D(x̃) − E log(1 − D(x))`` with ``D = σ(u)``."""
    return softplus(-u_data).mean() + softplus(u_samples).mean()
