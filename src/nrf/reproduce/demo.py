"""The demo: fields on the 32-mode mixture and a detector on handwritten digits, from scratch, with a report page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf import figures
from nrf.config import to_json
from nrf.data import Splits, gmm, resolve
from nrf.metrics import ModeCoverage, auroc, mixture_log_density, mode_coverage, nearest_neighbour_score
from nrf.reproduce.gmm.cells import DEPTH, density_numbers
from nrf.reproduce.runner.record import Record, Row, commit, machine
from nrf.reproduce.runner.report import Report, Table
from nrf.reproduce.runner.watch import train_to_the_end
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset, load_splits
from nrf.runs.trained import TrainedModel
from nrf.training import RunFolder
from nrf.training.checkpoint import versions

Array = NDArray[np.float32]
Say = Callable[[str], None]

DRAWS, DRAW_SIZE = 100, 100
INCLUSIVE, LEVELS = "gmm-short", "gmm-levels"
LENGTH = 10_000
"""Iterations of the inclusive pair: half of its preset's, for the sake of time."""
GRID = 400


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured, and the page it wrote."""

    coverage: Mapping[str, ModeCoverage]
    density: Mapping[str, float]
    """Of the field with noise levels: log-likelihood, integral, slope, and how many peaks it has."""
    auroc: Mapping[str, list[float]]
    report: Path


def demo(out: Path | str, say: Say, *, quick: bool = False, quiet: bool = False) -> DemoResult:
    """Train both, measure, and write ``report.html``.

    Args:
        out: Folder for the runs and the page; finished or stopped runs in it are taken up where they were.
        say: Called with each line to print.
        quick: A few iterations only, to see that everything works; the numbers then mean nothing.
        quiet: No progress bars.
    """
    report = Report(
        "Inclusive neural random fields: the demo",
        "A potential u(x) and a latent generator, trained together from scratch on this machine. The generator "
        "proposes samples, a sampler revises them along the potential, and the revised samples train both. Beside it a "
        "field with noise levels, which is a density in nats. All numbers are of the last model, the one a user gets, "
        "not of the best epoch on the test set.",
    )
    started, out = time.perf_counter(), Path(out)
    coverage, density = _mixture(out, report, say, quick=quick, quiet=quiet)
    scores = _digits(out / "digits", report, say, quick=quick, quiet=quiet)
    drawn, mean = coverage["noise levels"], {name: float(np.mean(values)) for name, values in scores.items()}
    report.cards = [
        (f"{drawn.covered:.1f} of 32", "modes covered by 100 samples down the noise levels"),
        (f"{100 * drawn.realistic:.0f} %", "of them within 3σ of a mode"),
        (f"{density['log-likelihood']:.2f}", f"nats, held-out log-likelihood (truth {density['truth']:.2f})"),
        (
            f"{mean['last']:.3f}",
            f"digits AUROC, mean of ten (untrained {mean['untrained']:.3f}, 1-NN {mean['1-NN']:.3f})",
        ),
    ]
    report.add_provenance(
        f"nrf demo{' --quick' if quick else ''}",
        {name: to_json(_preset(name, quick=quick)) for name in (INCLUSIVE, LEVELS, "digits")},
    )
    _record(coverage, density, scores, time.perf_counter() - started, quick=quick).write(out / "demo.json")
    page = out / "report.html"
    report.write(page)
    return DemoResult(coverage, density, scores, page)


def _record(
    coverage: Mapping[str, ModeCoverage],
    density: Mapping[str, float],
    scores: Mapping[str, list[float]],
    seconds: float,
    *,
    quick: bool,
) -> Record:
    """What was printed, in the form of all records; the time is that of this call alone."""
    rows = []
    for name, found in coverage.items():
        preset = LEVELS if name == "noise levels" else INCLUSIVE
        rows += [
            Row(name, "covered modes", found.covered, preset=preset, column="last"),
            Row(name, "realistic ratio", found.realistic, preset=preset, column="last"),
        ]
    rows += [Row("noise levels", name, value, preset=LEVELS, column="last") for name, value in density.items()]
    for name, values in scores.items():
        rows += [Row(name, "AUROC", v, preset="digits", case=f"digit {i}", column="last") for i, v in enumerate(values)]
        rows.append(Row(name, "mean AUROC", float(np.mean(values)), n=len(values), preset="digits", column="last"))
    command = f"nrf demo{' --quick' if quick else ''}"
    return Record("demo", command, commit(), versions(), machine(), [0], round(seconds, 1), rows)


def _preset(name: str, *, quick: bool) -> Preset:
    preset = find_preset(name)
    if quick:
        return replace(preset, train=replace(preset.train, iterations=40, log_every=10))
    return replace(preset, train=replace(preset.train, iterations=LENGTH)) if name == INCLUSIVE else preset


def _mixture(
    out: Path, report: Report, say: Say, *, quick: bool, quiet: bool
) -> tuple[dict[str, ModeCoverage], dict[str, float]]:
    presets = {name: _preset(name, quick=quick) for name in (INCLUSIVE, LEVELS)}
    lengths = " and ".join(f"{preset.train.iterations:,}" for preset in presets.values())
    say(f"1/2  the 32-mode mixture: {lengths} iterations")
    splits, folders = resolve("gmm"), {INCLUSIVE: out / "gmm", LEVELS: out / "levels"}
    for name, preset in presets.items():
        train_to_the_end(name, preset, folders[name], splits=splits, quiet=quiet)
    pair, field = TrainedModel.load(folders[INCLUSIVE]), TrainedModel.load(folders[LEVELS], averaged=True)
    n, revision = DRAWS * DRAW_SIZE, presets[INCLUSIVE].revision
    rows = np.random.default_rng(0).integers(0, len(splits.train), n)
    samples = {
        "generation": pair.sample(n)[0],
        "revision": pair.sample(n, revise=True)[0],
        "short revision": pair.sample(n, revise=True, n_steps=revision.n_steps)[0],
        "noise levels": field.sample(n, revise=True)[0],
        "oracle": splits.train[rows],
    }
    means = torch.from_numpy(gmm.means()).float()
    coverage = {name: mode_coverage(torch.from_numpy(x), means, gmm.SIGMA, DRAW_SIZE) for name, x in samples.items()}
    table = Table(
        ("32-mode GMM", "covered modes", "realistic ratio"),
        [(name, f"{c.covered:.2f}", f"{c.realistic:.3f}") for name, c in coverage.items()],
        marked=frozenset({1, 3}),
    )
    side = np.linspace(-5.8, 5.8, GRID, dtype=np.float32)
    xs, ys = np.meshgrid(side, side)
    u = field.log_density(np.stack([xs.ravel(), ys.ravel()], axis=1)).reshape(xs.shape)
    density = _density(field, u, float(side[1] - side[0]))
    nats = Table(tuple(density), [tuple(f"{value:.3f}".removesuffix(".000") for value in density.values())])
    say(f"{table.as_text()}\n\nthe density of the noise levels, in nats\n{nats.as_text()}")
    panels = _panels(splits, samples, coverage, (xs, ys, np.maximum(u, u.max() - DEPTH)), means.numpy(), density)
    figures.save(panels, folders[INCLUSIVE] / "panels.png")
    report.add(
        "Thirty-two modes on four rings",
        "100 samples at a time, 100 times: a mode is covered if a sample lies within 3σ of it, a sample is realistic "
        f"if it lies within 3σ of a mode. Revision takes {revision.sample_steps} steps, short revision the "
        f"{revision.n_steps} of a training iteration. Noise levels: another field, learned without a sampler, whose "
        "samples are annealed from wide noise to narrow, and whose potential is a log-density in nats: its mean at "
        "held-out points beside that of the true mixture, its integral, its slope against the truth, and how many "
        "peaks it has. The oracle redraws the training data.",
        table,
        nats,
        (panels, "1,000 samples each; the true means in red."),
        (_curves(folders[INCLUSIVE]), "The learning curves of the pair."),
    )
    return coverage, density


def _density(field: TrainedModel, u: Array, spacing: float) -> dict[str, float]:
    numbers = density_numbers(field, GRID)
    held_out, means = torch.from_numpy(gmm.reported()), torch.from_numpy(gmm.means())
    return {
        "log-likelihood": numbers["log-likelihood, as it is"],
        "truth": float(mixture_log_density(held_out, means, gmm.SIGMA).mean()),
        "integral": numbers["integral"],
        "slope": numbers["slope"],
        "peaks": count_peaks(u, round(3 * gmm.SIGMA / spacing)),
    }


def count_peaks(u: Array, reach: int, depth: float = 5.0) -> int:
    """Points of a map that are the highest within so many points, and at most ``depth`` below the highest of all.

    Example:
        >>> u = np.full((9, 9), -9.0, dtype=np.float32)
        >>> u[1, 1], u[2, 2], u[7, 7], u[1, 7] = 1.0, 0.5, 0.0, -8.0
        >>> count_peaks(u, 2)
        2
    """
    values = torch.from_numpy(u)[None]
    highest = torch.nn.functional.max_pool2d(values, 2 * reach + 1, stride=1, padding=reach)
    return int(((values == highest) & (values > values.max() - depth)).sum())


def _panels(
    splits: Splits,
    samples: Mapping[str, Array],
    coverage: Mapping[str, ModeCoverage],
    grid: figures.Grid,
    means: Array,
    density: Mapping[str, float],
) -> Figure:
    kinds = {"Generation": "generation", "Revision": "revision", "Down the noise levels": "noise levels"}
    subtitles = ["1,600 points"]
    for name in kinds.values():
        subtitles.append(f"{coverage[name].covered:.1f} modes, {100 * coverage[name].realistic:.0f} % realistic")
    subtitles.append(f"{density['peaks']} peaks, {density['log-likelihood']:.2f} nats held out")
    clouds = {"Training data": splits.train} | {title: samples[name][:1000] for title, name in kinds.items()}
    return figures.field_panels(clouds, "log p(x) of the noise levels", grid, means, subtitles)


def _curves(run: Path) -> Figure:
    rows = RunFolder(run).metrics()
    steps = [row["step"] for row in rows]
    level = [row["u_data"] for row in rows]

    def column(name: str) -> list[float]:
        return [row[name] for row in rows]

    gap = [data - revised for data, revised in zip(level, column("u_revised"), strict=True)]
    return figures.curves(
        {
            "u on data less u on revised samples": (steps, {"gap": gap}),
            "Regression loss of the generator": (steps, {"loss": column("generator_loss")}),
            "How far the revision moves a sample": (steps, {"distance": column("revision_distance")}),
        },
        "iteration",
    )


def _digits(out: Path, report: Report, say: Say, *, quick: bool, quiet: bool) -> dict[str, list[float]]:
    preset = _preset("digits", quick=quick)
    classes = range(2) if quick else range(10)
    say(f"2/2  digits, one against the rest: {len(classes)} × {preset.train.iterations:,} iterations")
    scores: dict[str, list[float]] = {"untrained": [], "last": [], "1-NN": []}
    history: list[dict[int, float]] = []
    pictures: dict[str, Array] = {}
    for digit in classes:
        this = replace(preset, data=replace(preset.data, normal=digit))
        splits = load_splits(this.data)
        train_to_the_end("digits", this, out / str(digit), splits=splits, quiet=quiet)
        trained = TrainedModel.load(out / str(digit))
        scores["untrained"].append(_untrained(this, splits))
        history.append({0: scores["untrained"][-1]} | _history(out / str(digit), splits))
        scores["last"].append(_auroc(trained.score_samples(_test(splits)), splits))
        scores["1-NN"].append(_auroc(nearest_neighbour_score(splits.train, _test(splits)), splits))
        if digit == 1 or digit == classes[-1]:
            pictures |= _pictures(trained, splits, digit)
    rows = [(name, *(f"{v:.3f}" for v in values), f"{np.mean(values):.3f}") for name, values in scores.items()]
    table = Table(("digit", *map(str, classes), "mean"), rows, marked=frozenset({1}))
    say(table.as_text())
    steps = list(history[0])
    mean = [float(np.mean([values[step] for values in history])) for step in steps]
    curve = figures.curves({"Mean test AUROC while training": (steps, {"potential": mean})}, "iteration")
    report.add(
        "Digits: one class against the rest",
        "One model for each digit, trained on some 90 images of that digit alone; the potential is the score. Beside "
        "it an untrained potential and the distance to the nearest training image. The curve shows what training "
        "does to a score that nobody can check without labels; it was not used to choose anything.",
        table,
        (
            figures.grouped_bars([str(c) for c in classes], scores, 0.3, "AUROC"),
            "Test AUROC by normal digit.",
        ),
        (curve, "Mean over the digits. Looked at, not chosen from."),
        (
            figures.image_rows(pictures),
            "What the models draw, and what they find most and least typical in the test set.",
        ),
    )
    return scores


def _history(run: Path, splits: Splits) -> dict[int, float]:
    """Test AUROC of every checkpoint a run has kept: for the curve only."""
    return {
        step: _auroc(TrainedModel.load(run, step=step).score_samples(_test(splits)), splits)
        for step in RunFolder(run).steps()
    }


def _untrained(preset: Preset, splits: Splits) -> float:
    learner = preset.build(torch.from_numpy(splits.train), preset.seeds)
    with torch.no_grad():
        return _auroc(learner.modules["potential"](torch.from_numpy(_test(splits))).numpy(), splits)


def _pictures(trained: TrainedModel, splits: Splits, digit: int) -> dict[str, Array]:
    test = _test(splits)
    order = np.argsort(trained.score_samples(test))
    rows = {
        "generated": trained.sample(12)[0],
        "revised": trained.sample(12, revise=True)[0],
        "most typical": test[order[::-1][:12]],
        "least typical": test[order[:12]],
    }
    return {f"{digit}: {name}": figures.as_images("digits", x) for name, x in rows.items()}


def _test(splits: Splits) -> Array:
    assert splits.test is not None
    return splits.test


def _auroc(score: Array, splits: Splits) -> float:
    assert splits.test_labels is not None
    return auroc(score, splits.test_labels)
