"""KDDCUP99."""

from __future__ import annotations

from dataclasses import replace

from nrf.learners import InclusiveConfig, Revision
from nrf.networks import MLPGenerator, MLPPotential
from nrf.runs.presets.variants import each_sampler
from nrf.runs.spec import DataConfig, Preset
from nrf.samplers import SGHMC, SGLD
from nrf.training import TrainConfig

START = 0.05
"""Standard deviation of the directions that weight norm starts from, in the released scripts for detection."""


def kddcup() -> dict[str, Preset]:
    """Settings of the paper and of the scripts, with SGLD and SGHMC."""
    generator = MLPGenerator(latent_dim=5, widths=(10, 30, 60), activation="tanh", output_norm="weight")
    released = Preset(
        data=DataConfig("kddcup99"),
        potential=MLPPotential(widths=(60, 30, 10), activation="tanh", train_gain="last", initial_std=START),
        generator=replace(generator, initial_std=START),
        sampler=SGLD(),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.5, 0.999), potential_lr=1e-4, generator_lr=3e-4, control_weight=0.1),
        train=TrainConfig(batch_size=1024, epochs=30, log_every=100, checkpoint_every=1000, threads=1),
    )
    paper = replace(
        released,
        potential=MLPPotential(widths=(60, 30, 10), activation="tanh"),
        generator=replace(generator, sigma=0.1),
        revision=Revision(n_steps=10, target="joint"),
    )
    return each_sampler(
        "kddcup",
        paper,
        SGLD(step_size=0.003, latent_step_size=1e-4),
        SGHMC(step_size=0.03, latent_step_size=1e-4, friction=0.3),
        "paper",
    ) | each_sampler(
        "kddcup",
        released,
        SGLD(step_size=0.003, temperature=0.0),
        SGHMC(step_size=0.03, friction=0.7, temperature=0.0),
        "released",
    )
