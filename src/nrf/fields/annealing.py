"""Samples of a noise-level field: any sampler, from wide noise to the smallest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from nrf.models import replicas_of
from nrf.networks import NoiseLevelPotential
from nrf.networks.levels import AtLevel
from nrf.samplers import GradFn, Position, Sampler, run
from nrf.seeds import Rng, randn


def at_level(sampler: Sampler, potential: NoiseLevelPotential, level: int) -> Sampler:
    """The sampler for one level: a step of x grows with the level's variance, one of h does not.

    Its ``step_size`` is that of the smallest level; a third of ``σ_0²`` is a good one for SGLD and SGHMC.
    """
    latent = sampler.step_sizes(0, 2)[1]
    share = (potential.sigmas[level] / potential.sigmas[0]) ** 2
    return replace(sampler, step_size=share * sampler.step_size, latent_step_size=latent)


def anneal(
    potential: NoiseLevelPotential,
    sampler: Sampler,
    position: Position,
    n_steps: int,
    rng: Rng,
    *,
    start: int,
    target: Callable[[AtLevel], GradFn] | None = None,
) -> Position:
    """Go down the levels, the end of one being the start of the next.

    Args:
        potential: A noise-level potential, held still.
        sampler: Any sampler, with the step size of the smallest level.
        position: Where chains begin.
        n_steps: Steps at each level.
        rng: All randomness of the sampler.
        start: The level to begin with.
        target: What the sampler climbs, given the potential at a level; that potential alone if not given.
    """
    for level in range(start, -1, -1):
        here = potential.at(level)
        grad_fn = _along(here) if target is None else target(here)
        position = run(at_level(sampler, potential, level), position, grad_fn, n_steps, rng).position
    return position


def draw_widest(potential: NoiseLevelPotential, n: int, like: Tensor, rng: Rng) -> Tensor:
    """Exact draws of the Gaussian ``N(m, S + σ_K² I)`` beside the widest level.

    Args:
        potential: A noise-level potential.
        n: How many.
        like: A batch of which only type and event shape count.
        rng: Their randomness.
    """
    return potential.reference.shaped(randn((n, *like.shape[1:]), rng, like.dtype), potential.sigmas[-1])


def sample(potential: NoiseLevelPotential, n: int, like: Tensor, sampler: Sampler, n_steps: int, rng: Rng) -> Tensor:
    """``n`` samples of the smallest level, all the way down from the Gaussian.

    Args:
        potential: A noise-level potential, held still.
        n: How many; of replicas, in all.
        like: A batch of which only type and event shape count.
        sampler: Any sampler, with the step size of the smallest level.
        n_steps: Steps at each level.
        rng: All randomness.
    """
    assert n % replicas_of(potential) == 0
    start = (draw_widest(potential, n, like, rng),)
    return anneal(potential, sampler, start, n_steps, rng, start=potential.n_levels - 1)[0]


def _along(potential: AtLevel) -> GradFn:
    return lambda position, l: (potential.gradient(position[0]),)
