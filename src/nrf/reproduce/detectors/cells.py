"""One detector on one data set."""

from __future__ import annotations

from typing import Any

import numpy as np

from nrf.errors import InputError
from nrf.metrics import auroc
from nrf.reproduce.baselines import Baseline, fit_and_score
from nrf.reproduce.detectors.sets import Task, load


def run_cell(system: Baseline, dataset: str, seed: int, max_rows: int | None) -> dict[str, Any]:
    """One method on one data set."""
    return measure(system, load(dataset, seed, max_rows), seed)


def block_cell(system: Baseline, block: str, dataset: str, seed: int, max_rows: int | None) -> dict[str, Any]:
    """One method on one table of a block."""
    from nrf.reproduce.detectors.blocks import TASKS  # which lists cells of this function

    return measure(system, TASKS[block](dataset, seed).cut(max_rows), seed)


def measure(system: Baseline, task: Task, seed: int) -> dict[str, Any]:
    """Fit, score, and compare with the truth; times are in seconds, with a method's own encoding of the rows."""
    from sklearn.metrics import average_precision_score

    train, test = (task.train, task.test) if system.takes_tables else task.as_numbers()
    found = fit_and_score(system, train, test, seed)
    if not np.isfinite(found.scores).all():
        raise InputError(f"a score on {task.name!r}, seed {seed}, is not finite; leave the method out of the settings")
    return {
        "auroc": auroc(found.scores, task.labels),
        "average_precision": float(average_precision_score(task.labels, -found.scores)),
        "fit_seconds": round(found.fit_seconds, 4),
        "score_seconds": round(found.score_seconds, 5),
        "fit_cpu_seconds": round(found.fit_cpu_seconds, 4),
        "score_cpu_seconds": round(found.score_cpu_seconds, 5),
        "warnings": list(found.warnings),
    }
