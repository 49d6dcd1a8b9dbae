"""The parts that all samplers share: the state, the contract, the step-size schedule, the box, and the loop.

A sampler is a frozen dataclass of hyper-parameters with two pure functions, ``init`` and ``step``, over an explicit
state and an explicit source of randomness. It sees a gradient function, or a log-density with its gradient, never a
network.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from nrf.deprecation import deprecated
from nrf.errors import InputError
from nrf.seeds import Rng, randn

Position = tuple[Tensor, ...]
"""``(x,)`` or ``(x, h)``; the first block is always x."""

GradFn = Callable[[Position, int], Position]
"""Ascent direction of the log-density at a position, at step ``l`` counted from 0."""


State = TypeVar("State")


@runtime_checkable
class Density(Protocol):
    """A gradient function that also gives the log-density itself, as an accept–reject step needs it."""

    def __call__(self, position: Position, l: int) -> Position: ...

    def value_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """``log p`` of each row up to one constant, ``(n,)``, and its gradient, from one evaluation."""
        ...


class Chain(NamedTuple):
    """A batch of parallel chains between two steps.

    Attributes:
        position: The current positions, block by block.
        state: Whatever else the sampler carries from step to step, in a type of its own (such as
            :class:`Momentum`); ``None`` for a sampler without memory.
    """

    position: Position
    state: object = None

    @property
    def momentum(self) -> Position | None:
        """The momentum of a sampler that has one; deprecated, read ``state`` instead."""
        deprecated("Chain.momentum", "Chain.state, whose type is the sampler's own")
        state: Any = self.state
        found: Position | None = getattr(state, "momentum", getattr(state, "velocity", state))
        return found


class Momentum(NamedTuple):
    """State of :class:`SecondOrder` samplers: the last move of each block, in units of position."""

    momentum: Position


@dataclass(frozen=True)
class Sampler(ABC):
    """Base class of all samplers: the methods that each must have, and the hyper-parameters that all of them share.

    With ``decay = (b, c)``, step ``l`` has size ``step_size · (1 + l/b)^(−c)``; without, the size is constant. The
    paper's ``(a(1 + t/b))^(−c)`` is :func:`polynomial`. Noise has variance ``2 · step size · temperature``.
    """

    step_size: float = 0.01
    """Step size δ of x."""
    latent_step_size: float | None = None
    """Step size of h; the same as that of x if not given."""
    decay: tuple[float, float] | None = None
    """(b, c): polynomial decay of both step sizes, (1 + l/b)^(-c); constant if not given."""
    temperature: float = 1.0
    """Scales the variance of the noise: 1 samples the density, 0 climbs it without noise."""
    box: tuple[float, float] | None = None
    """Keep every coordinate of x within (low, high); unconstrained if not given."""
    box_mode: Literal["clip", "reflect"] = "clip"
    """What happens at the walls of the box."""

    exact: ClassVar[bool] = False
    """Whether the sampler needs exact gradients, and refuses a target that estimates them."""
    adjusted: ClassVar[bool] = False
    """Whether it accepts or rejects by the log-density, and so needs a target that gives it (:class:`Density`)."""

    def __post_init__(self) -> None:
        sizes = [("step_size", self.step_size), ("latent_step_size", self.latent_step_size)]
        for name, size in sizes:
            if size is not None and not 0 < size < math.inf:
                raise InputError(f"{name} must be positive and finite, got {size}")
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature must be finite and not negative, got {self.temperature}")
        if self.decay is not None and not (0 < self.decay[0] < math.inf and 0 <= self.decay[1] < math.inf):
            raise InputError(f"decay (b, c) needs b > 0 and c ≥ 0, got {self.decay}")
        if self.box is not None and not -math.inf < self.box[0] < self.box[1] < math.inf:
            raise InputError(f"box (low, high) needs low < high, got {self.box}")

    @abstractmethod
    def init(self, position: Position) -> Chain:
        """Start chains at a position, without momentum.

        Args:
            position: Where the chains start, ``(x,)`` or ``(x, h)``.
        """

    @abstractmethod
    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        """Take step ``l`` and return the new chains; the chains passed in are not modified.

        Args:
            chain: The chains before the step.
            grad_fn: A target, or any function with its signature.
            l: Number of the step, from 0.
            rng: Source of all randomness.
        """

    def state_of(self, chain: Chain, kind: type[State]) -> State:
        """The chain's state, if it is of this sampler's own type.

        Args:
            chain: The chain.
            kind: The type of this sampler's state.

        Raises:
            InputError: The chain has no state, or another sampler's.
        """
        if not isinstance(chain.state, kind):
            name = type(self).__name__
            raise InputError(f"{name} needs a chain with a state of its own ({kind.__name__}): start it with init()")
        return chain.state

    def diagnostics(self, chain: Chain) -> dict[str, Tensor]:
        """Named scalars about the chain so far; learners log them with their metrics. Most samplers have none."""
        return {}

    def step_sizes(self, l: int, n_blocks: int) -> tuple[float, ...]:
        """The step size of each block at step ``l``."""
        factor = 1.0 if self.decay is None else (1 + l / self.decay[0]) ** -self.decay[1]
        latent = self.step_size if self.latent_step_size is None else self.latent_step_size
        return (self.step_size * factor,) + (latent * factor,) * (n_blocks - 1)

    def confine(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Bring x into the box; with ``reflect``, also return a mask of coordinates whose direction is reversed."""
        if self.box is None:
            return x, None
        low, high = self.box
        if self.box_mode == "clip":
            return x.clamp(low, high), None
        width = high - low
        folded = torch.remainder(x - low, 2 * width)
        turned = folded > width
        return low + torch.where(turned, 2 * width - folded, folded), turned


def polynomial(a: float, b: float, c: float) -> dict[str, float | tuple[float, float]]:
    """The paper's schedule ``δ_t = (a(1 + t/b))^(−c)`` as keyword arguments of a sampler.

    Args:
        a: Base of the first step size, ``a^(−c)``.
        b: Number of steps over which the decay sets in.
        c: Exponent of the decay.

    Example:
        >>> polynomial(a=10, b=1000, c=2)
        {'step_size': 0.01, 'decay': (1000, 2)}
    """
    return {"step_size": a**-c, "decay": (b, c)}


def noise(like: Tensor, variance: float, rng: Rng) -> Tensor | float:
    """Gaussian noise of a given variance; at variance 0 no random numbers are drawn."""
    if variance == 0:
        return 0.0
    return math.sqrt(variance) * randn(like.shape, rng, like.dtype)


def at_rest(position: Position) -> Position:
    """A momentum of 0 for every block of a position."""
    return tuple(torch.zeros_like(z) for z in position)


@dataclass(frozen=True)
class FirstOrder(Sampler):
    """The Euler–Maruyama step of overdamped Langevin dynamics, ``z ← z + δΔ + √(2δτ) η``."""

    def init(self, position: Position) -> Chain:
        return Chain(position)

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        sizes = self.step_sizes(l, len(chain.position))
        grads = grad_fn(chain.position, l)
        x, *latents = (
            self.move(z, delta, size, rng) for z, delta, size in zip(chain.position, grads, sizes, strict=True)
        )
        return Chain((self.confine(x)[0], *latents))

    def move(self, z: Tensor, delta: Tensor, size: float, rng: Rng) -> Tensor:
        """The step of one block."""
        return z + size * delta + noise(z, 2 * size * self.temperature, rng)


@dataclass(frozen=True)
class WithMomentum(Sampler):
    """Base class of samplers with momentum and friction."""

    friction: float = 0.1
    """Friction β: the share of the momentum lost in a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.friction <= 1:
            raise InputError(f"friction must lie in [0, 1], got {self.friction}")

    def confined(self, positions: list[Tensor], momenta: list[Tensor]) -> tuple[Position, Position]:
        """Bring x into the box, and reverse its momentum where a wall reflected x."""
        positions[0], turned = self.confine(positions[0])
        if turned is not None:
            momenta[0] = torch.where(turned, -momenta[0], momenta[0])
        return tuple(positions), tuple(momenta)


@dataclass(frozen=True)
class SecondOrder(WithMomentum):
    """Second-order Langevin dynamics with friction: ``v ← (1−β)v + δΔ + √(2βδτ) η``, then ``z ← z + v``; ``v⁰ = 0``."""

    def init(self, position: Position) -> Chain:
        return Chain(position, Momentum(at_rest(position)))

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        sizes = self.step_sizes(l, len(chain.position))
        before = self.state_of(chain, Momentum).momentum
        grads = grad_fn(chain.position, l)
        momenta = [
            (1 - self.friction) * v + size * delta + noise(v, 2 * self.friction * size * self.temperature, rng)
            for v, delta, size in zip(before, grads, sizes, strict=True)
        ]
        moved = [z + v for z, v in zip(chain.position, momenta, strict=True)]
        position, momentum = self.confined(moved, momenta)
        return Chain(position, Momentum(momentum))


def run(
    sampler: Sampler,
    position: Position,
    grad_fn: GradFn,
    n_steps: int,
    rng: Rng,
    trace: Callable[[int, Chain], None] | None = None,
) -> Chain:
    """Run ``n_steps`` steps of a sampler from a position.

    Args:
        sampler: The sampler; an ``exact`` one refuses a gradient function that is marked as not exact.
        position: Where to start, ``(x,)`` or ``(x, h)``.
        grad_fn: A target, or any function with its signature.
        n_steps: Number of steps L.
        rng: Source of all the sampler's randomness.
        trace: Called with ``(l, chain)`` after each step, to record the path.

    Returns:
        The chains after the last step.
    """
    require_gradient(sampler, grad_fn)
    chain = sampler.init(position)
    with torch.no_grad():
        for l in range(n_steps):
            chain = sampler.step(chain, grad_fn, l, rng)
            if trace is not None:
                trace(l, chain)
    return chain


def require_gradient(sampler: Sampler, grad_fn: GradFn) -> None:
    """Raise an error if a sampler does not fit a gradient function.

    A sampler that is ``exact`` needs exact gradients, and one that is ``adjusted`` needs the log-density, too.

    Args:
        sampler: The sampler.
        grad_fn: The gradient function.

    Raises:
        InputError: They do not fit.
    """
    name, target = type(sampler).__name__, getattr(grad_fn, "__name__", type(grad_fn).__name__)
    if sampler.exact and not getattr(grad_fn, "exact", True):
        instead = STOCHASTIC.get(name, "a stochastic-gradient sampler")
        raise InputError(
            f"{name} is defined by exact gradients and {target} gives a stochastic one; "
            f"use {instead}, or an exact target"
        )
    if sampler.adjusted and not isinstance(grad_fn, Density):
        raise InputError(
            f"{name} accepts or rejects by the log-density and {target} gives a gradient alone; "
            "give it a target with value_and_gradient, such as PotentialTarget"
        )


STOCHASTIC = {
    "Langevin": "SGLD",
    "SecondOrderLangevin": "SGHMC",
    "MALA": "SGLD",
    "HMC": "SGHMC",
}
"""The sampler to use instead of each exact one, where gradients are estimates."""
