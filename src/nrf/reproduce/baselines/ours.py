"""Our own detector and its controls, with the interface of the others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.config import to_json
from nrf.detect import NRFDetector, Training
from nrf.detect.defaults import field_spec, spec_for
from nrf.detect.detector import Field
from nrf.learners.base import PairLearner
from nrf.reproduce.baselines.base import Baseline, Rows, Scores
from nrf.reproduce.runner.watch import potential_of
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset


def field_defaults(columns: int) -> dict[str, Any]:
    """What :class:`nrf.NRFDetector` takes for a table of so many columns, as plain values."""
    found = field_spec("product", 1000, columns, {})
    return {"potential": to_json(found.potential), "iterations": found.train.iterations}


def detector_defaults(n_rows: int, columns: int) -> dict[str, Any]:
    """What :class:`nrf.NRFDetector` takes for an inclusive field of a table of that size, as plain values.

    A cell with a detector depends on them although nobody names them.
    """
    found = spec_for(n_rows, (columns,), {})
    parts: dict[str, tuple[Any, tuple[str, ...]]] = {
        "potential": (found.potential, ("widths",)),
        "generator": (found.generator, ("widths", "latent_dim", "sigma")),
        "sampler": (found.sampler, ("step_size", "decay", "temperature")),
        "revision": (found.revision, ("n_steps", "target")),
        "learner": (found.learner, ("potential_lr", "generator_lr", "betas", "control_weight", "data_noise")),
        "train": (found.train, ("batch_size", "iterations", "lr_final", "ema_decay")),
    }
    return {f"{name} {each}": getattr(part, each) for name, (part, names) in parts.items() for each in names}


@dataclass
class NRF(Baseline):
    """:class:`nrf.NRFDetector` with its defaults, on rows as they are."""

    max_iter: int | None = None
    """In place of the default."""
    learning_rate: float | None = None
    """In place of the default."""
    field: Field = "auto"
    """Which field."""

    module: ClassVar[str] = "nrf.detect"
    takes_tables: ClassVar[bool] = True

    def learn(self, rows: Rows) -> None:
        training = Training(learning_rate=self.learning_rate)
        detector = NRFDetector(field=self.field, random_state=self.seed, max_iter=self.max_iter, training=training)
        self.model = detector.fit(rows)

    def scores(self, rows: Rows) -> Scores:
        return np.asarray(self.model.score_samples(rows))


@dataclass
class UntrainedPotential(Baseline):
    """The potential of a preset as it is initialised: what a detector would be without any learning."""

    preset: Preset = dataclasses.field(default_factory=partial(find_preset, "kddcup-sgld-released"))
    """What is not trained; the seed is the baseline's."""
    chunk: int = 8192
    """Rows that are scored at a time."""

    module: ClassVar[str] = "nrf.runs"

    def learn(self, rows: NDArray[np.float32]) -> None:
        learner = self.preset.build(torch.from_numpy(rows), [self.seed])
        assert isinstance(learner, PairLearner)
        self.potential = learner.potential

    def scores(self, rows: NDArray[np.float32]) -> Scores:
        return potential_of(self.potential, rows, self.chunk)
