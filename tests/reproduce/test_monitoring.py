"""The experiment on drift monitors: its cells, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nrf.reproduce.monitoring import cells
from nrf.reproduce.monitoring.cells import LEVELS, NUMBERS, calibrated_monitor, pool, table_of
from nrf.reproduce.monitoring.experiment import (
    COLUMNS,
    DELAY,
    FALSE,
    NAIVE,
    QUICK,
    SCORE,
    TOGETHER,
    Drift,
    UnchangedStreams,
    _delays,
    _false_alarms,
    quantile_with_interval,
)

pytest.importorskip("pandas")


def test_quick_cells_give_a_report(tmp_path: Path) -> None:
    experiment = Drift()
    work = experiment.cells(QUICK, tmp_path)
    assert len({cell.name for cell in work}) == len(work) == 5
    results = {cell.name: cell.compute(tmp_path) for cell in work}
    outcome = experiment.summarise(QUICK, results, {})
    less = {name: result for name, result in results.items() if not name.endswith("-0") and name != "speed"}
    assert {row.n for row in experiment.summarise(QUICK, less, {}).rows if row.metric.startswith(FALSE)} == {2}
    assert {row.n for row in outcome.rows if row.metric.startswith(FALSE)} == {4}
    assert [section.heading for section in outcome.sections] == [
        "Where nothing changes",
        "Where something changes",
        "Speed",
    ]
    assert work[0].compute(tmp_path) == results[work[0].name], "the same seeds"


def test_columns_of_the_table_of_numbers_have_variance_1() -> None:
    table = table_of(NUMBERS, 20_000, 0)
    assert table.std().tolist() == pytest.approx([1.0] * 6, abs=0.03)
    assert table_of(LEVELS, 200, 0)["count"].nunique() < 20, "ties"


def test_kept_rows_are_the_columns_reference() -> None:
    source = pool(LEVELS, 200, 300)
    kept, without = (calibrated_monitor(source, np.arange(100), keeps_rows=k, seed=0) for k in (True, False))
    assert (kept.state.waiting, without.state.waiting) == (0, 128)


def test_alone_a_series_has_all_of_the_level() -> None:
    """At level 0.05 evidence of 20 counts; shown is the half of it."""
    peaks = {"score": [np.log10(10.5), 0.0], "columns": [0.0, np.log10(19.9)], "naive": [2.5, 1.4]}
    found = {(row.method, row.metric): row.mean for row in _false_alarms(UnchangedStreams(LEVELS, 10, False), peaks)}
    assert found[SCORE, f"{FALSE} at 0.05"] == 0.5
    assert found[COLUMNS, f"{FALSE} at 0.05"] == 0.5
    assert found[TOGETHER, f"{FALSE} at 0.05"] == 0.0
    assert (found[NAIVE, f"{FALSE} at 0.05"], found[NAIVE, f"{FALSE} at 0.01"]) == (1.0, 0.5)


def test_delays_count_what_is_missed_and_what_comes_early() -> None:
    delays: list[int | None] = [5, 10, None, -3]
    rows = _delays("case", {"delays": {"any": delays, "score alone": [None] * 4}, "named": 2}, 4)
    by = {(row.method, row.metric): row for row in rows}
    assert by[TOGETHER, f"{DELAY}, median"].mean == 10
    assert by[TOGETHER, f"{DELAY}, 90 %"].mean == -1
    assert by[TOGETHER, "missed"].mean == pytest.approx(1 / 3)
    assert by[TOGETHER, "alarms before the change"].mean == 0.25
    assert by[SCORE, "missed"].mean == 1
    low, middle, high = quantile_with_interval(np.arange(100.0), 0.9)
    assert low < middle < high


def test_a_column_that_did_not_move_is_named_wrongly() -> None:
    assert cells._is_right({1}, 1)
    assert not cells._is_right({1, 2}, 1)
    assert not cells._is_right(set(), 1)
