"""The methods that learn a random field: noise levels, inclusive learning, and chains with memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from nrf.fields import (
    Integral,
    MixtureReference,
    Referenced,
    ReferencedLevels,
    annealed_integral,
    choose_strength,
    log_density,
    sample,
)
from nrf.learners import InclusiveConfig, LevelsConfig, PCDConfig, ReplayConfig, Revision
from nrf.models import LatentGenerator, frozen
from nrf.networks import (
    LevelsMLPPotential,
    MLPGenerator,
    MLPPotential,
    NoiseLevelPotential,
    replica_state,
    require_levels,
)
from nrf.networks.levels import Reference
from nrf.reproduce.density.methods import MOST_FOR_QUADRATURE, STRIP, Box, Learned, Method, Normaliser, split
from nrf.runs.presets import find_preset
from nrf.runs.spec import DataConfig, PairSpec, Preset
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGHMC, SGLD, Sampler
from nrf.seeds import stream
from nrf.training import TrainConfig, Trainer

PRESET_SPREAD = 2.6
"""Of the 32 modes in their own units, which their presets are set for."""
NOISE = 3.0
"""Half the side of the box that such chains begin in, in standard deviations of the rows."""
NO_GENERATOR = MLPGenerator(latent_dim=2, widths=(2,))
"""What stands beside a potential that is learned alone."""


@dataclass(frozen=True)
class FieldMethod(Method):
    """A pair of networks and a learner."""

    label = "field"
    together: ClassVar[bool] = True

    @abstractmethod
    def spec(self, d: int) -> PairSpec:
        """What is trained on so many columns."""

    @abstractmethod
    def learned(self, spec: PairSpec, potential: nn.Module, generator: LatentGenerator, rows: Tensor) -> Learned:
        """A trained model, as a density."""

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        spec = self.spec(rows.shape[1])
        learner = spec.build(rows, seeds)
        trainer = Trainer(learner, rows, spec.train, seeds)
        trainer.fit(quiet=True)
        states = {name: module.state_dict() for name, module in (trainer.averaged() or learner.modules).items()}
        found = []
        for i, seed in enumerate(seeds):
            potential, generator = spec.networks(tuple(rows.shape[1:]), seed)
            for name, module in (("potential", potential), ("generator", generator)):
                module.load_state_dict(states[name] if len(seeds) == 1 else replica_state(states[name], i))
                module.eval().requires_grad_(False)
            found.append(self.learned(spec, potential, generator, rows))
        return found


# ---------------------------------------------------------------------------------------------------------- with levels


@dataclass(frozen=True)
class LevelsMethod(FieldMethod):
    """The learner `levels`."""

    potential: LevelsMLPPotential = field(
        default_factory=lambda: LevelsMLPPotential(widths=(128, 128, 128), n_levels=12, sigma_min=0.03, sigma_max=2.0)
    )
    learner: LevelsConfig = field(default_factory=lambda: LevelsConfig(potential_lr=4e-3))
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(
            iterations=1000, batch_size=256, lr_final=0.0, ema_decay=0.99, threads=1, log_every=1000
        )
    )
    sample_steps: int = 20
    """At each level."""
    chains: int = 500
    """Of annealed importance sampling."""
    between: int = 10
    """Its densities between two levels."""

    label = "levels"

    def spec(self, d: int) -> PairSpec:
        return PairSpec(self.potential, NO_GENERATOR, self.sampler, self.train, Revision(1), self.learner)

    @property
    def sampler(self) -> Sampler:
        """Of samples down the levels."""
        return SGHMC(0.3 * self.potential.sigma_min**2, friction=0.3)

    def learned(self, spec: PairSpec, potential: nn.Module, generator: LatentGenerator, rows: Tensor) -> Learned:
        return _WithLevels(self, require_levels(potential), rows)


def levels_with_waves() -> LevelsMethod:
    """For two columns."""
    plain = LevelsMethod()
    return replace(plain, potential=replace(plain.potential, n_waves=32, wave_scale=3.0))


def levels_of_the_preset() -> LevelsMethod:
    """With the settings of gmm-levels, in the units of rows here: for the 32 modes, which it is set for."""
    preset = find_preset("gmm-levels")
    if not isinstance(preset.potential, LevelsMLPPotential) or not isinstance(preset.learner, LevelsConfig):
        raise TypeError("gmm-levels is not what it was")
    low, high = (sigma / PRESET_SPREAD for sigma in (preset.potential.sigma_min, preset.potential.sigma_max))
    potential = replace(preset.potential, sigma_min=low, sigma_max=high)
    train = replace(preset.train, log_every=1000)
    return LevelsMethod(potential, preset.learner, train, sample_steps=preset.revision.n_steps)


@dataclass(frozen=True)
class ReferencedMethod(FieldMethod):
    """`levels` around a mixture of Gaussians; how much of the network is used, held-out rows say."""

    levels: LevelsMethod = field(default_factory=LevelsMethod)
    """The network, its training, and the samples."""
    reference: MixtureReference = field(default_factory=lambda: MixtureReference(ridge=0.003))
    bound: float = 5.0
    """What the network says at most, in nats."""
    held_out: float = 0.1

    label = "levels + mixture"

    def spec(self, d: int) -> PairSpec:
        inner = self.levels.spec(d)
        return replace(inner, potential=Referenced(inner.potential, self.reference, self.bound))

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        held, kept = split(rows, self.held_out, seeds[0])
        models = super().fit(kept, seeds)
        for model, seed in zip(models, seeds, strict=True):
            choose_strength(_referenced(model), held, stream(seed, "density", "strength"))
        return models

    def learned(self, spec: PairSpec, potential: nn.Module, generator: LatentGenerator, rows: Tensor) -> Learned:
        return self.levels.learned(spec, potential, generator, rows)


def _referenced(model: Learned) -> ReferencedLevels:
    potential = model.potential if isinstance(model, _WithLevels) else None
    if not isinstance(potential, ReferencedLevels):
        raise TypeError(f"{type(potential).__name__} has no reference")
    return potential


class _WithLevels(Learned):
    normaliser: ClassVar[Normaliser] = "learned"

    def __init__(self, method: LevelsMethod, potential: NoiseLevelPotential, rows: Tensor) -> None:
        self.method, self.potential, self.rows = method, potential, rows

    def log_density(self, x: Tensor) -> Tensor:
        return log_density(self.potential, x.float()).double()

    def draw(self, n: int, seed: int) -> Tensor:
        rng = stream(seed, "density", "draw")
        with frozen(self.potential):
            return sample(self.potential, n, self.rows, self.method.sampler, self.method.sample_steps, rng)

    def integral(self, box: Box, n_points: int, seed: int) -> Integral | None:
        if self.rows.shape[1] <= MOST_FOR_QUADRATURE:
            return super().integral(box, n_points, seed)
        rng, size = stream(seed, "density", "annealed"), self.method
        return annealed_integral(self.potential, self.rows, rng, n_chains=size.chains, n_between=size.between)


# ------------------------------------------------------------------------------------------------------- without levels


@dataclass(frozen=True)
class PlainField(FieldMethod):
    """A potential that is known up to a constant; it is found by quadrature or annealed importance sampling."""

    slow: ClassVar[bool] = True

    sample_steps: int = 1000
    """Sampler steps from noise, for a field that has no generator."""
    chains: int = 500
    """Of annealed importance sampling."""
    between: int = 200
    """Its densities between a Gaussian and the field."""

    def learned(self, spec: PairSpec, potential: nn.Module, generator: LatentGenerator, rows: Tensor) -> Learned:
        stored = {f.name: getattr(spec, f.name) for f in fields(PairSpec)}
        preset = Preset(data=DataConfig("rows"), **stored)
        return _Plain(self, TrainedModel(preset, potential, generator, tuple(rows.shape[1:]), 0), rows)


@dataclass(frozen=True)
class InclusiveMethod(PlainField):
    """A preset of the 32 modes, shortened: in the plane only, which it is set for."""

    setting: str = "best"
    iterations: int = 20_000

    @property
    def name(self) -> str:
        return f"inclusive, {self.setting}"

    @property
    def spread(self) -> float:
        return PRESET_SPREAD

    def spec(self, d: int) -> PairSpec:
        preset = find_preset(f"gmm-{self.setting}")
        return replace(preset, train=replace(preset.train, iterations=self.iterations, log_every=self.iterations))


@dataclass(frozen=True)
class MemoryMethod(PlainField):
    """Maximum likelihood by chains that go on where they stopped: `pcd`, or with some of them anew, `replay`."""

    learner: PCDConfig | ReplayConfig = field(default_factory=lambda: PCDConfig(potential_lr=3e-3))
    potential: MLPPotential = field(
        default_factory=lambda: MLPPotential(widths=(128, 128), data_init=True, bias_spread=1.0)
    )
    sampler: SGLD = field(default_factory=lambda: SGLD(step_size=0.004))
    revision: Revision = field(default_factory=lambda: Revision(n_steps=20))
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(
            iterations=1000, batch_size=256, lr_final=0.0, ema_decay=0.99, threads=1, log_every=1000, compile="never"
        )
    )

    @property
    def name(self) -> str:
        return "PCD" if isinstance(self.learner, PCDConfig) else "replay"

    def spec(self, d: int) -> PairSpec:
        return PairSpec(self.potential, NO_GENERATOR, self.sampler, self.train, self.revision, self.learner)


class _Plain(Learned):
    normaliser: ClassVar[Normaliser] = "unknown"

    def __init__(self, method: PlainField, trained: TrainedModel, rows: Tensor) -> None:
        self.method, self.trained, self.rows = method, trained, rows

    def log_density(self, x: Tensor) -> Tensor:
        potential = self.trained.potential
        with torch.no_grad(), frozen(potential):
            return torch.cat([potential(rows).double() for rows in torch.split(x.float(), STRIP)])

    def draw(self, n: int, seed: int) -> Tensor:
        if isinstance(self.trained.preset.learner, InclusiveConfig):
            return torch.from_numpy(self.trained.sample(n, seed=seed, revise=True)[0])
        noise = torch.rand(n, self.rows.shape[1], generator=stream(seed, "density", "draw"))
        start = NOISE * float(self.rows.square().mean().sqrt()) * (2 * noise - 1)
        return torch.from_numpy(self.trained.revise(start, seed=seed, n_steps=self.method.sample_steps))

    def integral(self, box: Box, n_points: int, seed: int) -> Integral | None:
        if self.rows.shape[1] <= MOST_FOR_QUADRATURE:
            return super().integral(box, n_points, seed)
        rng, size = stream(seed, "density", "annealed"), self.method
        bridge = Bridge(self.trained.potential, self.rows)
        return annealed_integral(bridge, self.rows, rng, n_chains=size.chains, n_between=size.between)


class Bridge(NoiseLevelPotential):
    """A potential without levels as one with a single level, beside a Gaussian somewhat wider than the rows.

    So annealed importance sampling, which goes from that Gaussian down the levels, goes from it to the potential.

    Args:
        potential: ``u``.
        rows: What the Gaussian has its mean and covariance of.
    """

    def __init__(self, potential: nn.Module, rows: Tensor) -> None:
        reference = Reference(math.prod(rows.shape[1:]), "full")
        reference.fit(rows)
        super().__init__(potential, (0.3 * float(reference.scale()),), reference)

    def levels(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found[:, None]
