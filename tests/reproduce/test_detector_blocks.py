"""Blocks of the comparison of detectors: their tables, which cells there are, what is made of them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nrf import data
from nrf.data import real_tables
from nrf.data.real_tables import RealTable
from nrf.errors import DataError, InputError, MissingPackageError
from nrf.reproduce.baselines import find_baseline
from nrf.reproduce.detectors import blocks, mixed_tables
from nrf.reproduce.detectors.block_report import BEHIND, FIT, block_rows, block_sections
from nrf.reproduce.detectors.blocks import (
    BLOCKS,
    DEEP,
    MIX,
    REAL,
    TASKS,
    WIDE,
    BlockConfig,
    BlockResults,
    cells_of,
    name,
    real_task,
)
from nrf.reproduce.detectors.cells import block_cell, measure
from nrf.reproduce.detectors.experiment import Detectors, DetectorsConfig
from nrf.reproduce.detectors.mixed_tables import MIXED, exchanged, read_mixed, split_with_exchanged
from nrf.reproduce.detectors.standing import RANK
from nrf.reproduce.detectors.wide_curves import CURVES, curves_task
from nrf.reproduce.pages.detector_tables import TABLES
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.cells import CellFile, Stored
from nrf.reproduce.runner.record import Record


def _tables_found() -> bool:
    try:
        return data.locate("tables") is not None
    except DataError:
        return False


# --------------------------------------------------------------------------------------------------------- real tables


def test_half_of_the_normal_rows_train_and_all_anomalies_test(monkeypatch, tmp_path):
    rows = np.arange(60, dtype=np.float32).reshape(20, 3)
    labels = np.array([0] * 13 + [1] * 7, dtype=np.int8)
    monkeypatch.setattr(blocks, "folder_of", lambda name: tmp_path)
    monkeypatch.setattr(real_tables, "read", lambda folder, name: RealTable(name, rows, labels))
    task, again, other = (real_task("made", seed) for seed in (0, 0, 1))
    assert (len(task.train), len(task.normal)) == (6, 7)
    np.testing.assert_array_equal(task.anomalies, rows[13:])
    np.testing.assert_array_equal(np.sort(np.r_[task.train, task.normal], axis=0), rows[:13])
    np.testing.assert_array_equal(task.train, again.train)
    assert not np.array_equal(task.train, other.train)


@pytest.mark.data
@pytest.mark.skipif(not _tables_found(), reason="tables not found: set NRF_DATA or run `nrf data fetch tables`")
def test_neighbours_on_real_tables():
    """What is known of these tables: mean AUROC of 1-NN by the same protocol, on another split."""
    for table, expected in (("annthyroid", 0.93), ("letter", 0.93), ("Pima", 0.70), ("glass", 0.92)):
        found = block_cell(find_baseline("1-NN"), REAL, table, 0, None)["auroc"]
        assert found == pytest.approx(expected, abs=0.05), table


# -------------------------------------------------------------------------------------------------------- mixed tables


def _people(n=400):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "job": rng.choice(["clerk", "nurse", None], n),
            "age": rng.normal(40, 9, n).round(),
            "children": rng.integers(0, 4, n),
            "car": rng.random(n) < 0.5,
            "country": "here",
        }
    )
    table.loc[::7, "age"] = np.nan
    return table


def test_two_or_three_cells_are_those_of_other_rows():
    table = _people()
    changed = exchanged(table, 100, np.random.default_rng(1))
    assert (changed.dtypes == table.dtypes).all()
    pd.testing.assert_frame_equal(changed[:300], table[:300])
    same = (changed == table) | (changed.isna() & table.isna())
    assert set((~same[300:]).sum(axis=1)) == {2, 3}
    assert same["country"].all(), "there is no other value"
    for column in table:
        assert set(changed[column].dropna()) <= set(table[column].dropna())


def test_the_parts_of_a_mixed_table():
    table = _people()
    table["row"] = np.arange(len(table))
    task = split_with_exchanged("people", table, np.random.default_rng(0))
    assert (len(task.train), len(task.normal), len(task.anomalies)) == (200, 100, 100)
    assert not set(task.train["row"]) & set(task.normal["row"])
    assert len(set(task.train["row"]) | set(task.normal["row"])) == 300
    ours = split_with_exchanged("people", table, np.random.default_rng(0))
    pd.testing.assert_frame_equal(task.anomalies, ours.anomalies)
    train, test = task.as_numbers()
    assert np.isfinite(train).all()
    assert np.isfinite(test).all()


def test_at_most_two_thousand_are_tested(monkeypatch):
    monkeypatch.setattr(mixed_tables, "MOST_TESTED", 30)
    task = split_with_exchanged("people", _people(), np.random.default_rng(0))
    assert (len(task.train), len(task.normal), len(task.anomalies)) == (200, 30, 30)


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    with pytest.raises(InputError, match=r"unknown mixed table 'iris'.*planes"):
        read_mixed("iris")
    monkeypatch.setitem(MIXED, "planes", replace(MIXED["planes"], package="no_such_package"))
    with pytest.raises(MissingPackageError, match=r'No module named .no_such_package.*pip install "nrf\[mixed\]"'):
        read_mixed("planes")
    package = tmp_path / "other_planes"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it is not imported')")
    (package / "data" / "planes.csv").write_text("tailnum,year\nN1,2000\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(MIXED, "planes", replace(MIXED["planes"], package="other_planes"))
    with pytest.raises(DataError, match="other_planes has another version of 'planes'"):
        read_mixed("planes")
    found = MIXED["planes"].file.check(package / "data").found
    size, digest = int(found.split()[0]), found.split()[-1]
    file = replace(MIXED["planes"].file, size=size, sha256=digest)
    monkeypatch.setitem(MIXED, "planes", replace(MIXED["planes"], package="other_planes", file=file))
    assert read_mixed("planes").to_dict("list") == {"year": [2000]}


@pytest.mark.parametrize(("table", "rows", "columns"), [("penguins", 344, 8), ("planes", 3322, 8)])
def test_the_real_mixed_tables(table, rows, columns):
    if importlib.util.find_spec(MIXED[table].package) is None:
        pytest.skip(f"needs {MIXED[table].package}")
    assert read_mixed(table).shape == (rows, columns)
    assert block_cell(find_baseline("1-NN"), MIX, table, 0, None)["auroc"] > 0.8


# -------------------------------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize(("table", "shape"), [("spectra, 48 × 251", (48, 251)), ("days, 70 × 150", (70, 150))])
def test_curves(table, shape):
    task, again, other = (curves_task(table, seed) for seed in (0, 0, 1))
    assert task.train.shape == shape
    assert len(task.normal) == len(task.anomalies) == 100
    np.testing.assert_array_equal(task.anomalies, again.anomalies)
    assert not np.array_equal(task.train, other.train)
    steps = np.abs(np.diff(task.train, axis=1))
    assert steps.max() < 0.2 * np.ptp(task.train), "they are smooth"
    assert 0.6 < measure(find_baseline("1-NN"), task, 0)["auroc"] < 0.99
    with pytest.raises(InputError, match="unknown table of curves 'x'"):
        curves_task("x", 0)


# --------------------------------------------------------------------------------------------------------------- cells


def test_what_is_run():
    assert set(TASKS) == {block.name for block in BLOCKS} == {REAL, MIX, WIDE}
    assert Detectors.whole.blocks == BLOCKS
    real, mixed, wide = (cells_of(block, {}) for block in BLOCKS)
    assert len(real) == 16 * (11 * 5 + len(DEEP) * 2)
    assert len(mixed) == 5 * (4 * 5 + 1)
    assert len(wide) == len(CURVES) * 6 * 5
    assert {cell.settings["seed"] for cell in mixed if cell.settings["dataset"] == "flights"} == {0}
    slow = [cell.place.line.removeprefix("real tables: ") in DEEP for cell in real]
    assert slow == sorted(slow), "what costs much comes last"
    every = [cell.name for cells in (real, mixed, wide) for cell in cells]
    assert len(every) == len(set(every))


def test_other_defaults_of_ours_are_other_cells_here_too():
    block = BlockConfig(WIDE, ("days, 70 × 150",), ("NRF", "1-NN"), 1)
    (ours, neighbour), (other, same) = cells_of(block, {"defaults": 1}), cells_of(block, {"defaults": 2})
    assert not other.has(1, ours.described())
    assert same.has(1, neighbour.described())


def test_a_cell_cuts_rows_for_runs_that_only_have_to_run():
    short = BlockConfig(WIDE, ("days, 70 × 150",), ("1-NN",), 1, max_rows=10)
    (cell,) = cells_of(short, {})
    assert cell.settings["max_rows"] == 10
    assert len(curves_task("days, 70 × 150", 0).cut(10).train) == 10
    assert 0 <= cell.compute(None)["auroc"] <= 1


# ------------------------------------------------------------------------------------------------------------- summary

MADE = BlockConfig(
    REAL, ("a", "b", "c"), ("NRF", "1-NN", "5-NN", "LUNAR"), 2, slow=("LUNAR",), slow_seeds=1, large=("c",)
)
AUROC = {"NRF": (0.9, 0.80, 0.7), "1-NN": (0.8, 0.86, 0.6), "5-NN": (0.8, 0.82, 0.6), "LUNAR": (0.8, 0.5, 0.5)}


def _made(block=MADE):
    results = {}
    for method in block.methods:
        for i, dataset in enumerate(block.datasets):
            for seed in block.seeds_of(dataset, method):
                numbers = {"auroc": AUROC[method][i] - 0.01 * seed, "average_precision": 0.5}
                times = {"fit_cpu_seconds": 2.0 + seed, "score_cpu_seconds": 0.5}
                results[name(block, dataset, method, seed)] = numbers | times
    return results


def test_numbers_of_a_block():
    rows = block_rows(MADE, _made())
    assert {row.preset for row in rows} == {REAL}
    overall = {(row.method, row.metric): row for row in rows if row.case is None}
    ours = overall["NRF", "AUROC"]
    assert ours.mean == pytest.approx((0.895 + 0.795 + 0.7) / 3)
    assert (ours.n, overall["LUNAR", "AUROC"].n) == (2, 1)
    assert [overall[m, RANK].mean for m in MADE.methods] == pytest.approx([5 / 3, 7 / 3, 8 / 3, 10 / 3])
    assert [overall[m, BEHIND].mean for m in MADE.methods] == [1, 0, 1, 2]
    assert [BlockResults(MADE, _made()).behind("5-NN", margin) for margin in (0.03, 0.05)] == [1, 0]
    assert overall["NRF", FIT].mean == pytest.approx(2.5 + 2.5 + 2.0)
    by = {(row.method, row.metric, row.case): row for row in rows}
    assert by["NRF", "AUROC", "a"].mean == pytest.approx(0.895)
    assert by["NRF", "AUROC", "c"].n == 1


def test_what_is_not_whole_is_left_out():
    """A system needs all tables of a seed; without neighbours nothing is said of them."""
    results = _made()
    del results[name(MADE, "b", "NRF", 1)]
    assert BlockResults(MADE, results).seeds["NRF"] == [0]
    del results[name(MADE, "a", "5-NN", 0)]
    found = BlockResults(MADE, results)
    assert found.methods == ["NRF", "1-NN", "LUNAR"], "5-NN has no seed of the large table"
    rows = block_rows(MADE, results)
    assert not [row for row in rows if row.metric == BEHIND]
    overview, one_by_one = block_sections(MADE, rows, ("NRF",))
    assert "Not run yet: 5-NN." in overview.text
    assert {line[3] for line in overview.tables[0].rows} == {""}
    assert [line[0] for line in one_by_one.tables[0].rows] == ["a", "b", "c"]
    assert block_rows(MADE, {}) == []
    assert block_sections(MADE, [], ("NRF",)) == []


def test_the_first_block_is_summed_up_by_what_is_there(tmp_path):
    config = DetectorsConfig(("iris",), ("NRF", "1-NN"), 1, blocks=(MADE,))
    one = {"average_precision": 0.5, "fit_seconds": 1.0, "score_seconds": 1.0}
    outcome = Detectors().summarise(config, {"0-iris-1-nn": {"auroc": 0.75} | one, **_made()}, {})
    first = {(row.method, row.metric): row.mean for row in outcome.rows if row.preset is None and row.case is None}
    assert first["1-NN", "AUROC"] == 0.75
    assert {method for method, _ in first} == {"1-NN"}
    assert [section.heading for section in outcome.sections][2:] == ["Real tables", "Real tables, one by one"]
    assert len(Detectors().summarise(config, _made(), {}).sections) == 2


def test_pages_take_the_record_and_until_then_the_cells(tmp_path, monkeypatch):
    block = BlockConfig(WIDE, ("days, 70 × 150",), ("1-NN", "5-NN"), 1)
    monkeypatch.setattr("nrf.reproduce.pages.detector_tables.BLOCKS", (block,))
    Record("detectors", "nrf").write(tmp_path / "detectors.json")
    table = TABLES["detectors, short and wide"]
    assert list(table(Records(tmp_path)).rows) == []
    numbers = {"auroc": 0.5, "average_precision": 0.5, "fit_cpu_seconds": 1.0, "score_cpu_seconds": 1.0}
    cells = cells_of(block, {})
    CellFile(tmp_path / "cells" / "detectors.jsonl").add(
        Stored(cell.name, 1, cell.described(), None, numbers).as_line() for cell in cells
    )
    assert table(Records(tmp_path)).rows == [["days, 70 × 150", "0.500", "0.500"]]
    better = {cell.name: numbers | {"auroc": 0.75} for cell in cells}
    Record("detectors", "nrf", rows=block_rows(block, better)).write(tmp_path / "detectors.json")
    assert table(Records(tmp_path)).rows == [["days, 70 × 150", "0.750", "0.750"]]


def test_the_mean_of_five_counts_among_the_neighbours_where_it_is_there():
    block = replace(MADE, methods=(*MADE.methods, "DTE-NP"))
    results = _made(MADE)
    assert BlockResults(block, results).behind("NRF", 0.03) is None, "it is still to be run"
    for dataset in block.datasets:
        for seed in block.seeds_of(dataset, "DTE-NP"):
            results[name(block, dataset, "DTE-NP", seed)] = {"auroc": 0.95}
    assert BlockResults(block, results).behind("NRF", 0.03) == 3
    assert BlockResults(MADE, results).behind("NRF", 0.03) == 1
