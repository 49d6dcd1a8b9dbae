"""MNIST generation: the paper's ablation with five paired seeds each, and fields with noise levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nrf import figures
from nrf.reproduce.generation.mnist_cells import LINES, RELEASED_STEP, STEPS, MnistRunSpec, MnistSize, run_cell, sized
from nrf.reproduce.generation.paired import between
from nrf.reproduce.one_class.best import unpacked
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

SCORES = ("IS-mnist", "FID-mnist")
METRICS = (*SCORES, "precision-mnist", "recall-mnist", "distance")
STUDIED = "SGLD, L = 10"
"""The line whose revision is measured at many step sizes, seed 0."""
BY_STEP = "revision by step size"
PAIRS = (
    ("L = 10 − L = 2, SGLD", "SGLD, L = 10", "SGLD, L = 2"),
    ("L = 10 − L = 5, SGLD", "SGLD, L = 10", "SGLD, L = 5"),
    ("SGHMC − SGLD, L = 10", "SGHMC, L = 10", "SGLD, L = 10"),
)
"""Differences of two lines, seed by seed."""
REVISION = "revision − generation"


@dataclass(frozen=True)
class MnistGenerationConfig:
    """The runs and their size."""

    lines: tuple[MnistRunSpec, ...] = LINES
    size: MnistSize = field(default_factory=MnistSize)
    steps: tuple[float, ...] = STEPS


class MnistGeneration(Experiment[MnistGenerationConfig]):
    """The experiment behind `nrf reproduce mnist-generation`."""

    name = "mnist-generation"
    title = "MNIST generation"
    lead = (
        "All ten digits at 28 × 28. Scores with the mark -mnist are by the project's own classifier of MNIST; compare "
        "them among themselves only."
    )
    partial = True
    whole = MnistGenerationConfig()
    quick = MnistGenerationConfig(
        lines=tuple(replace(line, seeds=min(line.seeds, 2), n_steps=1) for line in LINES),
        size=MnistSize(
            iterations=2,
            distilled_iterations=2,
            batch_size=8,
            samples=30,
            draws=2,
            n_levels=4,
            level_width=2,
            max_rows=40,
        ),
        steps=STEPS[-2:],
    )

    def seeds(self, config: MnistGenerationConfig) -> Sequence[int]:
        return range(max(line.seeds for line in config.lines))

    def cells(self, config: MnistGenerationConfig, shared: Path) -> list[Cell]:
        found = []
        for seed in self.seeds(config):
            for line in config.lines:
                if seed < line.seeds:
                    steps = config.steps if (line.method, seed) == (STUDIED, 0) else ()
                    settings = {"preset": sized(config.size, line, seed), "kinds": line.kinds, "size": config.size}
                    settings |= {"steps": steps}
                    place = Place(line.method, None, seed)
                    found.append(Cell(line.cell(seed), run_cell, settings, trains=True, place=place))
        return found

    def summarise(self, config: MnistGenerationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        scores = {line.method: _by_seed(line, results) for line in config.lines}
        scores = {name: found for name, found in scores.items() if found}
        rows = [*_score_rows(scores), *_difference_rows(scores), *_step_rows(config, results)]
        sections = [
            Section("Scores", _text(config), [_score_table(rows)]),
            Section("Differences, seed by seed", DIFFERENCES_TEXT, [difference_table(rows)]),
            *_step_sections(config, results),
            *_pictures(config, results),
        ]
        headline = [
            (f"{row.mean:+.2f}", f"{row.method}, {row.case}: {row.metric}")
            for row in rows
            if row.method == REVISION and row.metric == "FID-mnist"
        ]
        return Outcome(rows, sections, headline)


Scores = dict[int, Mapping[str, float]]
"""Scores of a line, by seed."""


def _by_seed(line: MnistRunSpec, results: Results) -> Scores:
    there = (seed for seed in range(line.seeds) if line.cell(seed) in results)
    return {seed: results[line.cell(seed)]["final"] | _time(results[line.cell(seed)]) for seed in there}


def _time(result: Mapping[str, Any]) -> dict[str, float]:
    return {"minutes": result["seconds"] / 60}


def _score_rows(scores: Mapping[str, Scores]) -> Iterator[Row]:
    for method, by_seed in scores.items():
        names = [name for name in next(iter(by_seed.values())) if ": " in name and not name.endswith(" SD")]
        for name in names:
            kind, metric = name.split(": ", 1)
            values = [found[name] for found in by_seed.values()]
            row = Row.of(values, method, metric, case=kind)
            spread = f"{name} SD"
            if len(values) == 1 and spread in next(iter(by_seed.values())):  # over draws if there is one seed
                row = replace(row, sd=next(iter(by_seed.values()))[spread])
            yield row
        yield Row.of([found["minutes"] for found in by_seed.values()], method, "minutes")


def _difference_rows(scores: Mapping[str, Scores]) -> Iterator[Row]:
    """Differences over the seeds that both sides have, if there are at least two."""
    for metric in SCORES:
        for method, by_seed in scores.items():
            if f"revision: {metric}" in next(iter(by_seed.values())):
                found = [of[f"revision: {metric}"] - of[f"generation: {metric}"] for of in by_seed.values()]
                if len(found) > 1:
                    yield Row.of(found, REVISION, metric, case=method)
        for name, first, second in PAIRS:
            both = sorted(set(scores.get(first, {})) & set(scores.get(second, {})))
            if len(both) < 2:
                continue
            for kind in ("generation", "revision"):
                key = f"{kind}: {metric}"
                values = [scores[first][seed][key] - scores[second][seed][key] for seed in both]
                yield Row.of(values, name, metric, case=kind)


def _step_rows(config: MnistGenerationConfig, results: Results) -> Iterator[Row]:
    found = _studied(config, results)
    for point in found.get("steps", ()):
        case = f"δ = {point['step size']:.2g}"
        yield from (Row(BY_STEP, name, value, case=case) for name, value in point.items())
    for name in ("gradient norm", "nearest training image"):
        if name in found:
            yield Row(BY_STEP, name, found[name])


def _studied(config: MnistGenerationConfig, results: Results) -> dict[str, Any]:
    cells = [line.cell(0) for line in config.lines if line.method == STUDIED]
    return results.get(cells[0], {}) if cells else {}


# -------------------------------------------------------------------------------------------------------------- tables

DIFFERENCES_TEXT = (
    "Mean over seeds of the difference, and in brackets the 95 % interval of that mean by Student's t. A revision is "
    "of the samples it is compared with; lines are compared seed by seed, the order of the data being the same."
)


def _text(config: MnistGenerationConfig) -> str:
    size = config.size
    return (
        "The perceptrons of the paper's MNIST table, "
        f"{size.iterations:,} iterations of {size.batch_size} images, no noise, steps of a size that moves an image; "
        f"noise levels: {size.n_levels} levels, a small convolutional field, {size.iterations:,} iterations, with a "
        f"generator {size.distilled_iterations:,}. Averaged weights. Mean ± SD over seeds; of a single seed the ± of "
        f"an inception score is over draws. IS: {size.draws} draws of {size.samples:,} samples, "
        f"{size.annealed_draws} of what comes down the noise levels. FID: {size.samples:,} samples against the test "
        "images. Distance: how far revision moves an image, as a norm over its 784 pixels."
    )


def _score_table(rows: Sequence[Row]) -> Table:
    of = {(row.method, row.case, row.metric): row for row in rows}
    keys = list(dict.fromkeys((row.method, row.case) for row in rows if row.metric == "FID-mnist"))
    keys = [key for key in keys if ("IS-mnist" in {row.metric for row in rows if (row.method, row.case) == key})]
    lines = []
    for method, case in keys:
        if method in (REVISION, BY_STEP) or method in {name for name, _, _ in PAIRS}:
            continue
        values = [of.get((method, case, metric)) for metric in METRICS]
        lines.append([method, case or "", *("" if row is None else row.text(".2f") for row in values)])
    return Table(["method", "samples", *METRICS], lines)


def difference_table(rows: Sequence[Row]) -> Table:
    """A table of differences with their intervals."""
    names = [REVISION, *(name for name, _, _ in PAIRS)]
    keys = list(dict.fromkeys((row.method, row.case) for row in rows if row.method in names))
    of = {(row.method, row.case, row.metric): row for row in rows}
    lines = []
    for method, case in keys:
        found = [of[method, case, metric] for metric in SCORES]
        lines.append([method, case or "", str(found[0].n), *(between(row) for row in found)])
    return Table(["difference", "of", "seeds", *SCORES], lines)


def step_table(rows: Sequence[Row]) -> Table:
    """A table of distance and scores by step size."""
    mine = [row for row in rows if row.method == BY_STEP and row.case is not None]
    of = {(row.case, row.metric): row.mean for row in mine}
    lines = []
    for case in dict.fromkeys(row.case for row in mine):
        name = (case or "") + (" (the script's)" if np.isclose(of[case, "step size"], RELEASED_STEP) else "")
        lines.append([name, f"{of[case, 'distance']:.2g}", *(f"{of[case, metric]:.2f}" for metric in SCORES)])
    return Table(["step size", "distance", *SCORES], lines)


# ------------------------------------------------------------------------------------------------------------ sections


def _step_sections(config: MnistGenerationConfig, results: Results) -> Iterator[Section]:
    found = _studied(config, results)
    points = found.get("steps", ())
    if not points:
        return
    x = [point["step size"] for point in points]
    plots = {name: (x, {STUDIED: [point[name] for point in points]}) for name in ("distance", *SCORES)}
    text = (
        f"One model ({STUDIED}, seed 0), its samples revised with ten steps of other sizes. The gradient of its "
        f"potential has a length of {found['gradient norm']:.3g}, so ten steps go ten times δ times that far, and a "
        f"test image is {found['nearest training image']:.3g} away from the nearest of 10,000 training images."
    )
    figure = figures.curves(plots, "step size δ", log_x=True, log_y=("distance",))
    shown = {"steps": (figure, "How far revision moves an image, and the scores after it, by step size.")}
    yield Section("Steps that move an image", text, [step_table(list(_step_rows(config, results)))], shown)


def _pictures(config: MnistGenerationConfig, results: Results) -> Iterator[Section]:
    shown: dict[str, figures.Array] = {}
    for line in config.lines:
        for kind, text in results.get(line.cell(0), {}).get("samples", {}).items():
            shown[f"{line.method}: {kind}"] = unpacked(text)[:12]
    if shown:
        figure = figures.image_rows(shown)
        yield Section("Samples", "Of seed 0, not picked.", (), {"samples": (figure, "Twelve samples of each kind.")})
