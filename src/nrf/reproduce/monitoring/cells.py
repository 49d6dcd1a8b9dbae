"""Streams for a drift monitor, cut from the rows of a table that a detector was not trained on.

Calibration rows and stream are drawn from these rows without replacement, anew for each stream. So they are
exchangeable by design, whatever the table is, and the guarantee must hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.detect import DriftMonitor, DriftState, NRFDetector
from nrf.detect.calibration import Calibration
from nrf.detect.evidence import Bets
from nrf.detect.fitted import Calibrated, Fitted
from nrf.errors import InputError, needs
from nrf.reproduce.detectors.mixed_tables import read_mixed
from nrf.seeds import derive

Floats = NDArray[np.float64]
NUMBERS, LEVELS, DIAMONDS = "numbers", "counts and levels", "diamonds"
TABLES = (NUMBERS, LEVELS, DIAMONDS)
LEVEL = 0.05
"""Level of the monitors; alarms at lower levels follow from the peak of the evidence."""


def table_of(name: str, n: int, seed: int) -> Any:
    """A data frame of ``n`` rows in random order; a real table has at most its own rows."""
    with needs("reproduce", "a table of streams"):
        import pandas  # type: ignore[import-untyped]
    rng = np.random.default_rng(derive(seed, "drift", name))
    if name == DIAMONDS:
        table = read_mixed(DIAMONDS)
        return table.iloc[rng.permutation(len(table))[:n]].reset_index(drop=True)
    z = rng.normal(size=(n, 2))
    if name == NUMBERS:  # six columns of variance 1, correlated by two factors
        angles = np.arange(6) * np.pi / 6
        factors = z @ np.stack([np.cos(angles), np.sin(angles)])
        return pandas.DataFrame(
            np.sqrt(0.7) * factors + np.sqrt(0.3) * rng.normal(size=(n, 6)), columns=[f"x{i}" for i in range(6)]
        )
    if name != LEVELS:
        raise InputError(f"unknown table {name!r}; there are {', '.join(TABLES)}")
    rare = 1 / np.arange(1, 31)
    return pandas.DataFrame(
        {
            "count": rng.poisson(np.exp(0.5 * z[:, 0])),
            "size": np.where(rng.random(n) < 0.1, np.nan, z[:, 1].round(1)),
            "flag": rng.random(n) < 0.2,
            "kind": np.array(list("abcd"))[np.digitize(z[:, 0] + rng.normal(size=n), [-1, 0, 1])],
            "code": [f"c{i:02}" for i in rng.choice(30, size=n, p=rare / rare.sum())],
        }
    )


class Pool(NamedTuple):
    """A detector, and rows that it was not trained on."""

    fitted: Fitted
    scores: Floats
    values: Floats
    encoded: NDArray[np.float32]


@lru_cache(maxsize=2)
def pool(name: str, n_train: int, n_pool: int, shift: float = 0.0, n_shifted: int = 0) -> Pool:
    """Fit to some rows of a table and score the others, whose first columns are shifted by ``shift`` SDs."""
    rows = table_of(name, n_train + n_pool, 0)
    detector = NRFDetector(random_state=0, verbose=0).fit(rows[:n_train])
    others = rows[n_train:].reset_index(drop=True)
    for column in list(others.columns)[:n_shifted]:
        others[column] += shift * others[column].std()
    monitor = DriftMonitor(detector)
    assert detector.encoder_ is not None
    return Pool(
        detector.fitted_, detector.score_samples(others), monitor.values(others), detector.encoder_.encode(others)
    )


def calibrated_monitor(source: Pool, rows: NDArray[np.int64], *, keeps_rows: bool, seed: int) -> DriftMonitor:
    """A monitor of the detector as if these rows had been held out for calibration."""
    scores = Calibration.of(source.scores[rows], source.fitted.calibrated.scores.tolerance)
    encoded = torch.from_numpy(source.encoded[rows]) if keeps_rows else None
    fitted = replace(source.fitted, calibrated=Calibrated(scores, (scores,), "held-out rows", encoded))
    return DriftMonitor(fitted, LEVEL, seed=seed)


def unchanged_cell(
    table: str, n_train: int, n_pool: int, n_calibration: int, length: int, first: int, streams: int, keeps_rows: bool
) -> dict[str, Any]:
    """Streams that do not change: the largest evidence in each, for the score, the columns and a naive monitor.

    The naive monitor ranks each score among the fixed calibration scores only, and bets on these ranks as usual.
    """
    source = pool(table, n_train, n_pool)
    found: dict[str, list[float]] = {"score": [], "columns": [], "naive": []}
    for seed, order in _orders(len(source.scores), range(first, first + streams), "still"):
        known, stream = order[:n_calibration], order[n_calibration : n_calibration + length]
        monitor = calibrated_monitor(source, known, keeps_rows=keeps_rows, seed=seed)
        state = monitor.update_values(source.scores[stream], source.values[stream])
        found["score"].append(state.score.log10_peak)
        found["columns"].append(max(column.log10_peak for column in state.columns))
        log_e = Bets(1).update(_fixed_ranks(source.scores[known], source.scores[stream], seed)[:, None])
        found["naive"].append(float(log_e.max()) / np.log(10))
    return {"n_columns": source.values.shape[1], "peaks": {name: _rounded(peaks) for name, peaks in found.items()}}


def _fixed_ranks(known: Floats, scores: Floats, seed: int) -> Floats:
    """Smoothed ranks among one fixed set."""
    known, theta = np.sort(known), np.random.default_rng(derive(seed, "naive")).random(len(scores))
    low, high = (np.searchsorted(known, scores, side) for side in ("left", "right"))
    ranks: Floats = (low + (1 - theta) * (high - low + 1)) / (len(known) + 1)
    return ranks


def shifted_cell(
    table: str,
    n_train: int,
    n_pool: int,
    n_calibration: int,
    before: int,
    after: int,
    streams: int,
    shift: float,
    n_shifted: int,
) -> dict[str, Any]:
    """Streams whose first columns shift by ``shift`` standard deviations: rows from the change to the alarm.

    A delay of None means no alarm, a negative one a false alarm. The level is 0.01; a monitor of the score alone does
    not share it with columns.
    """
    still, moved = pool(table, n_train, n_pool), pool(table, n_train, n_pool, shift, n_shifted)
    found: dict[str, list[int | None]] = {"any": [], "score alone": []}
    named = 0
    for seed, order in _orders(len(still.scores), range(streams), "moved"):
        known, rest = order[:n_calibration], order[n_calibration:]
        first, second = rest[:before], rest[before : before + after]
        both = [np.concatenate([a[first], b[second]]) for a, b in zip(still[1:3], moved[1:3], strict=True)]
        state = _at_level(still, known, seed, both[0], both[1])
        rows = sorted((s.alarm_row, i) for i, s in enumerate(state.series) if s.alarm_row is not None)
        found["any"].append(rows[0][0] - before if rows else None)
        named += _is_right({i for _, i in rows if i}, n_shifted)
        alone = _at_level(still, known, seed, both[0], None)
        found["score alone"].append(None if alone.score.alarm_row is None else alone.score.alarm_row - before)
    return {"delays": found, "named": named}


def _is_right(alarms: set[int], n_shifted: int) -> bool:
    """Whether a shifted column is named, and no other; columns are counted from 1."""
    return bool(alarms) and max(alarms) <= n_shifted


def _at_level(source: Pool, known: NDArray[np.int64], seed: int, scores: Floats, values: Floats | None) -> DriftState:
    calibration = Calibration.of(source.scores[known], source.fitted.calibrated.scores.tolerance)
    fitted = replace(source.fitted, calibrated=Calibrated(calibration, (calibration,), "held-out rows", None))
    return DriftMonitor(fitted, 0.01, columns=values is not None, seed=seed).update_values(scores, values)


def speed_cell(rows: int, n_columns: int, batch: int) -> dict[str, Any]:
    """Rows per CPU-second that a monitor takes, in batches, by scores alone and with columns."""
    rng = np.random.default_rng(0)
    detector = NRFDetector(field="density", random_state=0, verbose=0).fit(rng.normal(size=(1000, n_columns)))
    found = {}
    for name, columns in (("scores alone", False), (f"scores and {n_columns} columns", True)):
        monitor = DriftMonitor(detector, columns=columns)
        scores, values = rng.normal(size=rows), rng.normal(size=(rows, len(monitor.columns)))
        started = time.process_time()
        for i in range(0, rows, batch):
            part = slice(i, i + batch)
            monitor.update_values(scores[part], values[part] if columns else None)
        found[name] = rows / (time.process_time() - started)
    return found


def _orders(n: int, streams: range, what: str) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each stream its seed, and a permutation of all rows of the pool."""
    for stream in streams:
        seed = derive(stream, "drift", what)
        yield seed, np.random.default_rng(seed).permutation(n)


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]
