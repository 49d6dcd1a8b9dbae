"""What the detector trains, sized from the data: networks, sampler, learner, length.

The values were chosen on held-out normal rows against anomalies made from them (columns shuffled, noise added, uniform
draws), over data sets that come with scikit-learn or are generated; docs/detection.md has the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from nrf.errors import InputError
from nrf.learners import InclusiveConfig, Revision
from nrf.networks import (
    MLPGenerator,
    MLPPotential,
    OneClassCNNGenerator,
    OneClassCNNPotential,
    Shape,
    StandardCNNGenerator,
    StandardCNNPotential,
)
from nrf.samplers import SGLD
from nrf.training import TrainConfig

PotentialConfig = MLPPotential | OneClassCNNPotential | StandardCNNPotential
GeneratorConfig = MLPGenerator | OneClassCNNGenerator | StandardCNNGenerator


@dataclass(frozen=True)
class Recipe:
    """Everything a member is trained by."""

    potential: PotentialConfig
    generator: GeneratorConfig
    sampler: SGLD
    revision: Revision
    learner: InclusiveConfig
    train: TrainConfig


def recipe_for(n_rows: int, shape: Shape, changes: dict[str, Any]) -> Recipe:
    """The default recipe for so many rows of that shape, with some of its values given.

    Args:
        n_rows: Training rows.
        shape: ``(columns,)`` after encoding, or ``(channels, height, width)``.
        changes: ``widths``, ``latent_dim``, ``sigma``, ``n_steps``, ``step_size``, ``temperature``, ``learning_rate``,
            ``batch_size`` or ``iterations`` in place of the default; None stands for the default.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    recipe = _images(shape) if len(shape) == 3 else _table(n_rows, shape[0])
    batch = given.pop("batch_size", min(256, max(16, 2 ** round(math.log2(max(n_rows, 1) / 8)))))
    batch = min(batch, n_rows)
    iterations = given.pop("iterations", _iterations(n_rows, batch))
    ema = 1 - 1 / max(2.0, iterations / 20)
    train = TrainConfig(
        batch_size=batch,
        iterations=iterations,
        lr_final=0.05,
        ema_decay=ema,
        log_every=max(1, n_rows // batch),
        checkpoint_every=iterations,
        compile="never",
    )
    return _with(replace(recipe, train=train), given)


def _table(n_rows: int, columns: int) -> Recipe:
    width = int(min(256, max(64, 2 ** math.ceil(math.log2(2 * columns)))))
    return Recipe(
        potential=MLPPotential(widths=(width, width // 2), train_gain="last", data_init=True),
        generator=MLPGenerator(latent_dim=min(columns, 10), widths=(64, 64), activation="softplus", sigma=1.0),
        sampler=SGLD(step_size=0.01),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.0, 0.9), control_weight=0.1),
        train=TrainConfig(iterations=1),
    )


def _images(shape: Shape) -> Recipe:
    """Images in [−1, 1]: the convolutional pair that takes them, or the perceptrons."""
    channels, height, width = shape
    if height != width or height % 8:
        flat = _table(1, channels * height * width)
        return replace(flat, sampler=SGLD(step_size=0.003, box=(-1.0, 1.0)))
    potential: PotentialConfig = StandardCNNPotential(norm="weight")
    generator: GeneratorConfig = StandardCNNGenerator(sigma=0.1)
    if (height, channels) == (32, 3):
        potential, generator = OneClassCNNPotential(data_init=True), OneClassCNNGenerator(sigma=0.1)
    return Recipe(
        potential=potential,
        generator=generator,
        sampler=SGLD(step_size=0.003, box=(-1.0, 1.0)),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.0, 0.9), control_weight=0.1),
        train=TrainConfig(iterations=1),
    )


def _iterations(n_rows: int, batch: int) -> int:
    """Enough passes over few rows, at least one over many."""
    return int(min(max(300, 20 * n_rows / batch), 4000)) if n_rows < 200_000 else max(4000, math.ceil(n_rows / batch))


def _with(recipe: Recipe, given: dict[str, Any]) -> Recipe:
    """Put given values where they belong."""
    places = {
        "widths": "potential",
        "latent_dim": "generator",
        "sigma": "generator",
        "n_steps": "revision",
        "step_size": "sampler",
        "temperature": "sampler",
    }
    rate = given.pop("learning_rate", None)
    if rate is not None:
        recipe = replace(recipe, learner=replace(recipe.learner, potential_lr=rate, generator_lr=rate))
    if "widths" in given and not isinstance(recipe.potential, MLPPotential):
        raise InputError("widths are those of perceptrons; images of this shape get a convolutional pair")
    for name, value in given.items():
        part: Any = getattr(recipe, places[name])
        recipe = replace(recipe, **{places[name]: replace(part, **{name: value})})
    return recipe
