"""The configuration of a pair of networks and its training, and how it becomes a learner; for presets and the
detector."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Union

import torch
from torch import Tensor, nn

from nrf.data import Splits, one_class, resolve
from nrf.deprecation import deprecated
from nrf.errors import InputError
from nrf.fields import Detection, Referenced
from nrf.learners import LEARNERS, InclusiveConfig, Learner, LearnerConfig, Revision, as_replicas
from nrf.models import LatentGenerator
from nrf.networks import GENERATORS, POTENTIALS, Latent, PotentialConfig, Shape, data_dependent_init
from nrf.samplers import SAMPLERS, Sampler
from nrf.seeds import DrawsFrom, stream
from nrf.training import TrainConfig, set_aside

# A field may hold any registered class.
if TYPE_CHECKING:
    PotentialChoice = PotentialConfig
    GeneratorChoice = Latent
    SamplerChoice = Sampler
    LearnerChoice = LearnerConfig
else:
    PotentialChoice, GeneratorChoice, SamplerChoice, LearnerChoice = (
        Union[tuple(registry.values())]  # noqa: UP007
        for registry in (
            POTENTIALS | {"referenced": Referenced, "detection": Detection},
            GENERATORS,
            SAMPLERS,
            LEARNERS,
        )
    )

DATA_INIT_ROWS = 2000
"""Training rows that set the first scale of a potential, where its configuration asks for that."""


@dataclass(frozen=True)
class PairSpec:
    """A potential, a generator, and how the two are trained."""

    FORMER_NAMES: ClassVar[tuple[str, ...]] = ("Recipe",)

    potential: PotentialChoice
    generator: GeneratorChoice
    sampler: SamplerChoice
    train: TrainConfig
    revision: Revision = field(default_factory=Revision)
    learner: LearnerChoice = field(default_factory=InclusiveConfig)

    def networks(
        self,
        shape: Shape,
        seed: int,
        *,
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
    ) -> tuple[nn.Module, LatentGenerator]:
        """Build both networks for events of that shape, with the initial weights of that seed.

        The global random state is left as it was.

        Args:
            shape: Shape of an event.
            seed: Seed of the weights.
            potential: A module to copy, in place of what the configuration would build.
            generator: The same for the generator.
        """
        with DrawsFrom(stream(seed, "weights")):
            u = self.potential.build(shape) if potential is None else copy.deepcopy(potential)
            q = self.generator.build(shape) if generator is None else copy.deepcopy(generator)
        return u, q

    def build(
        self,
        data: Tensor,
        seeds: Sequence[int],
        *,
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
    ) -> Learner:
        """Build the learner of one replica per seed, on the device of the data, before its first update.

        Args:
            data: Training rows. Some of them initialise the potential, where its configuration asks for that; never
                one of those that the trainer will keep out of training.
            seeds: One per replica.
            potential: A module in place of the potential's configuration; each replica starts from a copy.
            generator: The same for the generator.

        Example:
            >>> from nrf.networks import MLPGenerator, MLPPotential
            >>> from nrf.samplers import SGLD
            >>> spec = PairSpec(MLPPotential(), MLPGenerator(), SGLD(), TrainConfig(iterations=1))
            >>> learner = spec.build(torch.zeros(100, 2), seeds=[0, 1, 2])
            >>> learner.modules["potential"].replicas
            3
        """
        _, data = set_aside(data, self.train.watch_share, seeds[0])
        replicas = []
        for seed in seeds:
            u, q = self.networks(tuple(data.shape[1:]), seed, potential=potential, generator=generator)
            u, q = u.to(data.device), q.to(data.device)
            if potential is not None or generator is not None:
                _require_fit(u, q, data[:2])
            if potential is None:
                self._initialise(u, data, seed)
            replicas.append(self._learner(u, q, min(self.train.batch_size, len(data)), seed))
        return as_replicas(replicas)

    def _initialise(self, potential: nn.Module, data: Tensor, seed: int) -> None:
        """Set the potential's first scale by training rows, where its configuration asks for that."""
        if self.potential.data_init:
            rng = stream(seed, "data-init")
            if not isinstance(self.potential, Referenced | Detection):  # a reference itself says how many rows it takes
                data = data[torch.randperm(len(data), generator=rng)[:DATA_INIT_ROWS].to(data.device)]
            data_dependent_init(potential, data, self.potential.bias_spread, rng)

    def _learner(self, potential: nn.Module, generator: LatentGenerator, batch_size: int, seed: int) -> Learner:
        # Channels of images have a value for each pixel, so their batch norm works with one row.
        normalised = [m for n in (potential, generator) for m in n.modules() if isinstance(m, nn.BatchNorm1d)]
        if normalised and batch_size < 2:
            raise InputError("batch norm needs batches of at least 2 rows; raise batch_size, or set norm to none")
        self.learner.require_batch(batch_size)
        with DrawsFrom(stream(seed, "learner weights")):
            return self.learner.build(potential, generator, self.sampler, self.revision)


@dataclass(frozen=True)
class DataConfig:
    """Which rows to train on."""

    name: str
    """Dataset (see `nrf data list`)."""
    normal: int | None = None
    """Train on this class only, and take the others as anomalies; all classes if not given."""
    split: int = 0
    """Seed of the split into training and test rows, for data that have no fixed one."""
    path: Path | None = None
    """Folder that holds the files; else $NRF_DATA, the cache, or a fetch."""


@dataclass(frozen=True)
class _OnData:
    """A separate base class, so that the data come first among a preset's fields, before those of the pair."""

    data: DataConfig


@dataclass(frozen=True)
class Preset(PairSpec, _OnData):
    """Everything a run is made from: a pair, its data, its seed. Each field can be overridden on the command line."""

    seed: int = 0
    """Seed of everything: initial weights, order of the data, samplers."""
    replicas: int = 1
    """Models trained at once, with this seed and the ones after it; each ends as if trained alone."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InputError(f"replicas must be at least 1, got {self.replicas}")

    @property
    def seeds(self) -> list[int]:
        """The seed of each replica."""
        return [self.seed + i for i in range(self.replicas)]


def load_splits(config: DataConfig) -> Splits:
    """The preset's data, reduced to one class where it says so."""
    splits = resolve(config.name, config.path, split=config.split)
    return splits if config.normal is None else one_class(splits, config.normal)


def build_models(preset: Preset, event_shape: Shape) -> tuple[nn.Module, LatentGenerator]:
    """Deprecated: ``preset.networks(event_shape, preset.seed)``."""
    deprecated("build_models(preset, shape)", "preset.networks(shape, preset.seed)")
    return preset.networks(event_shape, preset.seed)


def build_learner(preset: Preset, data: Tensor) -> Learner:
    """Deprecated: ``preset.build(data, preset.seeds)``."""
    deprecated("build_learner(preset, data)", "preset.build(data, preset.seeds)")
    return preset.build(data, preset.seeds)


def _require_fit(potential: nn.Module, generator: LatentGenerator, rows: Tensor) -> None:
    """Raise unless modules that no configuration built map shapes as built ones do."""
    if not isinstance(generator, LatentGenerator):
        raise InputError(
            f"generator must be a nrf.models.LatentGenerator, got {type(generator).__name__}; wrap your network: "
            "LatentGenerator(network, latent_dim, sigma)"
        )
    was = potential.training, generator.training
    potential.eval(), generator.eval()
    with torch.no_grad():
        try:
            u = potential(rows)
            x = generator(torch.zeros(len(rows), generator.latent_dim, device=rows.device))
        except (RuntimeError, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"potential or generator does not take rows of shape {tuple(rows.shape)}: {reason}"
            ) from error
    potential.train(was[0]), generator.train(was[1])
    if u.shape != (len(rows),):
        raise InputError(f"the potential must give one number per row, (n,), not {tuple(u.shape)}; squeeze its output")
    if x.shape != rows.shape:
        raise InputError(
            f"the generator makes events of shape {tuple(x.shape[1:])}, the data have {tuple(rows.shape[1:])}"
        )
