"""KDDCUP: splits, columns, the compared systems, and the whole experiment on an invented file."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nrf.data import kddcup99 as kdd
from nrf.data import kddcup99_released
from nrf.errors import InputError
from nrf.reproduce.baselines import fit_and_score
from nrf.reproduce.kddcup import cells
from nrf.reproduce.kddcup.ablation import CHANGES, DETECTORS, INCLUSIVE, AblationConfig, KDDAblation, changed
from nrf.reproduce.kddcup.experiment import (
    ARRAY,
    BEST,
    MOMENTUM_GAIN,
    QUICK,
    SAMPLERS,
    KDDConfig,
    KDDCup,
    runs_of,
    sized,
    systems,
)
from nrf.reproduce.runner import run, watch
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.experiment import Deadline
from nrf.reproduce.runner.record import Record, Row
from nrf.reproduce.runner.run import Options, reproduce
from nrf.reproduce.runner.watch import chosen
from nrf.runs.presets import find_preset


def _file(n_distinct=900, n_rows=3000, seed=0):
    """Attacks on a curve, in four columns and two categories; normal connections beside it. Most rows repeat."""
    rng = np.random.default_rng(seed)
    anomaly = (rng.random(n_distinct) < 0.2).astype(np.int64)
    t = rng.uniform(-1, 1, n_distinct)
    shift = np.where(anomaly == 1, 1.5, 0.0)
    continuous = np.stack([t, t**2 + shift, -t + shift, np.abs(t)], axis=1) + 0.05 * rng.normal(size=(n_distinct, 4))
    one_hot = np.eye(2, dtype=np.float32)[(t > 0).astype(int)]
    index = np.concatenate([np.arange(n_distinct), rng.integers(0, n_distinct, n_rows - n_distinct)])
    index = rng.permutation(index)
    return kdd.Table(continuous, one_hot, ("a", "b", "c", "d", "k=0", "k=1"), index, anomaly[index])


def _array():
    """The same rows as the released array has them: encoded, scaled by all attacks."""
    table = _file()
    normal = table.continuous[np.unique(table.index[table.labels == 0])]
    scaled = (table.continuous - normal.min(0)) / np.ptp(normal, axis=0)
    rows = np.concatenate([table.one_hot, scaled.astype(np.float32)], axis=1)
    return kddcup99_released.Released(rows[table.index], table.labels)


@pytest.fixture
def invented(monkeypatch):
    monkeypatch.setattr(cells.kdd, "read", lambda folder: _file())
    monkeypatch.setattr(cells, "require", lambda dataset, path: Path("nowhere"))
    monkeypatch.setattr(cells, "search", lambda dataset: Path("nowhere"))
    monkeypatch.setattr(cells.kddcup99_released, "read", lambda folder: _array())
    cached = (cells._table, cells.load, cells._released, cells.load_released)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def test_a_split_is_halves_and_unseen_rows_are_new(invented):
    split = cells.load(3)
    table = _file()
    halves = kdd.divide(table, 3)
    assert len(split.test) == 1500
    np.testing.assert_array_equal(split.splits.test, split.distinct[split.test])
    known = {row.tobytes() for row in split.splits.train}
    assert not any(row.tobytes() in known for row in split.distinct[split.unseen])
    assert len({row.tobytes() for row in split.distinct[split.unseen]}) == len(split.unseen)
    np.testing.assert_array_equal(split.labels, table.labels[halves.test])
    assert set(split.unseen_labels) == {0, 1}
    np.testing.assert_array_equal(split.splits.train, split.distinct[split.trained])
    assert split.features.column_names == ["a", "b", "c", "d", "k"]
    np.testing.assert_array_equal(split.features["c"], table.continuous[:, 2])
    assert split.features["k"].to_pylist() == ["1" if hot else "0" for hot in table.one_hot[:, 1]]


def test_a_split_of_the_released_array_has_the_rows_of_the_same_split(invented):
    split, array = cells.load(3), cells.load_released(3)
    np.testing.assert_array_equal(array.labels, split.labels)
    np.testing.assert_array_equal(array.splits.test, array.distinct[array.test])
    np.testing.assert_array_equal(array.splits.train, array.distinct[array.trained])
    assert len(array.unseen) == len(split.unseen)
    known = {row.tobytes() for row in array.splits.train}
    assert not any(row.tobytes() in known for row in array.distinct[array.unseen])
    with pytest.raises(InputError, match="kddcup99-released has encoded columns alone"):
        array.features  # noqa: B018


def test_where_the_released_array_is_missing_its_cells_are_left_out_with_the_reason(
    invented, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(cells, "search", lambda dataset: None)
    (cell, *_) = (c for c in KDDCup().cells(QUICK, tmp_path) if c.place.line.startswith(ARRAY))
    assert run._compute(cell, tmp_path, Deadline(), 0.0) is None
    assert "kdd_cup_released.npz is not here; set NRF_DATA" in caplog.text
    assert not (tmp_path / "cells.jsonl").exists()


def test_models_of_the_code_with_two_generators_do_not_count():
    found = {cell.place.line: cell.revision for cell in KDDCup().cells(KDDConfig(), Path("nowhere"))}
    trained = [line for line in found if "inclusive-NRF" in line]
    assert len(trained) == 6
    assert {found[line] for line in trained} == {2}
    assert {revision for line, revision in found.items() if line not in trained} == {1}


def test_a_perfect_score_has_perfect_numbers(invented):
    split = cells.load(0)
    truth = np.zeros(len(split.distinct), dtype=np.float32)
    truth[split.test] = -split.labels
    truth[split.unseen] = -split.unseen_labels
    numbers = split.numbers(truth)
    assert numbers["AUROC"] == numbers["unseen AUROC"] == numbers["unseen F1"] == 1.0
    assert numbers["recall"] > 0.95 or numbers["precision"] > 0.95  # a fifth is flagged, be it too much or too little


def test_each_column_reports_its_epoch():
    curve = [
        {"last weights: F1": 0.5, "last weights: synthetic AUROC": 0.9},
        {"last weights: F1": 0.9, "last weights: synthetic AUROC": 0.7},
        {"last weights: F1": 0.6, "last weights: synthetic AUROC": 0.8},
    ]
    assert [chosen(curve, c, "F1") for c in ("last", "selected", "oracle")] == [2, 0, 1]


def test_what_runs_on_which_split():
    config = KDDConfig()
    assert BEST in runs_of(config, 19)
    assert {method for setting, method in runs_of(config, 19) if setting == "released"} == set(SAMPLERS)
    assert not any(setting == "paper" for setting, _ in runs_of(config, config.paper_splits))
    keys = [cell.name for cell in KDDCup().cells(config, Path("nowhere"))]
    assert len(set(keys)) == len(keys)


def test_a_killed_run_goes_on_with_its_curve(invented, tmp_path, monkeypatch):
    preset = sized(replace(QUICK, epochs=3), "released", "inclusive-NRF, SGHMC", 0)
    preset = replace(preset, train=replace(preset.train, batch_size=64))
    whole = cells.train_on(preset, cells.load(0), tmp_path / "whole")
    assert [point["epoch"] for point in whole] == [1, 2, 3]
    write, times = watch.write_atomically, []

    def die_at_the_third(path, content):
        times.append(path)
        if len(times) == 3:
            raise RuntimeError("killed")
        write(path, content)

    monkeypatch.setattr(watch, "write_atomically", die_at_the_third)
    with pytest.raises(RuntimeError, match="killed"):
        cells.train_on(preset, cells.load(0), tmp_path / "killed")
    assert cells.train_on(preset, cells.load(0), tmp_path / "killed") == whole


def test_the_detector_is_looked_at_after_every_epoch(invented):
    curve = cells.detect_and_watch(cells.load(0), 0, 3, **INCLUSIVE)
    assert [point["epoch"] for point in curve] == [1, 2, 3]
    longer = cells.detect_and_watch(cells.load(0), 0, 12, **INCLUSIVE)
    assert longer[-1]["last weights: AUROC"] > 0.8
    assert 0.5 < longer[-1]["last weights: synthetic AUROC"] <= 1


def test_a_detector_without_epochs_is_looked_at_once(invented):
    curve = cells.detect_and_watch(cells.load(0), 0)
    (found,), (made,) = (watch.values_of(curve, metric) for metric in ("AUROC", "synthetic AUROC"))
    assert found > 0.9
    assert 0.5 < made <= 1


def test_some_lines_make_a_record_and_leave_the_rows_of_others(invented, tmp_path):
    earlier = Record("kddcup", "", rows=[Row("1-NN", "F1", 0.5), Row("NRFDetector", "F1", 0.1, preset="best")])
    earlier.write(tmp_path / "results" / "kddcup.json")
    options = Options(
        jobs=1, quiet=True, lines=("best",), seeds=(0,), out=tmp_path / "out", results=tmp_path / "results"
    )
    record = reproduce(KDDCup(), options, lambda text: None)
    assert [row.mean for row in record.rows if row.method == "1-NN"] == [0.5]
    found = [row for row in record.rows if (row.method, row.metric, row.column) == ("NRFDetector", "F1", "last")]
    assert {row.case for row in found} == {"all test rows", "unseen rows"}
    assert all(row.n == 1 and row.mean > 0.1 for row in found)


@pytest.mark.parametrize("name", [name for name in systems(20) if name not in ("ALAD (PyOD)", "untrained potential")])
def test_compared_systems_beat_chance(invented, name):
    numbers = cells.compared_cell(systems(20)[name], 0, None)
    assert numbers["AUROC"] > 0.6
    assert numbers["AUROC"] == cells.compared_cell(systems(20)[name], 0, None)["AUROC"]


def test_the_control_hangs_on_its_seed_alone(invented):
    control, rows = systems(20)["untrained potential"], cells.load(0)
    found = [fit_and_score(control, rows.splits.train, rows.distinct, seed).scores for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    preset = find_preset("kddcup-sgld-released")
    potential, _ = preset.networks(rows.splits.event_shape, preset.seed)
    np.testing.assert_array_equal(found[0], watch.potential_of(potential, rows.distinct))


def test_systems_differ_from_the_registry_in_what_is_named():
    """Rows drawn where more would cost too much, and ν; all else is what every table has."""
    changed = {
        name: {f: v for f, v in vars(s).items() if v != vars(type(s)()).get(f)} for name, s in systems(20).items()
    }
    assert changed["OC-SVM"] == {"nu": 0.05, "max_rows": 10_000}
    assert changed["ALAD"] == {"epochs": 20, "batch_size": 1024}
    assert changed["ALAD (PyOD)"] == {"epochs": 20, "batch_size": 1024, "latent_dim": 32, "max_rows": 50_000}
    assert changed["DAGMM"] == {"epochs": 20}
    assert changed["1-NN"] == {"distinct": True}


def test_the_experiment_makes_its_tables(invented, tmp_path):
    pytest.importorskip("pyod")
    pytest.importorskip("tqdm")
    options = Options(quick=True, jobs=1, quiet=True, out=tmp_path / "out", results=tmp_path / "results")
    record = reproduce(KDDCup(), options, lambda text: None)
    assert isinstance(record, Record)
    rows = {(r.method, r.preset, r.case, r.column, r.metric): r for r in record.rows}
    found = rows["inclusive-NRF, SGLD", "released", "all test rows", "oracle", "F1"]
    assert found.paper == 0.9525
    assert found.n == QUICK.splits
    assert rows["inclusive-NRF, SGLD", ARRAY, "all test rows", "oracle", "F1"].paper == 0.9525
    last = rows["inclusive-NRF, SGLD", "released", "all test rows", "last", "F1"]
    assert last.mean <= found.mean
    for column in ("last", "oracle"):
        slow, fast = (rows[f"inclusive-NRF, {s}", "released", "all test rows", column, "F1"] for s in ("SGLD", "SGHMC"))
        gain = rows["inclusive-NRF, SGHMC", "released", "all test rows", column, MOMENTUM_GAIN]
        assert gain.mean == pytest.approx(fast.mean - slow.mean)
        assert gain.n == QUICK.splits
    assert rows["1-NN", None, "unseen rows", None, "AUROC"].mean > 0.8
    best = rows["NRFDetector", "best", "all test rows", "last", "F1"]
    stored = CellFile(tmp_path / "out" / "kddcup-quick" / "cells.jsonl").read()[0]
    outcome = KDDCup().summarise(QUICK, {cell.name: cell.result for cell in stored}, {})
    assert outcome.headline[0] == (f"{best.mean:.3f} ± {best.sd:.3f}", "F1 of `best`, last")
    (curve,) = tmp_path.glob("out/kddcup*/runs/00-released-inclusive-nrf--sgld-????????/curve.json")
    assert len(json.loads(curve.read_text())) == QUICK.epochs


def test_the_ablation_has_development_splits_of_its_own(invented, tmp_path):
    ablation = KDDAblation()
    assert not set(ablation.seeds(AblationConfig())) & set(KDDCup().seeds(KDDConfig()))
    options = Options(quick=True, jobs=1, quiet=True, out=tmp_path / "out", results=tmp_path / "results")
    record = reproduce(ablation, options, lambda text: None)
    assert {row.method for row in record.rows} == {*CHANGES, *DETECTORS}
    presets = [changed(name) for name in CHANGES]
    assert all(a != b for a, b in itertools.combinations(presets, 2))
    last = {row.method: row.mean for row in record.rows if row.metric == "AUROC, last epoch"}
    assert last["NRFDetector"] > last["released"]
