"""CoopNet's interleaved sampler: some Langevin steps of x, then some of h with x fixed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

from torch import Tensor

from nrf.errors import InputError
from nrf.samplers.base import Chain, FirstOrder, GradFn, Position
from nrf.samplers.sgld import SGLD
from nrf.seeds import Rng


@runtime_checkable
class BlockGradFn(Protocol):
    """A gradient function that can be asked for one block alone."""

    def __call__(self, position: Position, l: int) -> Position: ...

    def block(self, position: Position, l: int, index: int) -> Tensor: ...


@dataclass(frozen=True)
class CoopNet(FirstOrder):
    """CoopNet's sampler: one step is ``n_x`` Langevin steps along ``∇u(x)``, then ``n_h`` along ``∇_h log q(x, h)``.

    It needs a position ``(x, h)`` and a target that gives the two gradients separately
    (:class:`nrf.targets.ConditionalTarget`). The step size decays over these inner steps.
    """

    n_x: int = 20
    """Langevin steps of x in one iteration."""
    n_h: int = 20
    """Langevin steps of h in one iteration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_x < 1 or self.n_h < 0:
            raise InputError(f"CoopNet needs n_x ≥ 1 and n_h ≥ 0, got {self.n_x} and {self.n_h}")

    def along_x(self) -> SGLD:
        """A sampler that takes the steps of x alone, for rows that have no code."""
        return SGLD(**{f.name: getattr(self, f.name) for f in fields(SGLD)})

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        if not isinstance(grad_fn, BlockGradFn) or len(chain.position) != 2:
            raise InputError("CoopNet interleaves x and h: give it a position (x, h) and a ConditionalTarget")
        x, h = chain.position
        for i in range(self.n_x):
            t = l * self.n_x + i
            size = self.step_sizes(t, 2)[0]
            x, _ = self.confine(self.move(x, grad_fn.block((x, h), t, 0), size, rng))
        for i in range(self.n_h):
            t = l * self.n_h + i
            size = self.step_sizes(t, 2)[1]
            h = self.move(h, grad_fn.block((x, h), t, 1), size, rng)
        return Chain((x, h))
