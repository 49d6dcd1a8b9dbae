"""Far more flagged rows than the rate allows are explained."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nrf import NRFDetector
from nrf.detect.excess import excess_note
from nrf.detect.tables.stream import score_stream


def table(n, seed, days_later=0):
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 60, n) + days_later, unit="D")
    return pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "day": days})


@pytest.fixture(scope="module")
def detector():
    return NRFDetector(random_state=0).fit(table(400, 0))


def note(detector, rows, tmp_path):
    source = tmp_path / "rows.csv"
    rows.to_csv(source, index=False)
    found = score_stream(detector, source, tmp_path / "scores.csv")
    return excess_note(detector, found.anomalies, found.rows, found.examples), found


def test_later_rows_are_many_and_the_column_is_named(detector, tmp_path):
    text, found = note(detector, table(60, 1, days_later=300), tmp_path)
    assert found.anomalies > 50
    assert f"{found.anomalies} of 60 rows are flagged, though the threshold allows 5 %" in text
    assert (
        "in 5 of 5 flagged rows looked at, day counts most; if it should not count, fit again with --drop day" in text
    )


def test_rows_like_those_of_the_fit_are_not_mentioned(detector, tmp_path):
    text, found = note(detector, table(200, 2), tmp_path)
    assert text is None
    assert 0 < found.anomalies < 30
    assert found.examples.num_rows == min(5, found.anomalies)


def test_few_rows_are_not_mentioned(detector, tmp_path):
    text, found = note(detector, table(10, 3, days_later=300), tmp_path)
    assert (text, found.anomalies) == (None, 10)


def test_rows_to_look_into_come_from_the_whole_batch(detector, tmp_path):
    rows = table(60, 4, days_later=300)
    rows["a"] = np.arange(60) / 1000
    _, found = note(detector, rows, tmp_path)
    assert found.examples.column("a").to_pylist()[::4] == [0.0, 0.059]
