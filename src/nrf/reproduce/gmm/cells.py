"""The methods of the mixture experiment and what is measured of each: ten models side by side, a cell a method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nrf.data import gmm, resolve
from nrf.learners import (
    CDConfig,
    CoopNetConfig,
    ExclusiveConfig,
    GANConfig,
    InclusiveConfig,
    LearnerConfig,
    LevelsConfig,
    PCDConfig,
    ReplayConfig,
    Revision,
    SNGANConfig,
    WGANGPConfig,
)
from nrf.learners.gan import AdversarialConfig
from nrf.metrics import (
    PlaneGrid,
    fitted_inverse_temperature,
    kernel_log_likelihood,
    kl_from,
    log_partition,
    mean_log_likelihood,
    mixture_log_density,
    mode_coverage,
)
from nrf.models import frozen
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential
from nrf.reproduce.gmm.tuned import Search, chosen, search_rates, with_rate
from nrf.reproduce.runner.experiment import NEVER, Deadline, cell_name
from nrf.reproduce.runner.watch import train_to_the_end
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.runs.trained import TrainedModel
from nrf.samplers import MALA, CoopNet

DRAW_SIZE = 100
DEPTH = 25.0
"""Nats below its highest point that the map of a log-density reaches; beyond there is nothing to see."""
LONG_CHAIN = 1000
"""Sampler steps from noise, for a field that has no generator."""
SETTINGS = ("paper", "released")
TUNED, METROPOLIS, WHOLE = "tuned", "paper, Metropolis", "scripts' length"
"""Settings beside those: what is compared with at rates that were looked for; the text's settings with an accept-reject
step; the scripts' settings for as many iterations as they had."""
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
LEVELS = {"levels": "gmm-levels", "levels and generator": "gmm-levels-generator"}
"""Methods of the setting `levels`, and their presets."""
BESIDE = ("CD", "PCD", "replay", "SNGAN", "exclusive-NRF, variational")
"""Methods beside the paper's table: trained for fewer iterations."""


@dataclass(frozen=True)
class GMMConfig:
    """Size of the experiment."""

    replicas: int = 10
    iterations: int = 160_000
    text_iterations: int = 40_000
    """In the setting of the text."""
    side_iterations: int = 20_000
    coopnet_iterations: int = 10_000
    levels_iterations: int = 3000
    script_iterations: int = 500_000
    """In the setting of the scripts' own length."""
    script_replicas: int = 3
    """Models in that setting."""
    tuned_replicas: int = 5
    """Models of each method with rates that were looked for."""
    search_iterations: int = 20_000
    """Of each model in the search for rates; updates of the critic where it has several per iteration."""
    draws: int = 100
    grid_side: int = 600


QUICK = GMMConfig(
    replicas=2,
    iterations=20,
    text_iterations=20,
    side_iterations=10,
    coopnet_iterations=10,
    levels_iterations=10,
    script_iterations=20,
    script_replicas=1,
    tuned_replicas=2,
    search_iterations=10,
    draws=2,
    grid_side=60,
)


@dataclass(frozen=True)
class Method:
    """A row of the table: a way to train, in a setting."""

    name: str
    setting: str
    preset: Preset
    search: Search | None = None
    """For rates in place of the preset's."""

    @property
    def cell(self) -> str:
        """Name of its cell."""
        return cell_name(self.setting, self.name)

    @property
    def cost(self) -> float:
        """Roughly, the passes through a network that training takes."""
        revision, sampler = self.preset.revision, self.preset.sampler
        steps = revision.n_steps if self.revises or not self.has_generator else 0
        learner, potential = self.preset.learner, self.preset.potential
        if isinstance(learner, LevelsConfig) and isinstance(potential, LevelsMLPPotential):
            steps *= revision.start_level % potential.n_levels + 1 if learner.samples else 0
            steps += 2 * (potential.n_levels - 1) if learner.pairs == "flow" else 0
        per_step = {"x": 1, "joint": 3, "conditional": 2}[revision.target]
        if isinstance(sampler, CoopNet):
            per_step *= sampler.n_x
        critic = 4 * (_critic_steps(self.preset) - 1)
        return (self.preset.train.iterations or 0) * (4 + critic + per_step * steps)

    @property
    def is_field(self) -> bool:
        """Whether the potential claims to be a log density: an adversarial critic does not."""
        return not isinstance(self.preset.learner, GANConfig | WGANGPConfig | SNGANConfig)

    @property
    def has_generator(self) -> bool:
        """Whether there is a generator to draw from."""
        return self.preset.learner.generator_lr > 0

    @property
    def revises(self) -> bool:
        """Whether revision belongs to the method."""
        return isinstance(self.preset.learner, InclusiveConfig)


def methods(config: GMMConfig) -> list[Method]:
    """Every method in both settings, those the paper compares with tuned, ours at its best, and noise levels."""
    found = [
        Method(name, setting, _sized(config, setting, name, preset))
        for setting in SETTINGS
        for name, preset in _of(setting)
    ]
    found += _tuned(config)
    ours = {METROPOLIS: _adjusted(), WHOLE: find_preset("gmm-released"), "best": find_preset("gmm-best")}
    found += [
        Method("inclusive-NRF", setting, _sized(config, setting, "inclusive-NRF", p)) for setting, p in ours.items()
    ]
    return found + [
        Method(name, "levels", _sized(config, "levels", name, find_preset(preset))) for name, preset in LEVELS.items()
    ]


def _tuned(config: GMMConfig) -> list[Method]:
    """GAN, WGAN-GP and exclusive-NRF with the scripts' networks; WGAN-GP with the critic and the betas of its paper."""
    presets = dict(_of("released"))
    wgan = presets["WGAN-GP"]
    presets["WGAN-GP"] = replace(wgan, learner=WGANGPConfig(n_critic=5, betas=(0.0, 0.9)))
    found = []
    for name in ("GAN", "WGAN-GP", "exclusive-NRF"):
        preset = _sized(config, TUNED, name, presets[name])
        search = Search(RATES, min(2, config.tuned_replicas), config.search_iterations // _critic_steps(preset))
        found.append(Method(name, TUNED, with_rate(preset, search.rates[0]), search))
    return found


def _critic_steps(preset: Preset) -> int:
    """Updates of the critic per iteration."""
    return preset.learner.n_critic if isinstance(preset.learner, AdversarialConfig) else 1


def _adjusted() -> Preset:
    """The text's settings with Metropolis adjustment, which needs exact gradients: so x alone is revised."""
    text = find_preset("gmm-paper")
    sampler = MALA(step_size=text.sampler.step_size, temperature=text.sampler.temperature)
    return replace(text, sampler=sampler, revision=Revision(text.revision.n_steps, "x"))


def _sized(config: GMMConfig, setting: str, name: str, preset: Preset) -> Preset:
    lengths = dict.fromkeys(BESIDE, config.side_iterations) | {"CoopNet": config.coopnet_iterations}
    lengths |= dict.fromkeys(LEVELS, config.levels_iterations)
    by_setting = dict.fromkeys(("paper", METROPOLIS), config.text_iterations) | {WHOLE: config.script_iterations}
    # As many updates of a critic as others have iterations.
    iterations = lengths.get(name, by_setting.get(setting, config.iterations)) // _critic_steps(preset)
    length = replace(preset.train, iterations=iterations, log_every=min(1000, iterations), checkpoint_every=4000)
    replicas = {WHOLE: config.script_replicas, TUNED: config.tuned_replicas}.get(setting, config.replicas)
    return replace(preset, replicas=replicas, train=length)


def _of(setting: str) -> list[tuple[str, Preset]]:
    """The methods in a setting: its networks and optimisers, each with its own learner and sampler."""
    base = find_preset(f"gmm-{setting}")
    optimiser: dict[str, Any] = {"betas": base.learner.betas}
    sharp = replace(base, generator=replace(base.generator, sigma=0.0), revision=Revision(base.revision.n_steps, "x"))
    assert isinstance(base.potential, MLPPotential)
    assert isinstance(base.generator, MLPGenerator)
    spectral = MLPPotential(widths=base.potential.widths, norm="spectral")
    # Codes are revised within q(h | x), which σ = 0.1 and slopes of about 5 make as narrow as 0.02.
    coopnet = replace(
        base,
        generator=replace(base.generator, sigma=0.1, statistics="running"),
        sampler=CoopNet(0.01, latent_step_size=1e-4, temperature=base.sampler.temperature, n_x=10, n_h=10),
        revision=Revision(1, "conditional"),
    )

    def by(learner: LearnerConfig, preset: Preset = sharp) -> Preset:
        return replace(preset, learner=learner)

    return [
        ("GAN", by(GANConfig(**optimiser))),
        ("WGAN-GP", by(WGANGPConfig(**optimiser))),
        ("exclusive-NRF", by(ExclusiveConfig(**optimiser))),
        ("inclusive-NRF", base),
        ("exclusive-NRF, variational", by(ExclusiveConfig(**optimiser, entropy="variational", entropy_weight=1.0))),
        ("SNGAN", by(SNGANConfig(**optimiser), replace(sharp, potential=spectral))),
        ("CoopNet", by(CoopNetConfig(**optimiser), coopnet)),
        ("CD", by(CDConfig(**optimiser))),
        ("PCD", by(PCDConfig(**optimiser))),
        ("replay", by(ReplayConfig(**optimiser, noise_range=(-6.0, 6.0)))),
    ]


def train_and_measure(
    method: Method, draws: int, grid_side: int, out: Path, deadline: Deadline = NEVER
) -> dict[str, Any]:
    """Look for rates where a method has a search, train its models, or go on with them, then measure each."""
    found: dict[str, Any] = {}
    if method.search is not None:
        tried = search_rates(method.cell, method.preset, method.search, out, deadline)
        found = {"search": [one.as_json() for one in tried], "rate": chosen(tried)}
        method = replace(method, preset=with_rate(method.preset, found["rate"]))
    run = run_of(method, out)
    trainer = train_to_the_end(method.cell, method.preset, run, deadline)
    models = [_measure(method, run, i, draws, grid_side) for i in range(method.preset.replicas)]
    return {"iterations": trainer.total, "seconds": round(trainer.seconds, 1), **found, "models": models}


def run_of(method: Method, out: Path) -> Path:
    """Where the models that are reported lie: beside those of the search, where there is one."""
    return out if method.search is None else out / "chosen"


def _measure(method: Method, out: Path, replica: int, draws: int, grid_side: int) -> dict[str, dict[str, float]]:
    weights = ["last"] + (["averaged"] if method.preset.train.ema_decay is not None else [])
    seed = method.preset.seeds[replica]
    models = {name: TrainedModel.load(out, averaged=name == "averaged", replica=replica) for name in weights}
    return {name: _numbers(method, model, seed, draws, grid_side) for name, model in models.items()}


def _numbers(method: Method, trained: TrainedModel, seed: int, draws: int, grid_side: int) -> dict[str, float]:
    means, held_out = torch.from_numpy(gmm.means()).float(), torch.from_numpy(gmm.reported())
    found: dict[str, float] = {}
    for kind, samples in samples_of(method, trained, draws * DRAW_SIZE, seed).items():
        covered, realistic = mode_coverage(samples, means, gmm.SIGMA, DRAW_SIZE)
        found |= {f"{kind}: covered modes": covered, f"{kind}: realistic ratio": realistic}
        found[f"{kind}: kernel log-likelihood"] = kernel_log_likelihood(samples[:5000], held_out)
    return found | (field_numbers(trained, grid_side) if method.is_field else {})


def samples_of(method: Method, trained: TrainedModel, n: int, seed: int) -> dict[str, Tensor]:
    """Independent samples of every kind the method has."""
    if not method.has_generator and isinstance(method.preset.learner, LevelsConfig):
        return {"revision": torch.from_numpy(trained.sample(n, seed=seed, revise=True)[0])}
    if not method.has_generator:
        noise = np.random.default_rng(seed).uniform(-6, 6, (n, 2)).astype(np.float32)
        return {"long chains": torch.from_numpy(trained.revise(noise, seed=seed, n_steps=LONG_CHAIN))}
    found = {"generation": torch.from_numpy(trained.sample(n, seed=seed)[0])}
    if method.revises:
        found["revision"] = torch.from_numpy(trained.sample(n, seed=seed, revise=True)[0])
    return found


def field_numbers(trained: TrainedModel, grid_side: int) -> dict[str, float]:
    """Likelihood of held-out points and distance from the truth: of ``exp u``, and of ``exp(u/τ)`` for the best τ.

    Of a field that says its log-density in nats also that number as it is, its integral, and its slope.
    """
    splits, grid = resolve("gmm"), PlaneGrid(side=grid_side)
    held_out, means = torch.from_numpy(gmm.reported()), torch.from_numpy(gmm.means())
    with torch.no_grad(), frozen(trained.potential):
        fitted = fitted_inverse_temperature(trained.potential, torch.from_numpy(splits.train), grid)
        found = {"fitted temperature": 1 / fitted}
        for name, scale in (("log-likelihood", 1.0), ("log-likelihood, temperature fitted", fitted)):
            found[name] = mean_log_likelihood(_scaled(trained.potential, scale), held_out, grid)
        truth = partial(mixture_log_density, means=means, sigma=gmm.SIGMA)
        for name, scale in (("KL from the mixture", 1.0), ("KL from the mixture, temperature fitted", fitted)):
            found[name] = kl_from(truth, _scaled(trained.potential, scale), grid)
        if isinstance(trained.preset.learner, LevelsConfig):
            found |= density_numbers(trained, grid_side)
    return found


def density_numbers(trained: TrainedModel, grid_side: int) -> dict[str, float]:
    """Of a field that says its log-density in nats: its mean at held-out points, its integral, its slope."""
    held_out, means = torch.from_numpy(gmm.reported()), torch.from_numpy(gmm.means())
    learned = torch.from_numpy(trained.log_density(held_out)).double()
    true = mixture_log_density(held_out, means, gmm.SIGMA).double()
    with torch.no_grad(), frozen(trained.potential):
        integral = math.exp(log_partition(_scaled(trained.potential, 1.0), PlaneGrid(side=grid_side)))
    slope = float(torch.cov(torch.stack([learned, true]))[0, 1] / true.var())
    return {"log-likelihood, as it is": float(learned.mean()), "integral": integral, "slope": slope}


def _scaled(potential: Callable[[Tensor], Tensor], scale: float) -> Callable[[Tensor], Tensor]:
    return lambda x: scale * potential(x).double()
