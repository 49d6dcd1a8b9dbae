"""KDDCUP: the paper's detection table, as a user would have met it.

Each model is looked at after every epoch, and three models are reported: the last one, one chosen by a rule that sees
neither test rows nor labels, and the best on the test rows, which is how the published numbers were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrf.figures import INK, MUTED
from nrf.reproduce.kddcup.cells import WATCHED, detect_and_watch, load, train_on
from nrf.reproduce.kddcup.methods import METHODS, ONE_PASS, fit_and_measure
from nrf.reproduce.runner.cells import Cell, Outcome, Section, cell_key
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import COLUMNS, chosen, values_of
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset

Results = Mapping[str, dict[str, Any]]

SAMPLERS = {"inclusive-NRF, SGLD": "sgld", "inclusive-NRF, SGHMC": "sghmc"}
BEST = ("best", "NRFDetector")
"""Ours: the detector with its defaults, on the file's own columns."""
NAMES = ("precision", "recall", "F1", "AUROC", "average precision")
BLOCKS = {"all test rows": "", "unseen rows": "unseen "}
PAPER: dict[str, dict[str, tuple[float, float | None]]] = {
    "OC-SVM": {"precision": (0.7457, None), "recall": (0.8523, None), "F1": (0.7954, None)},
    "DSEBM-e": {"precision": (0.7369, None), "recall": (0.7477, None), "F1": (0.7423, None)},
    "DAGMM": {"precision": (0.9297, None), "recall": (0.9442, None), "F1": (0.9369, None)},
    "ALAD": {"precision": (0.9427, 0.0018), "recall": (0.9577, 0.0018), "F1": (0.9501, 0.0018)},
    "inclusive-NRF, SGLD": {"precision": (0.9452, 0.0105), "recall": (0.9600, 0.0113), "F1": (0.9525, 0.0108)},
    "inclusive-NRF, SGHMC": {"precision": (0.9501, 0.0043), "recall": (0.9651, 0.0062), "F1": (0.9575, 0.0050)},
}
"""The paper's table: mean and, where it has one, SD; its own numbers are of the column `oracle`."""


@dataclass(frozen=True)
class KDDConfig:
    """Size of the experiment."""

    splits: int = 20
    paper_splits: int = 3
    """Splits for the setting `paper`, whose joint revision takes twice the time."""
    compared_splits: int = 5
    """Splits for the systems that are compared with."""
    epochs: int = 30
    best_epochs: int | None = None
    """Of the detector; its default length if not given."""
    compared_epochs: int = 20
    max_rows: int | None = None
    """So many rows of the file only."""


QUICK = KDDConfig(
    splits=2, paper_splits=1, compared_splits=1, epochs=2, best_epochs=2, compared_epochs=1, max_rows=6000
)


class KDDCup:
    """The experiment behind `nrf reproduce kddcup`."""

    name = "kddcup"
    partial = False
    title = "KDDCUP: the last model, the selected one, and the best on the test set"
    lead = (
        "Attacks are the normal class. Twenty random halves; trained on the attacks of one half, tested on the other, "
        "the 20 % of rows with the lowest potential flagged."
    )

    def config(self, *, quick: bool) -> KDDConfig:
        return QUICK if quick else KDDConfig()

    def seeds(self, config: KDDConfig) -> Sequence[int]:
        return range(config.splits)

    def cells(self, config: KDDConfig, folder: Path) -> list[Cell]:
        found = []
        for split in range(config.splits):
            for setting, method in runs_of(config, split):
                key = cell_key(f"{split:02d}", setting, method)
                if (setting, method) == BEST:
                    found.append(Cell(key, partial(best_cell, config, split)))
                    continue
                preset = sized(config, setting, method, split)
                found.append(Cell(key, partial(run_cell, config, preset, split, folder / "runs" / key)))
            if split < config.compared_splits:
                for name in METHODS:
                    found.append(
                        Cell(cell_key(f"{split:02d}", "compared", name), partial(compared_cell, config, name, split))
                    )
        return found

    def summarise(self, config: KDDConfig, results: Results, folder: Path) -> Outcome:
        rows = [*_our_rows(config, results), *_compared_rows(config, results)]
        sections = [_section(rows, block, prefix) for block, prefix in BLOCKS.items()]
        sections.append(_instability(config, results))
        best = {r.column: r for r in rows if (r.preset, r.case, r.metric) == ("best", "all test rows", "F1")}
        headline = [(f"{best[c].mean:.3f} ± {best[c].sd or 0:.3f}", f"F1 of `best`, {c}") for c in COLUMNS if c in best]
        return Outcome(rows, sections, headline)


def runs_of(config: KDDConfig, split: int) -> list[tuple[str, str]]:
    """Settings and samplers on a split."""
    found = [*(("released", method) for method in SAMPLERS), BEST]
    return found + ([("paper", method) for method in SAMPLERS] if split < config.paper_splits else [])


def sized(config: KDDConfig, setting: str, method: str, split: int) -> Preset:
    """The preset of a run, with its seed, its split and rows to watch."""
    preset = find_preset(f"kddcup-{SAMPLERS[method]}-{setting}")
    data = replace(preset.data, split=split)
    length = replace(preset.train, epochs=config.epochs, watch_share=WATCHED, threads=1)
    return replace(preset, seed=split, data=data, train=length)


def run_cell(config: KDDConfig, preset: Preset, split: int, out: Path) -> dict[str, Any]:
    """One model: its numbers after every epoch."""
    return {"curve": train_on(preset, load(split, max_rows=config.max_rows), out)}


def best_cell(config: KDDConfig, split: int) -> dict[str, Any]:
    """The detector: its numbers after every epoch."""
    return {"curve": detect_and_watch(load(split, max_rows=config.max_rows), split, config.best_epochs)}


def compared_cell(config: KDDConfig, name: str, split: int) -> dict[str, Any]:
    """One of the other systems."""
    return fit_and_measure(name, load(split, max_rows=config.max_rows), split, config.compared_epochs)


def _our_rows(config: KDDConfig, results: Results) -> list[Row]:
    rows = []
    kinds = dict.fromkeys(kind for split in range(config.splits) for kind in runs_of(config, split))
    for setting, method in kinds:
        curves = [
            results[cell_key(f"{split:02d}", setting, method)]["curve"]
            for split in range(config.splits)
            if (setting, method) in runs_of(config, split)
        ]
        for column in COLUMNS:
            for block, prefix in BLOCKS.items():
                for name in NAMES:
                    values = [values_of(c, prefix + name)[chosen(c, column, "F1")] for c in curves]
                    quoted = PAPER.get(method, {}).get(name) if not prefix and column == "oracle" else None
                    rows.append(_row(method, name, values, setting, block, column, quoted))
        for tail, steadiness in (("worst of the last ten epochs", np.min), ("mean of the last ten epochs", np.mean)):
            values = [float(steadiness(values_of(c, "F1")[-10:])) for c in curves]
            rows.append(_row(method, f"F1, {tail}", values, setting, "all test rows", None, None))
    return rows


def _compared_rows(config: KDDConfig, results: Results) -> list[Row]:
    rows = []
    for method in METHODS:
        found = [results[cell_key(f"{split:02d}", "compared", method)] for split in range(config.compared_splits)]
        for block, prefix in BLOCKS.items():
            for name in NAMES:
                quoted = PAPER.get(method, {}).get(name) if not prefix else None
                column = None if method in ONE_PASS else "last"
                rows.append(_row(method, name, [f[f"{prefix}{name}"] for f in found], None, block, column, quoted))
    return rows


def _row(
    method: str,
    metric: str,
    values: Sequence[float],
    preset: str | None,
    case: str,
    column: str | None,
    quoted: tuple[float, float | None] | None,
) -> Row:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    paper, paper_sd = quoted or (None, None)
    return Row(method, metric, float(np.mean(values)), sd, len(values), preset, case, column, paper, paper_sd)


def _section(rows: Sequence[Row], block: str, prefix: str) -> Section:
    lines = []
    mine = [row for row in rows if row.case == block and row.metric in NAMES]
    for key in dict.fromkeys((row.method, row.preset, row.column) for row in mine):
        by = {row.metric: row for row in mine if (row.method, row.preset, row.column) == key}
        quoted = "" if by["F1"].paper is None else f"{by['F1'].paper:.4f}"
        cells = [f"{by[n].mean:.4f}" + ("" if by[n].sd is None else f" ± {by[n].sd:.4f}") for n in NAMES]
        lines.append([key[0], key[1] or "", key[2] or "", str(by["F1"].n), *cells, quoted])
    text = (
        "Mean ± SD over splits. `last`: the model after the last epoch. `selected`: after the epoch in which held-out "
        "training rows were told best from anomalies made of them. `oracle`: the best epoch on the test rows, as "
        "published."
    )
    if prefix:
        text = (
            "Distinct test rows whose features do not occur among the training rows; as many are flagged as there are "
            "anomalies."
        )
    return Section(
        block.capitalize(), text, [Table(["method", "setting", "column", "splits", *NAMES, "paper F1"], lines)]
    )


def _instability(config: KDDConfig, results: Results) -> Section:
    kinds = [*(("released", m) for m in SAMPLERS), BEST]
    figure = Figure(figsize=(3.3 * len(kinds), 2.8), layout="constrained")
    for axis, (setting, method) in zip(figure.subplots(1, len(kinds), sharey=True), kinds, strict=True):
        for split in range(config.splits):
            curve = results[cell_key(f"{split:02d}", setting, method)]["curve"]
            values = values_of(curve, "F1")
            axis.plot(range(1, len(values) + 1), values, lw=0.6, color=INK)
        axis.set(title=f"{setting}: {method}", xlabel="epoch", ylim=(0, 1))
        axis.grid(color=MUTED, alpha=0.2)
        axis.title.set_fontsize(9)
    figure.axes[0].set_ylabel("F1 on test rows")
    text = (
        "F1 after every epoch, a line a split. A user gets the right end of a line; the published number is its "
        "highest point."
    )
    return Section("From epoch to epoch", text, (), {"epochs": (figure, "F1 against epochs.")})
