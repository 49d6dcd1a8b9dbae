"""Named presets: what `nrf train NAME` starts from.

``paper`` is what the text says, ``released`` what the authors' scripts did; where the text is silent (σ, the step size
of h), the values here are ours and docs/presets.md says so. The released scripts revise x only, hardly or not at
all with noise, and multiply the momentum by their "β", which is a friction of 1 − β here.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from nrf.errors import InputError
from nrf.learners import InclusiveConfig, Revision
from nrf.networks import (
    MLPGenerator,
    MLPPotential,
    OneClassCNNGenerator,
    OneClassCNNPotential,
    ResNetGenerator,
    ResNetPotential,
    StandardCNNGenerator,
    StandardCNNPotential,
)
from nrf.runs.spec import DataConfig, Preset, SamplerChoice
from nrf.samplers import SGHMC, SGLD
from nrf.training import TrainConfig


def find_preset(name: str) -> Preset:
    """The preset of that name, or an error with the nearest names."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`nrf train` lists them"
    raise InputError(f"unknown preset {name!r}; {hint}")


def _gmm() -> dict[str, Preset]:
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
        potential=MLPPotential(widths=(100, 100), train_gain="last", data_init=True),
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


def _digits() -> dict[str, Preset]:
    # Real noise in proposal and revision keeps the last model as good as any before it. Settings were compared on
    # held-out training images of the normal digit against turned, flipped, shuffled, noised and blended copies of them;
    # that noise helps at all was first seen on test images (docs/presets.md).
    preset = Preset(
        data=DataConfig("digits", normal=0),
        potential=MLPPotential(widths=(128, 64), train_gain="last", data_init=True),
        generator=MLPGenerator(latent_dim=10, widths=(64, 64), activation="softplus", output="sigmoid", sigma=0.3),
        sampler=SGLD(step_size=0.003, box=(0.0, 1.0)),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.0, 0.9), control_weight=1.0),
        train=TrainConfig(
            batch_size=64,
            iterations=600,
            lr_final=0.1,
            ema_decay=0.99,
            log_every=20,
            checkpoint_every=100,
            keep=6,
            threads=1,
        ),
    )
    return {"digits": preset}


def _each_sampler(name: str, preset: Preset, sgld: SamplerChoice, sghmc: SamplerChoice, kind: str) -> dict[str, Preset]:
    return {
        f"{name}-sgld-{kind}": replace(preset, sampler=sgld),
        f"{name}-sghmc-{kind}": replace(preset, sampler=sghmc),
    }


def _kddcup() -> dict[str, Preset]:
    released = Preset(
        data=DataConfig("kddcup99"),
        potential=MLPPotential(widths=(60, 30, 10), activation="tanh", train_gain="last"),
        generator=MLPGenerator(latent_dim=5, widths=(10, 30, 60), activation="tanh", output_norm="weight"),
        sampler=SGLD(),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.5, 0.999), potential_lr=1e-4, generator_lr=3e-4, control_weight=0.1),
        train=TrainConfig(batch_size=1024, epochs=30, log_every=100, checkpoint_every=1000, threads=1),
    )
    paper = replace(
        released,
        potential=MLPPotential(widths=(60, 30, 10), activation="tanh"),
        generator=replace(released.generator, sigma=0.1),
        revision=Revision(n_steps=10, target="joint"),
    )
    return _each_sampler(
        "kddcup",
        paper,
        SGLD(step_size=0.003, latent_step_size=1e-4),
        SGHMC(step_size=0.03, latent_step_size=1e-4, friction=0.3),
        "paper",
    ) | _each_sampler(
        "kddcup",
        released,
        SGLD(step_size=0.003, temperature=0.0),
        SGHMC(step_size=0.03, friction=0.7, temperature=0.0),
        "released",
    )


def _mnist() -> dict[str, Preset]:
    widths = (1000, 500, 250, 250, 250)
    paper = Preset(
        data=DataConfig("mnist", normal=0),
        potential=MLPPotential(widths=widths),
        generator=MLPGenerator(latent_dim=100, widths=(500, 500), activation="softplus", output="sigmoid", sigma=0.1),
        sampler=SGLD(),
        revision=Revision(n_steps=20, target="joint"),
        learner=InclusiveConfig(betas=(0.0, 0.9), potential_lr=3e-3, generator_lr=1e-3, control_weight=1.0),
        train=TrainConfig(batch_size=100, epochs=50, log_every=50, checkpoint_every=300),
    )
    released = replace(
        paper,
        potential=MLPPotential(widths=widths, activation="relu", train_gain="last", data_init=True),
        generator=replace(paper.generator, prior="uniform"),
        revision=Revision(n_steps=20, target="x"),
        learner=replace(paper.learner, optimizer="rmsprop"),
    )
    box = (0.0, 1.0)
    # All digits, the networks of the table; the text has no settings for this figure. Noise in proposals hides from
    # the regression which code moved where: with the settings of one class g(h) comes to ignore h.
    interpolation = replace(
        paper,
        data=DataConfig("mnist"),
        generator=replace(paper.generator, sigma=0.0),
        sampler=SGHMC(step_size=0.01, friction=0.5, temperature=0.0, box=box),
        revision=Revision(n_steps=20, target="x"),
        learner=InclusiveConfig(betas=(0.5, 0.99), potential_lr=3e-4, generator_lr=3e-4, control_weight=0.1),
        train=replace(paper.train, epochs=10, lr_final=0.1, ema_decay=0.995, checkpoint_every=600),
    )
    return (
        {"mnist-interpolation": interpolation}
        | _each_sampler(
            "mnist",
            paper,
            SGLD(step_size=0.001, latent_step_size=1e-4),
            SGHMC(step_size=0.003, latent_step_size=1e-4, friction=0.5),
            "paper",
        )
        | _each_sampler(
            "mnist",
            released,
            SGLD(step_size=0.001, temperature=0.0, box=box),
            SGHMC(step_size=0.003, friction=0.5, temperature=0.0, box=box),
            "released",
        )
    )


def _cifar10_one_class() -> dict[str, Preset]:
    paper = Preset(
        data=DataConfig("cifar10", normal=0),
        potential=OneClassCNNPotential(),
        generator=OneClassCNNGenerator(latent_dim=100, sigma=0.1),
        sampler=SGLD(),
        revision=Revision(n_steps=10, target="joint"),
        learner=InclusiveConfig(betas=(0.0, 0.9), control_weight=0.1),
        train=TrainConfig(batch_size=64, epochs=100, log_every=20, checkpoint_every=100),
    )
    released = replace(
        paper,
        potential=OneClassCNNPotential(train_gain="last", data_init=True),
        generator=OneClassCNNGenerator(latent_dim=100, norm="all", output_norm="weight"),
        revision=Revision(n_steps=10, target="x"),
        learner=replace(paper.learner, optimizer="rmsprop"),
    )
    box = (-1.0, 1.0)
    return _each_sampler(
        "cifar10-one-class",
        paper,
        SGLD(step_size=0.03, latent_step_size=1e-5),
        SGHMC(step_size=1.0, latent_step_size=1e-5, friction=0.9),
        "paper",
    ) | _each_sampler(
        "cifar10-one-class",
        released,
        SGLD(step_size=0.03, temperature=0.0, box=box),
        SGHMC(step_size=1.0, friction=0.1, temperature=0.0, box=box),
        "released",
    )


def _cifar10() -> dict[str, Preset]:
    learner = InclusiveConfig(betas=(0.0, 0.9), potential_lr=3e-4, generator_lr=1e-4, control_weight=0.1)
    resnet = Preset(
        data=DataConfig("cifar10"),
        potential=ResNetPotential(),
        generator=ResNetGenerator(sigma=0.1),
        sampler=SGLD(step_size=3e-4, latent_step_size=1e-5),
        revision=Revision(n_steps=1, target="joint"),
        learner=learner,
        train=TrainConfig(batch_size=64, iterations=500_000, log_every=20, checkpoint_every=200, ema_decay=0.9999),
    )
    # Not in the text: the released script takes the gradient of the batch's mean, so its step is 64 times shorter.
    released = replace(
        resnet,
        generator=ResNetGenerator(),
        sampler=SGLD(step_size=3e-4 / 64, temperature=0.0, box=(-1.0, 1.0)),
        revision=Revision(n_steps=1, target="x"),
        learner=replace(learner, generator_loss="potential"),
    )
    cnn = replace(resnet, potential=StandardCNNPotential(), generator=StandardCNNGenerator(sigma=0.1))
    presets = {
        "cifar10-resnet": resnet,
        "cifar10-resnet-released": released,
        "cifar10-cnn": cnn,
        # Minutes on a processor, to see the way from data to pictures.
        "cifar10-tiny": replace(
            released,
            potential=StandardCNNPotential(width=16),
            generator=StandardCNNGenerator(width=16),
            learner=replace(released.learner, potential_lr=2e-4, generator_lr=2e-4),
            train=TrainConfig(
                batch_size=32,
                iterations=1500,
                log_every=50,
                checkpoint_every=250,
                ema_decay=0.99,
                flip=True,
                sample_every=250,
            ),
        ),
        # There is a script for the residual pair only; this is its way with the other networks.
        "cifar10-cnn-released": replace(released, potential=cnn.potential, generator=StandardCNNGenerator()),
    }
    rates = replace(learner, potential_lr=2e-4, generator_lr=2e-4)
    ablation = replace(
        cnn,
        potential=StandardCNNPotential(norm="batch"),
        learner=rates,
    )
    # Of the ablation no script was released: what the other scripts do, no noise and x alone, with the text's steps.
    noiseless = replace(ablation, generator=StandardCNNGenerator(), learner=rates)
    box = (-1.0, 1.0)
    for n_steps in (2, 5, 10):
        revision = Revision(n_steps=n_steps, target="joint")
        presets[f"cifar10-ablation-sgld-{n_steps}"] = replace(
            ablation, sampler=SGLD(step_size=1e-4, latent_step_size=1e-5), revision=revision
        )
        presets[f"cifar10-ablation-sgld-{n_steps}-released"] = replace(
            noiseless,
            sampler=SGLD(step_size=1e-4, temperature=0.0, box=box),
            revision=replace(revision, target="x"),
        )
    presets["cifar10-ablation-sghmc-10"] = replace(
        ablation,
        sampler=SGHMC(step_size=3e-4, latent_step_size=1e-5, friction=0.5),
        revision=Revision(n_steps=10, target="joint"),
    )
    presets["cifar10-ablation-sghmc-10-released"] = replace(
        noiseless,
        sampler=SGHMC(step_size=3e-4, friction=0.5, temperature=0.0, box=box),
        revision=Revision(n_steps=10, target="x"),
    )
    return presets


PRESETS: dict[str, Preset] = _gmm() | _digits() | _kddcup() | _mnist() | _cifar10_one_class() | _cifar10()
