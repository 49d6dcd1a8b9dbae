"""The 32-mode mixture: the paper's toy table and figure, and what the paper could not measure.

In the plane a field can be normalised on a grid, so besides covered modes and realistic samples there is the likelihood
of held-out points and the divergence from the true mixture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nrf import figures
from nrf.data import gmm, resolve
from nrf.learners import LevelsConfig
from nrf.metrics import (
    PlaneGrid,
    kernel_log_likelihood,
    mean_log_likelihood,
    mixture_log_density,
    mode_coverage,
    most_covered,
)
from nrf.reproduce.gmm.cells import (
    DEPTH,
    DRAW_SIZE,
    LONG_CHAIN,
    METROPOLIS,
    QUICK,
    SETTINGS,
    TUNED,
    WHOLE,
    GMMConfig,
    Method,
    methods,
    run_of,
    samples_of,
    train_and_measure,
)
from nrf.reproduce.gmm.step_noise import most_realistic
from nrf.reproduce.gmm.tuned import CRITERION
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.runs.presets import find_preset
from nrf.runs.trained import TrainedModel

PAPER: dict[tuple[str, str], tuple[tuple[float, float], tuple[float, float]]] = {
    ("GAN", "generation"): ((21.47, 1.44), (0.83, 0.02)),
    ("WGAN-GP", "generation"): ((22.21, 1.75), (0.48, 0.06)),
    ("exclusive-NRF", "generation"): ((23.73, 1.13), (0.50, 0.03)),
    ("inclusive-NRF", "generation"): ((27.46, 1.34), (0.67, 0.08)),
    ("inclusive-NRF", "revision"): ((30.65, 0.04), (0.95, 0.01)),
    ("oracle", "training data"): ((30.70, 0.09), (0.99, 0.00)),
}
"""Covered modes and realistic ratio of the paper's table, mean and SD."""

SAMPLE_METRICS = ("covered modes", "realistic ratio", "kernel log-likelihood")
BETTER_BY_REVISION = {metric: f"{metric}, revision less generation" for metric in SAMPLE_METRICS[:2]}
"""Of the same model, so that an interval of it is a paired one."""
FIELD_METRICS = (
    "log-likelihood",
    "KL from the mixture",
    "log-likelihood, temperature fitted",
    "KL from the mixture, temperature fitted",
    "fitted temperature",
)
DENSITY_METRICS = ("log-likelihood, as it is", "integral", "slope")
"""Of fields that say their log-density in nats."""


MOST_COVERED = most_covered(len(gmm.means()), DRAW_SIZE)


class Mixture(Experiment[GMMConfig]):
    """The experiment behind `nrf reproduce gmm`."""

    name = "gmm"
    partial = True
    keeps_rows = True
    title = "Thirty-two modes on four rings"
    lead = (
        "Every learner on the paper's toy mixture, several models each, trained side by side. Covered modes and "
        "realistic samples as in the paper's table; likelihood and divergence by quadrature, which the plane allows."
    )

    whole = GMMConfig()
    quick = QUICK

    def seeds(self, config: GMMConfig) -> Sequence[int]:
        return range(config.replicas)

    def cells(self, config: GMMConfig, shared: Path) -> list[Cell]:
        cheapest_first = sorted(methods(config), key=lambda method: method.cost)
        size = {"draws": config.draws, "grid_side": config.grid_side}
        return [
            Cell(
                method.cell,
                train_and_measure,
                {"method": method, **size},
                trains=True,
                place=Place(f"{method.name}, {method.setting}", None, 0),
            )
            for method in cheapest_first
        ]

    def summarise(self, config: GMMConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        found = [method for method in methods(config) if method.cell in results]
        rows = [row for method in found for row in _rows(method, results[method.cell])]
        rows += oracle_rows(config)
        sections = [_sample_section(config, found, rows, results), _field_section(found, rows)]
        sections += _figures(found, runs)
        best = {row.metric: row for row in rows if row.preset == "best" and row.case == "revision, last weights"}
        alone = {row.metric: row for row in rows if row.preset == "best" and row.case == "generation, last weights"}
        headline = (
            []
            if not best
            else [
                (
                    f"{best['covered modes'].mean:.2f}",
                    f"modes covered by revised samples, preset best (independent draws: at most {MOST_COVERED:.2f})",
                ),
                (f"{100 * best['realistic ratio'].mean:.0f} %", "of them within 3σ of a mode"),
                (f"{alone['covered modes'].mean:.2f}", "modes covered by the generator alone (paper 27.46)"),
            ]
        )
        return Outcome(rows, sections, headline)


def _rows(method: Method, result: Mapping[str, Any]) -> list[Row]:
    rows = []
    models = result["models"]
    for weights in models[0]:
        for name in models[0][weights]:
            kind, _, metric = name.rpartition(": ")
            values = [model[weights][name] for model in models]
            paper = PAPER.get((method.name, kind)) if metric in SAMPLE_METRICS[:2] else None
            quoted = None if paper is None else paper[SAMPLE_METRICS.index(metric)]
            case = f"{kind}, {weights} weights" if kind else f"{weights} weights"
            rows.append(Row.of(values, method.name, metric, preset=method.setting, case=case, paper=quoted))
        rows += _gains(method, [model[weights] for model in models], f"{weights} weights")
    rows.append(Row(method.name, "iterations", result["iterations"], preset=method.setting))
    if method.search is not None:
        rows += [
            Row.of(tried[CRITERION], method.name, CRITERION, preset=method.setting, case=f"rate {tried['rate']:g}")
            for tried in result["search"]
            if tried[CRITERION]
        ]
        rows.append(Row(method.name, "rate", result["rate"], preset=method.setting))
    return rows


def _gains(method: Method, models: Sequence[Mapping[str, float]], case: str) -> list[Row]:
    """What revision adds to the samples of each model."""
    found = []
    for metric, name in BETTER_BY_REVISION.items():
        kinds = [f"{kind}: {metric}" for kind in ("revision", "generation")]
        if all(kind in models[0] for kind in kinds):
            values = [model[kinds[0]] - model[kinds[1]] for model in models]
            found.append(Row.of(values, method.name, name, preset=method.setting, case=case))
    return found


def oracle_rows(config: GMMConfig) -> list[Row]:
    """What perfect samples and the true density reach: fresh draws of the training data, and the mixture itself."""
    splits, means = resolve("gmm"), torch.from_numpy(gmm.means())
    held_out, grid = torch.from_numpy(gmm.reported()), PlaneGrid(side=config.grid_side)
    values: dict[str, list[float]] = {metric: [] for metric in SAMPLE_METRICS}
    for seed in range(config.replicas):
        n = config.draws * DRAW_SIZE
        rows = np.random.default_rng(seed).integers(0, len(splits.train), n)
        samples = torch.from_numpy(splits.train[rows])
        covered, realistic = mode_coverage(samples, means.float(), gmm.SIGMA, DRAW_SIZE)
        found = (covered, realistic, kernel_log_likelihood(samples[:5000], held_out))
        for metric, value in zip(SAMPLE_METRICS, found, strict=True):
            values[metric].append(value)
    paper = PAPER["oracle", "training data"]
    truth = mean_log_likelihood(lambda x: mixture_log_density(x, means, gmm.SIGMA), held_out, grid)
    rows_of_samples = [
        Row.of(found, "oracle", metric, case="training data", paper=quoted)
        for (metric, found), quoted in zip(values.items(), (*paper, None), strict=True)
    ]
    cap = most_realistic(find_preset("gmm-paper").sampler.step_size)
    return [
        *rows_of_samples,
        Row("oracle", "log-likelihood", truth, case="the mixture itself"),
        Row("oracle", "realistic ratio", cap, case="most after the last noise of the text's SGLD"),
    ]


def _sample_section(config: GMMConfig, found: Sequence[Method], rows: Sequence[Row], results: Results) -> Section:
    table = _sample_table(found, rows, results)
    text = (
        f"{DRAW_SIZE} independent samples at a time, {config.draws} times, mean ± SD over {config.replicas} models "
        f"(`{TUNED}` {config.tuned_replicas}, `{WHOLE}` {config.script_replicas}), "
        f"each with codes and noise of its own; at most {MOST_COVERED:.2f} modes can be expected. Settings: "
        "those of the text, of the released scripts, our best, and noise levels; the oracle redraws the training data. "
        "`tuned` has the scripts' networks with learning rates that held-out points chose. "
        f"Two cores do in about four hours: the paper's {config.iterations:,} iterations in the scripts' setting and "
        f"in ours, fewer otherwise. Fields without a generator are sampled by {LONG_CHAIN:,} steps from uniform noise, "
        "those with noise levels by annealed revision from the widest level's Gaussian. Kernel log-likelihood: "
        "held-out points, by which no setting was chosen, under a kernel estimate from the samples."
    )
    return Section("Samples", text, [table])


def _sample_table(found: Sequence[Method], rows: Sequence[Row], results: Results) -> Table:
    header = [
        "method",
        "setting",
        "samples",
        "iterations",
        "covered modes",
        "paper",
        "realistic",
        "paper",
        "kernel log-lik.",
    ]
    lines = []
    names: list[tuple[str, str | None, str]] = [
        (m.name, m.setting, f"{results[m.cell]['iterations']:,}") for m in found
    ]
    for name, setting, iterations in [*names, ("oracle", None, "")]:
        mine = [row for row in rows if row.method == name and row.preset == setting and row.metric in SAMPLE_METRICS]
        for case in dict.fromkeys(row.case for row in mine if row.metric == SAMPLE_METRICS[0]):
            by = {row.metric: row for row in mine if row.case == case}
            covered, realistic, kernel = (by[metric] for metric in SAMPLE_METRICS)
            lines.append(
                [
                    name,
                    setting or "",
                    case or "",
                    iterations,
                    covered.text(".2f"),
                    covered.paper_text(".2f"),
                    realistic.text(),
                    realistic.paper_text(".2f"),
                    kernel.text(),
                ]
            )
    return Table(header, lines)


def _field_section(found: Sequence[Method], rows: Sequence[Row]) -> Section:
    metrics = (*FIELD_METRICS, *DENSITY_METRICS)
    header = ["field", "setting", "weights", *metrics]
    lines = []
    for method in (m for m in found if m.is_field):
        mine = [r for r in rows if (r.method, r.preset) == (method.name, method.setting) and r.metric in metrics]
        for case in dict.fromkeys(row.case for row in mine):
            by = {row.metric: row for row in mine if row.case == case}
            cells = [by[metric].text() if metric in by else "" for metric in metrics]
            lines.append([method.name, method.setting, (case or "").removesuffix(" weights"), *cells])
    truth = next(row for row in rows if row.method == "oracle" and row.metric == "log-likelihood")
    exact = f"{truth.mean:.3f}"
    lines.append(["the mixture itself", "", "", exact, "0", exact, "0", "1", exact, "1", "1"])
    text = (
        "Mean log-likelihood of 1,600 held-out points, by which no setting was chosen, and divergence from the true "
        "mixture, in nats, normalised by quadrature on a square of side 12. A sampler at temperature τ, or one that "
        "does not arrive, makes the learner fit a field of the right shape and the wrong scale; so both are shown for "
        "exp u as it is, and for exp(u/τ) at the τ that makes the training points most likely. Fields with noise "
        "levels say their log-density in nats: the last columns have its mean with no constant fitted, the integral of "
        "the density over the square, and the slope of learned against true log-density at the held-out points."
    )
    return Section("Likelihood", text, [Table(header, lines)])


def _figures(found: Sequence[Method], runs: Mapping[str, Path]) -> list[Section]:
    """Of the models that are on this machine."""
    pictures = {}
    for setting in (*SETTINGS, TUNED, METROPOLIS, WHOLE, "best", "levels"):
        there = {m.name: run_of(m, runs[m.cell]) for m in found if m.setting == setting and m.cell in runs}
        panels = {m.name: _panel(m, there[m.name]) for m in found if m.setting == setting and m.name in there}
        if panels:
            caption = f"Setting {setting}: 1,000 samples of the first model; potential with the true means in red."
            pictures[f"panels-{cell_name(setting)}"] = (figures.method_panels(panels, gmm.means()), caption)
    text = "Above the samples of each method, below its potential; a critic's potential is no density."
    return [Section("Samples and potentials", text, (), pictures)] if pictures else []


def _panel(method: Method, run: Path) -> figures.Panel:
    trained = TrainedModel.load(run)
    samples = {kind: x.numpy() for kind, x in samples_of(method, trained, 1000, seed=0).items()}
    side = np.linspace(-6, 6, 240, dtype=np.float32)
    xs, ys = np.meshgrid(side, side)
    u = trained.score_samples(np.stack([xs.ravel(), ys.ravel()], axis=1)).reshape(xs.shape)
    if isinstance(method.preset.learner, LevelsConfig):
        u = np.maximum(u, u.max() - DEPTH)
    return figures.Panel(samples, (xs, ys, u))
