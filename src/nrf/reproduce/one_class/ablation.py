"""What `best` is for images: one change of where the search started at a time, on a few classes.

Settings are to be chosen by the number that needs no label: how well held-out training images are separated from
anomalies made of them. Beside it stands what the test images say, which chooses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nrf.reproduce.one_class.best import KEPT, Best, detector_cell
from nrf.reproduce.one_class.experiment import DEFAULTS
from nrf.reproduce.one_class.paper import NAMES
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import values_of

WIDE: dict[str, Any] = {"answers": True, "sigma": 3.0, "first_step_size": 0.05}
"""Answers, proposals wider than their rows, and steps that bring them in."""
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "mnist": {
        "one field": {},
        "10 components": {"components": 10},
        "20 components": {"components": 20},
        "60 components": {"components": 60},
        "100 components": {"components": 100},
        "three fields": {"members": 3},
        "1,500 iterations": {"iterations": 1500},
        "6,000 iterations": {"iterations": 6000},
        "σ 0.5": {"sigma": 0.5},
        "40 steps": {"n_steps": 40},
        "rate 2e-3": {"learning_rate": 2e-3},
        "features of turns": {"turn_epochs": 10},
    },
    "cifar10": {
        "one field": {},
        "pixels": {"turn_epochs": 0},
        "80 components": {"components": 80},
        "answers of turns": {"answers": True},
        "answers, σ 3": {"answers": True, "sigma": 3.0},
        "answers, steps from 0.05": {"answers": True, "first_step_size": 0.05},
        "answers, σ 3, steps from 0.05": WIDE,
        "answers, σ 5, steps from 0.05": WIDE | {"sigma": 5.0},
        "answers, σ 3, steps from 0.05, one-sided": WIDE | {"one_sided": True},
        "the same, three fields": WIDE | {"one_sided": True, "members": 3},
        "the same, one field, 5 epochs of turns": WIDE | {"one_sided": True, "turn_epochs": 5},
        "the same, one field, 20 epochs of turns": WIDE | {"one_sided": True, "turn_epochs": 20},
    },
}
"""Changes of where the search started, by dataset and name."""
START = {"mnist": Best(members=1), "cifar10": Best(members=1, turn_epochs=10)}
"""Where it started: the detector's defaults behind features, one field, which is cheaper."""


@dataclass(frozen=True)
class ImageAblationConfig:
    """Size of the experiment."""

    dataset: str
    classes: tuple[int, ...]
    changes: tuple[str, ...]
    max_train: int | None = None
    max_test: int | None = 3000


CONFIGS = {
    "mnist-ablation": ImageAblationConfig("mnist", (2, 5, 8), tuple(CHANGES["mnist"])),
    "cifar10-one-class-ablation": ImageAblationConfig("cifar10", (0, 1, 3), tuple(CHANGES["cifar10"])),
}


class ImageAblation(Experiment[ImageAblationConfig]):
    """The experiments behind `nrf reproduce mnist-ablation` and `cifar10-one-class-ablation`."""

    partial = True
    lead = "One change of settings at a time. The first number needs no label and is what to choose by."

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"{name}: what `best` is for images"
        self.whole = whole = CONFIGS[name]
        classes, changes = whole.classes[:1], whole.changes[:2]
        self.quick = replace(whole, classes=classes, changes=changes, max_train=60, max_test=60)

    def cells(self, config: ImageAblationConfig, shared: Path) -> list[Cell]:
        found = []
        data = {"dataset": config.dataset, "max_train": config.max_train, "max_test": config.max_test}
        for name in config.changes:
            for label in config.classes:
                settings = {"best": sized(config, name), "label": label, "seed": 0, **data}
                place, places = Place(name, label, 0), {"kept": shared / KEPT}
                found.append(Cell(cell_name(name, label), detector_cell, settings, DEFAULTS, places, place=place))
        return found

    def summarise(self, config: ImageAblationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows: list[Row] = []
        for name in config.changes:
            for label in config.classes:
                if cell_name(name, label) in results:
                    case = NAMES[config.dataset][label]
                    numbers = _numbers(results[cell_name(name, label)]["curve"])
                    rows += [Row(name, metric, value, case=case) for metric, value in numbers.items()]
        rows += [_mean(rows, name, metric) for name, metric in dict.fromkeys((r.method, r.metric) for r in rows)]
        means = [row for row in rows if row.case is None]
        metrics = list(dict.fromkeys(row.metric for row in means))
        of = {(row.method, row.metric): f"{row.mean:.2f}" for row in means}
        names = list(dict.fromkeys(row.method for row in means))
        table = Table(["settings", *metrics], [[name, *(of[name, metric] for metric in metrics)] for name in names])
        text = f"Means over classes {config.classes}; AUROC in percent."
        return Outcome(rows, [Section("What was tried", text, [table])])


def changed(dataset: str, name: str) -> Best:
    """The start of the search with the changes of that name."""
    return replace(START[dataset], **CHANGES[dataset][name])


def sized(config: ImageAblationConfig, name: str) -> Best:
    """The same at the experiment's size."""
    best = changed(config.dataset, name)
    if config.max_train is None:
        return best
    return replace(best, components=min(best.components, 8), iterations=5, turn_epochs=min(best.turn_epochs, 1))


def _numbers(curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
    test = values_of(curve, "AUROC")
    return {
        "made anomalies, last epoch": 100 * values_of(curve, "synthetic AUROC")[-1],
        "test images, last epoch": test[-1],
        "test images, worst of the second half": min(test[len(test) // 2 :]),
        "test images, best epoch (oracle)": max(test),
    }


def _mean(rows: Sequence[Row], method: str, metric: str) -> Row:
    """Over the classes; without a spread, for they are not draws of one thing."""
    values = [row.mean for row in rows if (row.method, row.metric) == (method, metric)]
    return replace(Row.of(values, method, metric), sd=None)
