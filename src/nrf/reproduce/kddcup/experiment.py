"""KDDCUP: the paper's detection table, as a user would have met it.

Each model is looked at after every epoch, and three models are reported: the last one, one chosen by a rule that sees
neither test rows nor labels, and the best on the test rows, which is how the published numbers were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nrf import figures
from nrf.reproduce.baselines import Baseline, find_baseline, has_epochs, with_epochs
from nrf.reproduce.baselines.ours import detector_defaults
from nrf.reproduce.kddcup.cells import WATCHED, compared_cell, detector_cell, run_cell
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import COLUMNS, Curve, chosen, values_of
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset

SAMPLERS = {"inclusive-NRF, SGLD": "sgld", "inclusive-NRF, SGHMC": "sghmc"}
BEST = ("best", "NRFDetector")
"""Ours: the detector with its defaults, on the file's own columns."""
DEFAULTS = {"defaults": detector_defaults(200_000, 121)}
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


def systems(epochs: int) -> dict[str, Baseline]:
    """What is compared with, by name; the epochs are those of what has any."""
    found = {
        # ν is the share of training rows left outside; they are all normal, and no label says more. A kernel machine's
        # cost grows with the square of its rows.
        "OC-SVM": find_baseline("one-class SVM", nu=0.05, max_rows=10_000),
        "DSEBM-e": find_baseline("DSEBM-e"),
        "DSEBM-r": find_baseline("DSEBM-r"),
        "DAGMM": find_baseline("DAGMM"),
        "ALAD": find_baseline("ALAD", batch_size=1024, latent_dim=32, max_rows=50_000),
        "1-NN": find_baseline("1-NN", distinct=True),
        "untrained potential": find_baseline("untrained potential", preset=find_preset("kddcup-sgld-released")),
    }
    return {name: with_epochs(system, epochs) for name, system in found.items()}


class KDDCup(Experiment[KDDConfig]):
    """The experiment behind `nrf reproduce kddcup`."""

    name = "kddcup"
    title = "KDDCUP: the last model, the selected one, and the best on the test set"
    lead = (
        "Attacks are the normal class. Twenty random halves; trained on the attacks of one half, tested on the other, "
        "the 20 % of rows with the lowest potential flagged."
    )
    whole = KDDConfig()
    quick = QUICK

    def seeds(self, config: KDDConfig) -> Sequence[int]:
        return range(config.splits)

    def cells(self, config: KDDConfig, shared: Path) -> list[Cell]:
        found = []
        compared = systems(config.compared_epochs)
        for split in range(config.splits):
            where = {"split": split, "max_rows": config.max_rows}
            for setting, method in runs_of(config, split):
                name = cell_name(f"{split:02d}", setting, method)
                if (setting, method) == BEST:
                    settings = {"epochs": config.best_epochs, **where}
                    found.append(Cell(name, detector_cell, settings, hangs_on=DEFAULTS))
                else:
                    preset = sized(config, setting, method, split)
                    found.append(Cell(name, run_cell, {"preset": preset, **where}, trains=True))
            if split < config.compared_splits:
                for method, system in compared.items():
                    name = cell_name(f"{split:02d}", "compared", method)
                    found.append(Cell(name, compared_cell, {"system": system, **where}))
        return found

    def summarise(self, config: KDDConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows = [*_our_rows(config, results), *_compared_rows(config, results)]
        sections = [_section(rows, block, prefix) for block, prefix in BLOCKS.items()]
        sections.append(_instability(config, results))
        best = {r.column: r for r in rows if (r.preset, r.case, r.metric) == ("best", "all test rows", "F1")}
        headline = [(best[c].text(), f"F1 of `best`, {c}") for c in COLUMNS if c in best]
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


def _curve(results: Results, split: int, setting: str, method: str) -> Curve:
    curve: Curve = results[cell_name(f"{split:02d}", setting, method)]["curve"]
    return curve


def _our_rows(config: KDDConfig, results: Results) -> list[Row]:
    rows = []
    kinds = dict.fromkeys(kind for split in range(config.splits) for kind in runs_of(config, split))
    for setting, method in kinds:
        curves = [
            _curve(results, split, setting, method)
            for split in range(config.splits)
            if (setting, method) in runs_of(config, split)
        ]
        for column in COLUMNS:
            for block, prefix in BLOCKS.items():
                for name in NAMES:
                    values = [values_of(c, prefix + name)[chosen(c, column, "F1")] for c in curves]
                    quoted = PAPER.get(method, {}).get(name) if not prefix and column == "oracle" else None
                    where = {"preset": setting, "case": block, "column": column}
                    rows.append(Row.of(values, method, name, **where, paper=quoted))
        for tail, steadiness in (("worst of the last ten epochs", np.min), ("mean of the last ten epochs", np.mean)):
            values = [float(steadiness(values_of(c, "F1")[-10:])) for c in curves]
            rows.append(Row.of(values, method, f"F1, {tail}", preset=setting, case="all test rows"))
    return rows


def _compared_rows(config: KDDConfig, results: Results) -> list[Row]:
    rows = []
    for method, system in systems(config.compared_epochs).items():
        found = [results[cell_name(f"{split:02d}", "compared", method)] for split in range(config.compared_splits)]
        column = "last" if has_epochs(system) else None
        for block, prefix in BLOCKS.items():
            for name in NAMES:
                quoted = PAPER.get(method, {}).get(name) if not prefix else None
                values = [numbers[f"{prefix}{name}"] for numbers in found]
                rows.append(Row.of(values, method, name, case=block, column=column, paper=quoted))
    return rows


def _section(rows: Sequence[Row], block: str, prefix: str) -> Section:
    lines = []
    mine = [row for row in rows if row.case == block and row.metric in NAMES]
    for key in dict.fromkeys((row.method, row.preset, row.column) for row in mine):
        by = {row.metric: row for row in mine if (row.method, row.preset, row.column) == key}
        quoted = "" if by["F1"].paper is None else f"{by['F1'].paper:.4f}"
        cells = [by[name].text(".4f") for name in NAMES]
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
    values = {
        f"{setting}: {method}": [
            values_of(_curve(results, split, setting, method), "F1") for split in range(config.splits)
        ]
        for setting, method in kinds
    }
    figure = figures.epochs(values, "F1 on test rows", ylim=(0, 1))
    text = (
        "F1 after every epoch, a line a split. A user gets the right end of a line; the published number is its "
        "highest point."
    )
    return Section("From epoch to epoch", text, (), {"epochs": (figure, "F1 against epochs.")})
