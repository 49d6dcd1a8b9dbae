"""The base class of Metropolis-adjusted samplers: leapfrog proposals that are accepted or rejected.

A proposal is a few leapfrog steps with a fresh momentum. They are reversible and preserve volume, even where a wall of
the box reflects them, so accepting by the change of total energy leaves exactly ``p(z)^(1/τ)`` invariant, whatever the
step size. Position, log-density and gradient of the last accepted point are kept in the chain: a leapfrog step costs
one evaluation of ``u`` and its gradient together, and the accept–reject step costs no further one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.samplers.base import Chain, Density, GradFn, Position, Sampler, noise
from nrf.seeds import Rng, rand


class Adjusted(NamedTuple):
    """State of a Metropolis-adjusted sampler.

    Attributes:
        log_density: ``log p`` of the position up to a constant, one number per chain; ``None`` before the first step.
        gradient: Its gradient, block by block; ``None`` before the first step.
        accepted: Number of proposals that each chain has accepted.
        n_steps: Number of proposals so far.
    """

    log_density: Tensor | None
    gradient: Position | None
    accepted: Tensor
    n_steps: int

    @property
    def acceptance(self) -> Tensor:
        """Share of proposals that were accepted, one number per chain; NaN before the first step."""
        return self.accepted / self.n_steps if self.n_steps else torch.full_like(self.accepted, math.nan)


@dataclass(frozen=True)
class Metropolis(Sampler):
    """Leapfrog proposals with the time step √(2δ) in each block, accepted or rejected chain by chain.

    It needs a target that gives the log-density (:class:`~nrf.samplers.base.Density`). With a decaying step each step
    still leaves the density invariant. At temperature 0 nothing is drawn, and a proposal is accepted if the total
    energy does not rise.
    """

    box_mode: Literal["clip", "reflect"] = "reflect"
    """What happens at the walls of the box. Clipped proposals have no density, so it must be reflect."""

    exact: ClassVar[bool] = True
    adjusted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.box_mode != "reflect":
            raise InputError(
                f"{type(self).__name__} accepts or rejects by the density of its proposals, and clipped ones have "
                "none; set box_mode to reflect"
            )

    @property
    @abstractmethod
    def leapfrog_steps(self) -> int:
        """Leapfrog steps in a proposal."""

    def init(self, position: Position) -> Chain:
        x, *latents = position
        return Chain((self.confine(x)[0], *latents), Adjusted(None, None, x.new_zeros(len(x)), 0))

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        if not isinstance(grad_fn, Density):
            raise InputError(f"{type(self).__name__} needs a target with value_and_gradient, such as PotentialTarget")
        state, start = self.state_of(chain, Adjusted), chain.position
        if state.log_density is None or state.gradient is None:
            value, gradient = grad_fn.value_and_gradient(start)
        else:
            value, gradient = state.log_density, state.gradient
        velocity = tuple(torch.zeros_like(z) + noise(z, self.temperature, rng) for z in start)
        end, end_velocity, end_value, end_gradient = self._leapfrog(start, velocity, gradient, grad_fn, l)
        gain = (end_value - _kinetic(end_velocity)) - (value - _kinetic(velocity))
        threshold = self.temperature * (1 - rand(gain.shape, rng, gain.dtype)).log() if self.temperature > 0 else 0.0
        take = gain >= threshold  # False where the proposal is not finite: the chain stays
        return Chain(
            _chosen(take, end, start),
            Adjusted(
                torch.where(take, end_value, value),
                _chosen(take, end_gradient, gradient),
                state.accepted + take,
                state.n_steps + 1,
            ),
        )

    def diagnostics(self, chain: Chain) -> dict[str, Tensor]:
        """``acceptance``: the share of accepted proposals, over all chains and steps."""
        return {"acceptance": self.state_of(chain, Adjusted).acceptance.mean()}

    def _leapfrog(
        self, position: Position, velocity: Position, gradient: Position, density: Density, l: int
    ) -> tuple[Position, Position, Tensor, Position]:
        """Several leapfrog steps; returns position, velocity, log-density and gradient at the end."""
        times = [math.sqrt(2 * size) for size in self.step_sizes(l, len(position))]
        value = position[0].new_zeros(len(position[0]))
        for _ in range(self.leapfrog_steps):
            velocity = _kicked(velocity, gradient, times)
            x, *latents = (z + time * v for z, v, time in zip(position, velocity, times, strict=True))
            x, turned = self.confine(x)
            if turned is not None:
                velocity = (torch.where(turned, -velocity[0], velocity[0]), *velocity[1:])
            position = (x, *latents)
            value, gradient = density.value_and_gradient(position)
            velocity = _kicked(velocity, gradient, times)
        return position, velocity, value, gradient


def _kicked(velocity: Position, gradient: Position, times: list[float]) -> Position:
    return tuple(v + time / 2 * g for v, g, time in zip(velocity, gradient, times, strict=True))


def _kinetic(velocity: Position) -> Tensor:
    """``‖v‖²/2`` of each chain."""
    energies = [v.flatten(1).square().sum(1) / 2 if v.ndim > 1 else v.square() / 2 for v in velocity]
    return torch.stack(energies).sum(0)


def _chosen(take: Tensor, new: Position, old: Position) -> Position:
    return tuple(
        torch.where(take.reshape(-1, *(1,) * (z.ndim - 1)), z, z_old) for z, z_old in zip(new, old, strict=True)
    )
