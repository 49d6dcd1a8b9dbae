"""What a learner is, and the checks and optimisers learners share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer, RMSprop

from nrf.errors import NonFiniteError

Metrics = dict[str, Tensor]
"""Named scalars of one iteration, detached."""

OptimizerName = Literal["adam", "rmsprop"]


class Learner(Protocol):
    """Owns its modules and optimisers, for the order of updates *is* the algorithm."""

    @property
    def modules(self) -> Mapping[str, nn.Module]: ...

    @property
    def optimizers(self) -> Mapping[str, Optimizer]: ...

    def update(self, batch: Tensor, rng: torch.Generator) -> Metrics:
        """One iteration on one batch of data; all randomness comes from ``rng``."""
        ...


def make_optimizer(module: nn.Module, name: OptimizerName, lr: float, betas: tuple[float, float]) -> Optimizer:
    """An optimiser over the trained parameters; RMSprop takes momentum and smoothing from the same pair as Adam."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if name == "adam":
        return Adam(parameters, lr=lr, betas=betas, fused=True)
    return RMSprop(parameters, lr=lr, alpha=betas[1], momentum=betas[0])


def require_finite(**tensors: Tensor) -> None:
    """Raise with the name of the first tensor, in the order given, that holds a NaN or an infinity."""
    for name, tensor in tensors.items():
        finite = torch.isfinite(tensor)
        if not finite.all():
            bad = int((~finite).sum())
            raise NonFiniteError(f"{name.replace('_', ' ')} has {bad} non-finite of {tensor.numel()} values")
