"""Drift of what a service scores: the monitor sees the same rows as one by hand, behind the answers."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from nrf.detect import DriftMonitor
from nrf.serve import app, watches
from nrf.serve.limits import Refused
from nrf.serve.served import Models
from some_services import arrow_bytes, client, fitted, json_rows, number_table, post

from some_services import ARROW, message  # isort: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    fitted("numbers").save(tmp_path / "model")
    monkeypatch.setattr(app, "DRIFT_SECONDS", 0.01)
    return tmp_path / "model"


def _moved(n, shift, seed):
    table = number_table(n, seed=seed)
    return table.set_column(1, "b", pa.array(table["b"].to_numpy() + shift))


def _answer(asked, n):
    """`/drift`, once so many rows were looked at."""
    for _ in range(1000):
        if f'nrf_drift_rows{{model="default"}} {n}.0' in asked.get("/metrics").text:
            return asked.get("/drift").json()
        time.sleep(0.02)
    raise AssertionError(f"{n} rows were not looked at")


def test_the_monitor_sees_what_is_scored_in_its_order(folder):
    parts = [number_table(300, seed=5), _moved(2, 0.0, 6), _moved(400, 1.5, 7)]
    by_hand = DriftMonitor(fitted("numbers"), 0.01)
    for part in parts:
        state = by_hand.update(part)
    assert state.moved == ("b",), "or the test says nothing"
    with client(folder, drift_level=0.01) as asked:
        for part, path in zip(parts, ("/score", "/predict", "/score"), strict=True):
            assert post(asked, path, arrow_bytes(part), ARROW).status_code == 200
        found = _answer(asked, 702)
        metrics = asked.get("/metrics").text
    assert [column["name"] for column in found["columns"] if column["alarm"]] == ["b"]
    assert found["alarm"]
    assert found["level"] == 0.01
    assert [c["alarm_row"] for c in found["columns"]] == [c.alarm_row for c in state.columns]
    assert found["score"]["e_value"] == pytest.approx(10**state.score.log10_e, rel=1e-3)
    assert 'nrf_drift_alarm{model="default"} 1.0' in metrics
    assert 'nrf_drift_rows{model="default"} 702.0' in metrics
    assert 'nrf_drift_log10_evidence{model="default",series="b"}' in metrics


def test_no_alarm_without_a_change(folder):
    with client(folder, drift_level=0.01) as asked:
        post(asked, "/score", arrow_bytes(number_table(500, seed=8)), ARROW)
        found = _answer(asked, 500)
    assert not found["alarm"]
    assert 0 < found["e_value"] < 100


def test_a_model_that_is_loaded_again_has_a_monitor_of_its_own(folder):
    models = Models(folder)
    with client(models, drift_level=0.01, watch_seconds=3600) as asked:
        post(asked, "/score", arrow_bytes(number_table(200, seed=9)), ARROW)
        _answer(asked, 200)
        fitted("numbers", seed=1).save(folder)
        models.refresh()
        assert asked.get("/drift").json()["n"] == 0


def test_rows_that_find_no_room_are_counted(folder, monkeypatch):
    monkeypatch.setattr(watches, "MOST_WAITING", 100)
    with client(folder, drift_level=0.01) as asked:
        assert post(asked, "/score", arrow_bytes(number_table(150, seed=9)), ARROW).status_code == 200
        post(asked, "/score", arrow_bytes(number_table(50, seed=10)), ARROW)
        assert _answer(asked, 50)["n"] == 50
        assert "nrf_drift_rows_passed_over_total 150.0" in asked.get("/metrics").text


def test_without_a_monitor_it_says_how_to_have_one(folder):
    with client(folder) as asked:
        assert post(asked, "/score", json_rows(number_table(3))).status_code == 200
        answer = asked.get("/drift")
    assert answer.status_code == 404
    assert "--drift 0.01" in message(answer)


def _watches(folder):
    seen = []
    found = watches.Watches(0.01, lambda name, state: seen.append(state.n), lambda n: None)
    return found, next(iter(Models(folder).served.values())), seen


def _rows(model, n):
    return np.zeros(n), np.zeros((n, model.detector.encoder_.n_outputs), dtype=np.float32)


def test_rows_of_a_model_that_was_replaced_do_not_begin_its_monitor_anew(folder):
    """A request keeps the model it began with, so its rows may come after those of the next one."""
    found, old, seen = _watches(folder)
    new = next(iter(Models(folder).served.values()))
    for model, n in ((old, 10), (new, 20), (old, 10), (new, 30)):
        found.take(model, *_rows(model, n))
    found.work()
    assert seen == [10, 20, 50]
    assert found.report(new)["n"] == 50
    with pytest.raises(Refused, match="has just been replaced"):
        found.report(old)


def test_small_parts_are_joined_and_none_is_lost(folder):
    found, model, seen = _watches(folder)
    for n in (3, 60, 1, 300, 1):
        found.take(model, *_rows(model, n))
    found.work()
    assert seen == [64, 364, 365]


def test_what_was_looked_at_makes_room(folder, monkeypatch):
    monkeypatch.setattr(watches, "MOST_WAITING", 100)
    found, model, seen = _watches(folder)
    for _ in range(3):
        found.take(model, *_rows(model, 80))
        found.work()
    assert seen == [80, 160, 240]


def test_while_others_are_busy_one_part_is_looked_at(folder):
    found, model, seen = _watches(folder)
    for n in (64, 64, 64):
        found.take(model, *_rows(model, n))
    found.work(lambda: True)
    assert seen == [64]
    found.work(lambda: len(seen) >= 2)
    assert seen == [64, 128]
    found.work()
    assert seen == [64, 128, 192]
