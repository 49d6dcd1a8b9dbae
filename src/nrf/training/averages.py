"""Averaged weights, and the batch norm statistics that belong to them.

A network of averaged weights has batch norm layers whose inputs differ from those of every network that it averages.
So its running statistics are recomputed, as ``update_bn`` of ``torch.optim.swa_utils`` does, whenever it is stored or
used. The next iteration overwrites them, so the run itself does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nrf.learners.base import Learner, PairLearner
from nrf.models import LatentGenerator, joined
from nrf.networks import batch_norms
from nrf.seeds import Rng
from nrf.training.batches import Batches

PASSES = 20
"""Number of batches of codes from which the generator's statistics are computed."""
REVISED_PASSES = 5
"""The same for the potential, whose batches are of data and revised samples: those cost as much as an iteration."""


def averages_of(modules: Mapping[str, nn.Module], decay: float | None) -> dict[str, AveragedModel]:
    """Averaged copies of these modules, for training to update; none without a decay."""
    if decay is None:
        return {}
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    # A module without parameters is a learner's memory, not something to average.
    learned = {name: module for name, module in modules.items() if any(True for _ in module.parameters())}
    return {name: AveragedModel(module, multi_avg_fn=average) for name, module in learned.items()}


def take_statistics(averages: Mapping[str, AveragedModel], learner: Learner, batches: Batches, rng: Rng) -> None:
    """Compute the batch norm statistics of averaged networks.

    Args:
        averages: Averaged copies of the learner's modules, by name; their statistics are set.
        learner: The learner, which is not changed.
        batches: Its training rows.
        rng: Source of randomness of codes and samples; not that of the run.
    """
    if not isinstance(learner, PairLearner):
        return
    size = learner.replicas * batches.batch_size
    if "generator" in averages:
        generator = cast(LatentGenerator, averages["generator"].module)
        renew(generator, (generator.sample_latent(size, rng) for _ in range(PASSES)))
    if "potential" in averages and batch_norms(averages["potential"]):
        data = [batches.at(i) for i in range(REVISED_PASSES)]
        rows = (joined(learner.replicas, batch, learner.samples(batch, rng)) for batch in data)
        renew(averages["potential"].module, rows)


@torch.no_grad()
def renew(module: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set running statistics to their means over these batches."""
    layers = list(batch_norms(module).values())
    if not layers:
        return
    with _in_training_mode(layers):
        for layer in layers:
            layer.reset_running_stats()
        for i, batch in enumerate(batches):
            for layer in layers:
                layer.momentum = 1 / (i + 1)
            module(batch)


@contextmanager
def _in_training_mode(layers: list[_BatchNorm]) -> Iterator[None]:
    was = [(layer.training, layer.momentum) for layer in layers]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer, (training, momentum) in zip(layers, was, strict=True):
            layer.training, layer.momentum = training, momentum
