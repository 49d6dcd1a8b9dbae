"""Tables of docs/detection.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nrf.reproduce.detectors import ablation
from nrf.reproduce.detectors.block_report import FIT, HEADER, SCORE, block_rows, overview_line
from nrf.reproduce.detectors.blocks import BLOCKS, MIX, REAL, WIDE, cells_of
from nrf.reproduce.detectors.experiment import DEFAULTS
from nrf.reproduce.detectors.standing import RANK
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.report import Table

ALAD = ("ALAD", "ALAD (PyOD)")
FAILED = 0.55
"""A system whose mean AUROC is below this is marked: it does no better than a coin."""
LEFT_OUT = ("one-class SVM", "untrained NRF", "ECOD", *ALAD, "DTE-NP", "DTE-C", "kernel density", "autoencoder")
"""Where there is a column for each system."""


def _standing(rows: Rows) -> list[str]:
    """Methods from the best mean rank to the worst."""
    standing = {row.method: row.mean for row in rows.all if row.metric == RANK}
    return sorted(standing, key=lambda method: standing[method])


def detectors(records: Records) -> Table:
    """All methods over all data sets."""
    rows = records.rows("detectors").within(None)
    lines = [
        [
            _named(method, rows.get(method, "AUROC").mean),
            *(rows.get(method, metric).text() for metric in ("AUROC", "average precision")),
            f"{rows.get(method, 'mean rank').mean:.2f}",
            f"{rows.get(method, 'fit seconds').mean:.3g}",
            f"{1000 * rows.get(method, 'score seconds').mean:.3g}",
        ]
        for method in _standing(rows)
    ]
    return Table(["method", "mean AUROC", "mean average precision", "mean rank", "fit (s)", "score (ms)"], lines)


def detectors_by_set(records: Records) -> Table:
    """AUROC of some of them on each data set."""
    rows = records.rows("detectors").within(None)
    methods = [method for method in _standing(rows) if method not in {"one-class SVM", "untrained NRF", "ECOD", *ALAD}]
    lines = [
        [case, *(f"{rows.get(method, 'AUROC', case=case).mean:.3f}" for method in methods)]
        for case in rows.cases("AUROC")
    ]
    return Table(["data set", *methods], lines)


def _rows(name: str, records: Records) -> Rows:
    """Of a block: those of the record, or until it has the block, those of the cells that are stored."""
    rows = records.rows("detectors").within(name)
    if rows.all:
        return rows
    (config,) = (block for block in BLOCKS if block.name == name)
    stored = CellFile(records.folder / "cells" / "detectors.jsonl").find(cells_of(config, DEFAULTS))
    return Rows(name, block_rows(config, {cell: found.result for cell, found in stored.items()}))


def block(name: str, records: Records) -> Table:
    """All systems over the tables of a block."""
    rows = _rows(name, records)
    overall = {(row.method, row.metric): row for row in rows.all if row.case is None}
    lines = [overview_line(overall, method) for method in _standing(rows)]
    return Table(HEADER, [[_named(method, overall[method, "AUROC"].mean), *rest] for method, *rest in lines])


def _named(method: str, auroc: float) -> str:
    """Ours in bold; one that does not work is marked, unless it is a control."""
    failed = auroc < FAILED and not method.startswith("untrained")
    return f"{method}, *fails*" if failed else _ours(method)


def _ours(method: str) -> str:
    return f"**{method}**" if method == "NRF" else method


def block_by_table(name: str, records: Records) -> Table:
    """AUROC on each table, without the systems that would make the table too wide."""
    rows = _rows(name, records)
    methods = [method for method in _standing(rows) if method not in LEFT_OUT]
    lines = [
        [case, *(rows.get(method, "AUROC", preset=name, case=case).text() for method in methods)]
        for case in rows.cases("AUROC")
    ]
    return Table(["table", *map(_ours, methods)], lines)


def block_seconds(name: str, records: Records) -> Table:
    """Seconds of the processor on each table."""
    rows = _rows(name, records)
    methods = _standing(rows)

    def seconds(method: str, case: str) -> str:
        fit, score = (rows.get(method, metric, preset=name, case=case).mean for metric in (FIT, SCORE))
        return f"{fit:.2g} + {score:.2g}"

    lines = [[case, *(seconds(method, case) for method in methods)] for case in rows.cases("AUROC")]
    return Table(["table", *map(_ours, methods)], lines)


def variants(records: Records) -> Table:
    """What was tried for the defaults."""
    rows = records.rows("detector-ablation")
    lines = [ablation.table_line(rows.all, method) for method in rows.methods(ablation.WORST)]
    return Table(ablation.HEADER, [[f"**{m}**" if m == ablation.DEFAULT else m, *rest] for m, *rest in lines])


def choices(records: Records) -> Table:
    """What a choice among these gains on tables that it has not seen."""
    return Table(ablation.CHOICE_HEADER, ablation.choice_lines(records.rows("detector-ablation").all))


TABLES: dict[str, Callable[[Records], Table]] = {
    "detectors, all methods": detectors,
    "detectors, data sets": detectors_by_set,
    "detectors, real tables": partial(block, REAL),
    "detectors, real tables, one by one": partial(block_by_table, REAL),
    "detectors, mixed tables": partial(block_by_table, MIX),
    "detectors, mixed tables, seconds": partial(block_seconds, MIX),
    "detectors, short and wide": partial(block_by_table, WIDE),
    "detector-ablation": variants,
    "detector-ablation, choices": choices,
}
