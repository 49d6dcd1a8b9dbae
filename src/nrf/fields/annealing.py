"""Sampling a noise-level field: any sampler, annealed from the widest noise to the smallest."""

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
    """The sampler for one level: its steps of x are scaled with the level's variance, those of h are not.

    Args:
        sampler: A sampler with the step size of the smallest level; for SGLD and SGHMC a third of ``σ_0²`` is good.
        potential: A noise-level potential.
        level: The level, counted from the smallest noise.
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
    """Move samples down the levels: sampler steps at each level, and a denoising step from each level to the next.

    Denoising is ancestral sampling, ``x ← x + (σ² − σ'²) ∇u(x, σ) + σ'/σ √(σ² − σ'²) η`` (Song et al., "Score-Based
    Generative Modeling", the predictor). It shrinks wide directions, for which the sampler alone would be slow.

    Args:
        potential: A noise-level potential with frozen parameters.
        sampler: Any sampler, with the step size of the smallest level.
        position: Where the chains start.
        n_steps: Sampler steps at each level.
        rng: Source of all randomness.
        start: The level at which the chains start.
        target: Makes the sampler's target from the potential at a level; by default it is that potential alone.
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
    """Take rows of one level to the level below it, by one denoising step.

    Args:
        potential: A noise-level potential with frozen parameters.
        x: Rows of a level above 0.
        level: That level.
        rng: Source of all randomness.
        temperature: Scales the variance of the noise.
    """
    wide, narrow = potential.sigmas[level], potential.sigmas[level - 1]
    removed = wide**2 - narrow**2
    return x + removed * potential.gradient(x, level) + noise(x, temperature * removed * (narrow / wide) ** 2, rng)


@torch.no_grad()
def flow(potential: NoiseLevelPotential, x: Tensor, *, start: int, stop: int = 0) -> Tensor:
    """Take rows of one level to a narrower one along the probability flow, which is deterministic.

    The flow ``dx/dσ = −σ ∇u(x, σ)`` (Song et al., "Score-Based Generative Modeling") moves the density of one level to
    that of another. One step of Heun's method leads from each level to the next.

    Args:
        potential: A noise-level potential with frozen parameters.
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
    """Draw exactly from the Gaussian ``N(m, S + σ_K² I)``, to which the widest level is close.

    Args:
        potential: A noise-level potential.
        n: Number of draws.
        like: A batch; only its dtype and event shape are used.
        rng: Source of all randomness.
    """
    return potential.reference.shaped(randn((n, *like.shape[1:]), rng, like.dtype), potential.sigmas[-1])


def sample(potential: NoiseLevelPotential, n: int, like: Tensor, sampler: Sampler, n_steps: int, rng: Rng) -> Tensor:
    """Draw ``n`` samples of the smallest level, annealed from draws of the Gaussian.

    Args:
        potential: A noise-level potential with frozen parameters.
        n: Number of samples; with replicas, of all of them together.
        like: A batch; only its dtype and event shape are used.
        sampler: Any sampler, with the step size of the smallest level.
        n_steps: Sampler steps at each level.
        rng: Source of all randomness.
    """
    if n % replicas_of(potential):
        raise InputError(f"{n} samples cannot be shared evenly by {replicas_of(potential)} replicas")
    start = (draw_widest(potential, n, like, rng),)
    return anneal(potential, sampler, start, n_steps, rng, start=potential.n_levels - 1)[0]


def _along(potential: AtLevel) -> GradFn:
    return lambda position, l: (potential.gradient(position[0]),)
