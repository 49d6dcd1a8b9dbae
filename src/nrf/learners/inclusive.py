"""Inclusive-NRF learning (Alg. 1): maximum likelihood for the potential, KL[p‖q] for the generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nrf.learners.base import Metrics, OptimizerName, make_optimizer, require_finite
from nrf.learners.revision import Revision
from nrf.losses import adversarial_loss, control_loss, potential_loss, regression_loss
from nrf.models import LatentGenerator, frozen
from nrf.samplers import Sampler


@dataclass(frozen=True)
class InclusiveConfig:
    """Hyper-parameters of the learner."""

    control_weight: float = 0.0
    """Weight α_p of the potential control loss."""
    generator_loss: Literal["regression", "potential"] = "regression"
    """Train g by regression on revised pairs (Alg. 1), or by −u(g(h)) on fresh codes (the released CIFAR-10 script)."""
    optimizer: OptimizerName = "adam"
    """Optimiser of both networks."""
    betas: tuple[float, float] = (0.5, 0.9)
    """Adam's (β1, β2); RMSprop takes them as momentum and smoothing."""
    potential_lr: float = 1e-3
    """Learning rate of the potential."""
    generator_lr: float = 1e-3
    """Learning rate of the generator."""


class Inclusive:
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
        if revision.target != "x":
            generator.require_density()
        self.potential, self.generator = potential, generator
        self.sampler, self.revision, self.config = sampler, revision, config
        self.modules: Mapping[str, nn.Module] = {"potential": potential, "generator": generator}
        rates = {"potential": config.potential_lr, "generator": config.generator_lr}
        self.optimizers: Mapping[str, Optimizer] = {
            name: make_optimizer(module, config.optimizer, rates[name], config.betas)
            for name, module in self.modules.items()
        }

    def update(self, batch: Tensor, rng: torch.Generator) -> Metrics:
        with frozen(self.potential, self.generator):
            proposed, latent = self.generator.propose(len(batch), rng)
            x, h = self.revision(self.potential, self.generator, self.sampler, proposed, latent, rng)
        potential_metrics = self._step_potential(batch, x)
        generator_metrics = self._step_generator(x, h, rng)
        metrics = potential_metrics | generator_metrics
        if not torch.isfinite(sum(metrics.values(), start=torch.zeros((), device=batch.device))):
            require_finite(batch=batch, proposed_samples=proposed, revised_samples=x, revised_codes=h, **metrics)
        metrics["revision_distance"] = (x - proposed).flatten(1).norm(dim=1).mean()
        return metrics

    def _step_potential(self, data: Tensor, samples: Tensor) -> Metrics:
        # One pass over both halves: half the overhead, and batch norm, where there is one, sees both alike.
        u_data, u_samples = self.potential(torch.cat([data, samples])).split([len(data), len(samples)])
        loss = potential_loss(u_data, u_samples)
        if self.config.control_weight > 0:
            loss = loss + self.config.control_weight * control_loss(u_data)
        _descend(self.optimizers["potential"], loss)
        means = {"u_data": u_data.detach().mean(), "u_revised": u_samples.detach().mean()}
        return means | {"potential_loss": loss.detach()}

    def _step_generator(self, x: Tensor, h: Tensor, rng: torch.Generator) -> Metrics:
        if self.config.generator_loss == "regression":
            loss = regression_loss(x, self.generator(h))
            _descend(self.optimizers["generator"], loss)
        else:
            fresh = self.generator.sample_latent(len(x), rng)
            with frozen(self.potential):
                loss = adversarial_loss(self.potential(self.generator(fresh)))
                _descend(self.optimizers["generator"], loss)
        return {"generator_loss": loss.detach()}


def _descend(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
