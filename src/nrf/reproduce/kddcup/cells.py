"""KDDCUP: a split, and a model on it, measured after every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.data import Splits, kddcup99_released
from nrf.data import kddcup99 as kdd
from nrf.data.base import require, search
from nrf.detect import NRFDetector
from nrf.detect.calibration import FALSE_ALARM_RATE, rows_to_hold_out
from nrf.detect.defaults import spec_for
from nrf.detect.selection import synthetic_auroc
from nrf.detect.tables.texts import arrow
from nrf.errors import InputError
from nrf.metrics import auroc, flagged_metrics
from nrf.reproduce.baselines import Baseline, fit_and_score
from nrf.reproduce.runner.experiment import NEVER, Deadline, MissingData
from nrf.reproduce.runner.watch import AVERAGED, LAST, Curve, potential_of, synthetic, train_and_watch
from nrf.runs.spec import Preset
from nrf.training.batches import MOST_WATCHED

WATCHED = 0.025
"""Share of the training rows that is held out, to monitor training."""
FLAGGED = 0.2
"""Share of the test rows that is flagged as anomalous."""

Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """One split: the training rows, and the test half as distinct rows."""

    splits: Splits
    distinct: NDArray[np.float32]
    """Encoded distinct rows of the file."""
    test: NDArray[np.int64]
    """Index of the distinct row of each test row."""
    labels: NDArray[np.int64]
    unseen: NDArray[np.int64]
    """Distinct rows, of different features, that are in the test half and not in the training half."""
    unseen_labels: NDArray[np.int64]
    trained: NDArray[np.int64]
    """Index of the distinct row of each training row."""
    table: kdd.Table | None = None
    """The parsed file; None for the released array, which is already encoded."""

    @cached_property
    def features(self) -> Any:
        """The distinct rows as in the file, 34 numbers and 7 categories, as an Arrow table."""
        if self.table is None:
            raise InputError(f"{self.splits.name} has encoded columns alone; the file's own are in kddcup99")
        return arrow().table(kdd.features(self.table))

    def numbers(self, scores: Scores) -> dict[str, float]:
        """Metrics on all test rows and on unseen ones, from the scores of the distinct rows."""
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
    first, inverse = _distinct(np.concatenate([table.continuous, table.one_hot], axis=1))
    return table, first[inverse]


def _distinct(rows: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each content, and which of these contents each row has."""
    rows = np.ascontiguousarray(rows)
    _, first, inverse = np.unique(rows.view(f"V{rows.strides[0]}").ravel(), return_index=True, return_inverse=True)
    return first, inverse


@lru_cache(maxsize=1)
def load(split: int, path: Path | None = None, max_rows: int | None = None) -> Split:
    """The split of a seed, from the whole file or some of its rows."""
    table, same = _table(require(kdd.DATASET, path), max_rows)
    parts = kdd.divide(table, split)
    rows, labels = kdd.scaled(table, parts.train), table.labels[parts.test]
    unseen = _unseen(same[table.index[parts.train]], same[table.index[parts.test]], labels)
    trained, tested = table.index[parts.train], table.index[parts.test]
    return Split(kdd.split(table, split), rows, tested, labels, *unseen, trained, table)


@lru_cache(maxsize=1)
def load_released(split: int, path: Path | None = None, max_rows: int | None = None) -> Split:
    """The split of a seed from the array that was released with the paper: the same rows in 118 columns."""
    array, first, same = _released(require(kddcup99_released.DATASET, path), max_rows)
    parts = array.divide(split)
    labels, name = array.labels[parts.test], kddcup99_released.NAME
    splits = Splits(name, array.rows[parts.train], None, array.rows[parts.test], labels)
    unseen = _unseen(same[parts.train], same[parts.test], labels)
    return Split(splits, array.rows[first], same[parts.test], labels, *unseen, same[parts.train])


@lru_cache(maxsize=1)
def _released(
    folder: Path, max_rows: int | None
) -> tuple[kddcup99_released.Released, NDArray[np.int64], NDArray[np.int64]]:
    """The array, or some of its rows, the first row of each content, and which content each row has."""
    array = kddcup99_released.read(folder)
    if max_rows is not None:
        rows = np.random.default_rng(0).permutation(len(array.labels))[:max_rows]
        array = kddcup99_released.Released(array.rows[rows], array.labels[rows])
    return array, *_distinct(array.rows)


def _unseen(
    trained: NDArray[np.int64], tested: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct contents that are in the test rows but not in the training rows, and their labels."""
    known = set(trained.tolist())
    places, first = np.unique(tested, return_index=True)
    new = np.array([place not in known for place in places.tolist()])
    return places[new], labels[first[new]]


# ------------------------------------------------------------------------------------------------------------ one model


def train_on(preset: Preset, split: Split, out: Path, deadline: Deadline = NEVER) -> Curve:
    """Train on a split, or continue its training, with measurements after every epoch.

    These are metrics on test rows (used for the column `oracle` only), the run's health, and how well watched rows are
    separated from synthetic anomalies.
    """

    def numbers(potential: nn.Module, watched: Tensor) -> dict[str, float]:
        found = split.numbers(potential_of(potential, split.distinct))
        return found | {"synthetic AUROC": synthetic(potential, watched)}

    return train_and_watch("kddcup", preset, split.splits, out, numbers, deadline)


def detect_and_watch(
    split: Split, seed: int, epochs: int | None = None, *, encoded: bool = False, **settings: Any
) -> Curve:
    """Fit a detector to the file's own columns; metrics of the model after every epoch.

    A field without a network has no epochs; then there is one point, of the fitted detector.

    Args:
        split: The split.
        seed: Seed of the detector.
        epochs: Passes over the training rows; the detector's default if not given.
        encoded: Use the 121 encoded columns instead, all of them numbers.
        settings: Parameters of the detector that replace its defaults.
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

    detector = NRFDetector(random_state=seed, callbacks=[look])
    detector.set_params(**settings)
    if epochs is not None:
        n_learned = len(learned) - rows_to_hold_out(len(learned), detector.calibration_fraction, FALSE_ALARM_RATE)
        given = detector.get_params()["training__batch_size"]
        batch = given or spec_for(n_learned, split.distinct.shape[1:], {}).train.batch_size
        detector.set_params(training__batch_size=batch, max_iter=epochs * (n_learned // batch))
    detector.fit(learned)
    if not curve:
        look(detector, {})
    return curve


# --------------------------------------------------------------------------------------------------------------- cells


def run_cell(preset: Preset, split: int, max_rows: int | None, out: Path, deadline: Deadline = NEVER) -> dict[str, Any]:
    """One model: its metrics after every epoch, on the data set that its preset names."""
    if preset.data.name != kddcup99_released.NAME:
        return {"curve": train_on(preset, load(split, max_rows=max_rows), out, deadline)}
    if search(kddcup99_released.DATASET) is None:
        raise MissingData(f"{kddcup99_released.FILE.name} is not here; set NRF_DATA to its folder")
    return {"curve": train_on(preset, load_released(split, max_rows=max_rows), out, deadline)}


def detector_cell(
    split: int, epochs: int | None, max_rows: int | None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The detector: its metrics after every epoch."""
    return {"curve": detect_and_watch(load(split, max_rows=max_rows), split, epochs, **(settings or {}))}


def compared_cell(system: Baseline, split: int, max_rows: int | None) -> dict[str, Any]:
    """One of the compared systems, fitted to training rows; metrics of its scores of the distinct rows."""
    data = load(split, max_rows=max_rows)
    found = fit_and_score(system, data.splits.train, data.distinct, seed=split)
    numbers = data.numbers(np.asarray(found.scores, dtype=np.float32))
    return numbers | {"seconds": round(found.fit_seconds + found.score_seconds, 1)}
