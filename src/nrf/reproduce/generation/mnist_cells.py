"""MNIST generation: which runs there are, at which size, and one of them with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.data import Splits, resolve
from nrf.learners import LevelsConfig, Revision
from nrf.metrics import nearest_neighbour_score
from nrf.models import gradient
from nrf.networks import MLPGenerator
from nrf.reproduce.one_class.best import packed
from nrf.reproduce.runner.experiment import NEVER, Deadline, cell_name
from nrf.reproduce.runner.watch import train_to_the_end
from nrf.runs.judge import Judge, mnist_judge
from nrf.runs.presets import find_preset
from nrf.runs.spec import DataConfig, Preset
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGHMC, SGLD, Sampler

Images = NDArray[np.float32]

BOX = (0.0, 1.0)
SHOWN = 36
"""Images of each kind that a cell keeps for the pictures."""
RELEASED_STEP = 3e-4 / 64
"""Of the script for CIFAR-10: 3e-4, and the gradient of the mean over a batch of 64."""
STEPS = (RELEASED_STEP, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Step sizes of which one model's revision is measured; 1e-4 is the text's of the ablation."""


@dataclass(frozen=True)
class MnistLine:
    """A row of the table."""

    method: str
    sampler: Sampler
    n_steps: int = 10
    kind: Literal["inclusive", "levels", "distilled"] = "inclusive"
    """Alg. 1; a field with noise levels and no generator; or that with a generator distilled from its flow."""
    seeds: int = 5

    def cell(self, seed: int) -> str:
        """Name of its cell."""
        return cell_name(self.method, seed)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of samples."""
        return ("annealed",) if self.kind == "levels" else ("generation", "revision")


SGLD_STEP = SGLD(step_size=0.02, temperature=0.0, box=BOX)
SGHMC_STEP = SGHMC(step_size=0.01, friction=0.5, temperature=0.0, box=BOX)
"""The step of `mnist-interpolation`. Without noise and at a friction of a half a step goes on to twice its length, so
SGLD's is twice as long: both move an image as far."""
LINES = (
    *(MnistLine(f"SGLD, L = {n}", SGLD_STEP, n) for n in (2, 5, 10)),
    MnistLine("SGHMC, L = 10", SGHMC_STEP, 10),
    MnistLine("noise levels, annealed", SGHMC(step_size=3e-3, friction=0.3), 5, "levels", seeds=1),
    MnistLine("noise levels, distilled generator", SGHMC(step_size=3e-3, friction=0.3), 5, "distilled", seeds=1),
)


@dataclass(frozen=True)
class MnistSize:
    """Of a run and its scores."""

    iterations: int = 2000
    """Of Alg. 1, and of a field with noise levels."""
    distilled_iterations: int = 1000
    """Of a field with its generator: the flow of each pair takes 18 gradients of the field."""
    batch_size: int = 100
    samples: int = 5000
    """Of a draw."""
    draws: int = 10
    """Draws over which the inception score is averaged."""
    annealed_draws: int = 1
    """The same of samples that come down the noise levels, which are dear."""
    n_levels: int = 10
    """Noise levels."""
    level_width: int = 16
    """Channels of their network."""
    max_rows: int | None = None


def sized(size: MnistSize, line: MnistLine, seed: int) -> Preset:
    """The preset of a run, with its seed and length."""
    iterations = size.distilled_iterations if line.kind == "distilled" else size.iterations
    length: dict[str, Any] = {"epochs": None, "iterations": iterations, "batch_size": size.batch_size, "threads": 1}
    length |= {"log_every": max(1, iterations // 20), "checkpoint_every": max(1, iterations // 4), "ema_decay": 0.995}
    if line.kind == "inclusive":
        preset = find_preset("mnist-interpolation")
        revision = replace(preset.revision, n_steps=line.n_steps)
    else:
        preset = find_preset("mnist-levels")
        potential: Any = preset.potential
        potential = replace(potential, n_levels=size.n_levels, width=size.level_width)
        preset = replace(preset, data=DataConfig("mnist"), potential=potential)
        revision = replace(preset.revision, n_steps=line.n_steps)
    if line.kind == "distilled":
        # A code is a draw of the widest level, so it is as long as an image.
        preset = replace(
            preset,
            generator=MLPGenerator(
                latent_dim=784, widths=(500, 500), norm="none", activation="softplus", output="sigmoid", sigma=0.0
            ),
            learner=LevelsConfig(generator_lr=1e-3, generator_betas=(0.5, 0.9), pairs="flow"),
        )
        revision = Revision(n_steps=1, target="x", start_level=2, sample_steps=line.n_steps)
    train = replace(preset.train, **length)
    return replace(preset, seed=seed, sampler=line.sampler, revision=revision, train=train)


@lru_cache(maxsize=1)
def dataset(max_rows: int | None) -> Splits:
    """MNIST, rows of pixels in [0, 1], or a part of it."""
    splits = resolve("mnist")
    assert splits.test is not None
    return replace(
        splits, train=splits.train[:max_rows], test=splits.test[:max_rows], train_labels=None, test_labels=None
    )


def run_cell(
    preset: Preset,
    kinds: tuple[str, ...],
    size: MnistSize,
    steps: tuple[float, ...],
    out: Path,
    deadline: Deadline = NEVER,
) -> dict[str, Any]:
    """Train, or go on with it; scores of the averaged weights at the end, and how far steps of some sizes move."""
    splits = dataset(size.max_rows)
    by = mnist_judge(splits)  # first, for it may have to be trained, and may fail
    trainer = train_to_the_end("mnist-generation", preset, out, deadline, splits=splits)
    model = TrainedModel.load(out, averaged=True)
    found: dict[str, Any] = {"seconds": trainer.seconds, "final": {}, "samples": {}}
    first: dict[str, tuple[Images, Images]] = {}
    for kind in kinds:
        dear = kind != "generation" and isinstance(preset.learner, LevelsConfig)
        draws = size.annealed_draws if dear else size.draws
        images, codes = drawn(model, draws * size.samples, revise=kind != "generation")
        numbers = by.scores(by.look_at(images), draws)
        numbers |= by.precision_recall(by.look_at(images[: size.samples]))
        found["final"] |= {f"{kind}: {name}": value for name, value in numbers.items()}
        found["samples"][kind] = packed(images[:SHOWN].reshape(-1, 1, 28, 28), BOX)
        first[kind] = images[: size.samples], codes[: size.samples]
    if "generation" in first:
        found["final"]["revision: distance"] = moved(first["generation"], first["revision"])
    if steps:
        found["steps"] = by_step(model, by, size, steps)
        found |= scale_of(model, splits, size)
    return found


def by_step(model: TrainedModel, by: Judge, size: MnistSize, steps: Sequence[float]) -> list[dict[str, float]]:
    """How far revision moves an image, and what becomes of the scores, by the sampler's step size."""
    start = drawn(model, size.samples)
    found = []
    for step in steps:
        images, codes = drawn(model, size.samples, revise=True, step_size=step)
        scores = by.scores(by.look_at(images))
        found.append({"step size": step, "distance": moved(start, (images, codes)), **scores})
    return found


def moved(generated: tuple[Images, Images], revised: tuple[Images, Images]) -> float:
    """Mean distance of images before and after revision, of those with the same code: noise in a revision is drawn from
    the stream of the codes, so that with noise only the first images have it."""
    (before, h), (after, same) = generated, revised
    kept = (h == same).all(1)
    return float(np.linalg.norm(after[kept] - before[kept], axis=1).mean())


def scale_of(model: TrainedModel, splits: Splits, size: MnistSize) -> dict[str, float]:
    """What a distance is to be compared with: the gradient's length, and test images' distance to the nearest one."""
    assert splits.test is not None
    rows = torch.from_numpy(drawn(model, min(1000, size.samples))[0])
    slope = gradient(model.potential, rows).flatten(1).norm(dim=1).mean()
    nearest = -nearest_neighbour_score(splits.train[:10_000], splits.test[:1000]).mean()
    return {"gradient norm": float(slope), "nearest training image": float(nearest)}


def drawn(
    model: TrainedModel, n: int, *, revise: bool = False, step_size: float | None = None
) -> tuple[Images, Images]:
    """Samples as images have them, in [0, 1], and their codes."""
    images, codes = model.sample(n, revise=revise, step_size=step_size if revise else None)
    return np.clip(images, *BOX), codes
