"""The one table of README.md: ours, the paper's and the nearest neighbour's."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.detectors.blocks import REAL
from nrf.reproduce.one_class.paper import quoted_mean
from nrf.reproduce.pages.readme import MODES
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

NONE = "–"


def _mixture(records: Records, kind: str) -> list[str]:
    """Covered modes, of the models of the stored cell."""
    models = records.cell("gmm", "best-inclusive-nrf")["models"]
    ours = Row.of([model["averaged"][f"{kind}: {MODES}"] for model in models], "", MODES)
    place = {"preset": "released", "case": f"{kind}, last weights"}
    paper = records.rows("gmm").get("inclusive-NRF", MODES, **place)
    return [f"32 modes, {kind}: covered modes", "`gmm`", ours.text(".2f"), paper.paper_text(".2f"), NONE]


def _kddcup(records: Records) -> list[list[str]]:
    rows = records.rows("kddcup")

    def f1(method: str, preset: str | None, column: str | None) -> Row:
        return rows.get(method, "F1", preset=preset, case="all test rows", column=column)

    neighbour = f1("1-NN", None, None).text()
    sgld, sghmc = (f1(f"inclusive-NRF, {sampler}", "released", "oracle") for sampler in ("SGLD", "SGHMC"))
    ours = f1("inclusive-NRF, SGLD", "released", "last").text()
    detector = f1("NRFDetector", "best", "last").text()
    return [
        ["KDDCUP, `NRFDetector`: F1", "`kddcup`", detector, f"{sghmc.paper_text()} †", neighbour],
        ["KDDCUP, the paper's method, SGLD: F1", "`kddcup`", ours, f"{sgld.paper_text()} †", neighbour],
    ]


def _images(records: Records) -> list[list[str]]:
    mnist, cifar10 = records.rows("mnist-one-class"), records.rows("cifar10-one-class")
    neighbours = [rows.get("1-NN", "AUROC").mean for rows in (mnist, cifar10)]
    features = mnist.get("1-NN on the features of `best`", "AUROC").mean
    answers = cifar10.get("sum of the answers of `best`", "AUROC").mean
    best = [rows.get("NRFDetector", "AUROC", preset="best", column="last").mean for rows in (mnist, cifar10)]
    scripts = mnist.get("inclusive-NRF, SGHMC", "AUROC", preset="released", column="last").mean
    published, elsewhere = (f"{quoted_mean(dataset, 'SGHMC'):.1f} †" for dataset in ("mnist", "cifar10"))
    digits, classes = "one-class MNIST", "one-class CIFAR-10"
    return [
        [
            f"{digits}, `NRFDetector` on learned features: AUROC, %",
            "`mnist-one-class`",
            f"{best[0]:.1f}",
            published,
            f"{neighbours[0]:.1f} (same features: {features:.1f})",
        ],
        [
            f"{digits}, the paper's method, SGHMC: AUROC, %",
            "`mnist-one-class`",
            f"{scripts:.1f}",
            published,
            f"{neighbours[0]:.1f}",
        ],
        [
            f"{classes}, `NRFDetector` on a rotation network: AUROC, %",
            "`cifar10-one-class`",
            f"{best[1]:.1f} (its rotation classifier alone: {answers:.1f})",
            elsewhere,
            f"{neighbours[1]:.1f}",
        ],
    ]


def _tables(records: Records) -> list[str]:
    rows = records.rows("detectors").within(REAL)
    ours, neighbour = (rows.get(method, "AUROC", preset=REAL) for method in ("NRF", "1-NN"))
    count = len(rows.cases("AUROC"))
    return [f"{count} real tables, `NRFDetector`: mean AUROC", "`detectors`", ours.text(), NONE, neighbour.text()]


def summary(records: Records) -> Table:
    """Eight rows, each with its command."""
    rows = [_mixture(records, "generation"), _mixture(records, "revision"), *_kddcup(records), *_images(records)]
    header = ["what is measured", "`nrf reproduce`", "ours, last model", "the paper's", "1-NN"]
    return Table(header, [*rows, _tables(records)])


TABLES: dict[str, Callable[[Records], Table]] = {"summary": summary}
