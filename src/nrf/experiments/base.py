"""What a preset is, and how one becomes a learner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor, nn

from nrf.data import Splits, one_class, resolve
from nrf.learners import Inclusive, InclusiveConfig, Revision
from nrf.models import LatentGenerator
from nrf.networks import (
    MLPGenerator,
    MLPPotential,
    OneClassCNNGenerator,
    OneClassCNNPotential,
    ResNetGenerator,
    ResNetPotential,
    Shape,
    StandardCNNGenerator,
    StandardCNNPotential,
    data_dependent_init,
)
from nrf.samplers import HMC, SGHMC, SGLD, CoopNet, Langevin
from nrf.seeds import derive, stream
from nrf.training import TrainConfig

# The kind of network is the preset's; its fields can be overridden. The sampler can be exchanged: `sampler:sghmc`.
PotentialChoice = Annotated[
    MLPPotential | OneClassCNNPotential | StandardCNNPotential | ResNetPotential, tyro.conf.AvoidSubcommands
]
GeneratorChoice = Annotated[
    MLPGenerator | OneClassCNNGenerator | StandardCNNGenerator | ResNetGenerator, tyro.conf.AvoidSubcommands
]
SamplerChoice = SGLD | SGHMC | Langevin | HMC | CoopNet

DATA_INIT_ROWS = 2000


@dataclass(frozen=True)
class DataConfig:
    """Which rows to train on."""

    name: str
    """Dataset (see `nrf data list`)."""
    normal: int | None = None
    """Train on this class only, the others being anomalies; all classes if not given."""
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
    learner: InclusiveConfig = field(default_factory=InclusiveConfig)
    seed: int = 0
    """Seed of everything: initial weights, order of the data, samplers."""


def load_splits(config: DataConfig) -> Splits:
    """The preset's data, reduced to one class where it says so."""
    splits = resolve(config.name, config.path)
    return splits if config.normal is None else one_class(splits, config.normal)


def build_models(preset: Preset, event_shape: Shape) -> tuple[nn.Module, LatentGenerator]:
    """Both networks with the preset's initial weights; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(preset.seed, "weights"))
        potential = preset.potential.build(event_shape)
        generator = preset.generator.build(event_shape)
    return potential, generator


def build_learner(preset: Preset, data: Tensor) -> Inclusive:
    """The preset's learner, initialised on the data where the potential asks for that, on the data's device."""
    potential, generator = build_models(preset, tuple(data.shape[1:]))
    potential, generator = potential.to(data.device), generator.to(data.device)
    if preset.potential.data_init:
        rng = stream(preset.seed, "data-init")
        rows = torch.randperm(len(data), generator=rng)[:DATA_INIT_ROWS]
        data_dependent_init(potential, data[rows.to(data.device)], preset.potential.bias_spread, rng)
    return Inclusive(potential, generator, preset.sampler, preset.revision, preset.learner)
