"""Latent interpolation on MNIST, the paper's last figure: what the generator makes of codes between two codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nrf import figures
from nrf.data import resolve
from nrf.metrics import nearest_neighbour_score
from nrf.reproduce.runner.experiment import NEVER, Cell, Deadline, Experiment, Outcome, Results, Section
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import train_to_the_end
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.runs.trained import TrainedModel

PAIRS, STEPS = 8, 12
"""Lines that are drawn, and codes on each."""
MEASURED_PAIRS = 200
TEST_IMAGES = 1000
CELL = "model"


@dataclass(frozen=True)
class InterpolationConfig:
    """Size of the experiment."""

    preset: str = "mnist-interpolation"
    epochs: int = 10
    compared: int = 10_000
    """Training images among which the nearest one is looked for."""
    max_rows: int | None = None


class Interpolation(Experiment[InterpolationConfig]):
    """The experiment behind `nrf reproduce interpolation`."""

    name = "interpolation"
    title = "Latent interpolation on MNIST"
    lead = "Each row goes from one random code to another in a straight line; the ends are generations of their own."
    whole = InterpolationConfig()
    quick = InterpolationConfig(epochs=1, compared=50, max_rows=300)

    def cells(self, config: InterpolationConfig, shared: Path) -> list[Cell]:
        settings = {"preset": sized(config), "compared": config.compared, "max_rows": config.max_rows}
        return [Cell(CELL, run_cell, settings, trains=True)]

    def summarise(self, config: InterpolationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        numbers = results[CELL]
        rows = [Row("inclusive-NRF", name, value) for name, value in numbers.items()]
        text = (
            f"{config.epochs} epochs of all digits. A step is the distance between neighbours on a line; even steps "
            "mean that nothing jumps. Distances to the nearest training image say whether what lies between two codes "
            "is as near to digits as what lies at codes, and as images that were held out."
        )
        table = Table(["quantity", "value"], [[name, f"{value:.3f}"] for name, value in numbers.items()])
        shown = {}
        if CELL in runs:  # the model is on this machine
            events = TrainedModel.load(runs[CELL], averaged=True).interpolate(PAIRS, STEPS)
            shown["lines"] = (figures.image_grid(figures.as_images("mnist", events)), "From one code to another.")
        headline = [(f"{numbers['largest step over the mean']:.2f}", "largest step over the mean step")]
        return Outcome(rows, [Section("Lines between codes", text, [table], shown)], headline)


def sized(config: InterpolationConfig) -> Preset:
    """The preset at the experiment's length."""
    preset = find_preset(config.preset)
    return replace(preset, train=replace(preset.train, epochs=config.epochs, iterations=None, threads=1))


def run_cell(
    preset: Preset, compared: int, max_rows: int | None, out: Path, deadline: Deadline = NEVER
) -> dict[str, Any]:
    """Train, or go on with it; then measure how even the lines are, and how near to digits."""
    splits = resolve("mnist")
    assert splits.test is not None
    held_out = splits.test[:TEST_IMAGES]
    splits = replace(splits, train=splits.train[:max_rows], train_labels=None)
    train_to_the_end("mnist-interpolation", preset, out, deadline, splits=splits)
    lines = TrainedModel.load(out, averaged=True).interpolate(MEASURED_PAIRS, STEPS, seed=1)
    flat = lines.reshape(MEASURED_PAIRS, STEPS, -1)
    steps = np.linalg.norm(np.diff(flat, axis=1), axis=2)
    straight = np.linalg.norm(flat[:, -1] - flat[:, 0], axis=1)
    among = splits.train[:compared]

    def distance(images: figures.Array) -> float:
        return float(-nearest_neighbour_score(among, images.astype(np.float32)).mean())

    return {
        "largest step over the mean": float((steps.max(1) / steps.mean(1)).mean()),
        "way over the straight distance": float((steps.sum(1) / straight).mean()),
        "nearest training image, at the ends": distance(flat[:, 0]),
        "nearest training image, half way": distance(flat[:, STEPS // 2]),
        "nearest training image, of test images": distance(held_out.reshape(len(held_out), -1)),
    }
