"""What `best` is for images: one change of its settings at a time, on a few classes.

Settings are to be chosen by the number that needs no label: how well held-out training images are told from anomalies
made of them. Beside it stands what the test images say, which chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nrf.experiments.base import Preset
from nrf.experiments.board import Place
from nrf.experiments.one_class_cells import load, train_on
from nrf.experiments.one_class_paper import NAMES
from nrf.experiments.one_class_runs import WATCHED
from nrf.experiments.presets import find_preset
from nrf.experiments.record import Row
from nrf.experiments.report import Table
from nrf.experiments.reproduce import Cell, Outcome, Section, cell_key
from nrf.experiments.watch import values_of
from nrf.networks import OneClassCNNPotential
from nrf.samplers import SGHMC

Results = Mapping[str, dict[str, Any]]
Change = Callable[[Preset], Preset]


def _part(part: str, **values: Any) -> Change:
    """Other values in one part of a preset."""
    return lambda preset: replace(preset, **{part: replace(getattr(preset, part), **values)})


def _whole(**parts: Any) -> Change:
    """Other parts."""
    return lambda preset: replace(preset, **parts)


def _noise(noise: float) -> Sequence[Change]:
    """Noise on data, and the sampler's step that fits it."""
    return _part("learner", data_noise=noise), _part("sampler", step_size=noise**2 / 2)


_COMMON: dict[str, Sequence[Change]] = {
    "best": (),
    "noise 0.1": _noise(0.1),
    "noise 0.3": _noise(0.3),
    "σ 0.3": (_part("generator", sigma=0.3),),
    "σ 1": (_part("generator", sigma=1.0),),
    "no noise on data": (_part("learner", data_noise=0.0), _part("sampler", step_size=0.003)),
    "no noise at all": (
        _part("learner", data_noise=0.0),
        _part("generator", sigma=0.0),
        _part("sampler", step_size=0.003, temperature=0.0),
    ),
    "shift 1": (_part("train", shift=1),),
    "all gains trained": (_part("potential", train_gain="all"),),
    "rate 3e-3": (_part("learner", potential_lr=3e-3),),
    "rate 3e-4": (_part("learner", potential_lr=3e-4),),
}
CHANGES: dict[str, dict[str, Sequence[Change]]] = {
    "mnist": _COMMON
    | {
        "10 steps": (_part("revision", n_steps=10),),
        "40 steps": (_part("revision", n_steps=40),),
        "control weight 0.1": (_part("learner", control_weight=0.1),),
        "1024-512": (_part("potential", widths=(1024, 512)),),
        "the paper's widths": (_whole(potential=find_preset("mnist-sghmc-released").potential),),
        "SGHMC": (_whole(sampler=SGHMC(step_size=0.06, friction=0.5)),),
        "convolutions": (_whole(potential=OneClassCNNPotential(width=8, train_gain="last", data_init=True)),),
    },
    "cifar10": _COMMON
    | {
        "5 steps": (_part("revision", n_steps=5),),
        "control weight 1": (_part("learner", control_weight=1.0),),
        "flips": (_part("train", flip=True),),
        "width 24": (_part("potential", width=24),),
        "width 96": (_part("potential", width=96),),
    },
}
"""Changes of the preset `best`, by dataset and name."""
PRESETS = {"mnist": "mnist-best", "cifar10": "cifar10-one-class-best"}


@dataclass(frozen=True)
class ImageAblationConfig:
    """Size of the experiment."""

    dataset: str
    classes: tuple[int, ...]
    epochs: int
    changes: tuple[str, ...]
    max_train: int | None = None
    max_test: int | None = 3000


CONFIGS = {
    "mnist-ablation": ImageAblationConfig("mnist", (2, 5, 8), 15, tuple(CHANGES["mnist"])),
    "cifar10-one-class-ablation": ImageAblationConfig("cifar10", (1, 4), 3, tuple(CHANGES["cifar10"])),
}


class ImageAblation:
    """The experiments behind `nrf reproduce mnist-ablation` and `cifar10-one-class-ablation`."""

    partial = True
    lead = "One change of `best` at a time. The first number needs no label and is what to choose by."

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"{name}: what `best` is for images"

    def config(self, *, quick: bool) -> ImageAblationConfig:
        whole = CONFIGS[self.name]
        if not quick:
            return whole
        classes, changes = whole.classes[:1], whole.changes[:2]
        return replace(whole, classes=classes, changes=changes, epochs=1, max_train=40, max_test=60)

    def seeds(self, config: ImageAblationConfig) -> Sequence[int]:
        return [0]

    def cells(self, config: ImageAblationConfig, folder: Path) -> list[Cell]:
        found = []
        for name in config.changes:
            for label in config.classes:
                key = cell_key(name, label)
                compute = partial(changed_cell, config, name, label, folder / "runs" / key)
                found.append(Cell(key, compute, Place(name, label, 0, config.epochs)))
        return found

    def summarise(self, config: ImageAblationConfig, results: Results, folder: Path) -> Outcome:
        rows: list[Row] = []
        for name in config.changes:
            for label in config.classes:
                if cell_key(name, label) in results:
                    case = NAMES[config.dataset][label]
                    numbers = _numbers(results[cell_key(name, label)]["curve"])
                    rows += [Row(name, metric, value, case=case) for metric, value in numbers.items()]
        rows += [_mean(rows, name, metric) for name, metric in dict.fromkeys((r.method, r.metric) for r in rows)]
        means = [row for row in rows if row.case is None]
        metrics = list(dict.fromkeys(row.metric for row in means))
        of = {(row.method, row.metric): f"{row.mean:.2f}" for row in means}
        names = list(dict.fromkeys(row.method for row in means))
        table = Table(["settings", *metrics], [[name, *(of[name, metric] for metric in metrics)] for name in names])
        text = f"Means over classes {config.classes}, {config.epochs} epochs; AUROC in percent."
        return Outcome(rows, [Section("What was tried", text, [table])])


def changed(dataset: str, name: str) -> Preset:
    """`best` with the changes of that name."""
    preset = find_preset(PRESETS[dataset])
    for change in CHANGES[dataset][name]:
        preset = change(preset)
    return preset


def changed_cell(config: ImageAblationConfig, name: str, label: int, out: Path) -> dict[str, Any]:
    """One change on one class."""
    preset = changed(config.dataset, name)
    length = replace(preset.train, epochs=config.epochs, watch_share=WATCHED, threads=1)
    preset = replace(preset, data=replace(preset.data, normal=label), train=length)
    return {"curve": train_on(preset, load(config.dataset, label, config.max_train, config.max_test), out)}


def _numbers(curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
    test = values_of(curve, "AUROC")
    return {
        "made anomalies, last epoch": 100 * values_of(curve, "synthetic AUROC")[-1],
        "test images, last epoch": test[-1],
        "test images, worst of the second half": min(test[len(test) // 2 :]),
        "test images, best epoch (oracle)": max(test),
    }


def _mean(rows: Sequence[Row], method: str, metric: str) -> Row:
    values = [row.mean for row in rows if (row.method, row.metric) == (method, metric)]
    return Row(method, metric, float(np.mean(values)), n=len(values))
