"""Targets: the gradient functions that samplers climb.

A target is called with a position and the step index ``l`` (from 0) and returns the ascent direction for every block.
``exact`` says whether that is the true gradient of a log-density or a stochastic estimate of it, so that a sampler
that claims exactness can refuse the latter. A target that knows the log-density itself has ``value_and_gradient``
(:class:`nrf.samplers.Density`), which Metropolis-adjusted samplers need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from nrf.errors import InputError
from nrf.models import Generator, Potential, gradient, value_and_gradient
from nrf.samplers.base import Position
from nrf.seeds import Rng, randn


@dataclass(frozen=True)
class PotentialTarget:
    """The density ``p(x)`` alone, over positions ``(x,)``: the target with which the released scripts revise.

    Args:
        potential: ``u``, the log-density up to a constant.
    """

    potential: Potential
    exact = True

    def __call__(self, position: Position, l: int) -> Position:
        (x,) = position
        return (gradient(self.potential, x),)

    def value_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """``u(x)``, which is ``log p(x)`` up to a constant, and its gradient, from one evaluation."""
        (x,) = position
        value, grad = value_and_gradient(self.potential, x)
        return value, (grad,)


@dataclass(frozen=True)
class ConditionalTarget:
    """Two separate gradients, ``∇u(x)`` for x and ``∇_h log q(x, h)`` for h, which CoopNet follows in turn.

    Args:
        potential: ``u``.
        generator: ``q``, with ``sigma > 0`` and the normal prior.
    """

    potential: Potential
    generator: Generator
    exact = True

    def __call__(self, position: Position, l: int) -> Position:
        return self.block(position, l, 0), self.block(position, l, 1)

    def block(self, position: Position, l: int, index: int) -> Tensor:
        """The gradient for one block only, at the cost of that block only."""
        x, h = position
        if index == 0:
            return gradient(self.potential, x)
        return self.generator.latent_gradient(x, h)[0]


@dataclass(frozen=True)
class JointTarget:
    """The augmented target ``p(x) q(h | x)`` with the stochastic gradient of Alg. 2, in closed form.

    ``Δ_x = ∇u(x) + (g(h) − g(h*)) / σ²`` and ``Δ_h = J_g(h)ᵀ (x − g(h)) / σ² − h``, one vector-Jacobian product. ``h*``
    is a Langevin move of ``h`` towards ``q(h | x)``; at the first step ``h`` is an exact draw, so ``h* = h`` and the
    correction vanishes.

    Args:
        potential: ``u``.
        generator: ``q``, with ``sigma > 0`` and the normal prior.
        inner_step_size: Step size δ* of the inner Langevin moves.
        rng: Source of the inner noise.
        n_inner: Number of inner moves; more of them lower the bias of the estimate.
        inner_temperature: Scales the variance of the inner noise. 1 makes ``h*`` a draw; 0 makes it deterministic.
    """

    potential: Potential
    generator: Generator
    inner_step_size: float
    rng: Rng
    n_inner: int = 1
    inner_temperature: float = 1.0
    exact = False

    def __post_init__(self) -> None:
        if self.n_inner < 1 or self.inner_step_size <= 0 or self.inner_temperature < 0:
            raise InputError(
                "the joint target needs n_inner ≥ 1, inner_step_size > 0 and inner_temperature ≥ 0, got "
                f"{self.n_inner}, {self.inner_step_size} and {self.inner_temperature}"
            )

    def __call__(self, position: Position, l: int) -> Position:
        x, h = position
        delta_x = gradient(self.potential, x)
        delta_h, pull = self.generator.latent_gradient(x, h)
        if l > 0:
            delta_x = delta_x + pull - self.generator.pull(self._star(x, h, delta_h))
        return delta_x, delta_h

    def _star(self, x: Tensor, h: Tensor, delta_h: Tensor) -> Tensor:
        """``h*``; the first inner move reuses the ``Δ_h`` that the outer step needs anyway."""
        scale = math.sqrt(2 * self.inner_step_size * self.inner_temperature)
        star = h
        for inner in range(self.n_inner):
            drift = delta_h if inner == 0 else self.generator.latent_gradient(x, star)[0]
            star = star + self.inner_step_size * drift
            if scale > 0:
                star = star + scale * randn(h.shape, self.rng, h.dtype)
        return star
