"""My sampler: say in one sentence what it does. Copy this file to src/nrf/samplers/, then change what is marked.

Reference:
    Authors, "Title".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from nrf.errors import InputError
from nrf.samplers.base import Chain, GradFn, Position, Sampler, noise
from nrf.seeds import Rng


# Change: what the sampler carries from step to step. If that is nothing, delete the class, return Chain(position) and
# leave `state_of` out.
class MyState(NamedTuple):
    """State of :class:`MySampler`: the mean of the gradients it has seen."""

    mean_gradient: Position


@dataclass(frozen=True)
class MySampler(Sampler):
    """``m ← (1−α)m + αΔ;  z ← z + δm + √(2δτ) η``: change this to the formula of one step."""

    # Change: settings beyond those of `Sampler` (step sizes, decay, temperature, box). Each has a default, and a line
    # below it, which is its help on the command line.
    share: float = 0.9
    """Share α of the newest gradient in the mean."""

    # A sampler that needs exact gradients declares `exact: ClassVar[bool] = True`. One that accepts or rejects
    # inherits from `Metropolis` (metropolis.py) and is given the log-density.

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise InputError(f"share must lie in (0, 1], got {self.share}")

    def init(self, position: Position) -> Chain:
        return Chain(position, MyState(tuple(torch.zeros_like(z) for z in position)))

    def step(self, chain: Chain, grad_fn: GradFn, l: int, rng: Rng) -> Chain:
        before = self.state_of(chain, MyState).mean_gradient
        sizes = self.step_sizes(l, len(chain.position))  # one for each block, decay included
        grads = grad_fn(chain.position, l)
        means = tuple((1 - self.share) * m + self.share * g for m, g in zip(before, grads, strict=True))
        x, *latents = (
            z + size * m + noise(z, 2 * size * self.temperature, rng)  # draws nothing at temperature 0
            for z, m, size in zip(chain.position, means, sizes, strict=True)
        )
        return Chain((self.confine(x)[0], *latents), MyState(means))  # the box is for x, the first block
