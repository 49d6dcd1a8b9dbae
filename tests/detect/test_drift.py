"""`DriftMonitor`: what it sees, what it keeps, and errors that name the fix."""

from __future__ import annotations

import json
import sys
import threading

import numpy as np
import pytest
from scipy.stats import binom

from nrf.detect import DriftMonitor, NRFDetector, Windows, drift_report
from nrf.detect import drift as module
from nrf.errors import InputError

pd = pytest.importorskip("pandas")
TIME = "2030-01-01T00:00:00+00:00"


def table(n: int, seed: int, *, shift: float = 0.0, rare: float = 0.1, missing: float = 0.2, gone: bool = False):
    """Two numbers that go together, one with gaps; levels of two columns; a boolean."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    amount = z + 0.5 * rng.normal(size=n) + shift
    balance = np.where(rng.random(n) < missing, np.nan, 2 * z + rng.normal(size=n))
    return pd.DataFrame(
        {
            "amount": np.where(gone, np.nan, amount),
            "balance": balance,
            "city": rng.choice(["Oslo", "Rome", "Bonn"], p=[0.9 - rare, rare, 0.1], size=n),
            "paid": rng.random(n) < 0.3,
        }
    )


@pytest.fixture(scope="module")
def detector():
    return NRFDetector(field="density", random_state=0).fit(table(800, 0))


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(module, "_utc_now", lambda: TIME)


def test_nothing_changes_and_nothing_is_said(detector):
    monitor = DriftMonitor(detector)
    assert monitor.columns == ("amount", "balance", "city", "paid", "(unexpected)")
    state = monitor.update(table(3000, 1))
    assert (state.n, state.level, state.alarm, state.moved, state.waiting) == (3000, 0.01, False, (), 0)
    assert state.log10_peak < 2


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"shift": 1.0}, ("amount",)),
        ({"rare": 0.6}, ("city",)),
        ({"missing": 0.6}, ("balance",)),
        ({"gone": True}, ("amount", "(unexpected)")),
    ],
)
def test_the_column_that_moved_is_named(detector, change, moved):
    monitor = DriftMonitor(detector)
    assert not monitor.update(table(1000, 1)).alarm
    state = monitor.update(table(400, 2, **change))
    assert state.moved == moved
    first = min(column.alarm_row for column in state.columns if column.alarm)
    assert 1000 < first < 1200
    assert {s.alarm_time for s in state.series if s.alarm} == {TIME}
    later = monitor.update(table(3000, 3))
    assert [s.alarm_row for s in later.columns] == [s.alarm_row for s in state.columns], "an alarm stays as it was"


def test_a_shift_of_all_rows_is_seen_by_the_score(detector):
    """The score is compared with the calibration rows: the stream may be another one from its first row on."""
    rows = table(300, 1, shift=2.5)
    monitor = DriftMonitor(detector)
    state = monitor.update(rows)
    assert state.score.alarm
    assert state.moved == (), "columns have no reference but the stream"
    own = DriftMonitor(detector, reference="stream").update(rows)
    assert not own.alarm, "its own reference is the stream"


def test_examples_are_the_columns_reference_if_they_are_kept():
    kept = NRFDetector(field="density", keep_examples=True, random_state=0).fit(table(800, 0))
    rows = table(200, 1, shift=1.0)
    assert DriftMonitor(kept).update(rows).moved == ("amount",)
    kept.keep_examples = False
    state = DriftMonitor(kept).update(rows)
    assert state.moved == ()
    assert DriftMonitor(kept).update(rows[:100]).waiting == 28


def test_columns_can_be_chosen_or_left_out(detector):
    rows = table(300, 1)
    assert DriftMonitor(detector, columns=["city", "paid"]).columns == ("city", "paid")
    scores = detector.score_samples(rows)
    alone = DriftMonitor(detector, columns=False)
    state = alone.update_scores(scores)
    assert state.columns == ()
    both = DriftMonitor(detector).update(rows)
    assert both.score.log10_e == pytest.approx(state.log10_e - np.log10(2)), "half of the level is the columns'"
    assert alone.update_scores(scores[:0]) == state


@pytest.mark.parametrize("columns", [True, False, ["city"]])
def test_the_level_is_shared_out_and_no_more(detector, columns):
    """Before any row each capital is 1 times its share; Ville's bound holds for the sum of them."""
    shares = [10**series.log10_e for series in DriftMonitor(detector, columns=columns).state.series]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] == pytest.approx(0.5 if columns else 1)
    assert shares[1:] == pytest.approx([0.5 / max(1, len(shares) - 1)] * (len(shares) - 1))


def test_rounding_of_scores_does_not_order_rows(detector):
    step = module.ROUNDINGS * detector.calibration_.tolerance
    scores = np.round(np.random.default_rng(0).choice(detector.calibration_.scores, 300) / step) * step
    states = []
    for shift in (0.0, 0.3 * step, 3000 * step):
        monitor = DriftMonitor(detector, columns=False)
        monitor.update_scores(scores + shift)
        states.append(monitor.to_json())
    assert states[0] == states[1] != states[2]


def test_training_rows_are_no_reference():
    """Where so few rows were given that none was held out, new rows are compared with the first of the stream."""
    with pytest.warns(RuntimeWarning, match="training rows"):
        few = NRFDetector(field="density", false_alarm_rate=0.2, random_state=0).fit(table(15, 0)[["amount"]])
    assert DriftMonitor(few, columns=False).state.waiting == module.BURN_IN


def test_updates_by_scores_rows_and_batches_are_the_same(detector):
    rows = table(260, 1, shift=0.4)
    whole = DriftMonitor(detector)
    whole.update(rows)
    parts, single = DriftMonitor(detector), DriftMonitor(detector)
    scores = detector.score_samples(rows)
    for i in range(0, 260, 90):
        parts.update(rows[i : i + 90])
    for i in range(260):
        single.update_scores(scores[i : i + 1], rows[i : i + 1])
    assert parts.to_json() == whole.to_json()
    assert single.to_json() == whole.to_json()


def test_a_resumed_monitor_is_as_if_it_had_not_stopped(detector, tmp_path):
    rows = table(1500, 1)
    rows.loc[900:, "amount"] += 1.0
    straight = DriftMonitor(detector, level=0.05, seed=3)
    stopped, path = DriftMonitor(detector, level=0.05, seed=3), tmp_path / "drift.json"
    for i, part in enumerate(np.array_split(np.arange(1500), 5)):
        straight.update(rows.iloc[part])
        stopped.update(rows.iloc[part])
        stopped.save(path)
        stopped = DriftMonitor.load(path, detector)
        assert stopped.to_json() == straight.to_json(), i
    assert stopped.state == straight.state
    assert stopped.state.alarm
    assert path.stat().st_mode & 0o777 == 0o600
    other = DriftMonitor(detector, level=0.05, seed=4)
    other.update(rows)
    assert other.state != straight.state


def test_a_saved_detector_goes_on(detector, tmp_path):
    rows, monitor = table(400, 1), DriftMonitor(detector)
    monitor.update(rows[:200])
    monitor.save(tmp_path / "drift.json")
    detector.save(tmp_path / "model")
    again = DriftMonitor.load(tmp_path / "drift.json", NRFDetector.load(tmp_path / "model"))
    assert again.update(rows[200:]) == monitor.update(rows[200:])


def test_the_history_has_at_most_so_many_points(detector):
    monitor = DriftMonitor(detector, columns=False)
    scores = np.random.default_rng(0).choice(detector.calibration_.scores, 5000)
    state = monitor.update_scores(scores)
    rows = [row for row, _ in state.history]
    assert rows == list(range(16, 5001, 16))
    assert state.history[-1][1] != state.history[0][1]


def test_the_report_is_json_of_the_agreed_form(detector):
    monitor = DriftMonitor(detector)
    monitor.update(table(500, 1))
    state = monitor.update(table(3000, 2, shift=9.0))
    report = json.loads(json.dumps(drift_report(state, "default"), allow_nan=False))
    assert {"model", "n", "e_value", "peak", "alarm", "level", "columns", "history"} <= set(report)
    assert (report["model"], report["n"], report["alarm"], report["level"]) == ("default", 3500, True, 0.01)
    assert report["e_value"] <= report["peak"]
    column = report["columns"][0]
    assert (column["name"], column["alarm"]) == ("amount", True)
    assert 500 < column["alarm_row"] < 600
    assert column["peak"] > 1e6
    assert max(e for _, e in report["history"]) > 300 == pytest.approx(np.log10(report["peak"]))
    assert "model" not in drift_report(state)


def test_false_alarms_of_score_and_columns_together(detector):
    """With streams of real scores and columns: at most the level raise any alarm (99.99 % point of the binomial)."""
    rows = table(20_000, 5)
    scores, values = detector.score_samples(rows), DriftMonitor(detector).values(rows)
    rng, alarms, level = np.random.default_rng(0), 0, 0.1
    for seed in range(80):
        monitor = DriftMonitor(detector, level=level, reference="stream", seed=seed)
        places = rng.permutation(len(rows))[:600]
        alarms += monitor.update_values(scores[places], values[places]).alarm
    assert alarms <= binom.ppf(0.9999, 80, level)


def test_threads_may_share_a_monitor(detector):
    scores = np.random.default_rng(0).choice(detector.calibration_.scores, 200)
    monitor = DriftMonitor(detector, columns=False)
    threads = [threading.Thread(target=lambda: [monitor.update_scores(scores) for _ in range(20)]) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # they take turns all the time
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert monitor.state.n == 4 * 20 * 200
    assert monitor._watches[0][1].n == 4 * 20 * 200


def test_images_have_a_score_alone():
    images = np.random.default_rng(0).random((60, 1, 8, 8)).astype(np.float32)
    detector = NRFDetector(features=None, max_iter=2, random_state=0).fit(images)
    assert DriftMonitor(detector).update(images).columns == ()
    with pytest.raises(InputError, match="give columns=False"):
        DriftMonitor(detector, columns=["a"])


def test_a_series_is_not_watched():
    """Its rows depend on each other: a calm stream would raise alarms."""
    windows = NRFDetector(field="density", features=Windows(3), random_state=0).fit(table(200, 0)[["amount"]])
    for columns in (True, False):
        with pytest.raises(InputError, match="fit one without windows"):
            DriftMonitor(windows, columns=columns)


def test_errors_name_the_fix(detector, tmp_path):
    for level in (0, 1, -0.5):
        with pytest.raises(InputError, match="level must lie between 0 and 1"):
            DriftMonitor(detector, level=level)
    with pytest.raises(InputError, match="'calibration' or 'stream'"):
        DriftMonitor(detector, reference="train")
    with pytest.raises(InputError, match=r"'town' cannot be watched: .* but 'amount', 'balance'"):
        DriftMonitor(detector, columns=["town"])
    monitor, rows = DriftMonitor(detector), table(20, 1)
    with pytest.raises(InputError, match="give the rows too, or make it with columns=False"):
        monitor.update_scores(np.zeros(3))
    with pytest.raises(InputError, match=r"one score for each row, shape \(20,\)"):
        monitor.update_scores(np.zeros(3), rows)
    with pytest.raises(InputError, match="1 scores are not finite"):
        monitor.update_scores([np.nan, *[0.0] * 19], rows)
    with pytest.raises(InputError, match="if and only if the monitor watches columns"):
        monitor.update_values(np.zeros(20))
    assert monitor.state.n == 0, "what was refused leaves no trace"
    with pytest.raises(InputError, match=r"must end in \.json"):
        monitor.save(tmp_path / "drift.txt")
    with pytest.raises(InputError, match="does not exist; start again"):
        DriftMonitor.load(tmp_path / "none.json", detector)
    refit = NRFDetector(field="density", random_state=1).fit(table(800, 0))
    watching = DriftMonitor(refit)
    refit.fit(table(700, 1))
    with pytest.raises(InputError, match="make a new DriftMonitor"):
        watching.update(rows)


def test_a_detector_of_other_columns_is_another(tmp_path):
    """Its calibration scores may be the same."""
    rows = table(300, 0)[["amount", "city"]]
    one, other = (
        NRFDetector(field="density", random_state=0).fit(r) for r in (rows, rows.rename(columns={"amount": "sum"}))
    )
    np.testing.assert_array_equal(one.calibration_.scores, other.calibration_.scores)
    DriftMonitor(one, columns=False).save(tmp_path / "drift.json")
    with pytest.raises(InputError, match="belongs to another detector"):
        DriftMonitor.load(tmp_path / "drift.json", other)


def test_damaged_states_are_refused(detector, tmp_path):
    monitor, path = DriftMonitor(detector), tmp_path / "drift.json"
    monitor.update(table(200, 1))
    state = monitor.to_json()
    for change, message in (
        ({"format": "other"}, "not the state of a drift monitor"),
        ({"version": 2}, "version 2"),
        ({"detector": "00"}, "belongs to another detector"),
        ({"watches": state["watches"][:1]}, "damaged"),
        ({"points": [[1.0]]}, "damaged"),
        ({"n": None}, "damaged"),
        ({"columns": ["nothing"]}, "cannot be watched"),
    ):
        path.write_text(json.dumps(state | change))
        with pytest.raises(InputError, match=message) as error:
            DriftMonitor.load(path, detector)
        assert str(error.value).startswith(f"{path}: ")
    path.write_text("{")
    with pytest.raises(InputError, match="damaged"):
        DriftMonitor.load(path, detector)
