"""The log-density of a field in nats, where its normaliser is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields.product import ProductField
from nrf.fields.referenced import ReferencedPotential
from nrf.models import Potential, frozen
from nrf.networks import require_levels

CHUNK = 65_536


def log_density(potential: nn.Module, x: Tensor, level: int = 0) -> Tensor:
    """``log p(x)`` in nats; for a noise-level potential, that of the data blurred by the noise of a level.

    Training makes a noise-level potential normalised, so this is its value; :func:`nrf.fields.quadrature` and
    :func:`nrf.fields.annealed_integral` measure how well that holds. A potential around a reference and a product of
    fields must first be normalised by draws of a reference (:func:`nrf.fields.normalise`,
    :meth:`nrf.fields.ProductField.normalise`).

    Args:
        potential: A noise-level potential that the learner ``levels`` trained, a potential around a reference, or a
            product; others are known up to a constant only.
        x: Rows.
        level: The noise level, counted from the smallest.
    """
    field = _normalised(potential, level)
    with torch.no_grad(), frozen(potential):
        return torch.cat([field(rows) for rows in torch.split(x, CHUNK)])


def _normalised(potential: nn.Module, level: int) -> Potential:
    if not isinstance(potential, ReferencedPotential | ProductField):
        return require_levels(potential).at(level)
    if level != 0:
        raise InputError(f"{type(potential).__name__} has no noise levels; leave the level at 0, got {level}")
    if not potential.is_normalised:
        raise InputError(f"the normaliser of this {type(potential).__name__} is not known yet; call normalise first")
    return potential
