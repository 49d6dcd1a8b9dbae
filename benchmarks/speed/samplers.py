"""Sampler steps a second, against a bare loop and against torchebm on the same potential and batch."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from nrf.models import frozen
from nrf.networks import MLPPotential, OneClassCNNPotential, PotentialConfig, Shape
from nrf.reproduce.runner.record import Row
from nrf.samplers import Langevin, Sampler, SecondOrderLangevin, run
from nrf.seeds import DrawsFrom, stream
from nrf.targets import PotentialTarget
from speed.timing import QUICK, Block, Effort, in_turn, threads

CASES: dict[str, tuple[PotentialConfig, Shape, int, int]] = {
    "small: 2-100-100-1, 100 chains": (MLPPotential(widths=(100, 100), norm="none"), (2,), 100, 1),
    "middle: 121-60-30-10-1, 1,024 chains": (
        MLPPotential(widths=(60, 30, 10), activation="tanh", norm="none"),
        (121,),
        1024,
        1,
    ),
    "large: 784-1000-500-250-250-250-1, 100 chains": (
        MLPPotential(widths=(1000, 500, 250, 250, 250), norm="none"),
        (784,),
        100,
        0,
    ),
    "images: nine convolutions, 16 chains": (OneClassCNNPotential(norm="none"), (3, 32, 32), 16, 0),
}
"""Potential, shape of an event, chains, threads (0 for all cores). Without weight norm: it would cost all the same."""
N_STEPS = 20
STEP = 1e-3
FRICTION = 0.1


def samplers(effort: Effort) -> Iterator[Row]:
    """Steps of each sampler on each potential."""
    for case, (config, shape, chains, n_threads) in CASES.items():
        with DrawsFrom(stream(0, "bench")):
            potential = config.build(shape)
        chains, n_steps = (2, 2) if effort is QUICK else (chains, N_STEPS)
        x = torch.randn((chains, *shape), generator=stream(0, "bench"))
        with threads(n_threads or os.cpu_count() or 1):
            yield from _compare(case, potential, x, n_steps, effort)


def _compare(case: str, potential: nn.Module, x: Tensor, n_steps: int, effort: Effort) -> Iterator[Row]:
    rng = stream(0, "bench steps")

    def ours(sampler: Sampler) -> Block:
        return lambda: run(sampler, (x,), PotentialTarget(potential), n_steps, rng)

    blocks: dict[str, Block] = {
        "Langevin": ours(Langevin(step_size=STEP)),
        "HMC": ours(SecondOrderLangevin(step_size=STEP, friction=FRICTION)),
        "a bare loop": lambda: bare_loop(potential, x, n_steps),
    }
    peers = {"Langevin": ["a bare loop"], "HMC": ["a bare loop"]}
    if importlib.util.find_spec("torchebm") is not None:
        blocks |= {f"torchebm's {name}": block for name, block in _torchebm(potential, x, n_steps).items()}
        for name, others in peers.items():
            others += [other for other in (f"torchebm's {name}",) if other in blocks]
    with frozen(potential):
        times = in_turn(blocks, effort)
    for name, others in peers.items():
        yield Row(name, "steps a second", n_steps / times.seconds(name), case=case)
        for other in others:
            faster, sd = times.ratio(other, name), times.spread(other, name)
            yield Row(name, f"times faster than {other}", faster, sd, times.n, case=case)


def bare_loop(potential: nn.Module, x: Tensor, n_steps: int) -> Tensor:
    """Langevin steps as one would write them in five lines."""
    for _ in range(n_steps):
        x = x.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(potential(x).sum(), x)
        x = x + STEP * grad + (2 * STEP) ** 0.5 * torch.randn_like(x)
    return x.detach()


def _torchebm(potential: nn.Module, x: Tensor, n_steps: int) -> dict[str, Block]:
    """Its two samplers by their documented calls; one HMC proposal of as many leapfrog steps as ours takes steps."""
    core: Any = importlib.import_module("torchebm.core")
    kinds: Any = importlib.import_module("torchebm.samplers")

    class Energy(core.BaseModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.potential = potential

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = -self.potential(x)
            return found

    energy = Energy()
    langevin = kinds.LangevinDynamics(energy, step_size=STEP, noise_scale=1.0)
    hmc = kinds.HamiltonianMonteCarlo(energy, step_size=STEP**0.5, n_leapfrog_steps=n_steps)
    found: dict[str, Block] = {"Langevin": lambda: langevin.sample(x=x, n_steps=n_steps)}
    if x.ndim == 2:  # its HMC sums the kinetic energy over the last axis alone
        found["HMC"] = lambda: hmc.sample(x=x, n_steps=1)
    return found
