"""Networks by name. To add one, write a file here and a line in a registry; the contract tests pick it up."""

from __future__ import annotations

from nrf.networks.base import GeneratorConfig, Latent, PotentialConfig, Shape
from nrf.networks.closed_form import PlainPotential
from nrf.networks.convnet import (
    OneClassCNNGenerator,
    OneClassCNNPotential,
    StandardCNNGenerator,
    StandardCNNPotential,
)
from nrf.networks.layers import data_dependent_init
from nrf.networks.levels import LevelsCNNPotential, LevelsMLPPotential, NoiseLevelPotential, require_levels
from nrf.networks.mlp import MLPGenerator, MLPPotential
from nrf.networks.resnet import ResNetGenerator, ResNetPotential
from nrf.networks.stacked import replica_state, stack
from nrf.networks.statistics import Statistics, batch_norms, called_with, held, note_statistics, pass_noted
from nrf.networks.still import Snapshot

POTENTIALS: dict[str, type[PotentialConfig]] = {
    "mlp": MLPPotential,
    "one-class-cnn": OneClassCNNPotential,
    "standard-cnn": StandardCNNPotential,
    "resnet": ResNetPotential,
    "levels-mlp": LevelsMLPPotential,
    "levels-cnn": LevelsCNNPotential,
}
"""Configurations of potentials by name."""

GENERATORS: dict[str, type[GeneratorConfig]] = {
    "mlp": MLPGenerator,
    "one-class-cnn": OneClassCNNGenerator,
    "standard-cnn": StandardCNNGenerator,
    "resnet": ResNetGenerator,
}
"""Configurations of generators by name."""

__all__ = [
    "GENERATORS",
    "POTENTIALS",
    "GeneratorConfig",
    "Latent",
    "LevelsCNNPotential",
    "LevelsMLPPotential",
    "MLPGenerator",
    "MLPPotential",
    "NoiseLevelPotential",
    "OneClassCNNGenerator",
    "OneClassCNNPotential",
    "PlainPotential",
    "PotentialConfig",
    "ResNetGenerator",
    "ResNetPotential",
    "Shape",
    "Snapshot",
    "StandardCNNGenerator",
    "StandardCNNPotential",
    "Statistics",
    "batch_norms",
    "called_with",
    "data_dependent_init",
    "held",
    "note_statistics",
    "pass_noted",
    "replica_state",
    "require_levels",
    "stack",
]
