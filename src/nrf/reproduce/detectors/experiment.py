"""Detectors side by side: ours with one set of defaults against scikit-learn's and PyOD's, on sixteen data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.detect.defaults import spec_for
from nrf.figures import INK
from nrf.reproduce.detectors.methods import CONTROL, METHODS, OURS, find_method, measure
from nrf.reproduce.detectors.sets import DATASETS, Floats, load
from nrf.reproduce.runner.cells import Cell, Outcome, Section, cell_key
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.runs.spec import PairSpec

Results = Mapping[str, dict[str, Any]]

METRICS = {"AUROC": "auroc", "average precision": "average_precision"}
TIMES = {"fit seconds": "fit_seconds", "score seconds": "score_seconds"}
RANK = "mean rank"


@dataclass(frozen=True)
class DetectorsConfig:
    """Which methods on which data sets, and how often."""

    datasets: tuple[str, ...] = tuple(DATASETS)
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: int = 5
    max_rows: int | None = None
    """At most so many rows of each part of a data set."""
    short: bool = False
    """Train hardly at all."""
    defaults: tuple[PairSpec, ...] = (spec_for(100, (60,), {}, 1.0), spec_for(1000, (10,), {}))
    """Our defaults at two sizes. Only so that cells that were made with other defaults are not taken for these."""


QUICK = DetectorsConfig(("iris", "mixed, with holes"), ("NRF", CONTROL, "isolation forest", "1-NN"), 2, 60, True)


class Detectors:
    """The experiment behind `nrf reproduce detectors`."""

    name = "detectors"
    partial = False
    title = "Detectors side by side"
    lead = (
        "Anomaly detectors trained on normal rows only, each with its own defaults and none tuned, on data sets that "
        "come with scikit-learn or are generated. What is not trained at all is shown beside them."
    )

    def config(self, *, quick: bool) -> DetectorsConfig:
        return QUICK if quick else DetectorsConfig()

    def seeds(self, config: DetectorsConfig) -> Sequence[int]:
        return range(config.seeds)

    def cells(self, config: DetectorsConfig, folder: Path) -> list[Cell]:
        """All data sets for one seed, then for the next; what is not installed is noticed before any work is done."""
        for method in config.methods:
            find_method(method).require()
        return [
            Cell(cell_key(seed, dataset, method), partial(run_cell, config, dataset, method, seed))
            for seed in range(config.seeds)
            for dataset in config.datasets
            for method in config.methods
        ]

    def summarise(self, config: DetectorsConfig, results: Results, folder: Path) -> Outcome:
        found = {name: _gathered(config, results, name) for name in (METRICS | TIMES).values()}
        overall = _overall_rows(config, found)
        rows = [*overall, *_rows_by_dataset(config, found)]
        order = np.argsort([row.mean for row in overall if row.metric == RANK], kind="stable")
        methods = [config.methods[i] for i in order]
        sections = [_overview(config, methods, overall), _by_dataset(config, found["auroc"][:, order], methods)]
        return Outcome(rows, sections, _headline(config, overall))


def run_cell(config: DetectorsConfig, dataset: str, method: str, seed: int) -> dict[str, Any]:
    """One method on one data set."""
    return measure(find_method(method, quick=config.short), load(dataset, seed, config.max_rows), seed)


def ranks(scores: Floats) -> Floats:
    """Ranks in each line of ``(data sets, methods)``: 1 for the highest score; those that are level share the mean.

    Example:
        >>> ranks(np.array([[0.9, 1.0, 0.9, 0.5]])).tolist()
        [[2.5, 1.0, 2.5, 4.0]]
    """
    from scipy.stats import rankdata

    return np.asarray(rankdata(-np.round(scores, 9), method="average", axis=1), dtype=np.float64)


def _gathered(config: DetectorsConfig, results: Results, name: str) -> Floats:
    """One number of every cell, ``(data sets, methods, seeds)``."""
    return np.array(
        [
            [
                [results[cell_key(seed, dataset, method)][name] for seed in range(config.seeds)]
                for method in config.methods
            ]
            for dataset in config.datasets
        ]
    )


def _overall_rows(config: DetectorsConfig, found: Mapping[str, Floats]) -> list[Row]:
    """Means over the data sets. The SD is that of this mean over seeds; that of the rank, over data sets."""
    standing = ranks(found["auroc"].mean(2))
    rows = []
    for i, method in enumerate(config.methods):
        rows += [_row(method, metric, found[name][:, i].mean(0)) for metric, name in METRICS.items()]
        rows.append(_row(method, RANK, standing[:, i]))
        for metric, name in TIMES.items():
            rows.append(Row(method, metric, float(found[name][:, i].mean()), n=found[name][:, i].size))
    return rows


def _rows_by_dataset(config: DetectorsConfig, found: Mapping[str, Floats]) -> list[Row]:
    return [
        _row(method, metric, found[name][j, i], dataset)
        for i, method in enumerate(config.methods)
        for j, dataset in enumerate(config.datasets)
        for metric, name in METRICS.items()
    ]


def _row(method: str, metric: str, values: NDArray[np.floating], case: str | None = None) -> Row:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(method, metric, float(np.mean(values)), sd, len(values), case=case)


def _overview(config: DetectorsConfig, methods: Sequence[str], overall: Sequence[Row]) -> Section:
    by = {(row.method, row.metric): row for row in overall}
    lines = [
        [
            method,
            *(_spread(by[method, metric].mean, by[method, metric].sd) for metric in METRICS),
            f"{by[method, RANK].mean:.2f}",
            f"{by[method, 'fit seconds'].mean:.3g}",
            f"{1000 * by[method, 'score seconds'].mean:.3g}",
        ]
        for method in methods
    ]
    header = ["method", "mean AUROC", "mean average precision", RANK, "fit (s)", "score (ms)"]
    marked = frozenset(i for i, method in enumerate(methods) if method in OURS)
    text = (
        f"Means over {len(config.datasets)} data sets, ± the SD of that mean over {config.seeds} seeds; a seed decides "
        "on the split or the draw, and on the method's own randomness. Ranks are by AUROC on each data set, 1 is best, "
        "those level share the mean. There are as many anomalies as normal rows among the test rows, so chance is 0.5 "
        "for both measures. Ours takes rows as they are, tables too; the others get columns of mean 0 and variance 1, "
        "strings one-hot, holes filled by the median beside a column that says so, and standardise no second time. "
        "Kernel density has Scott's bandwidth; k-NN is the distance to the k-th neighbour. ECOD ranks a row among the "
        "training rows and all test rows together. PyOD's ALAD keeps its dropout on while it scores. The untrained "
        "one is our potential as it is initialised. Our defaults were chosen with anomalies made from normal rows, as "
        "some of these are."
    )
    return Section("Over all data sets", text, [Table(header, lines, marked)])


def _by_dataset(config: DetectorsConfig, values: Floats, methods: Sequence[str]) -> Section:
    """AUROC ``(data sets, methods, seeds)``, the methods in the order given."""
    means, sds = values.mean(2), values.std(2, ddof=1) if values.shape[2] > 1 else None
    lines = [
        [dataset, *(_spread(means[j, i], None if sds is None else sds[j, i]) for i in range(len(methods)))]
        for j, dataset in enumerate(config.datasets)
    ]
    picture = (
        heat_map(means, config.datasets, methods),
        "Mean AUROC; the methods from the best mean rank to the worst.",
    )
    text = f"AUROC, mean ± SD over {config.seeds} seeds."
    return Section("By data set", text, [Table(["data set", *methods], lines)], {"auroc": picture})


def heat_map(values: Floats, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """AUROC by data set and method: chance and below in the darkest colour, the best of a row in bold."""
    figure = Figure(figsize=(0.78 * len(columns) + 2.4, 0.36 * len(rows) + 1.6), layout="constrained")
    axis = figure.subplots()
    shading = axis.imshow(values, cmap="viridis", vmin=0.5, vmax=1.0, aspect="auto")
    best = np.round(values, 3).max(1, keepdims=True)
    for (j, i), value in np.ndenumerate(values):
        colour = "white" if value < 0.8 else INK
        weight = "bold" if round(float(value), 3) >= best[j, 0] else "normal"
        axis.text(i, j, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour, fontweight=weight)
    axis.set_xticks(range(len(columns)), columns, rotation=35, ha="right", fontsize=9)
    axis.set_yticks(range(len(rows)), rows, fontsize=9)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(shading, ax=axis, shrink=0.8, label="AUROC", extend="min")
    return figure


def _headline(config: DetectorsConfig, overall: Sequence[Row]) -> list[tuple[str, str]]:
    scores = {row.method: row.mean for row in overall if row.metric == "AUROC"}
    standing = {row.method: row.mean for row in overall if row.metric == RANK}
    cards = [
        (f"{scores[m]:.3f}", f"mean AUROC of {m}, mean rank {standing[m]:.1f} of {len(scores)}")
        for m in OURS
        if m in scores
    ]
    others = [method for method in scores if method not in OURS]
    if others:
        best = min(others, key=lambda method: standing[method])
        cards.append((f"{scores[best]:.3f}", f"mean AUROC of {best}, the best of the others by mean rank"))
    return cards


def _spread(mean: float, sd: float | None) -> str:
    return f"{mean:.3f}" if sd is None else f"{mean:.3f} ± {sd:.3f}"
