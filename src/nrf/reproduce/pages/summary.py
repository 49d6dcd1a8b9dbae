"""The one table of README.md: ours, the paper's and the nearest neighbour's."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.detectors.blocks import REAL
from nrf.reproduce.kddcup.experiment import ARRAY
from nrf.reproduce.one_class.paper import quoted_mean
from nrf.reproduce.pages.readme import MODES, PIXELS, length_of_pairs
from nrf.reproduce.pages.records import Records, Rows, means
from nrf.reproduce.pages.verdicts import NOT_RUN
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

NONE = "–"
SAMPLERS = ("SGLD", "SGHMC")


def _mixture(records: Records) -> list[str]:
    """Covered modes, of the models of the stored cell."""
    models, rows = records.cell("gmm", "best-inclusive-nrf")["models"], records.rows("gmm")
    ours, paper = [], []
    for kind in ("generation", "revision"):
        ours.append(Row.of([model["averaged"][f"{kind}: {MODES}"] for model in models], "", MODES).text(".2f"))
        quoted = rows.get("inclusive-NRF", MODES, preset="released", case=f"{kind}, last weights")
        paper.append(quoted.paper_text(".2f"))
    return ["32 modes, covered: generation / revision", "`gmm`", " / ".join(ours), " / ".join(paper), NONE]


def _kddcup(records: Records) -> list[list[str]]:
    rows = records.rows("kddcup")

    def f1(method: str, preset: str | None, column: str | None) -> Row:
        return rows.get(method, "F1", preset=preset, case="all test rows", column=column)

    neighbour = f1("1-NN", None, None).text()
    last, best = ([f1(f"inclusive-NRF, {s}", ARRAY, column) for s in SAMPLERS] for column in ("last", "oracle"))
    ours = f"{means(last)} (best epochs: {means(best)} †)"
    detector = f1("NRFDetector", "best", "last").text()
    name = "KDDCUP as released, the paper's method, SGLD / SGHMC: F1"
    return [
        ["KDDCUP, `NRFDetector`: F1", "`kddcup`", detector, f"{best[1].paper_text()} †", neighbour],
        [name, "`kddcup`", ours, " / ".join(f"{row.paper:.3f}" for row in best) + " †", neighbour],
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
        [
            f"{classes}, the paper's method on pixels ({length_of_pairs()}), SGLD / SGHMC: AUROC, %",
            "`cifar10-one-class`",
            _pixels(cifar10),
            f"{quoted_mean('cifar10', 'SGLD'):.1f} / {quoted_mean('cifar10', 'SGHMC'):.1f} †",
            f"{neighbours[1]:.1f}",
        ],
    ]


def _pixels(rows: Rows) -> str:
    """Means of ten classes with both samplers, the last models' and those of the best epochs on the test images."""
    found = []
    for column in ("last", "oracle"):
        of = [rows.find(f"inclusive-NRF, {s}", "AUROC", preset=PIXELS, column=column) for s in SAMPLERS]
        found.append(" / ".join(NOT_RUN if row is None else f"{row.mean:.1f}" for row in of))
    return NOT_RUN if found[0] == f"{NOT_RUN} / {NOT_RUN}" else f"{found[0]} (best epochs: {found[1]} †)"


def _tables(records: Records) -> list[str]:
    rows = records.rows("detectors").within(REAL)
    ours, neighbour = (rows.get(method, "AUROC", preset=REAL) for method in ("NRF", "1-NN"))
    count = len(rows.cases("AUROC"))
    return [f"{count} real tables, `NRFDetector`: mean AUROC", "`detectors`", ours.text(), NONE, neighbour.text()]


def summary(records: Records) -> Table:
    """Eight rows, each with its command."""
    rows = [_mixture(records), *_kddcup(records), *_images(records)]
    header = ["what is measured", "`nrf reproduce`", "ours, last model", "the paper's", "1-NN"]
    return Table(header, [*rows, _tables(records)])


TABLES: dict[str, Callable[[Records], Table]] = {"summary": summary}
