"""Exclusive-NRF learning: maximum likelihood for the potential, KL[q‖p] for the generator.

Reference:
    Kim & Bengio, "Deep directed generative models with energy-based probability estimation"; for the bound of the
    entropy, Dai et al., "Calibrating energy-based generative adversarial networks".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nrf.errors import InputError
from nrf.learners.base import Learner, LearnerConfig, Metrics, PairLearner, checked
from nrf.learners.inclusive import likelihood_step
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss
from nrf.models import LatentGenerator, frozen
from nrf.samplers import Sampler
from nrf.seeds import Rng


@dataclass(frozen=True)
class ExclusiveConfig(LearnerConfig):
    """The generator's samples take the place of the model's; the generator minimises −E[u] − H[q]."""

    control_weight: float = 0.0
    """Weight α_p of the potential control loss."""
    entropy: Literal["batch-norm", "variational"] = "batch-norm"
    """How H[q] is estimated: by the sum of log γ² over the generator's batch norm gains, or by a lower bound with a
    network that infers codes from samples."""
    entropy_weight: float = 0.01
    """Weight of the entropy: the released script has 0.01 with batch norm gains; 1 is the variational bound itself."""
    inference_width: int = 128
    """Units of the two hidden layers of the network that infers codes."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Exclusive(potential, generator, self)


class Exclusive(PairLearner):
    """One iteration: draw from the generator, step the potential on that, step the generator against the new potential.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``; with batch norm, where the entropy is to come from its gains.
        config: Losses and optimisers.
    """

    def __init__(self, potential: nn.Module, generator: LatentGenerator, config: ExclusiveConfig) -> None:
        self.config = config
        more: dict[str, tuple[nn.Module, float]] = {}
        if config.entropy == "variational":
            more["inference"] = (_inference(generator, config.inference_width), config.generator_lr)
        elif not batch_norm_gains(generator):
            raise InputError(
                "the entropy of batch norm gains needs a generator with batch norm; set its norm, or entropy"
            )
        super().__init__(potential, generator, config, more)

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        with torch.no_grad():
            samples, _ = self.generator.draw(len(batch), rng)
        metrics = likelihood_step(self, batch, samples, self.config.control_weight, "generated")
        x, h = self.generator.draw(len(batch), rng)
        entropy = self._entropy(x, h)
        with frozen(self.potential):
            loss = adversarial_loss(self.potential(x)) - self.config.entropy_weight * entropy
            self.descend(loss, *(name for name in self.modules if name != "potential"))
        metrics |= {"generator_loss": loss.detach(), "entropy": entropy.detach()}
        return checked(metrics, batch=batch, generated_samples=samples)

    def _entropy(self, x: Tensor, h: Tensor) -> Tensor:
        """The entropy up to a constant, or the sum over gains that replaces it."""
        if self.config.entropy == "batch-norm":
            gains = batch_norm_gains(self.generator)
            return torch.stack([gain.square().log().sum() for gain in gains]).sum() / self.replicas
        # H[x] ≥ H[h] + H[x | h] + E log r(h | x); the first two are constant, r = N(m(x), I) learns to be tight.
        error: Tensor = (h - self.modules["inference"](x)).square().sum(1).mean()
        return -error / 2


def batch_norm_gains(module: nn.Module) -> list[Tensor]:
    """The gains γ of all batch norm layers."""
    return [m.weight for m in module.modules() if isinstance(m, _BatchNorm)]


def _inference(generator: LatentGenerator, width: int) -> nn.Module:
    """A network from events to codes, with the sizes and on the device of the generator."""
    device = next(generator.parameters()).device
    with torch.no_grad(), frozen(generator):
        size = generator(torch.zeros(2, generator.latent_dim, device=device)).flatten(1).shape[1]
    layers = [nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, generator.latent_dim)).to(device)
