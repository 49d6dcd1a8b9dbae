"""The mixture of Gaussians in the plane."""

from __future__ import annotations

from dataclasses import replace

from nrf.learners import InclusiveConfig, Revision
from nrf.networks import MLPGenerator, MLPPotential
from nrf.runs.spec import DataConfig, Preset
from nrf.samplers import SGHMC, SGLD
from nrf.training import TrainConfig


def gmm() -> dict[str, Preset]:
    """The paper's settings, those of the scripts, and ours: short and best."""
    paper = Preset(
        data=DataConfig("gmm"),
        potential=MLPPotential(widths=(100, 100)),
        generator=MLPGenerator(latent_dim=2, widths=(50, 50), sigma=0.1),
        sampler=SGLD(step_size=0.01, latent_step_size=1e-5),
        revision=Revision(n_steps=10, target="joint"),
        learner=InclusiveConfig(betas=(0.5, 0.9)),
        train=TrainConfig(iterations=160_000, log_every=500, checkpoint_every=5000, threads=1),
    )
    released = replace(
        paper,
        potential=MLPPotential(widths=(100, 100), train_gain="last", data_init=True, initial_std=0.1),
        generator=MLPGenerator(latent_dim=2, widths=(50, 50), output_norm="weight", statistics="batch"),
        # The script adds noise of standard deviation 0.01, and 2δτ = 0.01² at τ = 0.005.
        sampler=SGLD(step_size=0.01, temperature=0.005),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.0, 0.999)),
        train=replace(paper.train, iterations=500_000),
    )
    # Ours, for a few minutes: kinks spread over the plane, a little proposal noise, momentum, falling learning rates.
    short = replace(
        released,
        potential=MLPPotential(widths=(100, 100), train_gain="last", data_init=True, bias_spread=1.0),
        generator=MLPGenerator(latent_dim=2, widths=(50, 50), sigma=0.1),
        sampler=SGHMC(step_size=0.03, friction=0.3, temperature=0.02),
        revision=Revision(n_steps=10, target="x", sample_steps=30),
        learner=InclusiveConfig(betas=(0.0, 0.99), potential_lr=3e-3, generator_lr=2e-3),
        train=TrainConfig(
            iterations=20_000, lr_final=0.05, ema_decay=0.999, log_every=200, checkpoint_every=2000, threads=1
        ),
    )
    # The scripts' optimisers and noiseless proposals, with momentum, spread kinks, a faster generator, falling rates:
    # ahead of others by the likelihood of held-out points under the field and under its generator's samples.
    best = replace(
        released,
        potential=short.potential,
        sampler=short.sampler,
        revision=short.revision,
        learner=replace(released.learner, generator_lr=3e-3),
        train=replace(short.train, iterations=160_000, log_every=500, checkpoint_every=5000),
    )
    return {"gmm-short": short, "gmm-best": best, "gmm-paper": paper, "gmm-released": released}
