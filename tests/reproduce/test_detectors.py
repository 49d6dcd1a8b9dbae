"""The comparison of detectors: its data sets, its methods, its summary."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import types
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from nrf.errors import InputError
from nrf.reproduce.baselines import BASELINES, Baseline, find_baseline, shortened
from nrf.reproduce.baselines.ours import NRF, detector_defaults
from nrf.reproduce.detectors import experiment
from nrf.reproduce.detectors.blocks import BLOCKS
from nrf.reproduce.detectors.cells import measure, run_cell
from nrf.reproduce.detectors.experiment import CONTROL, METHODS, OURS, QUICK, Detectors, DetectorsConfig
from nrf.reproduce.detectors.sets import DATASETS, Task, load
from nrf.reproduce.detectors.standing import RANK, ranks
from nrf.reproduce.runner.record import Record
from nrf.reproduce.runner.run import Options, reproduce

NUMBERS = {"auroc", "average_precision"} | {f"{what}_seconds" for what in ("fit", "score", "fit_cpu", "score_cpu")}
EVERY_METHOD = list(dict.fromkeys([*METHODS, *(method for block in BLOCKS for method in block.methods)]))


@pytest.fixture
def _tqdm(monkeypatch):
    """PyOD imports tqdm and does not declare it; its bars are off here, so that a range will do."""
    if importlib.util.find_spec("tqdm") is None:
        stand_in = types.ModuleType("tqdm")
        stand_in.__spec__ = importlib.machinery.ModuleSpec("tqdm", None)
        stand_in.trange = lambda n, **_: range(n)
        monkeypatch.setitem(sys.modules, "tqdm", stand_in)


@pytest.fixture(scope="module")
def ring():
    """A standard Gaussian in the plane, and anomalies far outside."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 80)
    far = 8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Task("ring", rng.normal(size=(200, 2)), rng.normal(size=(80, 2)), far)


# ----------------------------------------------------------------------------------------------------------- data sets


def _lines(rows):
    """Rows as something that can be compared and looked up."""
    return [tuple(line) for line in pd.DataFrame(rows).astype(str).to_numpy().tolist()]


@pytest.mark.parametrize("name", DATASETS)
def test_shapes(name):
    task = load(name, 0)
    assert 40 <= len(task.train) <= 2000
    assert len(task.normal) == len(task.anomalies) >= 20
    assert task.train.shape[1:] == task.normal.shape[1:] == task.anomalies.shape[1:]
    assert len(task.test) == len(task.labels)
    assert task.labels.sum() == len(task.anomalies)
    assert _lines(task.test[task.labels == 1]) == _lines(task.anomalies)
    train, test = task.as_numbers()
    assert len(train) == len(task.train)
    assert test.shape == (len(task.test), train.shape[1])
    assert np.isfinite(train).all()
    assert np.isfinite(test).all()
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-9)
    assert ((np.abs(train.std(0) - 1) < 1e-6) | (train.std(0) < 1e-6)).all()


@pytest.mark.parametrize("name", DATASETS)
def test_a_seed_decides(name):
    first, again, other = load(name, 0), load(name, 0), load(name, 1)
    for part in ("train", "normal", "anomalies"):
        assert _lines(getattr(first, part)) == _lines(getattr(again, part))
    assert _lines(first.train) != _lines(other.train)
    assert _lines(first.anomalies) != _lines(other.anomalies)


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("categories", "iris")])
def test_no_test_row_is_in_training(name):
    """Rows of few categories, and flowers measured to a millimetre, come up twice by themselves."""
    task = load(name, 0)
    train = set(_lines(task.train))
    assert not train & set(_lines(task.normal))
    assert not train & set(_lines(task.anomalies))


@pytest.mark.parametrize(
    ("name", "loader", "normal"),
    [
        ("digit 0", "load_digits", {0}),
        ("digit 3", "load_digits", {3}),
        ("digit 8", "load_digits", {8}),
        ("breast cancer", "load_breast_cancer", {1}),
        ("wine", "load_wine", {1}),
        ("iris", "load_iris", {0, 2}),
    ],
)
def test_classes_are_on_the_side_they_belong_to(name, loader, normal):
    x, y = getattr(datasets, loader)(return_X_y=True)
    labels = {}
    for line, label in zip(_lines(x), y, strict=True):
        labels.setdefault(line, set()).add(int(label))
    task = load(name, 3)
    for rows in (task.train, task.normal):
        assert all(labels[line] <= normal for line in _lines(rows))
    assert all(not labels[line] & normal for line in _lines(task.anomalies))


@pytest.mark.parametrize("name", ["diabetes, shuffled", "categories", "correlated, 20 columns"])
def test_shuffled_anomalies_are_normal_column_by_column(name):
    """Only what ties the columns tells them apart, and something does."""
    task = load(name, 0)
    if name == "diabetes, shuffled":
        np.testing.assert_array_equal(np.sort(task.anomalies, axis=0), np.sort(task.normal, axis=0))
    _, test = task.as_numbers()
    far = np.abs(test[task.labels == 1].mean(0) - test[task.labels == 0].mean(0))
    assert far.max() < 0.35
    assert measure(find_baseline("1-NN"), task, 0)["auroc"] > 0.65


def test_tables_have_what_their_names_say():
    categories, mixed = load("categories", 0), load("mixed, with holes", 0)
    assert all(isinstance(v, str) for v in categories.train.to_numpy().ravel())
    assert mixed.train["car"].dtype == bool
    for name in ("job", "age", "income"):
        assert 0.05 < mixed.train[name].isna().mean() < 0.15
    assert {"city", "suburb", "country"} == set(mixed.train["place"])
    assert mixed.as_numbers()[0].shape[1] > 10


def test_an_unknown_data_set_is_named():
    with pytest.raises(InputError, match=r"mnist.*iris"):
        load("mnist", 0)


# ------------------------------------------------------------------------------------------------------------- methods


@pytest.mark.usefixtures("_tqdm")
@pytest.mark.parametrize("name", [name for name in EVERY_METHOD if name not in (CONTROL, "ALAD (PyOD)")])
def test_scores_are_high_for_normal_rows(name, ring):
    result = measure(find_baseline(name), ring, 0)
    assert set(result) == NUMBERS | {"warnings"}
    assert result["auroc"] > 0.9
    assert result["average_precision"] > 0.9
    assert result["fit_seconds"] >= 0
    assert result["score_seconds"] >= 0
    assert result["fit_cpu_seconds"] >= 0
    assert result["score_cpu_seconds"] >= 0


def test_pyods_alad_points_the_same_way(ring):
    """At its defaults PyOD's ALAD scores with dropout on, and hardly sees the ring; without dropout it does."""
    assert measure(find_baseline("ALAD (PyOD)", dropout_rate=0.0), ring, 0)["auroc"] > 0.65


@pytest.mark.usefixtures("_tqdm", "no_global_randomness")
@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_method_hangs_on_its_seed_and_leaves_no_trace(name, ring, capsys):
    numbers, words, hashing = np.random.get_state()[1].copy(), random.getstate(), os.environ.get("PYTHONHASHSEED")  # noqa: NPY002
    method = shortened(find_baseline(name))
    first, again = measure(method, ring, 1), measure(method, ring, 1)
    assert first["auroc"] == again["auroc"]
    assert first["average_precision"] == again["average_precision"]
    np.testing.assert_array_equal(numbers, np.random.get_state()[1])  # noqa: NPY002
    assert random.getstate() == words
    assert os.environ.get("PYTHONHASHSEED") == hashing
    assert capsys.readouterr().out == ""


def test_ours_are_the_defaults_and_get_the_table_itself():
    given = []

    @dataclass
    class Falling(Baseline):
        def learn(self, rows):
            given.append(rows)

        def scores(self, rows):
            return np.arange(len(rows), 0, -1)

    @dataclass
    class OfTables(Falling):
        takes_tables = True

    task = load("mixed, with holes", 0, 30)
    assert measure(OfTables(), task, 0)["auroc"] == 1.0
    assert given[0] is task.train
    measure(Falling(), task, 0)
    assert isinstance(given[1], np.ndarray)
    assert all(BASELINES[name].takes_tables for name in (*OURS, CONTROL))
    assert BASELINES["NRF"] == NRF()


def test_the_neighbours_are_the_right_ones():
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    for name, far in (("1-NN", -1.0), ("5-NN", -5.0), ("DTE-NP", -3.0)):
        assert find_baseline(name).fit(rows).score_samples(np.array([[5.0]])).tolist() == [far]


def test_warnings_are_kept():
    result = measure(shortened(find_baseline("NRF")), load("digit 0", 0, 40), 0)
    assert any("columns left out" in text for text in result["warnings"])


def test_scores_that_are_not_finite_are_an_error(ring):
    @dataclass
    class Broken(Baseline):
        def learn(self, rows):
            pass

        def scores(self, rows):
            return np.full(len(rows), np.nan)

    with pytest.raises(InputError, match="'ring', seed 4, is not finite"):
        measure(Broken(), ring, 4)


def test_what_is_missing_is_named_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyod.models.ecod", None)
    with pytest.raises(InputError, match=r'pip install "nrf\[reproduce\]"'):
        Detectors().cells(DetectorsConfig(methods=("ECOD",)), tmp_path)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    for name in ("pyod.models.auto_encoder", "pyod.models.base_dl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(InputError, match=r'tqdm.*pip install "nrf\[reproduce\]"'):
        Detectors().cells(DetectorsConfig(methods=("autoencoder",)), tmp_path)
    with pytest.raises(InputError, match=r"unknown method 'kNN'.*1-NN"):
        Detectors().cells(DetectorsConfig(methods=("kNN",)), tmp_path)


# ------------------------------------------------------------------------------------------------------------- summary


def test_ranks_share_ties():
    scores = np.array([[1.0, 0.5, 1.0, 0.7], [0.2, 0.2, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]])
    expected = [[1.5, 4, 1.5, 3], [2.5, 2.5, 2.5, 2.5], [4, 3, 2, 1]]
    np.testing.assert_array_equal(ranks(scores), expected)
    nearly = np.array([[0.1 + 0.2, 0.3]])  # differ in the last bit
    np.testing.assert_array_equal(ranks(nearly), [[1.5, 1.5]])


@pytest.mark.usefixtures("_tqdm")
def test_cells_go_seed_by_seed(tmp_path):
    study, config = Detectors(), DetectorsConfig()
    cells = study.cells(config, tmp_path)
    assert len(DATASETS) >= 14
    assert len(cells) == len(DATASETS) * len(METHODS) * 5 == len({cell.name for cell in cells})
    first = cells[: len(DATASETS) * len(METHODS)]
    assert all(cell.name.startswith("0-") for cell in first)
    assert all(cell.name.replace("-", "").isalnum() for cell in cells)
    assert list(study.seeds(config)) == [0, 1, 2, 3, 4]


def test_numbers_land_in_their_rows(tmp_path):
    """Made-up cells: which number is whose, the means, the ranks, the tables' order."""
    config = DetectorsConfig(("iris", "wine"), ("NRF", "1-NN", "ECOD"), 2)
    made = {("iris", "NRF"): 0.9, ("wine", "NRF"): 0.7, ("iris", "1-NN"): 0.8, ("wine", "1-NN"): 0.7}
    results = {}
    for cell in Detectors().cells(config, tmp_path):
        dataset, seed = cell.settings["dataset"], cell.settings["seed"]
        method = next(name for name in config.methods if BASELINES[name] == cell.settings["system"])
        value = made.get((dataset, method), 1.0) - 0.1 * seed
        seconds = {"fit_seconds": 1.0 + 2 * seed, "score_seconds": 0.5}
        results[cell.name] = {"auroc": value, "average_precision": value / 2, **seconds, "warnings": []}
    outcome = Detectors().summarise(config, results, {})
    by = {(row.method, row.metric, row.case): row for row in outcome.rows}
    row = by["NRF", "AUROC", "iris"]
    assert (row.mean, row.sd, row.n) == (pytest.approx(0.85), pytest.approx(0.1 / 2**0.5), 2)
    assert by["NRF", "AUROC", None].mean == pytest.approx(0.75)
    assert by["NRF", "AUROC", None].sd == pytest.approx(0.1 / 2**0.5)
    assert by["NRF", "average precision", None].mean == pytest.approx(0.375)
    assert [by[m, RANK, None].mean for m in config.methods] == [2.25, 2.75, 1.0]
    assert by["ECOD", "fit seconds", None].mean == 2.0
    overview, by_dataset = outcome.sections
    assert [line[0] for line in overview.tables[0].rows] == ["ECOD", "NRF", "1-NN"]
    assert overview.tables[0].marked == {1}
    assert list(by_dataset.tables[0].header) == ["data set", "ECOD", "NRF", "1-NN"]
    assert by_dataset.tables[0].rows[0][2] == "0.850 ± 0.071"
    assert [value for value, _ in outcome.headline] == ["0.750", "0.950"]


def test_one_seed_has_no_spread(tmp_path):
    config = replace(QUICK, datasets=("iris",), methods=("1-NN",), seeds=1)
    results = {cell.name: cell.compute(tmp_path) for cell in Detectors().cells(config, tmp_path)}
    outcome = Detectors().summarise(config, results, {})
    assert {row.sd for row in outcome.rows} == {None}


def test_other_defaults_of_ours_are_other_cells(tmp_path, monkeypatch):
    """Nobody names them, and yet a cell hangs on them."""
    config = DetectorsConfig(("iris",), ("NRF", "1-NN"), 1)
    ours, neighbour = (cell.described() for cell in Detectors().cells(config, tmp_path))
    assert "sigma" in json.dumps(ours)
    monkeypatch.setitem(experiment.DEFAULTS, "defaults", [detector_defaults(99, 61)])
    other, same = Detectors().cells(config, tmp_path)
    assert not other.has(1, ours)
    assert same.has(1, neighbour)


def test_quick_writes_every_row(tmp_path):
    said = []
    reproduce(Detectors(), Options(tmp_path, tmp_path / "results", 1, quick=True, quiet=True), said.append)
    (folder,) = tmp_path.iterdir()
    record = Record.read(folder / "detectors.json")
    overall = {"AUROC", "average precision", RANK, "fit seconds", "score seconds"}
    expected = {(m, metric, None) for m in QUICK.methods for metric in overall}
    expected |= {
        (m, metric, d) for m in QUICK.methods for d in QUICK.datasets for metric in ("AUROC", "average precision")
    }
    first = [row for row in record.rows if row.preset is None]
    assert {(row.method, row.metric, row.case) for row in first} == expected
    assert len(first) == len(expected)
    (block,) = QUICK.blocks
    assert {(row.preset, row.method) for row in record.rows if row.preset} == {(block.name, m) for m in block.methods}
    assert record.seeds == [0, 1]
    assert (folder / "detectors" / "auroc.png").is_file()
    assert "mean rank" in "".join(said)
    assert "By data set" in (folder / "report.html").read_text()
    found = [run_cell(find_baseline("1-NN"), "iris", 0, 60)["auroc"] for _ in range(2)]
    assert found[0] == found[1]
