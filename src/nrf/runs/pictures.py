"""Pictures of a run's samples while it trains: generated on the left, the same revised on the right.

A field with noise levels and no generator has annealed samples alone.
"""

from __future__ import annotations

import copy
from typing import cast

import numpy as np

from nrf import figures
from nrf.errors import InputError
from nrf.learners import LevelsConfig
from nrf.learners.base import PairLearner
from nrf.models import LatentGenerator
from nrf.networks import Shape
from nrf.runs.spec import Preset
from nrf.runs.trained import TrainedModel
from nrf.training import RunFolder, Trainer

SIDE = 8
"""Images per row and per column."""
POINTS = 1000


class Pictures:
    """Draws ``samples/step-….png`` in a run folder, with the first line of metrics after each interval.

    Args:
        preset: Preset of the run; its ``train.sample_every`` is the interval, in iterations.
        folder: The run folder.
        event_shape: Shape of one row.
    """

    def __init__(self, preset: Preset, folder: RunFolder, event_shape: Shape) -> None:
        assert preset.train.sample_every is not None
        if preset.replicas > 1:
            raise InputError("samples are drawn from one model; leave train.sample_every or replicas out")
        if preset.learner.generator_lr == 0 and not isinstance(preset.learner, LevelsConfig):
            raise InputError("samples are drawn from a generator or down noise levels; leave train.sample_every out")
        if event_shape != (2,):
            figures.as_images(preset.data.name, np.zeros((1, *event_shape), np.float32))
        self.preset, self.folder, self.every = preset, folder, preset.train.sample_every

    def draw(self, trainer: Trainer) -> None:
        """Draw a picture if one is due. The run's own random numbers are not touched."""
        due = trainer.step // self.every * self.every
        path = self.folder.path / "samples" / f"step-{due:09d}.png"
        if due == 0 or path.exists() or not isinstance(trainer.learner, PairLearner):
            return
        model = model_of(self.preset, trainer)
        count = POINTS if model.event_shape == (2,) else SIDE**2
        samples = {"revised": model.sample(count, revise=True)[0]}
        if model.has_generator:
            samples["generated"] = model.sample(count)[0]
        if model.event_shape == (2,):
            figures.save(figures.points(samples), path)
            return
        squares = {}
        for kind, x in samples.items():
            images = figures.as_images(self.preset.data.name, x)
            squares[kind] = images.reshape(SIDE, SIDE, *images.shape[1:])
        grid = squares["revised"]
        if "generated" in squares:
            grid = np.concatenate([squares["generated"], np.ones_like(grid[:, :1]), grid], axis=1)
        figures.save(figures.image_grid(grid), path)


def model_of(preset: Preset, trainer: Trainer) -> TrainedModel:
    """A copy of the networks as they are, on the CPU; with averaged weights if the run keeps them."""
    found = {name: trainer.learner.modules[name] for name in ("potential", "generator")}
    if trainer.averages:
        averaged = trainer.averaged()
        found = {name: averaged[name] for name in found}
    still = {name: copy.deepcopy(module).cpu().requires_grad_(False) for name, module in found.items()}
    shape = tuple(trainer.batches.data.shape[1:])
    return TrainedModel(preset, still["potential"], cast(LatentGenerator, still["generator"]), shape, trainer.step)
