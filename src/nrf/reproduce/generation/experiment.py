"""CIFAR-10 generation: inclusive-NRF beside GANs on the same networks with the same time, and the paper's ablation.

Runs are smaller than the paper's, and say so. Scores are by a named network: those of the project's own classifier
have a mark and no number of the paper beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrf import figures
from nrf.reproduce.generation.cells import CONFIGS, GenerationConfig, Line, kinds_of, run_cell, sized
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.runs.trained import TrainedModel

TITLES = {
    "cifar10-generation": "CIFAR-10 generation",
    "ablation": "CIFAR-10: revision steps and samplers",
    "generation-rates": "CIFAR-10 generation: learning rates",
}
SIDE = 6


class Generation(Experiment[GenerationConfig]):
    """The experiments behind `nrf reproduce cifar10-generation`, `ablation` and `generation-rates`."""

    partial = True
    lead = (
        "Networks and runs are smaller than the paper's. A score with the mark c10 is by the project's own classifier "
        "of CIFAR-10 and cannot be compared with one by Inception."
    )

    def __init__(self, name: str) -> None:
        self.name, self.title, self.whole = name, TITLES[name], CONFIGS[name]
        whole = self.whole.size
        size = replace(
            whole,
            width=4,
            iterations=4,
            every=2,
            samples=20,
            draws=min(whole.draws, 2),
            final_samples=60 if whole.final_samples else 0,
            batch_size=8,
            max_rows=60,
            held_out=min(whole.held_out, 40),
        )
        self.quick = replace(self.whole, lines=self.whole.lines[:2], size=size)

    def cells(self, config: GenerationConfig, shared: Path) -> list[Cell]:
        common = {"size": config.size, "inception_weights": config.inception_weights}
        return [
            Cell(
                line.cell,
                run_cell,
                {"preset": sized(config.size, line), "kinds": kinds_of(line), **common},
                trains=True,
                place=Place(line.name, None, 0),
            )
            for line in config.lines
        ]

    def summarise(self, config: GenerationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        there = [line for line in config.lines if line.cell in results]
        rows = [row for line in there for row in _rows(line, results[line.cell])]
        sections = [
            Section("Scores at the end", _text(config), [_table(rows)]),
            Section(
                "As training goes on",
                "Against training time of one core, scores not counted.",
                (),
                {"curves": (_curves(there, results), "Scores of the averaged weights, 5,000 samples.")},
            ),
            *_grids(there, runs),
        ]
        mark = _mark(config)
        headline = [
            (f"{row.mean:.2f}", f"{row.method}, {row.case}: {row.metric}")
            for row in rows
            if row.metric == f"FID{mark}" and row.case == "generation"
        ]
        return Outcome(rows, sections, headline)


def _mark(config: GenerationConfig) -> str:
    return "-c10" if config.inception_weights is None else ""


def _rows(line: Line, result: Mapping[str, Any]) -> Iterator[Row]:
    for name, value in result["final"].items():
        kind, metric = name.split(": ", 1)
        if metric.endswith(" SD"):
            continue
        paper = None
        if metric == "IS":  # by Inception alone
            paper = line.paper[0] if kind == "generation" else line.paper_revision
        elif metric == "FID" and kind == "generation":
            paper = line.paper[1]
        sd = result["final"].get(f"{name} SD")
        yield Row(line.method, metric, value, sd, preset=line.setting or None, case=kind, paper=paper)
    last = result["curve"][-1]
    yield Row(line.method, "iterations", last["step"], preset=line.setting or None)
    yield Row(line.method, "minutes", last["seconds"] / 60, preset=line.setting or None)


def _table(rows: Sequence[Row]) -> Table:
    metrics = list(dict.fromkeys(row.metric for row in rows if row.case is not None))
    keys = list(dict.fromkeys((row.method, row.preset, row.case) for row in rows if row.case is not None))
    of = {(row.method, row.preset, row.case, row.metric): row for row in rows}
    lines = []
    for method, preset, case in keys:
        values = [of.get((method, preset, case, metric)) for metric in metrics]
        length = of[method, preset, None, "iterations"].mean
        lines.append([method, preset or "", case or "", f"{length:,.0f}", *(_number(row) for row in values)])
    return Table(["method", "setting", "samples", "iterations", *metrics], lines)


def _number(row: Row | None) -> str:
    if row is None:
        return ""
    ours = row.text(".3f" if row.sd is None else ".2f")
    return ours if row.paper is None else f"{ours} (the paper's full run {row.paper:g})"


def _text(config: GenerationConfig) -> str:
    size = config.size
    until = f"{size.iterations:,} iterations"
    if size.minutes is not None:
        until = f"{size.minutes:g} minutes of one core"
    real = "the test images"
    if size.held_out:
        real = f"{size.held_out:,} training images that are not learned from"
    return (
        f"The SNGAN paper's standard pair with {size.width} channels in place of 64, batches of {size.batch_size}, "
        f"{until}, weights averaged with decay {size.ema_decay}. IS is mean ± SD over {size.draws} draws of "
        f"{size.samples:,} samples. FID is of {size.samples:,} samples against "
        f"{real}; the one that names training images has as many samples as there are of them. Precision: share of "
        "samples among real images; recall: share of real images among samples."
    )


def _curves(lines: Sequence[Line], results: Results) -> Figure:
    names = [key for key in results[lines[0].cell]["curve"][0] if key.startswith("generation: ") and "SD" not in key]
    plots: dict[str, dict[str, dict[str, tuple[list[float], list[float]]]]] = {}
    for metric in (name.removeprefix("generation: ") for name in names):
        for line in lines:
            curve = results[line.cell]["curve"]
            minutes = [point["seconds"] / 60 for point in curve]
            found = {kind: (minutes, [point[f"{kind}: {metric}"] for point in curve]) for kind in kinds_of(line)}
            plots.setdefault(metric, {})[line.name] = found
    return figures.families(plots, "minutes of training")


def _grids(lines: Sequence[Line], runs: Mapping[str, Path]) -> Iterator[Section]:
    """Samples of each run that is on this machine, revised beside generated."""
    shown = {}
    for line in lines:
        if line.cell not in runs:
            continue
        model = TrainedModel.load(runs[line.cell], averaged=True)
        sides = [_grid(model, revise=kind == "revision") for kind in kinds_of(line)]
        if len(sides) == 2:
            sides.insert(1, np.ones_like(sides[0][:, :1]))
        caption = f"{line.name}: " + ("generated, then the same revised." if len(sides) > 1 else "generated.")
        shown[f"samples-{line.cell}"] = (figures.image_grid(np.concatenate(sides, axis=1)), caption)
    if shown:
        yield Section("Samples", "Of the averaged weights at the end, not picked.", (), shown)


def _grid(model: TrainedModel, *, revise: bool) -> figures.Array:
    images = figures.as_images("cifar10", model.sample(SIDE**2, revise=revise)[0])
    return images.reshape(SIDE, SIDE, *images.shape[1:])
