"""Learning rates for the methods that the mixture experiment compares with: a search by held-out points only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nrf.data import resolve
from nrf.errors import NonFiniteError
from nrf.metrics import kernel_log_likelihood
from nrf.reproduce.runner.experiment import NEVER, Deadline
from nrf.reproduce.runner.watch import train_to_the_end
from nrf.runs.spec import Preset
from nrf.runs.trained import TrainedModel

log = logging.getLogger(__name__)

SEED = 1000
"""Seed of the first model of a search; no reported model has it."""
N_SAMPLES = 5000
CRITERION = "kernel log-likelihood of the search"
"""Log-likelihood of the mixture's test points, which no reported metric uses, under a kernel estimate from samples."""


@dataclass(frozen=True)
class Search:
    """Learning rates to compare, and the shorter runs that compare them."""

    rates: tuple[float, ...]
    """Candidate rates, used for both potential and generator."""
    replicas: int = 2
    iterations: int = 20_000


@dataclass(frozen=True)
class TriedRate:
    """A rate and the criterion of each model trained with it; no values if training was not finite."""

    rate: float
    values: Sequence[float]

    def as_json(self) -> dict[str, Any]:
        """JSON for the cell."""
        return {"rate": self.rate, CRITERION: list(self.values)}


def with_rate(preset: Preset, rate: float) -> Preset:
    """The preset with one rate for both networks."""
    return replace(preset, learner=replace(preset.learner, potential_lr=rate, generator_lr=rate))


def candidates(preset: Preset, search: Search) -> list[Preset]:
    """The presets that a search trains: shorter, with fewer models and their own seeds."""
    every = min(preset.train.log_every, search.iterations)
    length = replace(preset.train, iterations=search.iterations, log_every=every)
    shorter = replace(preset, seed=SEED, replicas=search.replicas, train=length)
    return [with_rate(shorter, rate) for rate in search.rates]


def chosen(tried: Sequence[TriedRate]) -> float:
    """The rate with the highest mean criterion; the first if several are equal.

    Example:
        >>> chosen([TriedRate(0.1, (-3.0, -1.0)), TriedRate(0.2, (-1.0, -2.0)), TriedRate(0.3, ())])
        0.2
    """
    finite = [one for one in tried if one.values]
    if not finite:
        raise NonFiniteError("no rate of the search had a finite run; give it lower ones")
    return max(finite, key=lambda one: float(np.mean(one.values))).rate


def search_rates(name: str, preset: Preset, search: Search, out: Path, deadline: Deadline = NEVER) -> list[TriedRate]:
    """Train every candidate, or continue its training, and measure the criterion."""
    found = []
    for rate, candidate in zip(search.rates, candidates(preset, search), strict=True):
        run = out / f"rate-{rate:g}"
        try:
            train_to_the_end(name, candidate, run, deadline)
        except NonFiniteError as error:
            log.warning("%s at a rate of %g is out of the search: %s", name, rate, error)
            found.append(TriedRate(rate, ()))
            continue
        found.append(TriedRate(rate, tuple(_criterion(run, i, seed) for i, seed in enumerate(candidate.seeds))))
    return found


def _criterion(run: Path, replica: int, seed: int) -> float:
    held_out = resolve("gmm").test
    assert held_out is not None
    samples, _ = TrainedModel.load(run, replica=replica).sample(N_SAMPLES, seed=seed)
    return kernel_log_likelihood(torch.from_numpy(samples), torch.from_numpy(held_out))
