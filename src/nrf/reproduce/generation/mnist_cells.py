"""MNIST generation: the list of runs, their size, and how one of them is trained and scored."""

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
from nrf.runs.image_scorer import ImageScorer, mnist_scorer
from nrf.runs.presets import find_preset
from nrf.runs.spec import DataConfig, Preset
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGHMC, SGLD, Sampler

Images = NDArray[np.float32]

BOX = (0.0, 1.0)
SHOWN = 36
"""Images of each kind that a cell stores for the pictures."""
RELEASED_STEP = 3e-4 / 64
"""Step size of the script for CIFAR-10: 3e-4 on the gradient of the mean over a batch of 64."""
STEPS = (RELEASED_STEP, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Step sizes at which the revision of one model is measured; 1e-4 is that of the ablation in the text."""


@dataclass(frozen=True)
class MnistRunSpec:
    """The runs of one line of the table: a sampler and a kind of model."""

    method: str
    sampler: Sampler
    n_steps: int = 10
    kind: Literal["inclusive", "levels", "distilled"] = "inclusive"
    """Alg. 1; a field with noise levels and no generator; or such a field with a generator distilled from its flow."""
    seeds: int = 5
    paper: tuple[float, float] | None = None
    """Inception scores of the same row in the paper's table, of CIFAR-10: generation and revision."""

    def cell(self, seed: int) -> str:
        """Name of the cell of a seed."""
        return cell_name(self.method, seed)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of samples."""
        return ("annealed",) if self.kind == "levels" else ("generation", "revision")


SGLD_STEP = SGLD(step_size=0.02, temperature=0.0, box=BOX)
SGHMC_STEP = SGHMC(step_size=0.01, friction=0.5, temperature=0.0, box=BOX)
"""The step of `mnist-interpolation`. Without noise and with a friction of 0.5, momentum carries a step on to twice its
length. SGLD's step is therefore twice as long, so that both move an image equally far."""
LINES = (
    MnistRunSpec("SGLD, L = 2", SGLD_STEP, 2, paper=(7.38, 7.43)),
    MnistRunSpec("SGLD, L = 5", SGLD_STEP, 5, paper=(7.45, 7.47)),
    MnistRunSpec("SGLD, L = 10", SGLD_STEP, 10, paper=(7.45, 7.48)),
    MnistRunSpec("SGHMC, L = 10", SGHMC_STEP, 10, paper=(7.47, 7.56)),
    MnistRunSpec("noise levels, annealed", SGHMC(step_size=3e-3, friction=0.3), 5, "levels", seeds=1),
    MnistRunSpec("noise levels, distilled generator", SGHMC(step_size=3e-3, friction=0.3), 5, "distilled", seeds=1),
)


@dataclass(frozen=True)
class MnistSize:
    """Size of a run and of its scores."""

    iterations: int = 2000
    """Iterations of Alg. 1, and of a field with noise levels."""
    distilled_iterations: int = 1000
    """Iterations of a field with a distilled generator; the flow of each pair takes 18 gradients of the field."""
    batch_size: int = 100
    samples: int = 5000
    """Images per draw."""
    draws: int = 10
    """Draws over which the inception score is averaged."""
    annealed_draws: int = 1
    """The same for samples annealed down the noise levels, which are expensive."""
    n_levels: int = 10
    """Number of noise levels."""
    level_width: int = 16
    """Channels of the network with noise levels."""
    max_rows: int | None = None


def sized(size: MnistSize, line: MnistRunSpec, seed: int) -> Preset:
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
        # A code is a draw at the highest noise level, so it has as many numbers as an image.
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
    """Train a model, or continue: scores of the averaged weights at the end, and how far steps of some sizes move."""
    splits = dataset(size.max_rows)
    scorer = mnist_scorer(splits)  # first, because the classifier may have to be trained, which may fail
    trainer = train_to_the_end("mnist-generation", preset, out, deadline, splits=splits)
    model = TrainedModel.load(out, averaged=True)
    found: dict[str, Any] = {"seconds": trainer.seconds, "final": {}, "samples": {}}
    first: dict[str, tuple[Images, Images]] = {}
    for kind in kinds:
        dear = kind != "generation" and isinstance(preset.learner, LevelsConfig)
        draws = size.annealed_draws if dear else size.draws
        images, codes = drawn(model, draws * size.samples, revise=kind != "generation")
        numbers = scorer.scores(scorer.extract(images), draws)
        numbers |= scorer.precision_recall(scorer.extract(images[: size.samples]))
        found["final"] |= {f"{kind}: {name}": value for name, value in numbers.items()}
        found["samples"][kind] = packed(images[:SHOWN].reshape(-1, 1, 28, 28), BOX)
        first[kind] = images[: size.samples], codes[: size.samples]
    if "generation" in first:
        found["final"]["revision: distance"] = moved(first["generation"], first["revision"])
    if steps:
        found["steps"] = by_step(model, scorer, size, steps)
        found |= scale_of(model, splits, size)
    return found


def by_step(
    model: TrainedModel, scorer: ImageScorer, size: MnistSize, steps: Sequence[float]
) -> list[dict[str, float]]:
    """How far revision moves an image, and the scores afterwards, for each step size of the sampler."""
    start = drawn(model, size.samples)
    found = []
    for step in steps:
        images, codes = drawn(model, size.samples, revise=True, step_size=step)
        scores = scorer.scores(scorer.extract(images))
        found.append({"step size": step, "distance": moved(start, (images, codes)), **scores})
    return found


def moved(generated: tuple[Images, Images], revised: tuple[Images, Images]) -> float:
    """Mean distance of images before and after revision, over images with the same code: the noise of a revision is
    drawn from the random stream of the codes, so with noise only the first images have the same one."""
    (before, h), (after, same) = generated, revised
    kept = (h == same).all(1)
    return float(np.linalg.norm(after[kept] - before[kept], axis=1).mean())


def scale_of(model: TrainedModel, splits: Splits, size: MnistSize) -> dict[str, float]:
    """Scales for a distance: the gradient's norm, and the distance of test images to the nearest training image."""
    assert splits.test is not None
    rows = torch.from_numpy(drawn(model, min(1000, size.samples))[0])
    slope = gradient(model.potential, rows).flatten(1).norm(dim=1).mean()
    nearest = -nearest_neighbour_score(splits.train[:10_000], splits.test[:1000]).mean()
    return {"gradient norm": float(slope), "nearest training image": float(nearest)}


def drawn(
    model: TrainedModel, n: int, *, revise: bool = False, step_size: float | None = None
) -> tuple[Images, Images]:
    """Samples, clipped to [0, 1], and their codes."""
    images, codes = model.sample(n, revise=revise, step_size=step_size if revise else None)
    return np.clip(images, *BOX), codes
