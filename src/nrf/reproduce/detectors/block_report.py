"""Rows and tables of a block of the comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nrf import figures
from nrf.reproduce.detectors.blocks import MIX, REAL, WIDE, BlockConfig, BlockResults
from nrf.reproduce.detectors.standing import RANK, ranks
from nrf.reproduce.runner.experiment import Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

MARGIN = 0.03
BEHIND = f"tables {MARGIN} below neighbours"
FIT, SCORE = "fit CPU-seconds", "score CPU-seconds"
TIMES = {FIT: "fit_cpu_seconds", SCORE: "score_cpu_seconds"}

TEXTS = {
    REAL: "Tables of ADBench (`nrf data fetch tables`). A random half of the normal rows trains, the other half and "
    "all anomalies test. Ours takes rows as they are; the others get columns of mean 0 and variance 1 over training "
    "rows. DTE-NP is the mean distance to five neighbours; the kernel's width is that under which held-out rows are "
    "most likely.",
    MIX: "Tables of numbers and texts with gaps (`nrf[mixed]`). Half of the rows train. Of the others, at most 2,000 "
    "are tested as they are, and as many with two or three cells of other rows. Ours takes the data frame; the others "
    "get texts one-hot, gaps filled by the median beside a column that says so, and all columns standardised.",
    WIDE: "Generated curves, fewer rows than columns. Half of the anomalies have another shape, half are moved along.",
}


def block_rows(block: BlockConfig, results: Results) -> list[Row]:
    """Numbers of the systems that have been through all tables at least once; ``preset`` is the block."""
    found = BlockResults(block, results)
    rows = list[Row]()
    if not found.methods:
        return rows
    standing = ranks(found.means("auroc"))
    for i, method in enumerate(found.methods):
        rows.append(_overall(found, method))
        rows.append(Row.of(standing[:, i], method, RANK, preset=block.name))
        behind = found.behind(method, MARGIN)
        if behind is not None:
            rows.append(Row(method, BEHIND, behind, n=len(block.datasets), preset=block.name))
        for metric, number in TIMES.items():
            total = sum(found.values(dataset, method, number).mean() for dataset in block.datasets)
            rows.append(Row(method, metric, float(total), n=len(found.seeds[method]), preset=block.name))
    for method in found.methods:
        for dataset in block.datasets:
            for metric, number in ({"AUROC": "auroc"} | TIMES).items():
                values = found.values(dataset, method, number)
                rows.append(Row.of(values, method, metric, preset=block.name, case=dataset))
    return rows


def _overall(found: BlockResults, method: str) -> Row:
    """The mean over tables; its SD is over the seeds that all tables have."""
    mean = np.mean([found.values(dataset, method, "auroc").mean() for dataset in found.block.datasets])
    by_seed = found.over_tables(method, "auroc")
    sd = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
    return Row(method, "AUROC", float(mean), sd, len(found.seeds[method]), found.block.name)


def block_sections(block: BlockConfig, rows: Sequence[Row], ours: Sequence[str]) -> list[Section]:
    """An overview, and AUROC and seconds by table; nothing where there are no rows."""
    mine = [row for row in rows if row.preset == block.name]
    overall = {(row.method, row.metric): row for row in mine if row.case is None}
    by = {(row.method, row.metric, row.case): row for row in mine}
    methods = sorted({row.method for row in mine}, key=lambda method: overall[method, RANK].mean)
    if not methods:
        return []
    marked = frozenset(i for i, method in enumerate(methods) if method in ours)
    missing = [method for method in block.methods if method not in methods]
    text = (
        f"{TEXTS[block.name]} Means over {len(block.datasets)} tables, ± the SD of that mean over seeds; seconds of "
        f"the processor are sums over the tables. Below neighbours: on how many tables the AUROC is more than {MARGIN} "
        "below the best of 1-NN, 5-NN and, where it is there, DTE-NP, on the same splits."
    )
    text += f" Not run yet: {', '.join(missing)}." if missing else ""
    cases = [[dataset, *(by[method, "AUROC", dataset].text() for method in methods)] for dataset in block.datasets]
    seconds = [
        [dataset, *(f"{by[m, FIT, dataset].mean:.3g} + {by[m, SCORE, dataset].mean:.3g}" for m in methods)]
        for dataset in block.datasets
    ]
    means = np.array([[by[method, "AUROC", dataset].mean for method in methods] for dataset in block.datasets])
    picture = (figures.heat_map(means, block.datasets, methods, "AUROC"), f"Mean AUROC on {block.name}.")
    heading = block.name.capitalize()
    return [
        Section(heading, text, [Table(HEADER, [overview_line(overall, m) for m in methods], marked)]),
        Section(
            f"{heading}, one by one",
            "AUROC, mean ± SD over seeds, and seconds of the processor to fit and to score.",
            [Table(["table", *methods], cases), Table(["table", *methods], seconds)],
            {cell_name("auroc", block.name): picture},
        ),
    ]


HEADER = ["method", "mean AUROC", "mean rank", BEHIND, "fit (CPU-s)", "score (CPU-s)", "seeds"]


def overview_line(overall: dict[tuple[str, str], Row], method: str) -> list[str]:
    """Of one system; ``overall`` has the rows of no case by method and metric."""
    behind = overall.get((method, BEHIND))
    return [
        method,
        overall[method, "AUROC"].text(),
        f"{overall[method, RANK].mean:.2f}",
        "" if behind is None else f"{behind.mean:.0f}",
        *(f"{overall[method, metric].mean:.3g}" for metric in TIMES),
        str(overall[method, "AUROC"].n),
    ]
