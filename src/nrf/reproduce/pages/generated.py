"""Tables of docs/generation.md: MNIST generation."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.generation.mnist import METRICS, difference_table, step_table
from nrf.reproduce.generation.mnist_cells import LINES
from nrf.reproduce.pages.records import Records
from nrf.reproduce.pages.verdicts import NOT_RUN
from nrf.reproduce.runner.report import Table

MNIST = "mnist-generation"


def mnist_scores(records: Records) -> Table:
    """Every line that was run, and its kinds of samples."""
    rows, lines = records.rows_if_there(MNIST), []
    for line in LINES:
        for kind in line.kinds:
            found = [rows.find(line.method, metric, case=kind) for metric in METRICS]
            if found[0] is not None:
                texts = ["" if row is None else row.text(".2f") for row in found]
                lines.append([line.method, kind, str(found[0].n), *texts])
    return Table(["method", "samples", "seeds", *METRICS], lines or [[NOT_RUN, *[""] * (2 + len(METRICS))]])


def mnist_differences(records: Records) -> Table:
    """Seed by seed, with intervals."""
    return difference_table(records.rows_if_there(MNIST).all)


def mnist_steps(records: Records) -> Table:
    """How far revision moves an image."""
    return step_table(records.rows_if_there(MNIST).all)


TABLES: dict[str, Callable[[Records], Table]] = {
    "mnist-generation, scores": mnist_scores,
    "mnist-generation, differences": mnist_differences,
    "mnist-generation, steps": mnist_steps,
}
