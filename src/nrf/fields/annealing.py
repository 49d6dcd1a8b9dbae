"""Samples of a noise-level field: any sampler, from wide noise to the smallest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.models import replicas_of
from nrf.networks import NoiseLevelPotential
from nrf.networks.levels import AtLevel
from nrf.samplers import GradFn, Position, Sampler, run
from nrf.samplers.base import noise
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
    """Go down the levels: steps of the sampler at each, and a step of denoising from each to the next.

    Denoising is ancestral sampling, ``x ← x + (σ² − σ'²) ∇u(x, σ) + σ'/σ √(σ² − σ'²) η`` (Song et al., "Score-Based
    Generative Modeling", the predictor); it spares the sampler the shrinking of wide directions, which are slow.

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
        x, *latents = run(at_level(sampler, potential, level), position, grad_fn, n_steps, rng).position
        if level > 0:
            x = sampler.confine(denoised(potential, x, level, rng, temperature=sampler.temperature))[0]
        position = (x, *latents)
    return position


@torch.no_grad()
def denoised(potential: NoiseLevelPotential, x: Tensor, level: int, rng: Rng, *, temperature: float = 1.0) -> Tensor:
    """Rows of one level as rows of the level below it.

    Args:
        potential: A noise-level potential, held still.
        x: Rows of a level above 0.
        level: Which.
        rng: Their randomness.
        temperature: Scales the variance of the noise.
    """
    wide, narrow = potential.sigmas[level], potential.sigmas[level - 1]
    removed = wide**2 - narrow**2
    return x + removed * potential.gradient(x, level) + noise(x, temperature * removed * (narrow / wide) ** 2, rng)


@torch.no_grad()
def flow(potential: NoiseLevelPotential, x: Tensor, *, start: int, stop: int = 0) -> Tensor:
    """Rows of one level as rows of a narrower one, with no noise at all: the same rows go the same way every time.

    The probability flow ``dx/dσ = −σ ∇u(x, σ)`` (Song et al., "Score-Based Generative Modeling") moves the density of
    one level to that of another. A step of Heun's method goes from each level to the next.

    Args:
        potential: A noise-level potential, held still.
        x: Rows of the level ``start``.
        start: The wider level.
        stop: The narrower level.
    """
    for level in range(start, stop, -1):
        wide, narrow = potential.sigmas[level], potential.sigmas[level - 1]
        slope = wide * potential.gradient(x, level)
        ahead = narrow * potential.gradient(x + (wide - narrow) * slope, level - 1)
        x = x + (wide - narrow) * (slope + ahead) / 2
    return x


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
    if n % replicas_of(potential):
        raise InputError(f"{n} samples cannot be shared evenly by {replicas_of(potential)} replicas")
    start = (draw_widest(potential, n, like, rng),)
    return anneal(potential, sampler, start, n_steps, rng, start=potential.n_levels - 1)[0]


def _along(potential: AtLevel) -> GradFn:
    return lambda position, l: (potential.gradient(position[0]),)
