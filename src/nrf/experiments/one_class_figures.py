"""One-class images: AUROC against epochs, typical and untypical images, and anomalies pulled to normal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.experiments import figures
from nrf.experiments.one_class_cells import SCORED, load
from nrf.experiments.one_class_paper import NAMES
from nrf.experiments.one_class_runs import Line, OneClassConfig, curves_of
from nrf.experiments.presets import find_preset
from nrf.experiments.reproduce import Section
from nrf.experiments.trained import Trained
from nrf.experiments.watch import values_of

Images = NDArray[np.floating]

SHOWN = 10
"""Images of a row."""
SHOWN_CLASSES = 3
PULLED_STEPS = (0, 20, 100, 400)
"""Steps after which a revised anomaly is shown."""
SCORED_IMAGES = 2000


def curves(config: OneClassConfig, results: Mapping[str, dict[str, Any]]) -> Iterator[Section]:
    """AUROC after every epoch, a thin line a run and a thick one for their mean."""
    runs = {line: curves_of(config, results, line) for line in config.lines}
    runs = {line: found for line, found in runs.items() if found}
    if not runs:
        return
    figure = Figure(figsize=(3.4 * len(runs), 3.4), layout="constrained")
    for axis, (line, by_class) in zip(
        figure.subplots(1, len(runs), sharey=True, squeeze=False)[0], runs.items(), strict=True
    ):
        lines = [values_of(curve, "AUROC") for of_class in by_class.values() for curve in of_class]
        for values in lines:
            axis.plot(range(1, len(values) + 1), values, lw=0.7, alpha=0.6, color=figures.INK)
        mean = np.mean([values[: min(map(len, lines))] for values in lines], axis=0)
        axis.plot(range(1, len(mean) + 1), mean, lw=2, color=figures.REVISED)
        axis.set(title=line.name, xlabel="epoch")
        axis.title.set_fontsize(8)
        axis.grid(color=figures.MUTED, alpha=0.2)
    figure.axes[0].set_ylabel("AUROC on test images")
    text = "A thin line a class and seed, the thick one their mean. A user gets the right end."
    yield Section("From epoch to epoch", text, (), {"epochs": (figure, "AUROC against epochs.")})


def pictures(config: OneClassConfig, folder: Path) -> Iterator[Section]:
    """The most and least typical test images of some classes, and anomalies on their way to normal."""
    line = config.lines[0]
    runs = {label: folder / "runs" / line.key(label, 0) for label in range(config.classes)}
    there = [label for label, run in runs.items() if (run / "curve.json").is_file()]
    typical: dict[str, Images] = {}
    pulled: dict[str, Images] = {}
    for label in there[:SHOWN_CLASSES]:
        model = _model(line, runs[label])
        task = load(config.dataset, label, config.max_train, config.max_test)
        assert task.test is not None
        assert task.test_labels is not None
        test, labels = task.test[:SCORED_IMAGES], task.test_labels[:SCORED_IMAGES]
        scores = np.concatenate([model.score(part) for part in np.array_split(test, -(-len(test) // SCORED))])
        name, order = NAMES[config.dataset][label], np.argsort(-scores)
        normal = order[labels[order] == 0]
        odd = test[order[labels[order] == 1][::-1][:SHOWN]]
        typical |= {f"{name}: most typical": test[normal[:SHOWN]], f"{name}: least typical": test[normal[-SHOWN:]]}
        pulled |= {f"{name}: after {steps} steps": _pulled(model, odd, steps) for steps in PULLED_STEPS}
    if not typical:
        return
    low, high = task.bounds or (0.0, 1.0)
    shown = {
        "typical": (typical, "Test images of the normal class with the highest and the lowest potential."),
        "pulled": (pulled, "The images of other classes with the lowest potential, revised without noise."),
    }
    made = {
        name: (figures.image_rows({key: (rows - low) / (high - low) for key, rows in found.items()}), caption)
        for name, (found, caption) in shown.items()
    }
    yield Section("Typical images, and anomalies pulled to normal", "Of the last model of `best`, seed 0.", (), made)


def _model(line: Line, run: Path) -> Trained:
    return Trained.load(run, averaged=find_preset(line.preset).train.ema_decay is not None)


def _pulled(model: Trained, images: Images, steps: int) -> Images:
    return images if steps == 0 else model.revise(images, n_steps=steps, temperature=0.0)
