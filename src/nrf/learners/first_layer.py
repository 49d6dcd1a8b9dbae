"""A faster revision for potentials whose first layer is narrower than its input.

Noise-free steps move x only by combinations of the rows of the first weight W: x = x₀ + cW. The first layer's output
is then that of x₀ plus c·WWᵀ, and the same sampler, run on c with the gradient at that output, gives the same x with
less arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nrf.networks import PlainPotential
from nrf.samplers import SGHMC, SGLD, Langevin, Position, Sampler, run
from nrf.seeds import Rng

LINEAR = (SGLD, SGHMC, Langevin)
"""Samplers that, without noise, move by a linear combination of the gradients they have seen."""


def first_layer(potential: nn.Module, sampler: Sampler) -> nn.Linear | None:
    """The first layer, if revision through it gives the same as revision of x with less arithmetic; else None."""
    if type(sampler) not in LINEAR or sampler.temperature > 0 or sampler.box is not None:
        return None
    if not isinstance(potential, PlainPotential) or potential.confinement is not None:
        return None
    flat, layer, *rest = potential.body.children()
    if not rest or not isinstance(flat, nn.Flatten) or not isinstance(layer, nn.Linear):
        return None
    return layer if layer.out_features <= layer.in_features else None


@torch.no_grad()
def revise_through(
    layer: nn.Linear, potential: nn.Module, sampler: Sampler, x: Tensor, n_steps: int, rng: Rng
) -> Tensor:
    """Take noise-free steps from x along a potential, through its first layer.

    Args:
        layer: The potential's layer that :func:`first_layer` found.
        potential: ``u``.
        sampler: A sampler without noise.
        x: Where the chains start.
        n_steps: Number of steps.
        rng: Passed on to the sampler, which draws nothing.
    """
    assert isinstance(potential, PlainPotential)
    weight = layer.weight
    start = nn.functional.linear(x.flatten(1), weight, layer.bias)
    overlaps = weight @ weight.T

    def grad_fn(position: Position, l: int) -> Position:
        return (potential.gradient_behind(layer, torch.addmm(start, position[0], overlaps)),)

    (moved,) = run(sampler, (torch.zeros_like(start),), grad_fn, n_steps, rng).position
    return torch.addmm(x.flatten(1), moved, weight).reshape(x.shape)
