"""BAOAB: underdamped Langevin dynamics by splitting, with the friction and its noise solved exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from nrf.samplers.base import Chain, GradFn, Position, WithMomentum, at_rest, noise
from nrf.seeds import Rng


class Velocity(NamedTuple):
    """State of :class:`BAOAB`: the velocity of each block, in units of position per √δ."""

    velocity: Position


@dataclass(frozen=True)
class BAOAB(WithMomentum):
    """Underdamped Langevin dynamics by splitting; one step is kick, drift, friction, drift.

    ``v ← v + √δ Δ;  z ← z + √δ v/2;  v ← (1−β)v + √(β(2−β)τ) η;  z ← z + √δ v/2``.

    The momentum is a velocity here, and the time step is √δ: a step with the same δ and β as that of
    :class:`~nrf.samplers.sghmc.SGHMC` also costs one gradient and moves as far. In the textbook's B-A-O-A-B two half
    kicks follow each other at the same position; here they are one full kick, and only the very first is a half. On a
    Gaussian target with exact gradients the positions have no discretisation bias at any stable step (δλ < 4 for the
    largest curvature λ), so the step can be long.

    Reference:
        Leimkuhler & Matthews, "Rational construction of stochastic numerical methods for molecular sampling".

    Example:
        >>> import torch
        >>> from nrf.samplers import run
        >>> climb = BAOAB(step_size=1.0, friction=1.0, temperature=0.0)
        >>> chain = run(climb, (torch.tensor([4.0]),), lambda z, l: (-z[0],), 1, torch.Generator())
        >>> chain.position[0]
        tensor([3.])
    """

    def init(self, position: Position) -> Chain:
        return Chain(position, Velocity(at_rest(position)))

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        times = [math.sqrt(size) for size in self.step_sizes(l, len(chain.position))]
        before = self.state_of(chain, Velocity).velocity
        grads = grad_fn(chain.position, l)
        kick, variance = 0.5 if l == 0 else 1.0, self.friction * (2 - self.friction) * self.temperature
        positions, velocities = [], []
        for z, v, delta, time in zip(chain.position, before, grads, times, strict=True):
            v = v + kick * time * delta
            z = z + time / 2 * v
            v = (1 - self.friction) * v + noise(v, variance, rng)
            positions.append(z + time / 2 * v)
            velocities.append(v)
        position, velocity = self.confined(positions, velocities)
        return Chain(position, Velocity(velocity))
