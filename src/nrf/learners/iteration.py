"""One iteration of Alg. 1 as one compiled function: proposal, revision, and the gradients of both losses.

Small networks spend more time on bookkeeping than on arithmetic: modules, graphs, one kernel per operation. Here
everything but the optimisers is one function of parameters, a batch and noise. The noise is drawn beforehand, in the
same order as without compilation, so both ways give the same results up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from nrf.learners.reviser import compiled_once
from nrf.learners.revision import Revision
from nrf.losses import likelihood_loss, regression_loss
from nrf.models import LatentGenerator, replicas_of, together
from nrf.networks import Snapshot, Statistics, called_with, note_statistics
from nrf.samplers import Sampler
from nrf.seeds import Drawn, Rng, Tape, randn, shapes_drawn

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Iterated:
    """Results of an iteration, before any parameter is updated."""

    gradients: dict[str, Tensors]
    """Gradients of the trained parameters, by network and name."""
    statistics: Tensors
    """The generator's buffers as this iteration leaves them."""
    metrics: Tensors
    proposed: Tensor
    x: Tensor
    h: Tensor


class Iteration:
    """Computes iterations with the networks as they are now.

    Args:
        potential: ``u``; without buffers.
        generator: ``q(x, h)``, trained by regression.
        sampler: Any sampler.
        revision: Target and length.
        control_weight: Weight of the potential control.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        control_weight: float,
    ) -> None:
        self.potential, self.generator = potential, generator
        self.sampler, self.revision, self.control_weight = sampler, revision, control_weight
        self._still = Snapshot(potential), Snapshot(generator)
        # Only the structure of these two is used: they are called with the generator's values.
        self._trained, self._evaluated = copy.deepcopy(generator), copy.deepcopy(generator).eval()
        self._noted: Statistics = {}
        note_statistics(self._trained, self._noted)
        # Looked up once: walking through modules takes a tenth of a small network's iteration.
        self.trained = {"potential": _trained(potential), "generator": _trained(generator)}
        self.buffers = dict(generator.named_buffers())
        self._compiled: dict[tuple[Any, ...], tuple[Callable[..., Iterated], list[Drawn]]] = {}
        self.works = True
        """False once the compiler has failed."""

    @torch.no_grad()
    def __call__(self, batch: Tensor, rng: Rng) -> Iterated | None:
        """One iteration on a batch; None, with nothing drawn, if it cannot be compiled."""
        for snapshot in self._still:
            snapshot.refresh()
        batch = batch.contiguous()
        # All that may change between calls. The compiler's own checks take an eighth of a small network's iteration.
        key = (batch.shape, batch.dtype, batch.device, self.potential.training, self.generator.training)
        if key not in self._compiled and not self._prepare(key, batch):
            return None
        steps, shapes = self._compiled[key]
        h = self.generator.sample_latent(len(batch), rng)
        noise = randn(batch.shape, rng) if self.generator.sigma > 0 else None
        return steps(*self._state(), batch, h, noise, Tape.record(shapes, rng).draws)

    def _prepare(self, key: tuple[Any, ...], batch: Tensor) -> bool:
        """Compile for batches like this one; False if that fails, and it is not tried again then."""
        if not self.works:
            return False
        self._trained.train(self.generator.training)
        rng = torch.Generator(batch.device)
        h = self.generator.sample_latent(len(batch), rng)
        noise = randn(batch.shape, rng) if self.generator.sigma > 0 else None
        u, q = (snapshot.copy for snapshot in self._still)
        shapes = shapes_drawn(lambda tape: self.revision(u, q, self.sampler, batch, h, tape), batch.device)  # type: ignore[arg-type]
        example = (*self._state(), batch, h, noise, Tape.record(shapes, rng).draws)
        found = compiled_once(self._arithmetic, example, "the iteration", "it is computed part by part", trusted=True)
        if found is None:
            self.works = False
            return False
        self._compiled[key] = found, shapes
        return True

    def _state(self) -> tuple[Tensors, Tensors, Tensors]:
        """The trained parameters of both networks, and the generator's buffers."""
        of_u, of_q = ({name: p.detach() for name, p in part.items()} for part in self.trained.values())
        return of_u, of_q, self.buffers

    def _arithmetic(
        self,
        of_u: Tensors,
        of_q: Tensors,
        buffers: Tensors,
        batch: Tensor,
        h: Tensor,
        noise: Tensor | None,
        draws: list[Tensor],
    ) -> Iterated:
        u, q = (snapshot.copy for snapshot in self._still)
        mean, statistics, _ = self._of_batch(of_q, buffers, h)
        for name, held in statistics.items():
            layer = q.get_submodule(name)
            for mine, value in zip((layer.running_mean, layer.running_var), held, strict=True):
                mine.copy_(value)  # type: ignore[operator]
        proposed = mean if noise is None else mean + self.generator.sigma * noise
        x, revised, diagnostics = self.revision.revised(u, q, self.sampler, proposed, h, Tape(draws))  # type: ignore[arg-type]
        replicas = replicas_of(self.potential)

        def likelihood(parameters: Tensors) -> tuple[Tensor, tuple[Tensor, ...]]:
            values = partial(_called, self.potential, parameters)
            u_data, u_samples = together(values, batch, x, replicas=replicas)
            loss = likelihood_loss(u_data, u_samples, self.control_weight)
            return replicas * loss, (u_data.mean(), u_samples.mean(), loss)

        def regression(parameters: Tensors) -> tuple[Tensor, tuple[Tensor, Tensors]]:
            mean, statistics, after = self._of_batch(parameters, buffers, h)
            if self.revision.target != "x":
                mean = called_with(self._evaluated, statistics, parameters | buffers, revised)
            loss = regression_loss(x, mean)
            return replicas * loss, (loss, after)

        gradients_u, (u_data, u_revised, potential_loss) = grad(likelihood, has_aux=True)(of_u)
        gradients_q, (generator_loss, after) = grad(regression, has_aux=True)(of_q)
        metrics = {
            "u_data": u_data,
            "u_revised": u_revised,
            "potential_loss": potential_loss,
            "generator_loss": generator_loss,
            "revision_distance": (x - proposed).flatten(1).norm(dim=1).mean(),
            **diagnostics,
        }
        return Iterated({"potential": gradients_u, "generator": gradients_q}, after, metrics, proposed, x, revised)

    def _of_batch(self, parameters: Tensors, buffers: Tensors, h: Tensor) -> tuple[Tensor, Statistics, Tensors]:
        """g at a batch of codes, the batch norm statistics that it used, and the buffers afterwards."""
        after = {name: value.clone() for name, value in buffers.items()}
        mean = _called(self._trained, parameters | after, h)
        statistics = dict(self._noted)
        self._noted.clear()
        return mean, statistics, after


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _called(module: nn.Module, state: Tensors, x: Tensor) -> Tensor:
    out: Tensor = functional_call(module, state, (x,))
    return out
