"""Wasserstein GAN with gradient penalty.

Reference:
    Gulrajani et al., "Improved training of Wasserstein GANs".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from nrf.learners.base import Learner
from nrf.learners.gan import Adversarial, AdversarialConfig
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss, potential_loss
from nrf.models import LatentGenerator
from nrf.samplers import Sampler
from nrf.seeds import Rng, rand


@dataclass(frozen=True)
class WGANGPConfig(AdversarialConfig):
    """The potential is a critic; a penalty keeps the norm of its gradient near 1 between data and samples."""

    penalty_weight: float = 10.0
    """Weight λ of the gradient penalty."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        penalty = partial(gradient_penalty, weight=self.penalty_weight)
        return Adversarial(potential, generator, self, potential_loss, adversarial_loss, penalty)


def gradient_penalty(potential: nn.Module, data: Tensor, samples: Tensor, rng: Rng, weight: float) -> Tensor:
    """The gradient penalty ``λ E(‖∇u(x̂)‖ − 1)²`` at random points on the lines between data and samples.

    Args:
        potential: ``u``.
        data: Rows of data.
        samples: As many samples.
        rng: Source of all randomness.
        weight: λ.
    """
    share = rand((len(data), *(1,) * (data.ndim - 1)), rng)
    between = torch.lerp(samples, data, share).detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(potential(between).sum(), between, create_graph=True)
    penalty: Tensor = weight * (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty
