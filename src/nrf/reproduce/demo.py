"""The demo: a field on the 32-mode mixture and a detector on handwritten digits, from scratch, with a report page."""

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
from nrf.metrics import ModeCoverage, auroc, mode_coverage, nearest_neighbour_score
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


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured, and the page it wrote."""

    coverage: Mapping[str, ModeCoverage]
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
        "proposes samples, a sampler revises them along the potential, and the revised samples train both. All numbers "
        "are of the last model, the one a user gets, not of the best epoch on the test set.",
    )
    started, out = time.perf_counter(), Path(out)
    coverage = _mixture(out / "gmm", report, say, quick=quick, quiet=quiet)
    scores = _digits(out / "digits", report, say, quick=quick, quiet=quiet)
    revised, mean = coverage["revision"], {name: float(np.mean(values)) for name, values in scores.items()}
    report.cards = [
        (f"{revised.covered:.1f} of 32", "modes covered by 100 revised samples"),
        (f"{100 * revised.realistic:.0f} %", "of revised samples within 3σ of a mode"),
        (
            f"{mean['last']:.3f}",
            f"digits AUROC, mean of ten (untrained {mean['untrained']:.3f}, 1-NN {mean['1-NN']:.3f})",
        ),
    ]
    report.add_provenance(
        f"nrf demo{' --quick' if quick else ''}",
        {name: to_json(_shortened(find_preset(name), quick=quick)) for name in ("gmm-short", "digits")},
    )
    _record(coverage, scores, time.perf_counter() - started, quick=quick).write(out / "demo.json")
    page = out / "report.html"
    report.write(page)
    return DemoResult(coverage, scores, page)


def _record(
    coverage: Mapping[str, ModeCoverage], scores: Mapping[str, list[float]], seconds: float, *, quick: bool
) -> Record:
    """What was printed, in the form of all records; the time is that of this call alone."""
    rows = []
    for name, found in coverage.items():
        rows += [
            Row(name, "covered modes", found.covered, preset="gmm-short", column="last"),
            Row(name, "realistic ratio", found.realistic, preset="gmm-short", column="last"),
        ]
    for name, values in scores.items():
        rows += [Row(name, "AUROC", v, preset="digits", case=f"digit {i}", column="last") for i, v in enumerate(values)]
        rows.append(Row(name, "mean AUROC", float(np.mean(values)), n=len(values), preset="digits", column="last"))
    command = f"nrf demo{' --quick' if quick else ''}"
    return Record("demo", command, commit(), versions(), machine(), [0], round(seconds, 1), rows)


def _shortened(preset: Preset, *, quick: bool) -> Preset:
    return replace(preset, train=replace(preset.train, iterations=40, log_every=10)) if quick else preset


def _mixture(out: Path, report: Report, say: Say, *, quick: bool, quiet: bool) -> dict[str, ModeCoverage]:
    preset = _shortened(find_preset("gmm-short"), quick=quick)
    say(f"1/2  the 32-mode mixture: {preset.train.iterations:,} iterations")
    splits = resolve("gmm")
    means = torch.from_numpy(gmm.means()).float()
    train_to_the_end("gmm-short", preset, out, splits=splits, quiet=quiet)
    trained = TrainedModel.load(out)
    n = DRAWS * DRAW_SIZE
    rows = np.random.default_rng(0).integers(0, len(splits.train), n)
    samples = {
        "generation": trained.sample(n)[0],
        "revision": trained.sample(n, revise=True)[0],
        "short revision": trained.sample(n, revise=True, n_steps=preset.revision.n_steps)[0],
        "oracle": splits.train[rows],
    }
    coverage = {name: mode_coverage(torch.from_numpy(x), means, gmm.SIGMA, DRAW_SIZE) for name, x in samples.items()}
    table = Table(
        ("32-mode GMM", "covered modes", "realistic ratio"),
        [(name, f"{c.covered:.2f}", f"{c.realistic:.3f}") for name, c in coverage.items()],
        marked=frozenset({1}),
    )
    say(table.as_text())
    panels = _panels(trained, splits, samples, coverage, means.numpy())
    figures.save(panels, out / "panels.png")
    report.add(
        "Thirty-two modes on four rings",
        "100 samples at a time, 100 times: a mode is covered if a sample lies within 3σ of it, a sample is realistic "
        f"if it lies within 3σ of a mode. Revision takes {preset.revision.sample_steps} steps, short revision the "
        f"{preset.revision.n_steps} of a training iteration. The oracle redraws the training data.",
        table,
        (panels, "1,000 samples each; the true means in red."),
        (_curves(out), "The learning curves of the run."),
    )
    return coverage


def _panels(
    trained: TrainedModel,
    splits: Splits,
    samples: Mapping[str, Array],
    coverage: Mapping[str, ModeCoverage],
    means: Array,
) -> Figure:
    side = np.linspace(-5.8, 5.8, 240, dtype=np.float32)
    xs, ys = np.meshgrid(side, side)
    u = trained.score_samples(np.stack([xs.ravel(), ys.ravel()], axis=1)).reshape(xs.shape)
    subtitles = ["1,600 points"]
    for name in ("generation", "revision"):
        subtitles.append(f"{coverage[name].covered:.1f} modes, {100 * coverage[name].realistic:.0f} % realistic")
    subtitles.append("higher = more normal")
    return figures.field_panels(
        splits.train, samples["generation"][:1000], samples["revision"][:1000], (xs, ys, u), means, subtitles
    )


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
    preset = _shortened(find_preset("digits"), quick=quick)
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
