"""Learners by name. To add one, write a file here and a line in ``LEARNERS``; the contract tests pick it up."""

from __future__ import annotations

from nrf.deprecation import former_names
from nrf.learners.base import Learner, LearnerConfig, Metrics, as_replicas
from nrf.learners.cd import CDConfig
from nrf.learners.coopnet import CoopNetConfig
from nrf.learners.exclusive import ExclusiveConfig
from nrf.learners.gan import GANConfig
from nrf.learners.inclusive import Inclusive, InclusiveConfig
from nrf.learners.levels import Levels, LevelsConfig
from nrf.learners.pcd import PCDConfig
from nrf.learners.replay import ReplayConfig
from nrf.learners.revision import Revision
from nrf.learners.sngan import SNGANConfig
from nrf.learners.wgan_gp import WGANGPConfig

LEARNERS: dict[str, type[LearnerConfig]] = {
    "inclusive": InclusiveConfig,
    "exclusive": ExclusiveConfig,
    "gan": GANConfig,
    "wgan-gp": WGANGPConfig,
    "sngan": SNGANConfig,
    "cd": CDConfig,
    "pcd": PCDConfig,
    "replay": ReplayConfig,
    "coopnet": CoopNetConfig,
    "levels": LevelsConfig,
}
"""Configurations of learners by name: `learner:NAME` on the command line."""

__all__ = [
    "LEARNERS",
    "CDConfig",
    "CoopNetConfig",
    "ExclusiveConfig",
    "GANConfig",
    "Inclusive",
    "InclusiveConfig",
    "Learner",
    "LearnerConfig",
    "Levels",
    "LevelsConfig",
    "Metrics",
    "PCDConfig",
    "ReplayConfig",
    "Revision",
    "SNGANConfig",
    "WGANGPConfig",
    "as_replicas",
]


__getattr__ = former_names(__name__, {"side_by_side": "nrf.learners.as_replicas"})
