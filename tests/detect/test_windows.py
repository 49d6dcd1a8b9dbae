"""Windows of series: which rows they hold, the way back to rows, and a detector that sees them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from nrf import NRFDetector
from nrf.detect import Windows
from nrf.detect.explain import lowest_window
from nrf.errors import InputError


def series(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """A wave with noise, one row an hour."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(n) / 3) + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"when": pd.date_range("2024", periods=n, freq="h"), "wave": wave})


# ------------------------------------------------------------------------------------------------- transforming


def test_values_as_they_are():
    rows = np.arange(10.0).reshape(5, 2)
    found = Windows(3, differences=False).fit_transform(rows)
    assert found.tolist() == [[4, 5, 2, 3, 0, 1], [6, 7, 4, 5, 2, 3], [8, 9, 6, 7, 4, 5]]  # the last row first


def test_differences_are_of_neighbours():
    rows = np.array([[1.0], [4.0], [2.0], [9.0]])
    assert Windows(3).fit_transform(rows).tolist() == [[2, -2, 3], [9, 7, -2]]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.int64, np.uint64, np.float32])
def test_differences_of_whole_numbers_may_be_negative(kind):
    large = 1 if kind is bool else 100
    rows = np.array([[large], [0], [large]], dtype=kind)
    found = Windows(2).fit_transform(rows)
    assert found.tolist() == [[0, -large], [large, large]]
    assert found.dtype == {np.int64: np.int64, np.float32: np.float32}.get(kind, found.dtype)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_stay_what_they_are(make):
    table = make({"t": [1, 2, 3, 4], "x": [1.0, 4.0, 2.0, 9.0], "k": ["a", "b", "a", "b"]})
    windows = Windows(3, time="t").fit(table)
    found = windows.transform(table)
    assert type(found) is type(table)
    columns = {name: list(np.asarray(found[name])) for name in windows.get_feature_names_out()}
    assert columns == {
        "x[0]": [2, 9],
        "k[0]": ["a", "b"],
        "x[0]-x[-1]": [-2, 7],
        "k[-1]": ["b", "a"],
        "x[-1]-x[-2]": [3, -2],
        "k[-2]": ["a", "b"],
    }


def test_rows_are_taken_by_time_and_scores_come_back_in_the_order_given():
    table = pd.DataFrame({"t": [3, 1, 4, 2], "x": [30.0, 10.0, 40.0, 20.0]}, index=[7, 7, 1, 0])
    windows = Windows(2, time="t", differences=False).fit(table)
    assert windows.transform(table).to_numpy().tolist() == [[20, 10], [30, 20], [40, 30]]
    scores = np.array([1.0, 2.0, 6.0])
    assert windows.window_scores_to_rows(scores, table).tolist() == [4, 1, 6, 1.5]
    assert windows.window_scores_to_rows(scores, table, "min").tolist() == [2, 1, 6, 1]


def test_no_window_holds_two_groups():
    table = pd.DataFrame({"g": ["a", "b"] * 3, "x": [1.0, 10, 2, 20, 3, 30]})
    windows = Windows(2, group="g", differences=False).fit(table)
    assert windows.transform(table).to_numpy().tolist() == [[2, 1], [3, 2], [20, 10], [30, 20]]


def test_groups_come_in_their_order_and_have_times_of_their_own():
    """The next group may begin at the time at which this one ends; steps between groups are none."""
    table = pd.DataFrame({"g": list("bbaac"), "t": [1, 2, 2, 3, 90], "x": [1.0, 2, 30, 40, 5]})
    windows = Windows(2, time="t", group="g", differences=False).fit(table)
    assert windows.max_gap_ == 1.5
    with pytest.warns(RuntimeWarning, match="1 of 5 rows"):
        assert windows.transform(table).to_numpy().tolist() == [[2, 1], [40, 30]]
    alone = pd.DataFrame({"g": list("aabcd"), "t": [0, 1, 100, 200, 300], "x": np.arange(5.0)})
    assert Windows(2, time="t", group="g").fit(alone).max_gap_ == 1.5


def test_a_series_ends_with_a_window():
    rows = np.arange(8.0).reshape(-1, 1)
    windows = Windows(3, 2, differences=False).fit(rows)
    assert windows.transform(rows)[:, 0].tolist() == [2, 4, 6, 7]  # the last row of each: 7 is not left over
    assert not np.isnan(windows.window_scores_to_rows(np.zeros(4), rows)).any()


def test_no_window_reaches_over_a_gap():
    times = np.array([0.0, 1, 2, 3, 10, 11, 12, 20])
    rows = np.column_stack([times, np.arange(8.0)])
    windows = Windows(2, time=0, differences=False).fit(rows)
    assert windows.max_gap_ == 1.5
    with pytest.warns(RuntimeWarning, match="1 of 8 rows are in no window"):
        assert windows.transform(rows).tolist() == [[1, 0], [2, 1], [3, 2], [5, 4], [6, 5]]
    assert np.isnan(windows.window_scores_to_rows(np.zeros(5), rows)).tolist() == [False] * 7 + [True]
    assert len(Windows(2, time=0, max_gap=None).fit_transform(rows)) == 7
    with pytest.warns(RuntimeWarning, match="1 of 8 rows"):
        assert len(Windows(2, time=0, max_gap=7).fit_transform(rows)) == 6


def test_dates_have_gaps_in_seconds():
    table = series(10).drop(index=4)
    windows = Windows(3, time="when").fit(table)
    assert windows.max_gap_ == 5400
    assert len(windows.transform(table)) == 2 + 3


def test_missing_values_stay_missing():
    rows = np.array([[1.0], [np.nan], [3.0], [4.0]])
    found = Windows(2).fit_transform(rows)
    assert np.isnan(found).tolist() == [[True, True], [False, True], [False, False]]


@pytest.mark.parametrize(
    ("windows", "table", "words"),
    [
        (Windows(0), {"x": [1.0, 2]}, "size of the windows must be a whole number from 1 on, got 0"),
        (Windows(2, 3), {"x": [1.0, 2, 3]}, "step must be at most size"),
        (Windows(2, how="max"), {"x": [1.0, 2, 3]}, "how must be 'mean' or 'min'"),
        (Windows(2, time="t", max_gap=-1), {"t": [1, 2], "x": [1.0, 2]}, "max_gap must be a number above 0"),
        (Windows(2, time="t"), {"x": [1.0, 2]}, "time='t': there is no such column; there are 'x'"),
        (Windows(2, time="x"), {"x": [1.0, 2]}, "no column beside those of time and group"),
        (Windows(2, time="x", group="x"), {"x": [1.0, 2]}, "time and group are the same column"),
        (Windows(3), {"x": [1.0, 2]}, "no window of 3 rows fits in: the longest stretch without a gap has 2"),
        (Windows(2, time="t"), {"t": [1, 2, 1], "x": [1.0, 2, 3]}, "rows 1 and 3 have the same time.*as group"),
        (Windows(2, time="t"), {"t": [1, None, 3], "x": [1.0, 2, 3]}, "'t' has 1 missing values, the first in row 2"),
        (Windows(2, group="g"), {"g": ["a", None, "a"], "x": [1.0, 2, 3]}, "'g' has 1 missing values"),
        (Windows(2, time="t"), {"t": ["a", "b", "c"], "x": [1.0, 2, 3]}, "'t' is to hold times: numbers or dates"),
    ],
)
def test_what_cannot_be_is_said(windows, table, words):
    with pytest.raises(InputError, match=words):
        windows.fit(pd.DataFrame(table))


def test_other_columns_are_refused():
    windows = Windows(2, time="when").fit(series(10))
    with pytest.raises(InputError, match="the columns at fit were"):
        windows.transform(series(10).rename(columns={"wave": "other"}))
    with pytest.raises(InputError, match="there are 9 windows, but scores of the shape"):
        windows.window_scores_to_rows(np.zeros(3), series(10))


# ------------------------------------------------------------------------------------------------- splitting


def test_the_last_part_is_held_out_with_a_gap_of_one_window():
    table = series(100).sample(frac=1, random_state=0)
    learned, held = Windows(5, time="when").split(table, 20, 0)
    times = table["when"].to_numpy()
    assert len(held) == 20
    assert len(learned) == 75
    first = np.sort(times)[0]
    assert (times[learned].max() - first) / np.timedelta64(1, "h") == 74
    assert (times[held].min() - first) / np.timedelta64(1, "h") == 80


def test_each_group_gives_its_last_part_and_short_ones_are_trained_on():
    table = pd.DataFrame({"g": ["a"] * 50 + ["b"] * 50 + ["c"] * 11, "x": np.arange(111.0)})
    learned, held = Windows(4, group="g").split(table, 22, 0)
    assert held.tolist() == [*range(40, 50), *range(90, 100)]
    assert learned.tolist() == [*range(36), *range(50, 86), *range(100, 111)]


def test_of_short_groups_whole_ones_are_held_out():
    table = pd.DataFrame({"g": np.repeat(np.arange(20), 5), "x": np.arange(100.0)})
    learned, held = Windows(4, group="g").split(table, 20, 0)
    assert len(learned) == 80
    assert not set(table["g"][learned]) & set(table["g"][held])
    other = Windows(4, group="g").split(table, 20, 1)[1]
    assert set(table["g"][held]) != set(table["g"][other])


def test_one_short_series_cannot_be_held_out():
    table = series(25)
    learned, held = Windows(12, time="when").split(table, 5, 0)
    assert (len(learned), len(held)) == (25, 0)
    with pytest.warns(RuntimeWarning, match="too short to hold out a part of it"):
        detector = NRFDetector(features=Windows(12, time="when"), random_state=0).fit(table)
    assert detector.calibrated_on_ == "training rows in sequence"


# ------------------------------------------------------------------------------------------------- detecting


@pytest.fixture(scope="module")
def detector() -> NRFDetector:
    return NRFDetector(features=Windows(6, time="when"), random_state=0).fit(series())


def test_scores_are_those_of_rows(detector):
    rows = series(100, seed=1)
    scores = detector.score_samples(rows)
    assert scores.shape == (100,)
    windows = detector.features_
    by_window = detector.fitted_.combined(detector.fitted_.potentials(rows))
    assert len(by_window) == 95
    np.testing.assert_allclose(scores[50], by_window[45:51].mean())
    np.testing.assert_allclose(scores, windows.window_scores_to_rows(by_window, rows))
    assert detector.p_values(rows).shape == detector.predict(rows).shape == (100,)


def test_what_is_usual_at_the_wrong_moment_is_found(detector):
    rows = series(200, seed=1)
    alone = NRFDetector(random_state=0).fit(series()[["wave"]])
    rows.loc[100:105, "wave"] = rows.loc[100:105, "wave"].to_numpy()[::-1]  # all values are usual, their order is not
    scores = detector.score_samples(rows)
    assert np.argmin(scores) in range(98, 108)
    assert detector.predict(rows)[100:106].min() == -1
    assert np.argmin(alone.score_samples(rows[["wave"]])) not in range(100, 106)


def test_calibration_rows_are_scored_as_new_rows_are(detector):
    """The held-out part, scored as a series of its own, has the calibration scores."""
    table = series()
    _, held = Windows(6, time="when").split(table, 120, 0)
    scores = np.sort(detector.score_samples(table.iloc[held]))
    np.testing.assert_allclose(scores, detector.calibration_.scores, atol=1e-5)
    assert detector.calibrated_on_ == "held-out rows in sequence"
    assert str(detector.threshold_rule_).endswith("(no guarantee: they depend on each other)")


def test_false_alarms_are_about_as_many_as_asked_for():
    """On an independent series of the same law, over five of them."""
    shares = []
    for seed in range(5):
        found = NRFDetector(features=Windows(4, time="when"), false_alarm_rate=0.1, random_state=seed)
        found.fit(series(400, seed=seed))
        shares.append(np.mean(found.predict(series(400, seed=100 + seed)) == -1))
    assert 0.03 < np.mean(shares) < 0.2


def test_a_row_in_no_window_has_no_score(detector):
    rows = series(30).drop(index=[20, 23])
    with pytest.warns(RuntimeWarning, match="2 of 28 rows are in no window"):
        scores = detector.score_samples(rows)
    assert np.flatnonzero(np.isnan(scores)).tolist() == [20, 21]
    with pytest.warns(RuntimeWarning, match="in no window"):
        assert np.isnan(detector.p_values(rows)).sum() == 2
    with pytest.warns(RuntimeWarning, match="in no window"):
        assert detector.predict(rows)[[20, 21]].tolist() == [1, 1]


def test_it_is_saved_with_the_detector(detector, tmp_path):
    detector.save(tmp_path / "model")
    loaded = NRFDetector.load(tmp_path / "model")
    rows = series(60, seed=2)
    assert loaded.features_.get_params() == detector.features_.get_params()
    np.testing.assert_array_equal(loaded.score_samples(rows), detector.score_samples(rows))
    assert str(loaded.threshold_rule_) == str(detector.threshold_rule_)
    loaded.partial_fit(series(300, seed=3))
    assert loaded.calibrated_on_ == "held-out rows in sequence"
    assert len(loaded.calibration_.scores) == 60
    assert loaded.fitted_.provenance.n_rows == 900


def test_it_can_be_calibrated_on_another_series(detector, tmp_path):
    detector.save(tmp_path / "model")
    loaded = NRFDetector.load(tmp_path / "model").calibrate(series(200, seed=4))
    assert loaded.calibrated_on_ == "given rows in sequence"
    assert len(loaded.calibration_.scores) == 200
    assert np.mean(loaded.predict(series(200, seed=4)) == -1) == pytest.approx(0.05, abs=0.01)


def test_a_window_is_explained(detector):
    rows = series(60, seed=2)
    rows.loc[30, "wave"] += 3
    places = lowest_window(detector, rows, 30)
    assert 30 in places
    assert len(places) == 6
    assert 5 in lowest_window(detector, rows, 5), "not the lowest of all"
    (explanation,) = detector.explain(rows.iloc[places])
    assert explanation.is_anomaly
    assert all("wave" in change.feature for change in explanation.changes)
    with pytest.raises(InputError, match="sees rows, not windows"):
        lowest_window(NRFDetector(random_state=0).fit(rows[["wave"]]), rows[["wave"]], 3)


def test_several_models_and_the_least_of_the_windows():
    windows = Windows(4, time="when", how="min")
    found = NRFDetector(features=windows, n_estimators=2, random_state=0, field="density").fit(series(200))
    rows = series(50, seed=1)
    by_window = found.fitted_.combined(found.fitted_.potentials(rows))
    np.testing.assert_allclose(found.score_samples(rows)[20], by_window[17:21].min())
    assert found.score_spread(rows).shape == (50,)
    np.testing.assert_allclose(found.log_density(rows).shape, (50,))


def test_arrays_have_columns_by_place():
    table = series(200)
    rows = np.column_stack([np.arange(200.0), table["wave"]])
    found = NRFDetector(features=Windows(4, time=0), random_state=0).fit(rows)
    assert found.score_samples(rows[::-1])[::-1] == pytest.approx(found.score_samples(rows))


def test_ranks_and_columns_of_levels_do_not_go_with_windows():
    with pytest.raises(InputError, match="with windows give combine='potential'"):
        NRFDetector(features=Windows(3, time="when"), combine="rank").fit(series(50))
    with pytest.raises(InputError, match="leave out categorical and keep"):
        NRFDetector(features=Windows(3, time="when"), keep=["wave"]).fit(series(50))


def test_a_damaged_description_is_refused():
    found = Windows(3)
    with pytest.raises(InputError, match="of which \\['y'\\] are to be numbers"):
        found.restore({"columns": ["x"], "numbers": ["y"], "max_gap": None, "n_features_in": 1})
    with pytest.raises(InputError, match="of 0 columns"):
        found.restore({"columns": ["x"], "numbers": ["x"], "max_gap": None, "n_features_in": 0})
