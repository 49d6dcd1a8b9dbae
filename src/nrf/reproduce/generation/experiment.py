"""CIFAR-10 generation: inclusive-NRF and GANs with the same networks and training time.

Runs are smaller than the paper's, and the report says so. The name of a score says which network it uses: scores by the
project's own classifier have a suffix, and no number of the paper is put next to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrf import figures
from nrf.reproduce.generation.cells import CONFIGS, GenerationConfig, GenerationRunSpec, kinds_of, run_cell, sized
from nrf.reproduce.generation.paired import between
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.runs.trained import TrainedModel

TITLES = {
    "cifar10-generation": "CIFAR-10 generation",
    "generation-rates": "CIFAR-10 generation: learning rates",
}
SIDE = 6
REVISION = "revision − generation"
AGAINST_SNGAN = "inclusive-NRF − SNGAN, generation"
Found = dict[int, dict[str, Any]]
"""Results of a line's cells, by seed."""


class Generation(Experiment[GenerationConfig]):
    """The experiments behind `nrf reproduce cifar10-generation` and `generation-rates`."""

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
        lines = tuple(replace(line, seeds=min(line.seeds, 2)) for line in self.whole.lines[:2])
        self.quick = replace(self.whole, lines=lines, size=size)

    def seeds(self, config: GenerationConfig) -> Sequence[int]:
        return range(max(line.seeds for line in config.lines))

    def cells(self, config: GenerationConfig, shared: Path) -> list[Cell]:
        common = {"size": config.size, "inception_weights": config.inception_weights}
        return [
            Cell(
                line.cell(seed),
                run_cell,
                {"preset": sized(config.size, line, seed), "kinds": kinds_of(line), **common},
                trains=True,
                place=Place(line.name, None, seed),
            )
            for seed in self.seeds(config)
            for line in config.lines
            if seed < line.seeds
        ]

    def summarise(self, config: GenerationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        there = {line: _of_seeds(line, results) for line in config.lines}
        there = {line: found for line, found in there.items() if found}
        rows = [row for line, found in there.items() for row in _rows(line, list(found.values()))]
        rows += _apart(there)
        sections = [
            Section("Scores at the end", _text(config), [_table(rows)]),
            Section(
                "As training goes on",
                "Against training time of one core, scores not counted.",
                (),
                {"curves": (_curves(there), "Scores of the averaged weights, 5,000 samples, the first seed.")},
            ),
            *_grids(there, runs),
        ]
        mark = _mark(config)
        headline = [
            (f"{row.mean:.2f}", f"{row.method}, {row.case}: {row.metric}")
            for row in rows
            if row.metric == f"FID{mark}" and row.case == "generation"
        ]
        differences = [row for row in rows if row.n > 1 and "−" in row.method]
        if differences:
            lines = [[row.method, row.preset or "", row.metric, str(row.n), between(row)] for row in differences]
            table = Table(["difference", "setting", "metric", "seeds", "mean and 95 % interval"], lines)
            text = "Seed by seed, and the interval of their mean by Student's t."
            sections.insert(1, Section("Differences", text, [table]))
        return Outcome(rows, sections, headline)


def _mark(config: GenerationConfig) -> str:
    return "-c10" if config.inception_weights is None else ""


def _of_seeds(line: GenerationRunSpec, results: Results) -> Found:
    names = {seed: line.cell(seed) for seed in range(line.seeds)}
    return {seed: results[name] for seed, name in names.items() if name in results}


def _rows(line: GenerationRunSpec, found: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Means over seeds. With a single seed, the SD of an inception score is over draws."""
    preset = line.setting or None
    first = found[0]["final"]
    for name in first:
        kind, metric = name.split(": ", 1)
        if metric.endswith(" SD"):
            continue
        paper = None
        if kind == "generation" and metric in ("IS", "FID"):  # by Inception alone
            paper = line.paper[metric == "FID"]
        values = [result["final"][name] for result in found]
        row = Row.of(values, line.method, metric, preset=preset, case=kind, paper=(paper, None))
        yield replace(row, sd=first.get(f"{name} SD")) if row.n == 1 else row
    last = [result["curve"][-1] for result in found]
    yield Row.of([point["step"] for point in last], line.method, "iterations", preset=preset)
    yield Row.of([point["seconds"] / 60 for point in last], line.method, "minutes", preset=preset)
    per_iteration = [1000 * point["seconds"] / point["step"] for point in last]
    yield Row.of(per_iteration, line.method, "milliseconds per iteration", preset=preset)


def _apart(there: Mapping[GenerationRunSpec, Found]) -> Iterator[Row]:
    """Differences seed by seed: revision minus generation, and inclusive-NRF minus SNGAN in the same setting."""
    for line, found in there.items():
        metrics = [name.removeprefix("revision: ") for name in next(iter(found.values()))["final"]]
        metrics = [name for name in metrics if name.startswith(("IS", "FID")) and not name.endswith(" SD")]
        for metric in metrics if "revision" in kinds_of(line) else ():
            finals = [result["final"] for result in found.values()]
            values = [final[f"revision: {metric}"] - final[f"generation: {metric}"] for final in finals]
            yield Row.of(values, f"{line.method}: {REVISION}", metric, preset=line.setting or None)
        if line.method != "inclusive-NRF":
            continue
        other = next((of for name, of in there.items() if (name.method, name.setting) == ("SNGAN", line.setting)), {})
        both = sorted(set(found) & set(other))
        for metric in metrics if both else ():
            key = f"generation: {metric}"
            values = [found[seed]["final"][key] - other[seed]["final"][key] for seed in both]
            yield Row.of(values, AGAINST_SNGAN, metric, preset=line.setting or None)


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


def _curves(there: Mapping[GenerationRunSpec, Found]) -> Figure:
    first = {line: next(iter(found.values()))["curve"] for line, found in there.items()}
    points = next(iter(first.values()))[0]
    names = [key for key in points if key.startswith("generation: ") and "SD" not in key]
    plots: dict[str, dict[str, dict[str, tuple[list[float], list[float]]]]] = {}
    for metric in (name.removeprefix("generation: ") for name in names):
        for line, curve in first.items():
            minutes = [point["seconds"] / 60 for point in curve]
            found = {kind: (minutes, [point[f"{kind}: {metric}"] for point in curve]) for kind in kinds_of(line)}
            plots.setdefault(metric, {})[line.name] = found
    return figures.families(plots, "minutes of training")


def _grids(lines: Iterable[GenerationRunSpec], runs: Mapping[str, Path]) -> Iterator[Section]:
    """Samples of each run that is on this machine: generated ones, then the same revised."""
    shown = {}
    for line in lines:
        if line.cell() not in runs:
            continue
        model = TrainedModel.load(runs[line.cell()], averaged=True)
        sides = [_grid(model, revise=kind == "revision") for kind in kinds_of(line)]
        if len(sides) == 2:
            sides.insert(1, np.ones_like(sides[0][:, :1]))
        caption = f"{line.name}: " + ("generated, then the same revised." if len(sides) > 1 else "generated.")
        shown[f"samples-{line.cell()}"] = (figures.image_grid(np.concatenate(sides, axis=1)), caption)
    if shown:
        yield Section("Samples", "Of the averaged weights at the end, not picked.", (), shown)


def _grid(model: TrainedModel, *, revise: bool) -> figures.Array:
    images = figures.as_images("cifar10", model.sample(SIDE**2, revise=revise)[0])
    return images.reshape(SIDE, SIDE, *images.shape[1:])
