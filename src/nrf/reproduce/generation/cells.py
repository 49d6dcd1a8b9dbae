"""CIFAR-10 generation: the list of runs, their size, and how one of them is trained and scored."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.data import Splits, resolve
from nrf.files import write_atomically
from nrf.learners import InclusiveConfig, SNGANConfig, WGANGPConfig
from nrf.reproduce.runner.experiment import NEVER, Deadline, cell_name
from nrf.reproduce.runner.watch import read_curve
from nrf.runs.image_scorer import ImageScorer, cifar10_scorer
from nrf.runs.pictures import model_of
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.training import Trainer

Images = NDArray[np.float32]
Point = dict[str, float]

KINDS = ("generation", "revision")


@dataclass(frozen=True)
class GenerationRunSpec:
    """The runs of one line of the table: a method in a setting."""

    method: str
    setting: str
    preset: str
    paper: tuple[float | None, float | None] = (None, None)
    """Inception score and FID of generated images in the paper's full run, by Inception."""
    rates: tuple[float, float] | None = None
    """Learning rates of potential and generator, instead of those of the preset or the method."""
    step_size: float | None = None
    """Step size of revision, instead of the preset's."""
    seeds: int = 1

    @property
    def name(self) -> str:
        """The line's name in tables."""
        return f"{self.method}, {self.setting}" if self.setting else self.method

    def cell(self, seed: int = 0) -> str:
        """Name of the cell of a seed."""
        return cell_name(self.setting, self.method, *([seed] if seed else []))


SHORT = (4e-4, 4e-4)
"""Learning rates for a short run: the best of those tried, for both methods (`nrf reproduce generation-rates`)."""
STEP = 1.0
"""Step of revision that is level with the script's there, and moves an image a little, which the script's does not."""
GENERATION = (
    GenerationRunSpec("inclusive-NRF", "best", "cifar10-cnn-released", rates=SHORT, step_size=STEP, seeds=3),
    GenerationRunSpec("SNGAN", "best", "cifar10-cnn", rates=SHORT, seeds=3),
    GenerationRunSpec("SNGAN", "", "cifar10-cnn", (7.58, 25.5)),
    GenerationRunSpec("inclusive-NRF", "paper", "cifar10-cnn", (7.54, 27.9)),
    GenerationRunSpec("WGAN-GP", "", "cifar10-cnn"),
)
RATES = (
    *(
        GenerationRunSpec(method, f"{potential:g} and {generator:g}", preset, rates=(potential, generator))
        for method, preset in (("inclusive-NRF", "cifar10-cnn-released"), ("SNGAN", "cifar10-cnn"))
        for potential, generator in ((3e-4, 1e-4), (2e-4, 2e-4), (4e-4, 4e-4))
    ),
    *(
        GenerationRunSpec(
            "inclusive-NRF",
            f"{SHORT[0]:g} and {SHORT[1]:g}, steps of {step:g}",
            "cifar10-cnn-released",
            rates=SHORT,
            step_size=step,
        )
        for step in (STEP, 10.0)
    ),
)
"""Learning rates with the scripts' step of revision, which does not move an image; then steps that do."""


@dataclass(frozen=True)
class Size:
    """Size of a run and of its scores."""

    width: int
    """Channels of the first convolution; the paper's networks have 64."""
    iterations: int
    minutes: float | None = None
    """Limit of the processor's time for training, without scoring; a run ends at this or at ``iterations``, whichever
    comes first."""
    every: int = 500
    """Iterations between two points of the curve."""
    samples: int = 5000
    """Images per draw: for the Fréchet distance to the test images, and for an inception score."""
    draws: int = 10
    """Draws at the end, over which the inception score is averaged; a point of the curve has one draw."""
    final_samples: int = 50_000
    """Samples at the end for the Fréchet distance to all training images; none if 0."""
    batch_size: int = 64
    ema_decay: float = 0.995
    max_rows: int | None = None
    bfloat16: bool = False
    """Whether convolutions are computed in 16 bits, with channels last."""
    held_out: int = 0
    """Training images that are held out and replace the test images, for choices made by scores."""


@dataclass(frozen=True)
class GenerationConfig:
    """The runs and their size."""

    lines: tuple[GenerationRunSpec, ...]
    size: Size
    inception_weights: Path | None = None


CONFIGS = {
    "cifar10-generation": GenerationConfig(
        GENERATION, Size(width=16, iterations=100_000, minutes=3.0, every=600, bfloat16=True)
    ),
    "generation-rates": GenerationConfig(
        RATES,
        Size(
            width=16,
            iterations=600,
            every=300,
            draws=1,
            final_samples=0,
            ema_decay=0.99,
            bfloat16=True,
            held_out=10_000,
        ),
    ),
}


def sized(size: Size, line: GenerationRunSpec, seed: int = 0) -> Preset:
    """A line's preset at the experiment's size, with its learner and seed."""
    preset = find_preset(line.preset)
    learner = preset.learner
    if line.method == "SNGAN":
        learner = SNGANConfig(betas=(0.0, 0.9), potential_lr=2e-4, generator_lr=2e-4)
    elif line.method == "WGAN-GP":
        learner = WGANGPConfig(betas=(0.0, 0.9), potential_lr=2e-4, generator_lr=2e-4, n_critic=1)
    if line.rates is not None:
        learner = replace(learner, potential_lr=line.rates[0], generator_lr=line.rates[1])
    if line.step_size is not None:
        preset = replace(preset, sampler=replace(preset.sampler, step_size=line.step_size))
    potential: Any = preset.potential
    generator: Any = preset.generator
    if not isinstance(learner, InclusiveConfig):
        generator = replace(generator, sigma=0.0)
    if isinstance(learner, WGANGPConfig):
        potential = replace(potential, norm="none")
    length = replace(
        preset.train,
        batch_size=size.batch_size,
        iterations=size.iterations,
        epochs=None,
        log_every=max(1, size.every // 20),
        checkpoint_every=size.every,
        ema_decay=size.ema_decay,
        flip=True,
        threads=1,
    )
    if size.bfloat16:
        length = replace(length, precision="bfloat16", channels_last=True)
    return replace(
        preset,
        seed=seed,
        learner=learner,
        potential=replace(potential, width=size.width),
        generator=replace(generator, width=size.width),
        train=length,
    )


def kinds_of(line: GenerationRunSpec) -> tuple[str, ...]:
    """Kinds of samples: generated ones, and revised ones if the method has revision."""
    return KINDS[:1] if line.method in ("SNGAN", "WGAN-GP") else KINDS


@lru_cache(maxsize=1)
def dataset(max_rows: int | None, held_out: int = 0) -> Splits:
    """CIFAR-10 or a part of it; held-out training images, if any, replace the test images."""
    splits = resolve("cifar10")
    if held_out:
        labels = splits.train_labels
        splits = replace(
            splits,
            train=splits.train[:-held_out],
            train_labels=None if labels is None else labels[:-held_out],
            test=splits.train[-held_out:],
            test_labels=None if labels is None else labels[-held_out:],
        )
    assert splits.test is not None
    return replace(
        splits,
        train=splits.train[:max_rows],
        train_labels=None if splits.train_labels is None else splits.train_labels[:max_rows],
        test=splits.test[:max_rows],
        test_labels=None if splits.test_labels is None else splits.test_labels[:max_rows],
    )


def run_cell(
    preset: Preset,
    kinds: tuple[str, ...],
    size: Size,
    inception_weights: Path | None,
    out: Path,
    deadline: Deadline = NEVER,
) -> dict[str, Any]:
    """Train one model, or continue its training: scores and times along the way, and scores at the end."""
    splits = dataset(size.max_rows, size.held_out)
    scorer = cifar10_scorer(splits, inception_weights)
    path = out / "curve.json"
    curve: list[Point] = read_curve(path)
    limit = float("inf") if size.minutes is None else 60 * size.minutes
    # Time of the processor, not of the clock: the methods are compared on a machine that may do other work, too.
    spent, began = curve[-1]["seconds"] if curve else 0.0, time.process_time()

    def look(trainer: Trainer, row: Mapping[str, float]) -> bool:
        nonlocal spent, began
        spent += time.process_time() - began
        over = spent > limit
        if over or trainer.step % size.every == 0 or trainer.step == trainer.total:
            curve[:] = [point for point in curve if point["step"] < trainer.step]
            curve.append({"step": trainer.step, "seconds": spent, **_scores(preset, kinds, size, scorer, trainer)})
            write_atomically(path, json.dumps(curve).encode())
        began = time.process_time()
        return over or deadline.passed()

    if not curve or curve[-1]["seconds"] <= limit:
        trainer = train(preset.data.name, preset, out, resume=True, quiet=True, splits=splits, on_log=look)
        if trainer.step < trainer.total and spent <= limit:
            deadline.end()
    return {"curve": curve, "final": _final(kinds, size, scorer, TrainedModel.load(out, averaged=True))}


def _scores(preset: Preset, kinds: Sequence[str], size: Size, scorer: ImageScorer, trainer: Trainer) -> Point:
    """Scores of the averaged weights."""
    model = model_of(preset, trainer)
    found: Point = {}
    for kind in kinds:
        seen = scorer.extract(_drawn(model, size.samples, revise=kind == "revision"))
        found |= {f"{kind}: {name}": value for name, value in scorer.scores(seen).items()}
    return found


def _final(kinds: Sequence[str], size: Size, scorer: ImageScorer, model: TrainedModel) -> Point:
    found: Point = {}
    for kind in kinds:
        of_draws = size.draws * size.samples
        seen = scorer.extract(_drawn(model, max(of_draws, size.final_samples), revise=kind == "revision"))
        numbers = scorer.scores(seen[:of_draws], size.draws) | scorer.precision_recall(seen)
        if size.final_samples:
            numbers |= scorer.against_training(seen[: size.final_samples])
        found |= {f"{kind}: {name}": value for name, value in numbers.items()}
    return found


def _drawn(model: TrainedModel, n: int, *, revise: bool = False) -> Images:
    return np.clip(model.sample(n, revise=revise)[0], -1, 1)
