"""The work of the sampler study: Gaussians at random, the methods that sample them, and what is measured of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nrf.gaussian import AugmentedGaussian, GaussianGenerator, GaussianPotential, random_covariance
from nrf.metrics import fitted_gaussian_kl, perfect_kl
from nrf.samplers import (
    BAOAB,
    SGHMC,
    SGLD,
    Chain,
    CoopNet,
    GradFn,
    Langevin,
    Sampler,
    SecondOrderLangevin,
    polynomial,
    run,
)
from nrf.seeds import stream
from nrf.targets import ConditionalTarget, JointTarget

PAPER_ORDER = ("HMC", "SGHMC", "LD", "SGLD", "CoopNet")
OURS = ("SGHMC, long h-steps", "BAOAB, long h-steps", "HMC, long h-steps")
EXACT, STOCHASTIC = "exact", "Alg. 2"


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run; those of the paper where it gives them."""

    dim_x: int = 50
    dim_h: int = 50
    chains: int = 500
    steps: int = 2000
    every: int = 20
    schedule: tuple[float, float, float] = (10.0, 1000.0, 2.0)
    """(a, b, c) of the step sizes (a(1 + t/b))^(−c)."""
    friction: float = 0.1
    inner_step_size: float = 0.01
    """δ*; the text has none, this is the step size at the start."""
    coopnet_steps: int = 20
    long_latent_step: float = 1.0
    """Step size of h in the two methods of ours."""


@dataclass(frozen=True)
class StudyConfig:
    """Which runs there are."""

    run: RunConfig = RunConfig()
    runs: int = 10
    draws: tuple[int, ...] = (0, 1, 2)
    long_inner_step: float = 0.5
    """A longer δ*, for comparison."""
    scales: tuple[float, ...] = (0.2, 0.02)
    """Further scales of the random covariances, on which the order of methods is looked at."""
    side_runs: int = 3
    n_inner: tuple[int, ...] = (1, 2, 5, 20)
    sweep_steps: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 2.0)
    sweep_frictions: tuple[float, ...] = (0.05, 0.1, 0.3, 0.6)
    sweep_temperatures: tuple[float, ...] = (1.0, 0.5)
    sweep_chains: int = 800
    sweep_length: int = 300
    excess_limit: float = 0.5
    """A setting counts as faithful if its KL exceeds that of perfect draws by no more than this."""


QUICK = StudyConfig(
    run=RunConfig(dim_x=5, dim_h=5, chains=100, steps=200, every=20),
    runs=2,
    draws=(0, 1),
    scales=(0.02,),
    side_runs=2,
    n_inner=(1, 5),
    sweep_steps=(0.1, 1.0),
    sweep_frictions=(0.1, 0.3),
    sweep_chains=100,
    sweep_length=50,
)


@dataclass(frozen=True)
class Problem:
    """One draw of the two Gaussians."""

    potential: GaussianPotential
    generator: GaussianGenerator
    truth: AugmentedGaussian


def make_problem(config: RunConfig, draw: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Problem:
    """Covariances ``scale · A Aᵀ + I`` of p and of q, from the seed of the draw."""
    rng = stream(draw, "sampler-study", "problem")
    precision = torch.linalg.inv(random_covariance(config.dim_x, rng, scale)).to(dtype)
    covariance = random_covariance(config.dim_x + config.dim_h, rng, scale)
    potential, generator = GaussianPotential(precision), GaussianGenerator(covariance, config.dim_x, dtype)
    return Problem(potential, generator, AugmentedGaussian.of(potential, generator))


def make_method(config: RunConfig, name: str, problem: Problem, rng: torch.Generator) -> tuple[Sampler, GradFn, int]:
    """Sampler, target and how many of the paper's iterations one of its steps counts for."""
    schedule: dict[str, Any] = polynomial(*config.schedule)
    joint = JointTarget(problem.potential, problem.generator, config.inner_step_size, rng)
    conditional = ConditionalTarget(problem.potential, problem.generator)
    long: dict[str, Any] = {"latent_step_size": config.long_latent_step, "friction": config.friction}
    n = config.coopnet_steps
    methods: dict[str, tuple[Sampler, GradFn, int]] = {
        "LD": (Langevin(**schedule), problem.truth, 1),
        "HMC": (SecondOrderLangevin(**schedule, friction=config.friction), problem.truth, 1),
        "SGLD": (SGLD(**schedule), joint, 1),
        "SGHMC": (SGHMC(**schedule, friction=config.friction), joint, 1),
        "CoopNet": (CoopNet(**schedule, n_x=n, n_h=n), conditional, n),
        "SGHMC, long h-steps": (SGHMC(**schedule, **long), joint, 1),
        "BAOAB, long h-steps": (BAOAB(**schedule, **long), joint, 1),
        "HMC, long h-steps": (SecondOrderLangevin(**schedule, **long), problem.truth, 1),
    }
    return methods[name]


def kl_curve(config: RunConfig, name: str, draw: int, run_index: int, scale: float = 1.0) -> dict[str, Any]:
    """KL of the fitted Gaussian to the truth over the iterations of one run."""
    problem = make_problem(config, draw, scale)
    rng = stream(run_index, "sampler-study", draw, name)
    return _follow(config, problem, *make_method(config, name, problem, rng), rng)


def inner_curve(config: RunConfig, draw: int, n_inner: int, run_index: int) -> dict[str, Any]:
    """The same for SGHMC with more inner moves of h*."""
    problem = make_problem(config, draw)
    rng = stream(run_index, "sampler-study", "inner", n_inner)
    sampler, target, _ = make_method(config, "SGHMC", problem, rng)
    assert isinstance(target, JointTarget)
    return _follow(config, problem, sampler, replace(target, n_inner=n_inner), 1, rng)


def _follow(
    config: RunConfig, problem: Problem, sampler: Sampler, target: GradFn, counts: int, rng: torch.Generator
) -> dict[str, Any]:
    iterations, values = [], []

    def note(l: int, chain: Chain) -> None:
        done = (l + 1) * counts
        if done % config.every == 0:
            iterations.append(done)
            values.append(fitted_gaussian_kl(torch.cat(chain.position, dim=1), problem.truth.precision))

    start = problem.generator.propose(config.chains, rng)
    run(sampler, start, target, config.steps // counts, rng, trace=note)
    return {"iterations": iterations, "kl": values}


def gradient_bias(config: RunConfig, draw: int, n_inner: int, inner_step_size: float) -> float:
    """Size of Alg. 2's bias in x at draws from the truth, relative to the exact gradient (root mean squares).

    ``h*`` is linear in its noise here, so a noiseless inner chain gives the expected gradient exactly.
    """
    problem = make_problem(config, draw, dtype=torch.float64)
    z = problem.truth.draw(4000, stream(0, "sampler-study", "bias"))
    position = (z[:, : config.dim_x], z[:, config.dim_x :])
    target = JointTarget(
        problem.potential, problem.generator, inner_step_size, torch.Generator(), n_inner, inner_temperature=0.0
    )
    expected, exact = target(position, 1)[0], problem.truth(position, 1)[0]
    return float((expected - exact).square().mean().sqrt() / exact.square().mean().sqrt())


# ------------------------------------------------------------------------------------------------ effective samples


def linear_map(sampler: Sampler, target: GradFn, dims: Sequence[int]) -> Tensor:
    """The matrix of one step over ``(z, v)``, read off the sampler itself by stepping unit vectors at temperature 0."""
    cold = replace(sampler, temperature=0.0)
    n = sum(dims)
    eye, zero = torch.eye(n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.float64)

    def split(z: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.split(z, list(dims), dim=1))

    at_rest: Any = cold.init(split(zero)).state

    def image(position: Tensor, momentum: Tensor) -> Tensor:
        state = None if at_rest is None else type(at_rest)(split(momentum))  # one field: momentum or velocity
        after = cold.step(Chain(split(position), state), target, 1, torch.Generator())
        return torch.cat([*after.position, *(after.state[0] if isinstance(after.state, tuple) else ())], dim=1)

    if at_rest is None:
        return image(eye, zero).T
    return torch.cat([image(eye, zero), image(zero, eye)]).T


def effective_samples(step: Tensor, direction: Tensor) -> float:
    """Effective samples a step for the projection on a direction, from the sum of its autocorrelations.

    A chain at rest at the direction's unit vector has its correlation with the start as its expected position; the sum
    over all later steps is a matrix inverse. With momentum that is a little too fast (a few per cent at long steps),
    since position and momentum of the discretised chain are not quite independent.
    """
    start = torch.zeros(len(step), dtype=torch.float64)
    start[: len(direction)] = direction
    later = torch.linalg.solve(torch.eye(len(step), dtype=torch.float64) - step, step @ start)
    return float(1 / (1 + 2 * direction @ later[: len(direction)]))


def sweep_cell(
    config: RunConfig,
    kind: str,
    gradients: str,
    step_size: float,
    friction: float,
    temperature: float,
    draw: int,
    chains: int,
    length: int,
) -> dict[str, Any]:
    """Effective samples of the slowest direction, and how far the law is from the truth after leaving from it."""
    problem = make_problem(config, draw, dtype=torch.float64)
    rng = stream(draw, "sampler-study", "sweep", kind, gradients, str(step_size), str(friction), str(temperature))
    latent = {"latent_step_size": max(config.long_latent_step, step_size)} if gradients == STOCHASTIC else {}
    momentum = {} if kind == "Langevin" else {"friction": friction}
    makers: dict[str, Any] = {"Langevin": SGLD, "SGHMC": SGHMC, "BAOAB": BAOAB}
    sampler = makers[kind](step_size=step_size, temperature=temperature, **latent, **momentum)
    joint = JointTarget(problem.potential, problem.generator, config.inner_step_size, rng)
    target: GradFn = joint if gradients == STOCHASTIC else problem.truth
    mean_target: GradFn = replace(joint, inner_temperature=0.0) if gradients == STOCHASTIC else problem.truth
    dims = (config.dim_x, config.dim_h)
    step = linear_map(sampler, mean_target, dims)
    if float(torch.linalg.eigvals(step).abs().max()) >= 1:
        return {"stable": False}
    slowest = torch.linalg.eigh(problem.truth.precision).eigenvectors[:, 0]
    z = problem.truth.draw(chains, rng)
    start = (z[:, : config.dim_x], z[:, config.dim_x :])
    end = torch.cat(run(sampler, start, target, length, rng).position, dim=1)
    excess = fitted_gaussian_kl(end, problem.truth.precision) - perfect_kl(chains, sum(dims))
    return {"stable": True, "ess": effective_samples(step, slowest), "excess": excess}
