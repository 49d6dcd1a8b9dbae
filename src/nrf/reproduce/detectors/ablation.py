"""What was tried for the detector's defaults: one change at a time, on real tables and on our own sets.

The defaults were chosen by the test labels of these very tables. So beside each mean stand a number that no label
entered, and what is gained on tables that a choice has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nrf.data import real_tables
from nrf.reproduce.detectors.blocks import NEIGHBOURS, REAL
from nrf.reproduce.detectors.experiment import DEFAULTS
from nrf.reproduce.detectors.sets import DATASETS, Floats
from nrf.reproduce.detectors.tried import OWN, Variant, control_cell, variant_cell
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

DEFAULT = "default"
VARIANTS: dict[str, Variant] = {
    DEFAULT: Variant(),
    "scaling by quartiles": Variant(scaling="quartiles"),
    "scaling by deviation": Variant(scaling="deviation"),
    "local share 0": Variant(share=0.0),
    "local share 0.8": Variant(share=0.8),
    "1 neighbour": Variant(k=1),
    "10 neighbours": Variant(k=10),
    "weight of the density 0": Variant(weight=0.0),
    "weight of the density 1": Variant(weight=1.0),
    "density alone": Variant(field="density"),
    "no pairs": Variant(pairs=False),
    "network, 600 iterations": Variant(max_iter=600),
}
"""One change at a time. The default: scaling ``auto``, share 0.4, five neighbours, weight ½, pairs, no network."""
LONG = ("network, 600 iterations",)
"""What takes long has fewer seeds."""
DRAWS = 500
"""Halves of the tables that a choice is tried on."""

AUROC, MADE, GAIN, WORST, SECONDS = "AUROC", "AUROC, made", "gain over the default", "worst", "CPU-seconds"
CHOICE, BY_LABELS, BY_MADE = "choice", "by labels of the other half", "by made anomalies"


@dataclass(frozen=True)
class DetectorAblationConfig:
    """Which variants on which tables, and how often."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    real: tuple[str, ...] = tuple(real_tables.TABLES)
    own: tuple[str, ...] = tuple(DATASETS)
    seeds: int = 3
    long_seeds: int = 1
    max_rows: int | None = None
    """At most so many rows of each part of a table."""

    def blocks(self) -> dict[str, tuple[str, ...]]:
        """Tables by the name of their block; none that is empty."""
        return {name: tables for name, tables in ((REAL, self.real), (OWN, self.own)) if tables}

    def seeds_of(self, method: str) -> range:
        """Those of a variant or a control."""
        return range(min(self.seeds, self.long_seeds) if method in LONG else self.seeds)


QUICK = DetectorAblationConfig((DEFAULT, "local share 0", "no pairs"), (), ("iris", "mixed, with holes"), 1, 1, 60)


class DetectorAblation(Experiment[DetectorAblationConfig]):
    """The experiment behind `nrf reproduce detector-ablation`."""

    name = "detector-ablation"
    title = "NRFDetector: what was tried for its defaults"
    lead = (
        "One default changed at a time. The defaults were chosen by the test labels of these development tables, so "
        "their means flatter them; what a choice gains on tables that it has not seen is beside them."
    )

    whole = DetectorAblationConfig()
    quick = QUICK

    def seeds(self, config: DetectorAblationConfig) -> Sequence[int]:
        return range(config.seeds)

    def cells(self, config: DetectorAblationConfig, shared: Path) -> list[Cell]:
        found = []
        for block, tables in config.blocks().items():
            for method in (*NEIGHBOURS, *config.variants):
                for seed in config.seeds_of(method):
                    for table in tables:
                        where = {"block": block, "dataset": table, "seed": seed, "max_rows": config.max_rows}
                        name, place = _name(block, method, table, seed), Place(f"{block}: {method}", None, seed)
                        if method in NEIGHBOURS:
                            found.append(Cell(name, control_cell, {"method": method, **where}, place=place))
                        else:
                            settings = {"variant": VARIANTS[method], **where}
                            found.append(Cell(name, variant_cell, settings, DEFAULTS, place=place))
        return found

    def summarise(self, config: DetectorAblationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows = list[Row]()
        for block in config.blocks():
            rows += _rows_of(config, results, block)
        lines = [table_line(rows, method) for method in (*config.variants, *NEIGHBOURS)]
        text = (
            f"Means over {len(config.real)} real tables and {len(config.own)} own sets, {config.seeds} seeds "
            f"({config.long_seeds} of the network). The gain is that over the default on the same splits; the worst "
            "is the lowest difference of a table to the better of 1-NN and 5-NN there. Made anomalies are made of "
            "training rows that were held out, the same for all variants: no label enters. Seconds are those of the "
            "processor to fit and to score, summed over the tables."
        )
        choices = Table(CHOICE_HEADER, choice_lines(rows))
        sections = [
            Section("What was tried", text, [Table(HEADER, lines)]),
            Section("What a choice among these is worth", CHOICE_TEXT, [choices]),
        ]
        best = {block: _find(rows, DEFAULT, AUROC, block) for block in config.blocks()}
        return Outcome(rows, sections, [(f"{row.mean:.3f}", f"mean AUROC, {block}") for block, row in best.items()])


CHOICE_TEXT = (
    f"By labels: of {DRAWS} random halves of a block's tables, the variant (the default among them) with the highest "
    "mean on one half is measured on the other. By made anomalies: the variant of the highest mean against these, "
    "which sees no label. Of the network only what it changes on its own splits is counted."
)
CHOICE_HEADER = ["tables", "chosen", "chosen how", "gain over the default", "gain over the better of 1-NN and 5-NN"]
HEADER = [
    "variant",
    *(f"{metric}, {block}" for block in (REAL, OWN) for metric in (AUROC, GAIN, WORST, MADE, SECONDS)),
]


def _name(block: str, method: str, table: str, seed: int) -> str:
    return cell_name(block, method, table, seed)


def _values(config: DetectorAblationConfig, results: Results, block: str, method: str, number: str) -> Floats:
    """One number, ``(tables, seeds)``."""
    tables, seeds = config.blocks()[block], config.seeds_of(method)
    return np.array([[results[_name(block, method, table, seed)][number] for seed in seeds] for table in tables])


def gains(config: DetectorAblationConfig, results: Results, block: str, number: str) -> Floats:
    """What each variant has more than the default on the same splits, means over seeds ``(variants, tables)``."""
    found = []
    for method in config.variants:
        values = _values(config, results, block, method, number)
        default = _values(config, results, block, DEFAULT, number)[:, : values.shape[1]]
        found.append((values - default).mean(1))
    return np.array(found)


def _rows_of(config: DetectorAblationConfig, results: Results, block: str) -> list[Row]:
    rows = list[Row]()
    found = {m: _values(config, results, block, m, "auroc") for m in (*config.variants, *NEIGHBOURS)}
    gained = gains(config, results, block, "auroc")
    for i, method in enumerate((*config.variants, *NEIGHBOURS)):
        n = found[method].shape[1]
        rivals = np.max([found[rival][:, :n].mean(1) for rival in NEIGHBOURS], axis=0)
        rows.append(Row.of(found[method].mean(0), method, AUROC, preset=block))
        rows.append(Row(method, WORST, float((found[method].mean(1) - rivals).min()), n=n, preset=block))
        seconds = sum(_values(config, results, block, method, f"{part}_cpu_seconds") for part in ("fit", "score"))
        rows.append(Row.of(np.asarray(seconds).sum(0), method, SECONDS, preset=block))
        if method not in NEIGHBOURS:
            rows.append(Row.of(gained[i], method, GAIN, preset=block))
            made = _values(config, results, block, method, "made_auroc")
            rows.append(Row.of(made.mean(0), method, MADE, preset=block))
        for table, values in zip(config.blocks()[block], found[method], strict=True):
            rows.append(Row.of(values, method, AUROC, preset=block, case=table))
    return rows + _choices(config, results, block, gained, found)


def _choices(
    config: DetectorAblationConfig, results: Results, block: str, gained: Floats, found: Mapping[str, Floats]
) -> list[Row]:
    """What a choice by labels of other tables gains, and one by made anomalies."""
    default = found[DEFAULT].mean(1)
    over_rivals = default - np.max([found[rival].mean(1) for rival in NEIGHBOURS], axis=0)
    drawn, chosen = halves(gained, over_rivals, DRAWS)
    often = max(range(len(gained)), key=lambda i: chosen.count(i))
    by_made = int(gains(config, results, block, "made_auroc").mean(1).argmax())
    made = np.array([gained[by_made].mean(), (gained[by_made] + over_rivals).mean()])
    rows = []
    for how, name, numbers in (
        (BY_LABELS, config.variants[often], drawn.mean(0)),
        (BY_MADE, config.variants[by_made], made),
    ):
        for metric, value in zip((GAIN, "gain over neighbours"), numbers.tolist(), strict=True):
            n = len(drawn) if how == BY_LABELS else 1
            rows.append(Row(how, metric, value, n=n, preset=block, case=name))
    share = chosen.count(often) / len(chosen)
    rows.append(Row(BY_LABELS, "share", share, n=len(chosen), preset=block, case=config.variants[often]))
    return rows


def halves(gained: Floats, over_rivals: Floats, draws: int) -> tuple[Floats, list[int]]:
    """Choose on a random half of the tables, measure on the other.

    Args:
        gained: Gain of each variant over the default, ``(variants, tables)``.
        over_rivals: Of the default over the neighbours, by table.
        draws: How often.

    Returns:
        Gains over the default and over the neighbours on the other half, ``(draws, 2)``, and which was chosen.
    """
    rng = np.random.default_rng(0)
    n = gained.shape[1]
    found, chosen = [], []
    for _ in range(draws):
        order = rng.permutation(n)
        seen, other = order[: n // 2], order[n // 2 :]
        best = int(gained[:, seen].mean(1).argmax())
        gain = gained[best, other]
        found.append([gain.mean(), (gain + over_rivals[other]).mean()])
        chosen.append(best)
    return np.array(found), chosen


def _find(rows: Sequence[Row], method: str, metric: str, block: str) -> Row:
    (row,) = (r for r in rows if (r.method, r.metric, r.preset, r.case) == (method, metric, block, None))
    return row


def table_line(rows: Sequence[Row], method: str) -> list[str]:
    """Of one variant, for both blocks; nothing where a number is not there."""
    by = {(row.preset, row.metric): row for row in rows if row.method == method and row.case is None}
    line = [method]
    for block in (REAL, OWN):
        for metric in (AUROC, GAIN, WORST, MADE, SECONDS):
            row = by.get((block, metric))
            form = "+.4f" if metric == GAIN else "+.3f" if metric == WORST else ".1f" if metric == SECONDS else ".4f"
            line.append("" if row is None else f"{row.mean:{form}}")
    return line


def choice_lines(rows: Sequence[Row]) -> list[list[str]]:
    """What a choice is worth, a line for each block and way to choose."""
    lines = []
    for row in rows:
        if row.method in (BY_LABELS, BY_MADE) and row.metric == GAIN:
            same = [r for r in rows if (r.method, r.preset, r.case) == (row.method, row.preset, row.case)]
            by = {r.metric: r.mean for r in same}
            name = f"{row.case} ({by['share']:.0%} of the draws)" if "share" in by else str(row.case)
            over = f"{by['gain over neighbours']:+.4f}"
            lines.append([str(row.preset), name, row.method, f"{row.mean:+.4f}", over])
    return lines
