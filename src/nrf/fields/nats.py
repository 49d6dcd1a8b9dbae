"""The log-density of a field in nats, where its normaliser is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nrf.models import frozen
from nrf.networks import require_levels

CHUNK = 65_536


def log_density(potential: nn.Module, x: Tensor, level: int = 0) -> Tensor:
    """``log p(x)`` in nats, of the data blurred by the noise of a level.

    Learning makes the potential normalised, so this is its value; how well that holds is what
    :func:`nrf.fields.quadrature` and :func:`nrf.fields.annealed_integral` say.

    Args:
        potential: A noise-level potential, trained by the learner ``levels``; others are known up to a constant only.
        x: Rows.
        level: Which noise, from the smallest on.
    """
    field = require_levels(potential).at(level)
    with torch.no_grad(), frozen(potential):
        return torch.cat([field(rows) for rows in torch.split(x, CHUNK)])
