"""CIFAR-10: one class against the others, and generation from all of them."""

from __future__ import annotations

from dataclasses import replace

from nrf.learners import InclusiveConfig, Revision
from nrf.networks import (
    OneClassCNNGenerator,
    OneClassCNNPotential,
    ResNetGenerator,
    ResNetPotential,
    StandardCNNGenerator,
    StandardCNNPotential,
)
from nrf.runs.presets.kddcup import START
from nrf.runs.presets.variants import each_sampler
from nrf.runs.spec import DataConfig, Preset
from nrf.samplers import SGHMC, SGLD
from nrf.training import TrainConfig


def cifar10_one_class() -> dict[str, Preset]:
    """Settings of the paper and of the scripts, with SGLD and SGHMC."""
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
        potential=OneClassCNNPotential(train_gain="last", initial_std=START),
        generator=OneClassCNNGenerator(latent_dim=100, norm="all", output_norm="weight", initial_std=START),
        revision=Revision(n_steps=10, target="x"),
        learner=replace(paper.learner, optimizer="rmsprop"),
    )
    box = (-1.0, 1.0)
    return each_sampler(
        "cifar10-one-class",
        paper,
        SGLD(step_size=0.03, latent_step_size=1e-5),
        SGHMC(step_size=1.0, latent_step_size=1e-5, friction=0.9),
        "paper",
    ) | each_sampler(
        "cifar10-one-class",
        released,
        SGLD(step_size=0.03, temperature=0.0, box=box),
        SGHMC(step_size=1.0, friction=0.1, temperature=0.0, box=box),
        "released",
    )


def cifar10() -> dict[str, Preset]:
    """Residual and standard networks, a tiny pair, and the ablation of the number of steps."""
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
        # Minutes on a CPU, to see every step from data to pictures.
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
        # A script was released for the residual pair only; this uses its settings with the other networks.
        "cifar10-cnn-released": replace(released, potential=cnn.potential, generator=StandardCNNGenerator()),
    }
    rates = replace(learner, potential_lr=2e-4, generator_lr=2e-4)
    ablation = replace(
        cnn,
        potential=StandardCNNPotential(norm="batch"),
        learner=rates,
    )
    # No script was released for the ablation: this does what the other scripts do (no noise, x alone) with the text's
    # numbers of steps.
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
