"""Explanations in the user's own values: what is new is named, and the counterfactual can be scored again."""

from __future__ import annotations

import datetime as dt
import warnings
import zoneinfo

import numpy as np
import pytest
import torch

from nrf.detect import NRFDetector
from nrf.detect import explain as explain_module
from nrf.detect.explain import revised_rows
from nrf.detect.tables.given import novelties
from nrf.detect.tables.schema import Schema

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def frame(n=400, seed=0):
    """Every kind of column, with some to be left out: an identifier and a constant."""
    draw = np.random.default_rng(seed)
    kind = draw.choice(["small", "large"], n)
    start = pd.Timestamp("2024-01-01")
    at = start + pd.to_timedelta(1441 * draw.integers(0, 300, n), unit="m")
    table = pd.DataFrame(
        {
            "id": [f"N{i:04d}" for i in range(n)],
            "kind": kind,
            "size": np.where(kind == "small", 1.0, 10.0) + 0.2 * draw.normal(size=n),
            "price": np.round(draw.gamma(3, 10, n), 2),
            "zip": draw.choice([2134, 2135, 90210], n),
            "code": draw.choice([f"c{i}" for i in range(70)], n),
            "day": start + pd.to_timedelta(draw.integers(0, 300, n), unit="D"),
            "at": at.tz_localize("UTC").tz_convert("Europe/Berlin"),
            "span": pd.to_timedelta(draw.integers(0, 1000, n), unit="s"),
            "ok": draw.random(n) < 0.8,
            "same": 4,
            "noise": draw.normal(size=n),
        }
    )
    table.loc[::10, "noise"] = None
    return table


@pytest.fixture(scope="module")
def detector():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        settings = {"categorical": ["zip"], "max_levels": 16, "false_alarm_rate": 0.25}
        return NRFDetector(random_state=0, max_iter=300, **settings).fit(frame())


def changed(name, value):
    """A new normal row with one odd value."""
    row = frame(seed=5).iloc[[2]].reset_index(drop=True)
    return row.assign(**{name: pd.Series([value], dtype=row[name].dtype if value is None else None)})


NEW = {
    "a level": ("kind", "huge", "a level that was not there at fit"),
    "a code": ("zip", 99, "a level that was not there at fit"),
    "a missing number": ("size", None, "missing, which it never was at fit"),
    "a missing level": ("kind", None, "missing, which it never was at fit"),
    "a missing date": ("day", None, "missing, which it never was at fit"),
    "another constant": ("same", 5, "at fit it was 4 in all rows"),
    "a large number": ("size", 1e4, "above the range at fit, "),
    "an early time": ("at", pd.Timestamp("1990-07-01 12:34:56.789", tz=BERLIN), "below the range at fit, 2024-01-01 "),
}


@pytest.mark.parametrize("name", NEW)
def test_what_is_new_is_named_with_its_value_and_reason(detector, name):
    column, value, reason = NEW[name]
    row = changed(column, value)
    (found,) = detector.explain(row)
    assert found.is_anomaly
    assert found.reached
    (change,) = found.changes
    assert (change.feature, change.value) == (column, value)
    assert change.reason.startswith(reason)
    assert change.typical is not None
    assert change.contribution < -1
    assert "(unexpected)" not in found.contributions
    assert sum(found.contributions.values()) == pytest.approx(found.score - found.revised_score, abs=1e-4)
    assert found.contributions[column] == change.contribution
    assert min(found.contributions, key=found.contributions.get) == column
    again = detector.score_samples(pd.DataFrame([found.revised]))[0]
    assert again == pytest.approx(found.revised_score, abs=1e-4)


def test_several_at_once_share_what_they_cost(detector):
    row = changed("same", 5).assign(size=np.nan, day=pd.NaT)
    (found,) = detector.explain(row)
    names = {c.feature for c in found.changes}
    assert "(unexpected)" not in names
    assert names <= set(row.columns)
    assert sum(found.contributions.values()) == pytest.approx(found.score - found.revised_score, abs=1e-4)
    cost = float(detector.members_.novelty_costs[0])
    assert found.contributions["same"] == pytest.approx(-cost, rel=1e-3)
    again = detector.score_samples(pd.DataFrame([found.revised]))[0]
    assert again == pytest.approx(found.revised_score, abs=1e-4)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_the_revised_row_is_whole_and_can_be_scored(detector, library):
    rows = frame(30, seed=1).assign(id="somebody")
    rows["size"] = rows["size"].to_numpy()[::-1]
    rows.loc[3, ["kind", "code"]] = ["BOS", "never seen"]
    rows.loc[4, "at"] = pd.Timestamp("2025-06-01 08:00:22.5", tz="Europe/Berlin")
    given = {"pandas": rows, "polars": pl.from_pandas(rows), "arrow": pa.Table.from_pandas(rows, preserve_index=False)}
    explained = detector.explain(given[library])
    assert sum(e.is_anomaly for e in explained) >= 5
    new = [{n.column: n.reason for n in row} for row in novelties(detector.encoder_, rows)]
    reasons = [(c.reason, new[i].get(c.feature)) for i, e in enumerate(explained) for c in e.changes]
    assert all(shown == expected for shown, expected in reasons)
    assert {shown is None for shown, _ in reasons} == {True, False}
    for i, found in enumerate(explained):
        assert list(found.revised) == list(rows.columns)
        moved = {c.feature for c in found.changes}
        for name in rows.columns:
            own = None if pd.isna(rows[name][i]) else rows[name][i]
            if name not in moved:
                assert found.revised[name] == own, name
            else:
                assert next(c.value for c in found.changes if c.feature == name) == own
        again = detector.score_samples(pd.DataFrame([found.revised]))[0]
        assert again == pytest.approx(found.revised_score, abs=1e-4)
        (once_more,) = detector.explain(pd.DataFrame([found.revised]))
        assert not found.reached or once_more.score >= found.threshold - 1e-4


def test_typical_values_have_the_resolution_and_zone_of_their_column(detector):
    found = {name: detector.explain(changed(name, value))[0].changes[0].typical for name, value in (
        ("day", pd.Timestamp("1990-01-01")),
        ("at", pd.Timestamp("1990-07-01 12:34:56.789", tz="Europe/Berlin")),
        ("price", 1e5),
        ("span", pd.Timedelta(days=40)),
        ("zip", 99),
    )}  # fmt: skip
    assert found["day"] == dt.datetime(found["day"].year, found["day"].month, found["day"].day)
    assert found["day"].year == 2024
    assert found["at"].tzinfo == BERLIN
    assert found["at"].second == found["at"].microsecond == 0
    assert round(found["price"], 2) == found["price"]
    assert isinstance(found["span"], dt.timedelta)
    assert found["span"].microseconds == 0
    assert found["zip"] in (2134, 2135, 90210)
    missing = detector.explain(changed("at", None))[0].changes[0]
    assert (missing.value, missing.typical.tzinfo) == (None, BERLIN)


def test_a_hashed_column_has_a_level_as_typical_value(detector):
    table = frame()
    assert detector.encoder_.columns[5].hashed_buckets == 32
    (found,) = revised_rows(detector, table[:1], n_steps=20)
    assert found["code"] in (*table["code"], "(rare)")
    assert found["at"].tzinfo == BERLIN
    assert found["day"].hour == 0


def test_a_goal_is_a_row_that_there_can_be():
    """What the search moves to is what the values encode to, with their rounding."""
    table = frame()
    table["ok"] = table["ok"].astype("boolean")
    table.loc[::7, "ok"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        encoder = Schema.fit(table, categorical=["zip"], max_levels=16)
    soft = encoder.encode(table[:20]) + 0.2 * np.random.default_rng(1).normal(size=(20, encoder.n_outputs))
    for i, row in enumerate(soft):
        goal = encoder.snap(row)
        whole = table.iloc[i].to_dict() | encoder.decode_rounded(goal)
        np.testing.assert_allclose(encoder.encode(pd.DataFrame([whole]))[0], goal, atol=1e-5)
        assert (goal[encoder.novelty_columns] == 0).all()


def test_dates_and_times_of_day_come_back_as_such():
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "day": [dt.date(2024, 1, 1) + dt.timedelta(days=int(d)) for d in draw.integers(0, 100, 200)],
            "clock": [dt.time(int(h), 30) for h in draw.integers(8, 18, 200)],
            "x": draw.normal(size=200),
        }
    )
    detector = NRFDetector(random_state=0, max_iter=100).fit(table)
    for name, value in (("day", dt.date(1980, 5, 5)), ("clock", dt.time(0, 0, 1))):
        (found,) = detector.explain(table[:1].assign(**{name: [value]}))
        (change,) = (c for c in found.changes if c.feature == name)
        assert (change.value, type(change.typical)) == (value, type(value))
        again = detector.score_samples(pd.DataFrame([found.revised]))[0]
        assert again == pytest.approx(found.revised_score, abs=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays(dtype):
    draw = np.random.default_rng(0)
    x = np.c_[draw.normal(size=(300, 2)), np.full(300, 7), draw.integers(0, 9, 300) / 4, np.arange(300)].astype(dtype)
    with pytest.warns(UserWarning, match=r"'x2' \(constant\); .*'x4' \(a running number\)"):
        detector = NRFDetector(random_state=0, max_iter=100).fit(x)
    rows = x[:3].copy()
    rows[0, 0], rows[1, 2], rows[2, 3] = 50, 8, np.nan
    found = detector.explain(rows)
    assert [[c.feature for c in e.changes] for e in found] == [["x0"], ["x2"], ["x3"]]
    assert [e.changes[0].value for e in found] == [50, 8, None]
    assert found[1].changes[0].typical == 7
    for i, e in enumerate(found):
        assert list(e.revised) == [f"x{j}" for j in range(5)]
        assert e.revised["x1"] == rows[i, 1]
        assert e.revised["x4"] == i
        again = detector.score_samples(np.array([list(e.revised.values())], dtype=dtype))
        assert again[0] == pytest.approx(e.revised_score, abs=1e-3)


def test_a_value_far_beyond_the_range_becomes_one_within_it():
    """Correlated columns, one value ten ranges away: the way back is found, and ends among training values."""
    draw = np.random.default_rng(5)
    load = draw.normal(size=600)
    x = np.c_[62.5 + 4 * load, 3.1 + 0.4 * load, 1450 + 60 * load] + draw.normal(size=(600, 3)) * [0.8, 0.1, 15]
    detector = NRFDetector(random_state=0).fit(x)
    row = x[:1].copy()
    row[0, 1] = 31.4
    reader, field = detector.fitted_.reader, explain_module._Field(detector.fitted_)
    encoded = reader.encoded(explain_module.given_rows(reader.encoder, reader.prepared(row)).frame)
    begun, (low, high) = field.climb(encoded, 9.0, 0), field.replicas.bounds
    seen = field.replicas.seen(begun)
    assert ((low <= seen) & (seen <= high)).all()
    assert field.values(begun) > field.values(encoded)
    (found,) = detector.explain(row)
    assert found.reached
    change = found.changes[0]
    assert change.feature == "x1"
    assert x[:, 1].min() <= change.typical <= x[:, 1].max()


def test_novelties_row_by_row():
    table = pd.DataFrame({"size": [1.0, 2.5, 4.0], "kind": ["a", "b", "a"], "ok": [True, False, True], "same": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        encoder = Schema.fit(table)
    rows = pd.DataFrame(
        {"size": [2.0, -1.0, None], "kind": ["a", "z", None], "ok": [True, None, None], "same": [3, 3, 9]}
    )
    found = novelties(encoder, rows)
    assert found[0] == []
    assert [(n.column, n.value, n.reason, n.counted) for n in found[1]] == [
        ("size", -1.0, "below the range at fit, 1 to 4", False),
        ("kind", "z", "a level that was not there at fit", False),
        ("ok", None, "missing, which it never was at fit", True),
    ]
    assert [(n.column, n.value) for n in found[2]] == [("size", None), ("kind", None), ("ok", None), ("same", 9)]
    assert [sum(n.counted for n in row) for row in found] == encoder.encode(rows)[:, -1].tolist()


def test_categories_of_numbers_are_explained_by_their_levels():
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"c": pd.Categorical(draw.integers(1, 4, 200)), "x": draw.normal(size=200)})
    detector = NRFDetector(random_state=0, max_iter=100).fit(table)
    (found,) = detector.explain(pd.DataFrame({"c": pd.Categorical([8]), "x": [0.1]}))
    assert found.changes[0].value == "8"
    again = detector.score_samples(pd.DataFrame([found.revised]))[0]
    assert again == pytest.approx(found.revised_score, abs=1e-4)


def test_goals_are_searched_side_by_side(monkeypatch):
    """All goals take as many evaluations as the longest search, and each finds what it finds alone."""
    rows = np.random.default_rng(0).normal(size=(300, 6))
    detector = NRFDetector(random_state=0).fit(rows)
    fitted = detector.fitted_
    field = explain_module._Field(fitted)
    row = fitted.reader.read(rows[:1] + 4.0)[0]
    goals = [goal for goal in fitted.reader.read(rows[:8])]
    groups = [explain_module._Group(name, place) for name, place in fitted.reader.encoder.groups]
    calls = []
    values = explain_module._Field.values
    monkeypatch.setattr(explain_module._Field, "values", lambda self, x: (calls.append(len(x)), values(self, x))[1])

    def searched(goals):
        calls.clear()
        ways = [explain_module._way(groups, row, goal, detector.offset_) for goal in goals]
        return explain_module._side_by_side(field, ways), len(calls)

    alone = [searched([goal]) for goal in goals]
    together, n_calls = searched(goals)
    for (((moved, there, value),), _), (same, point, score) in zip(alone, together, strict=True):
        assert moved == same
        assert torch.equal(there, point)
        assert value == pytest.approx(score, abs=1e-5)
        assert score >= detector.offset_
        assert np.isclose(score, float(values(field, point[None])[0]))
    assert n_calls == max(n for _, n in alone) < sum(n for _, n in alone) / 4
