"""Tables of docs/reproduction.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nrf.reproduce.kddcup.experiment import ARRAY
from nrf.reproduce.one_class.matrix import SAMPLERS, UNTRAINED
from nrf.reproduce.one_class.paper import NAMES, quoted, quoted_mean
from nrf.reproduce.pages.detector_tables import FAILED
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.record import spread
from nrf.reproduce.runner.report import Table

COLUMNS = ("last", "selected", "oracle")


def kddcup(records: Records) -> Table:
    """All methods, settings and columns."""
    rows = records.rows("kddcup")
    ours = [("NRFDetector", "best")]
    ours += [(f"inclusive-NRF, {name}", setting) for setting in ("released", "paper") for name in ("SGLD", "SGHMC")]
    array = [(f"inclusive-NRF, {name}", ARRAY) for name in ("SGLD", "SGHMC")]
    there = {(row.method, row.preset) for row in rows.all}
    ours += [kind for kind in array if kind in there]
    kinds: list[tuple[str, str | None, str | None]] = [(*kind, column) for kind in ours for column in COLUMNS]
    compared = [row for row in rows.all if row.metric == "F1" and row.preset is None and row.case == "all test rows"]
    kinds += [(row.method, None, row.column) for row in compared]
    lines = []
    for method, preset, column in kinds:
        place = {"preset": preset, "column": column}
        mine = [row for row in rows.all if (row.method, row.preset, row.column) == (method, preset, column)]
        whole = {row.metric: row for row in mine if row.case == "all test rows"}
        unseen = rows.get(method, "F1", case="unseen rows", **place)
        f1 = whole["F1"]
        main = (method, preset, column) == ("NRFDetector", "best", "last")
        lines.append(
            [
                f"**{method}**" if main else f"{method}, *fails*" if _fails(method, whole["AUROC"].mean) else method,
                preset or "",
                column or "",
                str(f1.n),
                whole["precision"].text(),
                whole["recall"].text(),
                f"**{f1.text('.4f')}**" if main else f1.text(".4f"),
                whole["AUROC"].text(),
                whole["average precision"].text(),
                unseen.text(),
                f1.paper_text(".4f") if preset else f"{f1.paper:.4f}" if f1.paper is not None else "",
            ]
        )
    metrics = ["precision", "recall", "F1", "AUROC", "average precision", "F1, unseen rows", "the paper's F1"]
    return Table(["method", "setting", "column", "splits", *metrics], lines)


def _fails(method: str, auroc: float) -> bool:
    """Whether a system does no better than a coin; a control may."""
    return auroc < FAILED and not method.startswith("untrained")


def kddcup_ablation(records: Records) -> Table:
    """One change at a time."""
    rows = records.rows("kddcup-ablation")
    metrics = {
        "F1, last epoch": "last epoch",
        "F1, mean of the last ten": "mean of the last ten",
        "F1, worst of the last ten": "worst of the last ten",
        "F1, best epoch (oracle)": "best epoch (oracle)",
        "F1, unseen rows": "last epoch, unseen rows",
        "AUROC against made anomalies": "made anomalies, AUROC",
    }
    lines = [
        [method, *(f"{rows.get(method, metric, case='development splits').mean:.3f}" for metric in metrics)]
        for method in rows.methods("F1, last epoch")
    ]
    return Table(["change of `released`, SGLD", *metrics.values()], lines)


def _classes(dataset: str) -> list[str | None]:
    return [*NAMES[dataset], None]


def _by_class(dataset: str, header: Sequence[str], columns: Sequence[Callable[[str | None], str]]) -> Table:
    """A line a class, and one for their mean."""
    lines = [[case or "mean", *(column(case) for column in columns)] for case in _classes(dataset)]
    return Table(["class", *header], lines)


def _ours(rows: Rows, method: str, preset: str, column: str, case: str | None) -> str:
    row = rows.find(method, "AUROC", preset=preset, case=case, column=column)
    return "" if row is None else row.text(".1f")


def _paper(dataset: str, sampler: str, case: str | None) -> str:
    """The paper's own, of its best epoch; its mean is of values before they were rounded."""
    if case is None:
        return f"{quoted_mean(dataset, sampler):.2f}"
    return spread(*quoted(dataset, sampler)[NAMES[dataset].index(case)], ".1f")


def mnist_classes(records: Records) -> Table:
    """Our models on every digit."""
    rows = records.rows("mnist-one-class")
    columns: list[Callable[[str | None], str]] = [partial(_ours, rows, "NRFDetector", "best", c) for c in COLUMNS]
    columns.append(partial(_ours, rows, "NRFDetector", "components", "last"))
    header = ["`best`: last", "selected", "oracle", "`components`: last"]
    for sampler in SAMPLERS:
        columns += [partial(_ours, rows, f"inclusive-NRF, {sampler}", "released", c) for c in COLUMNS]
        columns.append(partial(_paper, "mnist", sampler))
        header += [f"`released` {sampler}: last", "selected", "oracle", f"the paper's {sampler}"]
    return _by_class("mnist", header, columns)


def cifar10_classes(records: Records) -> Table:
    """Our models on every class."""
    rows = records.rows("cifar10-one-class")
    columns: list[Callable[[str | None], str]] = [partial(_ours, rows, "NRFDetector", "best", c) for c in COLUMNS]
    columns.append(partial(_ours, rows, "NRFDetector", "components", "last"))
    columns += [partial(_paper, "cifar10", sampler) for sampler in SAMPLERS]
    quoted = [f"the paper's {sampler} (quoted, oracle)" for sampler in SAMPLERS]
    return _by_class("cifar10", ["`best`: last", "selected", "oracle", "`components`: last", *quoted], columns)


def _pairs(record: str, dataset: str, settings: Sequence[str], controls: Sequence[str], records: Records) -> Table:
    """Pairs on pixels in settings that are smaller than the scripts', both samplers."""
    rows, columns, header = records.rows(record), list[Callable[[str | None], str]](), list[str]()
    for setting in settings:
        for sampler in SAMPLERS:
            method = f"inclusive-NRF, {sampler}"
            if not any((row.method, row.preset) == (method, setting) for row in rows.all):
                continue
            columns += [partial(_ours, rows, method, setting, c) for c in COLUMNS]
            header += [f"{setting.removeprefix('released, ')}, {sampler}: last", "selected", "oracle"]
    for sampler in SAMPLERS:
        columns.append(partial(_paper, dataset, sampler))
        header.append(f"the paper's {sampler} (oracle)")
    for control in controls:
        columns.append(partial(_control, rows, control))
        header.append(control)
    return _by_class(dataset, header, columns)


def mnist_short(records: Records) -> Table:
    """Both samplers on digits, for fewer epochs than the scripts have."""
    return _pairs("mnist-one-class", "mnist", ["released, short"], ["1-NN", UNTRAINED], records)


def cifar10_pairs(records: Records) -> Table:
    """Pairs on pixels with the scripts' settings, at the widths and lengths that were run."""
    settings, controls = ["released, half width", "released, full width"], ["1-NN", f"{UNTRAINED}, half width"]
    return _pairs("cifar10-one-class", "cifar10", settings, controls, records)


def _system(rows: Rows, dataset: str, method: str, case: str | None) -> str:
    """Ours where we have it, and in brackets the paper's."""
    row = next((row for row in rows.all if (row.method, row.metric, row.case) == (method, "AUROC", case)), None)
    paper = quoted_mean(dataset, method) if case is None else quoted(dataset, method)[NAMES[dataset].index(case)][0]
    return f"({paper:.1f})" if row is None or row.quoted else f"{row.mean:.1f} ({paper:.1f})"


def systems(record: str, dataset: str, records: Records) -> Table:
    """What the paper compares itself with."""
    rows = records.rows(record)
    names = ("OC-SVM", "KDE", "isolation forest", "DCAE", "Deep SVDD", "AnoGAN")
    return _by_class(dataset, names, [partial(_system, rows, dataset, name) for name in names])


def _control(rows: Rows, method: str, case: str | None) -> str:
    row = rows.find(method, "AUROC", case=case)
    return "" if row is None else f"{row.mean:.1f}"


def controls(record: str, dataset: str, records: Records) -> Table:
    """What is not trained, or no field."""
    rows = records.rows(record)
    names = [
        "1-NN",
        "untrained potential",
        *(f"{n} on the features of `best`" for n in ("1-NN", "untrained potential")),
    ]
    names = [name for name in (*names, "sum of the answers of `best`") if name in rows.methods("AUROC")]
    return _by_class(dataset, names, [partial(_control, rows, name) for name in names])


TABLES: dict[str, Callable[[Records], Table]] = {
    "kddcup, all columns": kddcup,
    "kddcup-ablation": kddcup_ablation,
    "mnist-one-class, classes": mnist_classes,
    "mnist-one-class, systems": partial(systems, "mnist-one-class", "mnist"),
    "mnist-one-class, controls": partial(controls, "mnist-one-class", "mnist"),
    "cifar10-one-class, classes": cifar10_classes,
    "cifar10-one-class, pairs": cifar10_pairs,
    "mnist-one-class, short": mnist_short,
    "cifar10-one-class, systems": partial(systems, "cifar10-one-class", "cifar10"),
    "cifar10-one-class, controls": partial(controls, "cifar10-one-class", "cifar10"),
}
