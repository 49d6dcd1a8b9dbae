"""One-class MNIST and CIFAR-10: the paper's large detection table, with models chosen as a user could choose them.

A matrix of runs, class by class: our models, measured after every epoch, and the systems they are compared with. It can
be summarised at any time; missing runs are computed at the next call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nrf.reproduce.baselines.ours import detector_defaults, field_defaults
from nrf.reproduce.one_class.best import CLASSIFIER_ALONE, CONTROLS, KEPT, FeatureConfig, detector_cell
from nrf.reproduce.one_class.cells import COMPARED, TRAINED, compared_cell, run_cell, systems
from nrf.reproduce.one_class.matrix import CONFIGS, UNTRAINED, OneClassConfig, OneClassRunSpec, curves_of, sized
from nrf.reproduce.one_class.paper import METHODS, NAMES, quoted, quoted_mean
from nrf.reproduce.one_class.sections import curves, pictures
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import COLUMNS, chosen, values_of

METRICS = ("AUROC", "average precision")
DEFAULTS = {"defaults": detector_defaults(5000, 40)}
"""Defaults of an inclusive field, on which the cells depend."""
SYSTEMS = tuple(name for name in METHODS if name in COMPARED)
"""Systems that the paper compares itself with."""


class OneClass(Experiment[OneClassConfig]):
    """The experiments behind `nrf reproduce mnist-one-class` and `cifar10-one-class`."""

    partial = True
    keeps_rows = True
    lead = (
        "Trained on one class, tested on all: AUROC in percent, the other classes being anomalies. Of each model three "
        "epochs are reported: the last, one selected without test images, and the best on the test images, as "
        "published."
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"One-class {'MNIST' if CONFIGS[name].dataset == 'mnist' else 'CIFAR-10'}"
        self.whole = whole = CONFIGS[name]
        detectors = (replace(line, detector=quick(line.detector)) for line in whole.detectors if line.detector)
        lines = tuple(replace(line, seeds=1) for line in (*detectors, whole.pairs[0]))
        self.quick = replace(
            whole,
            lines=lines,
            epochs=1,
            compared_epochs=1,
            classes=2,
            max_train=40,
            max_test=60,
            n_steps=2,
            searched=(1,),
            max_searched=20,
        )

    def seeds(self, config: OneClassConfig) -> Sequence[int]:
        return range(max(line.seeds for line in config.lines))

    def cells(self, config: OneClassConfig, shared: Path) -> list[Cell]:
        found = []
        data: dict[str, Any] = {"dataset": config.dataset, "max_train": config.max_train, "max_test": config.max_test}
        places = {"kept": shared / KEPT}
        for line in config.lines:
            for label, seed in ((label, seed) for seed in range(line.seeds) for label in config.labels(line)):
                name = line.cell(label, seed)
                if line.detector is not None:
                    settings = {"best": line.detector, "label": label, "seed": seed, **data}
                    place, defaults = Place(line.name, label, seed), DEFAULTS
                    if line.detector.field == "product":
                        defaults = {"defaults": field_defaults(line.detector.components + 1)}
                    found.append(Cell(name, detector_cell, settings, defaults, places, place=place))
                else:
                    settings = {"preset": sized(config, line, label, seed), **data}
                    place = Place(line.name, label, seed, config.length(line))
                    found.append(Cell(name, run_cell, settings, trains=True, place=place))
        for method, line in _methods(config).items():
            for label in config.searched if method == "AnoGAN" else range(config.classes):
                kind = UNTRAINED if method in config.untrained else method
                system = systems(sized(config, line, label, 0), config.compared_epochs)[kind]
                settings = {"system": system, "label": label, "seed": 0, **data}
                if method == "AnoGAN":
                    settings |= {"max_test": config.max_searched}
                place = Place(method, label, 0)
                found.append(Cell(_compared(method, label), compared_cell, settings, places=places, place=place))
        return found

    def summarise(self, config: OneClassConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows = [*_our_rows(config, results), *_compared_rows(config, results)]
        sections = [
            Section(
                "AUROC by class", _text(config), [_table(config, rows, ours=True), _table(config, rows, ours=False)]
            ),
            *curves(config, results),
            *pictures(config, results),
        ]
        means = [r for r in rows if r.case is None and r.metric == "AUROC" and r.preset == "best"]
        headline = [(f"{row.mean:.2f}", f"mean AUROC of `best`, {row.column}") for row in means]
        return Outcome(rows, sections, headline)


def quick(settings: FeatureConfig) -> FeatureConfig:
    """Settings of the detector for a quick experiment."""
    epochs = min(settings.turn_epochs, 1)
    return replace(settings, components=5, members=1, iterations=5, width=4, turn_epochs=epochs)


def _our_rows(config: OneClassConfig, results: Results) -> Iterator[Row]:
    for line in config.lines:
        runs = curves_of(config, results, line)
        paper = None if line.detector is not None else line.sampler
        for column in COLUMNS:
            for metric in METRICS:
                by_class = {
                    label: [values_of(curve, metric)[chosen(curve, column, "AUROC")] for curve in of_class]
                    for label, of_class in runs.items()
                }
                beside = paper if (metric, column) == ("AUROC", "oracle") else None
                yield from _rows(config, line.method, metric, by_class, beside, line.setting, column)


def _compared_rows(config: OneClassConfig, results: Results) -> Iterator[Row]:
    for name in _methods(config):
        keys = {label: _compared(name, label) for label in range(config.classes)}
        for metric in METRICS:
            by_class = {label: [results[key][metric]] for label, key in keys.items() if key in results}
            beside = name if name in SYSTEMS and metric == "AUROC" else None
            yield from _rows(config, name, metric, by_class, beside, None, "last" if name in TRAINED else None)
    best = config.detectors[0]
    keys = {label: best.cell(label, 0) for label in range(config.classes)}
    controls = {label: results[key]["controls"] for label, key in keys.items() if key in results}
    for name in (*CONTROLS, CLASSIFIER_ALONE):
        for metric in METRICS:
            by_class = {label: [found[name][metric]] for label, found in controls.items() if name in found}
            yield from _rows(config, name, metric, by_class, None, None, None)
    ours = {name for name in COMPARED if any(_compared(name, label) in results for label in range(config.classes))}
    for name in SYSTEMS:
        if name not in ours:
            yield from _quoted_rows(config, name, name, None)
    run = {line.sampler for line in config.pairs if curves_of(config, results, line)}
    for sampler in dict.fromkeys(line.sampler for line in config.pairs):
        if sampler not in run:
            yield from _quoted_rows(config, f"inclusive-NRF, {sampler}", sampler, "oracle")


def _quoted_rows(config: OneClassConfig, method: str, name: str, column: str | None) -> Iterator[Row]:
    """The paper's numbers, under its own name, for a method that we have no results of."""
    values = quoted(config.dataset, name)
    for label, (mean, sd) in enumerate(values[: config.classes]):
        yield Row(method, "AUROC", mean, sd, case=NAMES[config.dataset][label], column=column, quoted=True)
    yield Row(method, "AUROC", quoted_mean(config.dataset, name), column=column, quoted=True)


def _rows(
    config: OneClassConfig,
    method: str,
    metric: str,
    by_class: Mapping[int, Sequence[float]],
    paper: str | None,
    preset: str | None,
    column: str | None,
) -> Iterator[Row]:
    """A row per class, and their mean if no class is missing; ``paper`` is the method's name in the paper."""
    for label, values in by_class.items():
        beside = None if paper is None else quoted(config.dataset, paper)[label]
        case = NAMES[config.dataset][label]
        yield Row.of(values, method, metric, preset=preset, case=case, column=column, paper=beside)
    if len(by_class) == config.classes:
        n = min(len(values) for values in by_class.values())
        means = [float(np.mean([values[i] for values in by_class.values()])) for i in range(n)]
        whole = config.classes == len(NAMES[config.dataset])
        mean = quoted_mean(config.dataset, paper) if paper is not None and whole else None
        yield Row.of(means, method, metric, preset=preset, column=column, paper=(mean, None))


def _methods(config: OneClassConfig) -> dict[str, OneClassRunSpec]:
    """Compared systems by name, each with the line whose networks an untrained control uses."""
    return {name: config.pairs[0] for name in COMPARED} | config.untrained


def _compared(name: str, label: int) -> str:
    return cell_name("compared", name, label)


def _table(config: OneClassConfig, rows: Sequence[Row], *, ours: bool) -> Table:
    """Classes against methods; the paper's numbers in columns of their own."""
    mine = [row for row in rows if row.metric == "AUROC" and (row.preset is not None) == ours]
    keys = list(dict.fromkeys((row.method, row.preset, row.column) for row in mine))
    header, parts = ["class"], []
    for method, preset, column in keys:
        of_key = [row for row in mine if (row.method, row.preset, row.column) == (method, preset, column)]
        name = " ".join(word for word in (preset, method.removeprefix("inclusive-NRF, "), column) if word)
        header.append(f"{name} (quoted)" if of_key[0].quoted else name)
        parts.append({row.case: row.text(".1f") for row in of_key})
        if any(row.paper is not None for row in of_key):
            header.append("the paper's")
            parts.append({row.case: row.paper_text(".1f") for row in of_key})
    cases = [*NAMES[config.dataset][: config.classes], None]
    return Table(header, [[case or "mean", *(part.get(case, "") for part in parts)] for case in cases])


def _features(best: FeatureConfig) -> str:
    network = f"a network that has learned to tell rotated images in {best.turn_epochs} epochs"
    what = f"features of {network}" if best.turn_epochs else "the pixels"
    seen = f"{best.components} principal components of {what} and the length of the rest"
    if best.field == "inclusive":
        return f"{seen}, {best.members} inclusive fields"
    shares = ", ".join(f"{share:g}" for share in best.sum_shares)
    return (
        f"{seen}, neighbours times density, and beside that the sum of the network's answers in the four positions: "
        f"its share of the score is the smallest of {shares} that tells held-out training images from anomalies made "
        "of them as well as the best one does, within its standard error"
    )


def _text(config: OneClassConfig) -> str:
    seeds = ", ".join(f"{line.name} {line.seeds}" for line in config.lines if line.seeds > 1)
    searched = f"; AnoGAN is run on a few classes and scores {config.max_searched:,} test images drawn at random"
    searched = searched if config.searched else ""
    detectors = "; ".join(
        f"`{line.setting}` is NRFDetector on {_features(line.detector)}" for line in config.detectors if line.detector
    )
    return (
        f"{detectors}. The others train a pair on pixels ({_lengths(config)}), "
        f"one seed per class{f' ({seeds})' if seeds else ''}. `last`: the model after the last "
        "epoch. `selected`: after the epoch in which held-out training images were separated best from "
        "synthetic anomalies. `oracle`: the best epoch on the test images, which is how the paper's numbers were "
        "chosen. OC-SVM and "
        "KDE work on principal components that keep 95 % of the variance; OC-SVM with ν = 0.1 and scikit-learn's "
        "kernel width, KDE with the width of the best likelihood in three folds of the training images; isolation "
        f"forest has 1,000 trees; DCAE and Deep SVDD {config.compared_epochs} epochs (of each of its two "
        f"parts){searched}. What is marked as quoted is not run by us."
    )


def _lengths(config: OneClassConfig) -> str:
    """Epochs of every kind of pair, and its width if narrower than the preset's."""
    found = {}
    for line in config.pairs:
        narrow = f", {line.width} channels" if line.width is not None else ""
        half = ", in 16 bits" if line.bfloat16 else ""
        found[line.setting] = f"`{line.setting}` {config.length(line)} epochs{narrow}{half}"
    return "; ".join(found.values())
