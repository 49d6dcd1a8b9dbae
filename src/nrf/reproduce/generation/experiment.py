"""CIFAR-10 generation: inclusive-NRF beside GANs on the same networks with the same time, and the paper's ablation.

Runs are smaller than the paper's, and say so. Scores are by a named network: those of the project's own classifier
have a mark and no number of the paper beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrf import figures
from nrf.reproduce.generation.cells import CONFIGS, KINDS, GenerationConfig, Line, revises, run_cell
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.cells import Cell, Outcome, Section
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.runs.trained import TrainedModel

Results = Mapping[str, dict[str, Any]]

TITLES = {
    "cifar10-generation": "CIFAR-10 generation",
    "ablation": "CIFAR-10: revision steps and samplers",
    "generation-rates": "CIFAR-10 generation: learning rates",
}
SIDE = 6


class Generation:
    """The experiments behind `nrf reproduce cifar10-generation`, `ablation` and `generation-rates`."""

    partial = True
    lead = (
        "Networks and runs are smaller than the paper's. A score with the mark c10 is by the project's own classifier "
        "of CIFAR-10 and cannot be compared with one by Inception."
    )

    def __init__(self, name: str) -> None:
        self.name, self.title = name, TITLES[name]

    def config(self, *, quick: bool) -> GenerationConfig:
        whole = CONFIGS[self.name]
        if not quick:
            return whole
        return replace(
            whole,
            lines=whole.lines[:2],
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

    def seeds(self, config: GenerationConfig) -> Sequence[int]:
        return [0]

    def cells(self, config: GenerationConfig, folder: Path) -> list[Cell]:
        return [
            Cell(line.key, partial(run_cell, config, line, folder / "runs" / line.key), Place(line.name, None, 0))
            for line in config.lines
        ]

    def summarise(self, config: GenerationConfig, results: Results, folder: Path) -> Outcome:
        there = [line for line in config.lines if line.key in results]
        rows = [row for line in there for row in _rows(config, line, results[line.key])]
        sections = [
            Section("Scores at the end", _text(config), [_table(rows)]),
            Section(
                "As training goes on",
                "Against training time of one core, scores not counted.",
                (),
                {"curves": (_curves(there, results), "Scores of the averaged weights, 5,000 samples.")},
            ),
            *_grids(there, folder),
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


def _rows(config: GenerationConfig, line: Line, result: Mapping[str, Any]) -> Iterator[Row]:
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
    ours = f"{row.mean:.3f}" if row.sd is None else f"{row.mean:.2f} ± {row.sd:.2f}"
    return ours if row.paper is None else f"{ours} (the paper's full run {row.paper:g})"


def _text(config: GenerationConfig) -> str:
    until = f"{config.iterations:,} iterations"
    if config.minutes is not None:
        until = f"{config.minutes:g} minutes of one core"
    real = "the test images"
    if config.held_out:
        real = f"{config.held_out:,} training images that are not learned from"
    return (
        f"The SNGAN paper's standard pair with {config.width} channels in place of 64, batches of {config.batch_size}, "
        f"{until}, weights averaged with decay {config.ema_decay}. IS is mean ± SD over {config.draws} draws of "
        f"{config.samples:,} samples. FID is of {config.samples:,} samples against "
        f"{real}; the one that names training images has as many samples as there are of them. Precision: share of "
        "samples among real images; recall: share of real images among samples."
    )


def _curves(lines: Sequence[Line], results: Results) -> Figure:
    names = [key for key in results[lines[0].key]["curve"][0] if key.startswith("generation: ") and "SD" not in key]
    metrics = [name.removeprefix("generation: ") for name in names]
    figure = Figure(figsize=(5.2 * len(metrics), 3.6), layout="constrained")
    palette = (figures.REVISED, figures.GENERATED, figures.INK, figures.DATA)
    for axis, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        for colour, line in zip(palette, lines, strict=False):
            curve = results[line.key]["curve"]
            minutes = [point["seconds"] / 60 for point in curve]
            for kind, style in zip(KINDS if revises(line) else KINDS[:1], ("-", "--"), strict=False):
                values = [point[f"{kind}: {metric}"] for point in curve]
                axis.plot(minutes, values, style, color=colour, lw=1.4, label=f"{line.name}: {kind}")
        axis.set(xlabel="minutes of training", ylabel=metric)
        axis.grid(color=figures.MUTED, alpha=0.3)
    figure.axes[0].legend(fontsize=7, frameon=False)
    return figure


def _grids(lines: Sequence[Line], folder: Path) -> Iterator[Section]:
    """Samples of each run, revised beside generated."""
    shown = {}
    for line in lines:
        run = folder / "runs" / line.key
        if not (run / "config.json").is_file():
            continue
        model = TrainedModel.load(run, averaged=True)
        sides = [_grid(model, revise=kind == "revision") for kind in (KINDS if revises(line) else KINDS[:1])]
        if len(sides) == 2:
            sides.insert(1, np.ones_like(sides[0][:, :1]))
        caption = f"{line.name}: " + ("generated, then the same revised." if revises(line) else "generated.")
        shown[f"samples-{line.key}"] = (figures.image_grid(np.concatenate(sides, axis=1)), caption)
    if shown:
        yield Section("Samples", "Of the averaged weights at the end, not picked.", (), shown)


def _grid(model: TrainedModel, *, revise: bool) -> figures.Array:
    images = figures.as_images("cifar10", model.sample(SIDE**2, revise=revise)[0])
    return images.reshape(SIDE, SIDE, *images.shape[1:])
