"""Noise levels: fields whose log-density is known in nats."""

from __future__ import annotations

from dataclasses import replace

from nrf.fields import MixtureReference, Referenced
from nrf.learners import LevelsConfig, Revision
from nrf.networks import LevelsCNNPotential, LevelsMLPPotential, MLPGenerator
from nrf.runs.spec import DataConfig, Preset
from nrf.samplers import SGHMC
from nrf.training import TrainConfig


def levels() -> dict[str, Preset]:
    """The mixture, alone, around a reference, and with a generator on top; the small digits; MNIST."""
    # 0.3 σ_0² is the step at the smallest level, and steps grow with the level's variance.
    mixture = Preset(
        data=DataConfig("gmm"),
        potential=LevelsMLPPotential(
            widths=(64, 64), n_levels=8, sigma_min=0.02, sigma_max=4.0, n_waves=64, wave_scale=5.4
        ),
        generator=MLPGenerator(latent_dim=2, widths=(50, 50), sigma=0.1),
        sampler=SGHMC(step_size=1.2e-4, friction=0.3),
        revision=Revision(n_steps=20, target="x", start_level=-1),
        learner=LevelsConfig(potential_lr=3e-3),
        train=TrainConfig(
            batch_size=512,
            iterations=3000,
            lr_final=0.0,
            ema_decay=0.995,
            log_every=100,
            checkpoint_every=1000,
            threads=1,
        ),
    )
    # A mixture fitted by EM is the reference, and a tenth of the rows decides how much of the network is kept beside
    # it.
    reference = replace(
        mixture,
        potential=Referenced(mixture.potential, MixtureReference()),
        train=replace(mixture.train, watch_share=0.1),
    )
    # Codes go down the levels by the probability flow, to level 2 (σ 0.09), which lies within a mode: from there on
    # noise does not make a pair forget its code. A map onto 32 islands is steep, so g has sines beside its code.
    generator = replace(
        mixture,
        generator=MLPGenerator(
            latent_dim=2, widths=(128, 128, 128), norm="none", n_waves=128, wave_scale=8.0, sigma=0.0
        ),
        revision=Revision(n_steps=1, target="x", start_level=2, sample_steps=20),
        learner=LevelsConfig(potential_lr=3e-3, generator_lr=6e-3, generator_betas=(0.5, 0.9), pairs="flow"),
    )
    digits = replace(
        mixture,
        data=DataConfig("digits", normal=0),
        potential=LevelsMLPPotential(widths=(128, 128), n_levels=16, sigma_min=0.1, sigma_max=2.0),
        generator=MLPGenerator(latent_dim=10, widths=(64, 64), activation="softplus", output="sigmoid", sigma=0.1),
        sampler=SGHMC(step_size=3e-3, friction=0.3),
        learner=replace(mixture.learner, potential_lr=2e-3),
        train=replace(mixture.train, batch_size=128, iterations=1500, checkpoint_every=500),
    )
    mnist = replace(
        digits,
        data=DataConfig("mnist", normal=0),
        potential=LevelsCNNPotential(width=16, n_levels=16, sigma_min=0.1, sigma_max=5.0, image=(1, 28, 28)),
        generator=MLPGenerator(latent_dim=100, widths=(500, 500), activation="softplus", output="sigmoid", sigma=0.1),
        train=replace(digits.train, batch_size=100, iterations=2000),
    )
    return {
        "gmm-levels": mixture,
        "gmm-reference": reference,
        "gmm-levels-generator": generator,
        "digits-levels": digits,
        "mnist-levels": mnist,
    }
