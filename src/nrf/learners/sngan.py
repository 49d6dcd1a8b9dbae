"""GAN with the hinge loss, which with a spectrally normalised potential is SNGAN.

Reference:
    Miyato et al., "Spectral normalization for generative adversarial networks".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nrf.learners.base import Learner
from nrf.learners.gan import Adversarial, AdversarialConfig
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss
from nrf.models import LatentGenerator
from nrf.samplers import Sampler


@dataclass(frozen=True)
class SNGANConfig(AdversarialConfig):
    """Hinge loss; the spectral norm is the network's (`norm="spectral"`)."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Adversarial(potential, generator, self, hinge_loss, adversarial_loss)


def hinge_loss(u_data: Tensor, u_samples: Tensor) -> Tensor:
    """``E max(0, 1 − u(x̃)) + E max(0, 1 + u(x))``."""
    return (1 - u_data).relu().mean() + (1 + u_samples).relu().mean()
