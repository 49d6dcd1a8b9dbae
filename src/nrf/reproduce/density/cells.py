"""The work of the experiment: a method learns a known density, and what it learned is measured."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nrf.data import gmm
from nrf.errors import NonFiniteError
from nrf.fields import Integral, MixtureReference
from nrf.learners import PCDConfig, ReplayConfig
from nrf.metrics import energy_distance, mode_coverage
from nrf.reproduce.density.by_fields import (
    NOISE,
    InclusiveMethod,
    LevelsMethod,
    MemoryMethod,
    ReferencedMethod,
    levels_of_the_preset,
    levels_with_waves,
)
from nrf.reproduce.density.known import MODES, Known, known, reported_rows, training_rows
from nrf.reproduce.density.methods import FittedMixture, Flow, Gaussian, Kernel, Learned, Method, has_flows
from nrf.seeds import stream
from nrf.training import TrainConfig

LIKELIHOOD, KL, KL_ERROR = "log-likelihood", "KL from the truth", "KL, standard error"
DIVIDED = "log-likelihood, divided by the integral"
SLOPE, INTEGRAL, INTEGRAL_ERROR = "slope", "integral", "integral, standard error"
NORMALISER_ERROR = "log-normaliser, standard error"
ENERGY, COVERED, REALISTIC, SECONDS = "energy distance", "covered modes", "realistic ratio", "CPU-seconds"
TRUTH = "truth"
DRAW_SIZE = 100
MOST_ERROR = 0.5
"""Of a normaliser's logarithm: beyond, the tail of the weights was not seen, and likelihoods are not known."""


@dataclass(frozen=True)
class Size:
    """How much is drawn to measure one model."""

    training: int = 2000
    """Training rows; the 32 modes have those of their data set."""
    reported: int = 2000
    """Rows whose likelihood is reported."""
    fresh: int = 20_000
    """Draws of the truth, for the divergence and the slope."""
    samples: int = 2000
    """Of the model, against as many draws of the truth."""
    mode_draws: int = 100
    """Draws of 100 samples that modes are counted in."""
    grid: int = 200_000
    """Points of a quadrature."""
    pairs: int = 300
    """True and learned log-densities for the picture of the calibration."""
    side: int = 80
    """Points along a side of the maps in the plane."""


@dataclass(frozen=True)
class DensityConfig:
    """Methods and size of the experiment."""

    seeds: int = 3
    slow_seeds: int = 1
    """Of methods that learn by long chains."""
    size: Size = field(default_factory=Size)
    levels: LevelsMethod = field(default_factory=LevelsMethod)
    plane_levels: LevelsMethod = field(default_factory=levels_with_waves)
    """The same in two columns."""
    mode_levels: LevelsMethod = field(default_factory=levels_of_the_preset)
    """The same for the 32 modes."""
    referenced: ReferencedMethod = field(default_factory=ReferencedMethod)
    plane_referenced: ReferencedMethod = field(
        default_factory=lambda: ReferencedMethod(levels_with_waves(), MixtureReference(ridge=0.001))
    )
    mode_referenced: ReferencedMethod = field(
        default_factory=lambda: ReferencedMethod(levels_of_the_preset(), MixtureReference(ridge=0.001))
    )
    best: InclusiveMethod = field(default_factory=InclusiveMethod)
    released: InclusiveMethod = field(default_factory=lambda: InclusiveMethod(setting="released"))
    pcd: MemoryMethod = field(default_factory=MemoryMethod)
    replay: MemoryMethod = field(
        default_factory=lambda: MemoryMethod(
            learner=ReplayConfig(buffer_size=5000, noise_range=(-NOISE, NOISE), potential_lr=3e-3)
        )
    )
    kernel: Kernel = field(default_factory=Kernel)
    gaussian: Gaussian = field(default_factory=Gaussian)
    mixture: FittedMixture = field(default_factory=FittedMixture)
    flow: Flow = field(default_factory=Flow)
    plane_flow: Flow = field(default_factory=lambda: Flow(transforms=5, bins=16, weight_decay=0.1))
    """The same in two columns."""

    def methods(self, density: str) -> list[Method]:
        """Those for a density, in the order of the tables; no flow where its package is not installed."""
        plane = known(density).d == 2
        levels: list[Method] = [self.plane_levels, self.plane_referenced] if plane else [self.levels, self.referenced]
        levels = [self.mode_levels, self.mode_referenced] if density == MODES else levels
        inclusive = [self.best, self.released] if plane else []
        flows = [self.plane_flow if plane else self.flow] if has_flows() else []
        return [*levels, *inclusive, self.pcd, self.replay, *flows, self.mixture, self.kernel, self.gaussian]


def quick() -> DensityConfig:
    """A size that takes seconds."""
    whole = DensityConfig()
    size = Size(training=200, reported=100, fresh=200, samples=100, mode_draws=1, grid=2500, pairs=50, side=12)
    levels, plane, modes = (
        replace(one, train=_few(one.train), sample_steps=1, chains=20, between=2)
        for one in (whole.levels, whole.plane_levels, whole.mode_levels)
    )
    flow = Flow(most_epochs=2, transforms=1, widths=(8,))
    return replace(
        whole,
        seeds=2,
        size=size,
        levels=levels,
        plane_levels=plane,
        mode_levels=modes,
        referenced=replace(whole.referenced, levels=levels),
        plane_referenced=replace(whole.plane_referenced, levels=plane),
        mode_referenced=replace(whole.mode_referenced, levels=modes),
        best=replace(whole.best, iterations=10),
        released=replace(whole.released, iterations=10),
        pcd=_short(whole.pcd, PCDConfig(n_chains=300)),
        replay=_short(whole.replay, whole.replay.learner),
        mixture=FittedMixture(components=(1, 4)),
        flow=flow,
        plane_flow=flow,
    )


def _short(method: MemoryMethod, learner: PCDConfig | ReplayConfig) -> MemoryMethod:
    return replace(method, learner=learner, train=_few(method.train), sample_steps=5, chains=20, between=5)


def _few(train: TrainConfig) -> TrainConfig:
    return replace(train, iterations=10, log_every=10)


@dataclass(frozen=True)
class Units:
    """Rows as a method sees them: centred, and divided by one number."""

    mean: Tensor
    scale: float

    @classmethod
    def of(cls, rows: Tensor, spread: float) -> Units:
        """So that a column has that standard deviation, in the mean of squares."""
        mean = rows.mean(0)
        return cls(mean, float((rows - mean).square().mean().sqrt()) / spread)

    def of_method(self, x: Tensor) -> Tensor:
        """Rows in the method's units."""
        return (x - self.mean) / self.scale

    def of_rows(self, x: Tensor) -> Tensor:
        """Rows in their own units."""
        return self.mean + self.scale * x


def learn_and_measure(method: Method, density: str, seeds: tuple[int, ...], size: Size) -> dict[str, Any]:
    """Learn a known density from its training rows, a model a seed, and measure each model.

    A training that ends in values that are no numbers is a result, too: ``failed`` says why.
    """
    rows = training_rows(density, size.training, seeds[0])
    units = Units.of(rows, method.spread)
    start = time.process_time()
    try:
        models = method.fit(units.of_method(rows), seeds)
        seconds = (time.process_time() - start) / len(seeds)
        integrals = [integral_of(model, units, density, seed, size) for model, seed in zip(models, seeds, strict=True)]
        found = [
            measured(model, units, integral, density, seed, size)
            for model, integral, seed in zip(models, integrals, seeds, strict=True)
        ]
    except NonFiniteError as error:
        return {"failed": str(error), "models": []}
    numbers = [{**one, SECONDS: seconds} for one in found]
    return {"models": numbers, **pictured(models[0], units, integrals[0], density, seeds[0], size)}


def measured(
    model: Learned, units: Units, integral: Integral | None, density: str, seed: int, size: Size
) -> dict[str, float | None]:
    """All numbers of a model; None where there is none, and no likelihood where the normaliser is not known."""
    truth = known(density)
    test = reported_rows(density, size.reported, seed)
    fresh = truth.draw(size.fresh, stream(seed, "density", "fresh", density))
    true = truth.log_density(fresh)
    learned = log_density(model, units, integral, fresh)
    apart, centred = true - learned, true - true.mean()
    given = integral if model.normaliser != "unknown" else None
    found: dict[str, float | None] = {
        TRUTH: float(truth.log_density(test).mean()),
        SLOPE: float((learned * centred).sum() / centred.square().sum()),
        INTEGRAL: None if given is None else given.value,
        INTEGRAL_ERROR: None if given is None else given.standard_error,
        NORMALISER_ERROR: None if given is not None or integral is None else integral.standard_error,
    }
    if model.normaliser != "unknown" or (integral is not None and integral.standard_error <= MOST_ERROR):
        found |= {
            LIKELIHOOD: float(log_density(model, units, integral, test).mean()),
            KL: float(apart.mean()),
            KL_ERROR: float(apart.std()) / math.sqrt(len(apart)),
        }
    if model.normaliser == "learned" and integral is not None:
        found[DIVIDED] = float(log_density(model, units, integral, test).mean()) - integral.log_value
    return found | sample_numbers(model, units, density, seed, size)


def integral_of(model: Learned, units: Units, density: str, seed: int, size: Size) -> Integral | None:
    """In the method's units, where it is the same as in those of the rows."""
    low, high = (units.of_method(corner) for corner in known(density).box())
    return model.integral((low, high), size.grid, seed)


def log_density(model: Learned, units: Units, integral: Integral | None, x: Tensor) -> Tensor:
    """In nats and in the units of the rows; divided by the integral only where the normaliser is unknown."""
    found = model.log_density(units.of_method(x)).double() - x.shape[1] * math.log(units.scale)
    return found - integral.log_value if model.normaliser == "unknown" and integral is not None else found


def sample_numbers(model: Learned, units: Units, density: str, seed: int, size: Size) -> dict[str, float | None]:
    """Energy distance to draws of the truth, in standard deviations, and of the 32 modes those that are covered."""
    truth = known(density)
    n = max(size.samples, DRAW_SIZE * size.mode_draws if density == MODES else 0)
    drawn = units.of_rows(model.draw(n, seed))
    true = truth.draw(size.samples, stream(seed, "density", "samples", density))
    found: dict[str, float | None] = {
        ENERGY: energy_distance(drawn[: size.samples] / truth.spread, true / truth.spread)
    }
    if density == MODES:
        cut = drawn[: DRAW_SIZE * size.mode_draws]
        covered, realistic = mode_coverage(cut, torch.from_numpy(gmm.means()).float(), gmm.SIGMA, DRAW_SIZE)
        found |= {COVERED: covered, REALISTIC: realistic}
    return found


def pictured(
    model: Learned, units: Units, integral: Integral | None, density: str, seed: int, size: Size
) -> dict[str, Any]:
    """What the figures need: pairs of true and learned log-densities, and in the plane a map."""
    truth = known(density)
    x = truth.draw(size.pairs, stream(seed, "density", "pairs", density))
    pairs = [_rounded(truth.log_density(x)), _rounded(log_density(model, units, integral, x))]
    if truth.d != 2:
        return {"pairs": pairs}
    return {"pairs": pairs, "map": _rounded(log_density(model, units, integral, map_points(truth, size.side)))}


def map_points(truth: Known, side: int) -> Tensor:
    """Points of a map in the plane, row after row from below: all components, and a little more."""
    mean = truth.weights @ truth.means
    wide = 4 * truth.factors.square().sum(2).sqrt()
    far = float(((truth.means - mean).abs() + wide).max())
    axis = torch.linspace(-far, far, side, dtype=torch.float64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return (torch.stack([x.flatten(), y.flatten()], 1) + mean).float()


def _rounded(values: Tensor) -> list[float]:
    return [round(float(value), 3) for value in values]
