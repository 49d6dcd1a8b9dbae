"""Detectors side by side: ours with one set of defaults against scikit-learn's and PyOD's, on sixteen data sets.

Blocks follow with other tables: real ones, mixed ones, short and wide ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nrf import figures
from nrf.reproduce.baselines import find_baseline, shortened, stored_as
from nrf.reproduce.baselines.ours import NRF, field_defaults
from nrf.reproduce.detectors.block_report import block_rows, block_sections
from nrf.reproduce.detectors.blocks import BLOCKS, WIDE, BlockConfig, cells_of, line
from nrf.reproduce.detectors.cells import run_cell
from nrf.reproduce.detectors.sets import DATASETS, Floats
from nrf.reproduce.detectors.standing import RANK, ranks
from nrf.reproduce.detectors.wide_curves import CURVES
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row, spread
from nrf.reproduce.runner.report import Table

METRICS = {"AUROC": "auroc", "average precision": "average_precision"}
TIMES = {"fit seconds": "fit_seconds", "score seconds": "score_seconds"}
OURS = ("NRF",)
FIRST = "data sets"
"""Name of the first block, for `--lines`."""
CONTROL = "untrained NRF"
METHODS = (
    *OURS,
    CONTROL,
    "isolation forest",
    "one-class SVM",
    "LOF",
    "kernel density",
    "1-NN",
    "5-NN",
    "Deep SVDD",
    "autoencoder",
    "ALAD",
    "ALAD (PyOD)",
    "ECOD",
)
"""In the order they are shown."""
DEFAULTS = {"defaults": [field_defaults(60), field_defaults(10)]}
"""Ours at two sizes."""


@dataclass(frozen=True)
class DetectorsConfig:
    """Which methods on which data sets, and how often."""

    datasets: tuple[str, ...] = tuple(DATASETS)
    methods: tuple[str, ...] = METHODS
    seeds: int = 5
    max_rows: int | None = None
    """At most so many rows of each part of a data set."""
    short: bool = False
    """Train hardly at all."""
    blocks: tuple[BlockConfig, ...] = ()
    """Further tables."""


WIDE_QUICK = BlockConfig(WIDE, tuple(CURVES)[:1], ("NRF", "1-NN", "5-NN"), 1, short=True)
QUICK = DetectorsConfig(
    ("iris", "mixed, with holes"), ("NRF", CONTROL, "isolation forest", "1-NN"), 2, 60, True, (WIDE_QUICK,)
)


class Detectors(Experiment[DetectorsConfig]):
    """The experiment behind `nrf reproduce detectors`."""

    name = "detectors"
    title = "Detectors side by side"
    lead = (
        "Anomaly detectors trained on normal rows only, each with its own defaults and none tuned, on data sets that "
        "come with scikit-learn or are generated, on real tables, on mixed tables, and on short and wide ones. What is "
        "not trained at all is shown beside them."
    )

    whole = DetectorsConfig(blocks=BLOCKS)
    quick = QUICK
    partial = True

    def seeds(self, config: DetectorsConfig) -> Sequence[int]:
        return range(config.seeds)

    def cells(self, config: DetectorsConfig, shared: Path) -> list[Cell]:
        """All data sets for one seed, then for the next; what is not installed is noticed before any work is done.

        Tables of a block are looked for when they are needed: a machine without them can work on the others.
        """
        systems = {method: find_baseline(method) for method in config.methods}
        for system in systems.values():
            system.require()
        if config.short:
            systems = {method: shortened(system) for method, system in systems.items()}
        first = [
            Cell(
                _cell(seed, dataset, method),
                run_cell,
                {"system": system, "dataset": dataset, "seed": seed, "max_rows": config.max_rows},
                DEFAULTS if isinstance(system, NRF) else {},
                place=Place(line(FIRST, method), None, seed),
            )
            for seed in range(config.seeds)
            for dataset in config.datasets
            for method, system in systems.items()
        ]
        return [*first, *(cell for block in config.blocks for cell in cells_of(block, DEFAULTS))]

    def summarise(self, config: DetectorsConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows, sections, headline = list[Row](), list[Section](), list[tuple[str, str]]()
        there = replace(config, methods=tuple(m for m in config.methods if _is_complete(config, results, m)))
        if there.methods:
            found = {name: _gathered(there, results, name) for name in (METRICS | TIMES).values()}
            overall = _overall_rows(there, found)
            rows += [*overall, *_rows_by_dataset(there, found)]
            order = np.argsort([row.mean for row in overall if row.metric == RANK], kind="stable")
            methods = [there.methods[i] for i in order]
            sections += [_overview(there, methods, overall), _by_dataset(there, found["auroc"][:, order], methods)]
            headline = _headline(there, overall)
        for block in config.blocks:
            rows += block_rows(block, results)
            sections += block_sections(block, rows, OURS)
        return Outcome(rows, sections, headline)


def _cell(seed: int, dataset: str, method: str) -> str:
    """Name of a cell of the first block."""
    return cell_name(seed, dataset, stored_as(method))


def _is_complete(config: DetectorsConfig, results: Results, method: str) -> bool:
    """Whether no cell of a method is missing in the first block."""
    names = (_cell(seed, dataset, method) for seed in range(config.seeds) for dataset in config.datasets)
    return all(name in results for name in names)


def _gathered(config: DetectorsConfig, results: Results, name: str) -> Floats:
    """One number of every cell, ``(data sets, methods, seeds)``."""
    return np.array(
        [
            [[results[_cell(seed, dataset, method)][name] for seed in range(config.seeds)] for method in config.methods]
            for dataset in config.datasets
        ]
    )


def _overall_rows(config: DetectorsConfig, found: Mapping[str, Floats]) -> list[Row]:
    """Means over the data sets. The SD is that of this mean over seeds; that of the rank, over data sets."""
    standing = ranks(found["auroc"].mean(2))
    rows = []
    for i, method in enumerate(config.methods):
        rows += [Row.of(found[name][:, i].mean(0), method, metric) for metric, name in METRICS.items()]
        rows.append(Row.of(standing[:, i], method, RANK))
        for metric, name in TIMES.items():
            rows.append(Row(method, metric, float(found[name][:, i].mean()), n=found[name][:, i].size))
    return rows


def _rows_by_dataset(config: DetectorsConfig, found: Mapping[str, Floats]) -> list[Row]:
    return [
        Row.of(found[name][j, i], method, metric, case=dataset)
        for i, method in enumerate(config.methods)
        for j, dataset in enumerate(config.datasets)
        for metric, name in METRICS.items()
    ]


def _overview(config: DetectorsConfig, methods: Sequence[str], overall: Sequence[Row]) -> Section:
    by = {(row.method, row.metric): row for row in overall}
    lines = [
        [
            method,
            *(by[method, metric].text() for metric in METRICS),
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
        "training rows and all test rows together. PyOD's ALAD keeps its dropout on while it scores, and fails; the "
        "other one is our own code. The untrained one is our potential as it is initialised. Our defaults were "
        "chosen with anomalies made from normal rows, as some of these are."
    )
    return Section("Over all data sets", text, [Table(header, lines, marked)])


def _by_dataset(config: DetectorsConfig, values: Floats, methods: Sequence[str]) -> Section:
    """AUROC ``(data sets, methods, seeds)``, the methods in the order given."""
    means, sds = values.mean(2), values.std(2, ddof=1) if values.shape[2] > 1 else None
    lines = [
        [dataset, *(spread(means[j, i], None if sds is None else sds[j, i]) for i in range(len(methods)))]
        for j, dataset in enumerate(config.datasets)
    ]
    picture = (
        figures.heat_map(means, config.datasets, methods, "AUROC"),
        "Mean AUROC; the methods from the best mean rank to the worst.",
    )
    text = f"AUROC, mean ± SD over {config.seeds} seeds."
    return Section("By data set", text, [Table(["data set", *methods], lines)], {"auroc": picture})


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
