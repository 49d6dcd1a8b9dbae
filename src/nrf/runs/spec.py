"""What a preset is, and how one becomes a learner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

import torch
import tyro
from torch import Tensor, nn

from nrf.data import Splits, one_class, resolve
from nrf.errors import InputError
from nrf.learners import LEARNERS, InclusiveConfig, Learner, LearnerConfig, Revision, side_by_side
from nrf.models import LatentGenerator
from nrf.networks import GENERATORS, POTENTIALS, Latent, PotentialConfig, Shape, data_dependent_init
from nrf.samplers import SAMPLERS, Sampler
from nrf.seeds import DrawsFrom, stream
from nrf.training import TrainConfig, set_aside

# What may stand in a preset's field: all that is registered. On the command line the kind of network is fixed and
# its fields can be overridden; sampler and learner can be exchanged as a whole: `sampler:sghmc`, `learner:gan`.
if TYPE_CHECKING:
    PotentialChoice = PotentialConfig
    GeneratorChoice = Latent
    SamplerChoice = Sampler
    LearnerChoice = LearnerConfig
else:
    PotentialChoice = Annotated[Union[tuple(POTENTIALS.values())], tyro.conf.AvoidSubcommands]  # noqa: UP007
    GeneratorChoice = Annotated[Union[tuple(GENERATORS.values())], tyro.conf.AvoidSubcommands]  # noqa: UP007
    SamplerChoice, LearnerChoice = (
        Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in registry.items())]  # noqa: UP007
        for registry in (SAMPLERS, LEARNERS)
    )

DATA_INIT_ROWS = 2000


@dataclass(frozen=True)
class DataConfig:
    """Which rows to train on."""

    name: str
    """Dataset (see `nrf data list`)."""
    normal: int | None = None
    """Train on this class only, the others being anomalies; all classes if not given."""
    split: int = 0
    """Seed of the split into training and test rows, for data that have no fixed one."""
    path: Path | None = None
    """Folder that holds the files; else $NRF_DATA, the cache, or a fetch."""


@dataclass(frozen=True)
class Preset:
    """Everything a run is made from. Each field can be overridden on the command line."""

    data: DataConfig
    potential: PotentialChoice
    generator: GeneratorChoice
    sampler: SamplerChoice
    train: TrainConfig
    revision: Revision = field(default_factory=Revision)
    learner: LearnerChoice = field(default_factory=InclusiveConfig)
    seed: int = 0
    """Seed of everything: initial weights, order of the data, samplers."""
    replicas: int = 1
    """Models trained side by side, with this seed and the ones after it; each ends as if trained alone."""

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
    """Both networks with the preset's initial weights; the global random state is left as it was."""
    with DrawsFrom(stream(preset.seed, "weights")):
        potential = preset.potential.build(event_shape)
        generator = preset.generator.build(event_shape)
    return potential, generator


def build_learner(preset: Preset, data: Tensor) -> Learner:
    """The preset's learner, on the data's device; initialised, where the potential asks for that, on training rows.

    Rows that the preset's trainer will keep out of training are kept out here, too.
    """
    _, data = set_aside(data, preset.train.watch_share, preset.seed)
    alone = [_build_one(replace(preset, seed=seed, replicas=1), data) for seed in preset.seeds]
    return side_by_side(alone)


def _build_one(preset: Preset, data: Tensor) -> Learner:
    potential, generator = build_models(preset, tuple(data.shape[1:]))
    potential, generator = potential.to(data.device), generator.to(data.device)
    normalised = [
        m for n in (potential, generator) for m in n.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)
    ]
    if normalised and min(preset.train.batch_size, len(data)) < 2:
        raise InputError("batch norm needs batches of at least 2 rows; raise --train.batch-size, or set norm to none")
    if preset.potential.data_init:
        rng = stream(preset.seed, "data-init")
        rows = torch.randperm(len(data), generator=rng)[:DATA_INIT_ROWS]
        data_dependent_init(potential, data[rows.to(data.device)], preset.potential.bias_spread, rng)
    with DrawsFrom(stream(preset.seed, "learner weights")):
        preset.learner.require_batch(min(preset.train.batch_size, len(data)))
        return preset.learner.build(potential, generator, preset.sampler, preset.revision)
