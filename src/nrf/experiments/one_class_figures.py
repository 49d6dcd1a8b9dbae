"""One-class images: AUROC against epochs, typical and untypical images, and anomalies pulled to normal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.data import Splits
from nrf.experiments import figures
from nrf.experiments.one_class_cells import SCORED, load
from nrf.experiments.one_class_paper import NAMES
from nrf.experiments.one_class_runs import OneClassConfig, curves_of
from nrf.experiments.presets import find_preset
from nrf.experiments.reproduce import Section
from nrf.experiments.trained import Trained
from nrf.experiments.watch import values_of

Images = NDArray[np.floating]

SHOWN = 10
"""Images of a row."""
SHOWN_CLASSES = 3
PULLED = {"image": "an anomaly", "seen": "what its components show", "pulled": "pulled to normal"}
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


def pictures(config: OneClassConfig, results: Mapping[str, dict[str, Any]], folder: Path) -> Iterator[Section]:
    """The most and least typical test images of some classes, and anomalies on their way to normal."""
    line = config.lines[0]
    there = [label for label in range(config.classes) if line.key(label, 0) in results]
    typical: dict[str, Images] = {}
    pulled: dict[str, Images] = {}
    for label in there[:SHOWN_CLASSES]:
        task, result = load(config.dataset, label, config.max_train, config.max_test), results[line.key(label, 0)]
        assert task.test is not None
        name = NAMES[config.dataset][label]
        typical |= {
            f"{name}: most typical": task.test[result["typical"]],
            f"{name}: least typical": task.test[result["untypical"]],
        }
        kept = folder / "runs" / line.key(label, 0) / "pulled.npz"
        if kept.is_file():
            with np.load(kept) as arrays:
                pulled |= {f"{name}: {what}": arrays[key] for key, what in PULLED.items()}
        else:
            pulled |= _pulled(config, label, task, folder)
    if not typical:
        return
    low, high = task.bounds or (0.0, 1.0)
    shown = {
        "typical": (typical, "Test images of the normal class with the highest and the lowest score of `best`."),
        "pulled": (pulled, "Images of other classes with the lowest score, and the same pulled to normal."),
    }
    made = {
        name: (figures.image_rows({key: (rows - low) / (high - low) for key, rows in found.items()}), caption)
        for name, (found, caption) in shown.items()
        if found
    }
    yield Section("Typical images, and anomalies pulled to normal", _pulled_text(pulled), (), made)


def _pulled(config: OneClassConfig, label: int, task: Splits, folder: Path) -> dict[str, Images]:
    """By the first pair on pixels that there is of this class: features of `best` cannot be turned back into images."""
    runs = {line: folder / "runs" / line.key(label, 0) for line in config.lines[1:]}
    trained = [(line, run) for line, run in runs.items() if (run / "curve.json").is_file()]
    if not trained or task.test is None or task.test_labels is None:
        return {}
    line, run = trained[0]
    assert line.preset is not None
    model = Trained.load(run, averaged=find_preset(line.preset).train.ema_decay is not None)
    odd = task.test[:SCORED_IMAGES][task.test_labels[:SCORED_IMAGES] == 1]
    scores = np.concatenate([model.score(part) for part in np.array_split(odd, -(-len(odd) // SCORED))])
    odd = odd[np.argsort(scores)[:SHOWN]]
    name = NAMES[config.dataset][label]
    revised = {s: odd if s == 0 else model.revise(odd, n_steps=s, temperature=0.0) for s in PULLED_STEPS}
    return {f"{name}, {line.setting}: after {steps} steps": images for steps, images in revised.items()}


def _pulled_text(pulled: Mapping[str, Images]) -> str:
    by_components = any(key.endswith(PULLED["pulled"]) for key in pulled)
    how = "in the components that it sees" if by_components else "by a pair on pixels, whose name stands there"
    return f"Scores are of `best`, seed 0, at the end; anomalies are pulled {how}."
