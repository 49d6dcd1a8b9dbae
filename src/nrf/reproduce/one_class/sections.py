"""One-class images: AUROC against epochs, typical and untypical images, and anomalies revised towards normal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf import figures
from nrf.reproduce.one_class.best import unpacked
from nrf.reproduce.one_class.cells import load
from nrf.reproduce.one_class.matrix import OneClassConfig, OneClassRunSpec, curves_of
from nrf.reproduce.one_class.paper import NAMES
from nrf.reproduce.runner.experiment import Results, Section
from nrf.reproduce.runner.watch import values_of

Images = NDArray[np.floating]

SHOWN_CLASSES = 3
PULLED_SHOWN = 8
TYPICAL = {"most": "typical", "least": "untypical"}
PULLED_TEXT = (
    "Typical and untypical by the score of `best`, seed 0, at the end. Anomalies, from the most to the least obvious, "
    "take SGLD steps at a temperature of 0.1 in the field of `components`, whose columns can be turned back into "
    "images."
)


def curves(config: OneClassConfig, results: Results) -> Iterator[Section]:
    """AUROC after every epoch: a thin line per run and a thick one for their mean."""
    runs = {line: curves_of(config, results, line) for line in config.lines}
    runs = {line: found for line, found in runs.items() if found}
    if not runs:
        return
    values = {
        line.name: [values_of(curve, "AUROC") for of_class in by_class.values() for curve in of_class]
        for line, by_class in runs.items()
    }
    figure = figures.epochs(values, "AUROC on test images", mean=True)
    text = "A thin line a class and seed, the thick one their mean. A user gets the right end."
    yield Section("From epoch to epoch", text, (), {"epochs": (figure, "AUROC against epochs.")})


def pictures(config: OneClassConfig, results: Results) -> Iterator[Section]:
    """The most and least typical test images of some classes, and anomalies as they are revised towards normal."""
    typical: dict[str, Images] = {}
    pulled: dict[str, Images] = {}
    for label, (result, images) in _first_classes(config, config.detectors[0], results).items():
        name = NAMES[config.dataset][label]
        typical |= {f"{name}: {kind} typical": images[result[key]] for kind, key in TYPICAL.items()}
    for line in config.detectors:
        for label, (result, images) in _first_classes(config, line, results, "pulled").items():
            name = NAMES[config.dataset][label]
            some = np.linspace(0, len(result["anomalies"]) - 1, PULLED_SHOWN).astype(int)
            pulled[f"{name}: anomalies"] = images[result["anomalies"]][some]
            for steps, text in result["pulled"].items():
                what = f"after {int(steps):,} steps" if int(steps) else "components"
                pulled[f"{name}: {what}"] = unpacked(text)[some]
    shown = {
        "typical": (typical, "Test images of the normal class with the highest and the lowest score of `best`."),
        "pulled": (pulled, "Images of other classes, and what becomes of them on their way to the normal one."),
    }
    made = {name: (figures.image_rows(found), caption) for name, (found, caption) in shown.items() if found}
    if made:
        yield Section("Typical images, and anomalies pulled to normal", PULLED_TEXT, (), made)


def _first_classes(
    config: OneClassConfig, line: OneClassRunSpec, results: Results, key: str = "typical"
) -> dict[int, tuple[dict[str, Any], Images]]:
    """For the first classes whose cell has that key: the line's cell, and the test images in [0, 1]."""
    cells = {label: results.get(line.cell(label, 0), {}) for label in range(config.classes)}
    there = [label for label, cell in cells.items() if key in cell][:SHOWN_CLASSES]
    found = {}
    for label in there:
        task = load(config.dataset, label, config.max_train, config.max_test)
        assert task.test is not None
        low, high = task.bounds or (0.0, 1.0)
        found[label] = cells[label], (task.test - low) / (high - low)
    return found
