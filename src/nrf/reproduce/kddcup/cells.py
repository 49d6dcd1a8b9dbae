"""KDDCUP: what one split is, and one model on it, looked at after every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.data import Splits
from nrf.data import kddcup99 as kdd
from nrf.data.base import require
from nrf.detect import NRFDetector
from nrf.detect.calibration import FALSE_ALARM_RATE, rows_to_hold_out
from nrf.detect.defaults import spec_for
from nrf.detect.selection import synthetic_auroc
from nrf.detect.tables.texts import arrow
from nrf.metrics import auroc, flagged_metrics
from nrf.reproduce.baselines import Baseline, fit_and_score
from nrf.reproduce.runner.experiment import NEVER, Deadline
from nrf.reproduce.runner.watch import AVERAGED, LAST, Curve, potential_of, synthetic, train_and_watch
from nrf.runs.spec import Preset
from nrf.training.batches import MOST_WATCHED

WATCHED = 0.025
"""Share of the training rows that is kept out of training, to tell how it goes."""
FLAGGED = 0.2
"""Share of the test rows that is flagged."""

Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """One split: what is trained on, and the test half as distinct rows."""

    splits: Splits
    distinct: NDArray[np.float32]
    """Encoded distinct rows of the file."""
    test: NDArray[np.int64]
    """Which distinct row each test row is."""
    labels: NDArray[np.int64]
    unseen: NDArray[np.int64]
    """Distinct rows, of different features, that are in the test half and not in the training half."""
    unseen_labels: NDArray[np.int64]
    trained: NDArray[np.int64]
    """Which distinct row each training row is."""
    table: kdd.Table

    @cached_property
    def features(self) -> Any:
        """The distinct rows as they stand in the file, 34 numbers and 7 categories: an Arrow table."""
        return arrow().table(kdd.features(self.table))

    def numbers(self, scores: Scores) -> dict[str, float]:
        """Metrics of a score of the distinct rows, on all test rows and on unseen ones."""
        found = _metrics(scores[self.test], self.labels)
        unseen = _metrics(scores[self.unseen], self.unseen_labels, share=float(self.unseen_labels.mean()))
        return found | {f"unseen {name}": value for name, value in unseen.items()}


def _metrics(scores: Scores, labels: NDArray[np.int64], share: float = FLAGGED) -> dict[str, float]:
    return flagged_metrics(scores, labels, share) | {"AUROC": auroc(scores, labels)}


@lru_cache(maxsize=1)
def _table(folder: Path, max_rows: int | None) -> tuple[kdd.Table, NDArray[np.int64]]:
    """The file, or some of its rows, and for each distinct line the first one with the same features."""
    table = kdd.read(folder)
    if max_rows is not None:
        rows = np.random.default_rng(0).permutation(len(table.index))[:max_rows]
        table = replace(table, index=table.index[rows], labels=table.labels[rows])
    rows = np.ascontiguousarray(np.concatenate([table.continuous, table.one_hot], axis=1))
    _, first, inverse = np.unique(rows.view(f"V{rows.strides[0]}").ravel(), return_index=True, return_inverse=True)
    return table, first[inverse]


@lru_cache(maxsize=1)
def load(split: int, path: Path | None = None, max_rows: int | None = None) -> Split:
    """The split of a seed, of the whole file or of some of its rows."""
    table, same = _table(require(kdd.DATASET, path), max_rows)
    parts = kdd.divide(table, split)
    known = set(same[table.index[parts.train]].tolist())
    at_test = table.index[parts.test]
    places, first = np.unique(same[at_test], return_index=True)
    new = np.array([place not in known for place in places.tolist()])
    return Split(
        kdd.split(table, split),
        kdd.scaled(table, parts.train),
        at_test,
        table.labels[parts.test],
        places[new],
        table.labels[parts.test][first[new]],
        table.index[parts.train],
        table,
    )


# ------------------------------------------------------------------------------------------------------------ one model


def train_on(preset: Preset, split: Split, out: Path, deadline: Deadline = NEVER) -> Curve:
    """Train on a split, or go on with it, looking at it after every epoch.

    Besides metrics on test rows, which choose nothing but the column `oracle`, there are the run's health and how well
    watched rows are told from anomalies made of them.
    """

    def numbers(potential: nn.Module, watched: Tensor) -> dict[str, float]:
        found = split.numbers(potential_of(potential, split.distinct))
        return found | {"synthetic AUROC": synthetic(potential, watched)}

    return train_and_watch("kddcup", preset, split.splits, out, numbers, deadline)


def detect_and_watch(
    split: Split, seed: int, epochs: int | None = None, *, encoded: bool = False, **settings: Any
) -> Curve:
    """Fit a detector on the file's own columns; numbers of the model as it was after every epoch.

    Args:
        split: The split.
        seed: Of the detector.
        epochs: Passes over the rows it learns from; as many as the detector makes by default if not given.
        encoded: Give it the 121 encoded columns instead, which it takes for numbers.
        settings: Of the detector, in place of its defaults.
    """
    order = np.random.default_rng(seed).permutation(len(split.trained))
    n_watched = min(MOST_WATCHED, round(WATCHED * len(order)))
    rows = split.distinct if encoded else split.features
    watched, learned = (
        rows[split.trained[i]] if encoded else rows.take(split.trained[i]) for i in np.split(order, [n_watched])
    )
    curve: Curve = []

    def look(detector: NRFDetector, row: Mapping[str, float]) -> None:
        numbers = split.numbers(detector.score_samples(rows).astype(np.float32))
        numbers["synthetic AUROC"] = synthetic_auroc(detector, watched)
        kept = {name: float(value) for name, value in row.items() if name != "seconds"}
        weights = AVERAGED if detector.members_.averaged else LAST
        curve.append(kept | {f"{weights}: {name}": value for name, value in numbers.items()})

    detector = NRFDetector(field="inclusive", scaling="quartiles", random_state=seed, callbacks=[look])
    detector.set_params(**settings)
    if epochs is not None:
        n_learned = len(learned) - rows_to_hold_out(len(learned), detector.calibration_fraction, FALSE_ALARM_RATE)
        given = detector.get_params()["training__batch_size"]
        batch = given or spec_for(n_learned, split.distinct.shape[1:], {}).train.batch_size
        detector.set_params(training__batch_size=batch, max_iter=epochs * (n_learned // batch))
    detector.fit(learned)
    return curve


# --------------------------------------------------------------------------------------------------------------- cells


def run_cell(preset: Preset, split: int, max_rows: int | None, out: Path, deadline: Deadline = NEVER) -> dict[str, Any]:
    """One model: its numbers after every epoch."""
    return {"curve": train_on(preset, load(split, max_rows=max_rows), out, deadline)}


def detector_cell(
    split: int, epochs: int | None, max_rows: int | None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The detector: its numbers after every epoch."""
    return {"curve": detect_and_watch(load(split, max_rows=max_rows), split, epochs, **(settings or {}))}


def compared_cell(system: Baseline, split: int, max_rows: int | None) -> dict[str, Any]:
    """One of the other systems: fitted on training rows, scored on distinct rows."""
    data = load(split, max_rows=max_rows)
    found = fit_and_score(system, data.splits.train, data.distinct, seed=split)
    numbers = data.numbers(np.asarray(found.scores, dtype=np.float32))
    return numbers | {"seconds": round(found.fit_seconds + found.score_seconds, 1)}
