"""Tables to numbers, numbers back to values, and all of it to JSON."""

from __future__ import annotations

import datetime as dt
import json
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nrf.detect
from nrf.detect.tables.columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    Scaling,
)
from nrf.detect.tables.columns.categorical import UNSEEN
from nrf.detect.tables.frame import as_columns
from nrf.detect.tables.schema import UNEXPECTED, Schema
from nrf.errors import InputError
from some_tables import NAN, STAMPS, fit_or_none, mixed, quiet_fit

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def test_a_column_that_is_constant_or_missing_tells_rows_apart():
    table = pd.DataFrame({"n": [5, None, 5], "b": [True, None, True], "s": ["x", None, "x"]})
    encoder = Schema.fit(table)
    assert encoder.output_names == (
        *("n", "n (missing)", "b", "b (missing)"),
        *("s=x", "s (missing)", "s (unseen)", UNEXPECTED),
    )
    assert encoder.encode(table).tolist() == [
        [0, 0, 1, 0, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 1, 0, 0],
        [0, 0, 1, 0, 1, 0, 0, 0],
    ]
    assert encoder.decode(encoder.encode(table)[1]) == {"n": None, "b": None, "s": None}


@pytest.mark.parametrize("options", [{"max_levels": 0}, {"hash_buckets": 0}])
def test_options_are_checked(options):
    with pytest.raises(InputError, match="at least 1"):
        Schema.fit(mixed(), **options)


def test_names_and_a_frame():
    with pytest.raises(InputError, match="as_columns"):
        Schema.fit(as_columns(np.eye(2)), names=["a", "b"])
    assert Schema.fit(as_columns(np.eye(2), names=["a", "b"])).names == ("a", "b")


def test_the_layout():
    encoder = Schema.fit(mixed())
    kinds = [NumericColumn, NumericColumn, BooleanColumn, CategoricalColumn, CategoricalColumn, DatetimeColumn]
    assert [type(c) for c in encoder.columns] == kinds
    assert encoder.output_names == (
        *("age", "income", "income (missing)", "member", "member (missing)"),
        *("colour=blue", "colour=red", "colour (missing)", "colour (unseen)"),
        *("grade=a", "grade=b", "grade=c", "grade (unseen)", "joined", UNEXPECTED),
    )
    assert encoder.n_outputs == 15
    assert encoder.groups == [
        ("age", slice(0, 1)),
        ("income", slice(1, 3)),
        ("member", slice(3, 5)),
        ("colour", slice(5, 9)),
        ("grade", slice(9, 13)),
        ("joined", slice(13, 14)),
    ]
    out = encoder.encode(mixed())
    assert (out.dtype, out.shape) == (np.float32, (4, 15))
    assert out[1, 1:3].tolist() == [0, 1]
    assert out[:, 3:5].tolist() == [[1, 0], [0, 0], [1, 1], [1, 0]]
    assert out[:, 5:9].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert out[:, 9:13].tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert (out[:, -1] == 0).all()


def test_all_libraries_give_the_same():
    encoders = [Schema.fit(mixed(library)) for library in ("pandas", "polars", "arrow")]
    assert encoders[0] == encoders[1] == encoders[2]
    outs = [encoders[0].encode(mixed(library)) for library in ("pandas", "polars", "arrow")]
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_rows_do_not_see_each_other():
    table = mixed()
    encoder = Schema.fit(table)
    out = encoder.encode(table)
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(encoder.encode(table.iloc[order]), out[order])
    np.testing.assert_array_equal(np.concatenate([encoder.encode(table.iloc[[i]]) for i in range(4)]), out)


def test_unexpected_missing_values_are_counted():
    table = mixed("polars")
    encoder = Schema.fit(table, scaling="quartiles")
    empty = table.with_columns([pl.lit(None).alias(c) for c in table.columns])
    out = encoder.encode(empty)
    assert (out[:, -1] == 3).all()  # age, grade, joined; the others had missing values at fit
    assert (out[:, 12] == 1).all()  # grade: missing counts as unseen
    middle = dt.datetime.fromtimestamp(float(np.median(STAMPS)), dt.UTC).replace(tzinfo=None)
    assert list(encoder.decode(out[0]).values()) == [36, None, None, None, UNSEEN, middle]
    at_mean = Schema.fit(table)
    middle = dt.datetime.fromtimestamp(float(np.mean(STAMPS)), dt.UTC).replace(tzinfo=None)
    assert list(at_mean.decode(at_mean.encode(empty)[0]).values()) == [39, None, None, None, UNSEEN, middle]
    numeric = Schema.fit(np.diag([1.0, 2.0, 3.0]) + np.arange(3.0)[:, None])  # neither has two values
    assert numeric.encode([[NAN, 5 / 3, NAN]])[0].tolist() == [0, 0, 0, 2]
    two_valued = Schema.fit(np.eye(3))  # of such the more frequent value stands for missing ones
    assert two_valued.encode([[NAN, 1.0, NAN]])[0].tolist() == [0, 1, 0, 2]
    boolean = Schema.fit(pd.DataFrame({"b": [True, False, False]}))
    assert boolean.encode(pd.DataFrame({"b": [None]})).tolist() == [[0, 1]]


def test_missing_values_may_have_any_type():
    """A batch with nothing in a column often comes as floats or objects, whatever the column holds."""
    table = mixed()
    encoder = Schema.fit(table)
    for nothing in (NAN, None, pd.NA, pd.NaT):
        row = pd.DataFrame({c: [nothing] for c in table.columns})
        assert encoder.encode(row)[0, -1] == 3


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_decode_gives_back_what_was_encoded(library):
    table = mixed(library)
    encoder = Schema.fit(table)
    rows = [encoder.decode(row) for row in encoder.encode(table)]
    for row, wanted in zip(rows, mixed("arrow").to_pylist(), strict=True):
        assert list(row) == list(wanted)
        assert isinstance(row["age"], int)
        assert row["income"] == (None if wanted["income"] is None else pytest.approx(wanted["income"], rel=1e-5))
        assert abs(row["joined"] - wanted["joined"]) < dt.timedelta(seconds=1)
        for name in ("age", "member", "colour", "grade"):
            assert row[name] == wanted[name]


def test_decode_takes_soft_rows():
    encoder = Schema.fit(mixed())
    row = np.zeros(encoder.n_outputs)
    row[3], row[5], row[6], row[10] = 0.6, 0.2, 0.4, 0.1
    decoded = encoder.decode(row)
    assert (decoded["member"], decoded["colour"], decoded["grade"]) == (True, "red", "b")
    row[2] = row[7] = 0.7
    assert encoder.decode(row)["income"] is None
    assert encoder.decode(row)["colour"] is None
    row[0], row[13] = 30 + np.log(9971), 1e7  # no calendar reaches so far
    assert encoder.decode(row)["age"] == round(39 + 1e4 * np.std([30, 41, 25, 60]))
    assert encoder.decode(row)["joined"] == dt.datetime.max
    assert encoder.decode(-row)["joined"] == dt.datetime.min
    squashed = Schema.fit(mixed(), scaling="quartiles")
    row[0] = row[13] = 1e4
    assert squashed.decode(row)["joined"] == dt.datetime.max
    assert squashed.decode(row)["age"] > 10**300
    assert squashed.decode(-row)["joined"] == dt.datetime.min


@pytest.mark.parametrize("row", [np.zeros(3), np.zeros((1, 15)), np.full(15, np.nan)])
def test_decode_checks_its_row(row):
    with pytest.raises(InputError, match="one row of 15 finite numbers"):
        Schema.fit(mixed()).decode(row)


def test_json_and_back():
    table = mixed().assign(same=1, many=["p", "q", "r", "s"])
    encoder = quiet_fit(table, max_levels=3, hash_buckets=5)
    data = json.loads(json.dumps(encoder.to_json(), allow_nan=False))
    again = Schema.from_json(data)
    assert again == encoder
    np.testing.assert_array_equal(again.encode(table), encoder.encode(table))


def _changed(change):
    data = json.loads(json.dumps(quiet_fit(mixed().assign(same=1)).to_json()))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d.pop("version"), "keys version and encoder"),
        (lambda d: d.update(more=1), "keys version and encoder"),
        (lambda d: d["encoder"].update(more=1), "unknown"),
        (lambda d: d["encoder"].pop("source"), "missing"),
        (lambda d: d["encoder"].update(source="elsewhere"), "not one of"),
        (lambda d: d["encoder"]["columns"][0].update(more=1), "unknown"),
        (lambda d: d["encoder"]["columns"][0].update(type="ImageColumn"), "'ImageColumn', not one of"),
        (lambda d: d["encoder"]["columns"][0].update(scale=0.0), "positive scale"),
        (lambda d: d["encoder"]["columns"][0].update(median=NAN), "finite numbers"),
        (lambda d: d["encoder"]["columns"][0].update(mean=float("inf")), "finite numbers"),
        (lambda d: d["encoder"]["columns"][0].update(name="income"), "different names"),
        (lambda d: d["encoder"]["columns"][3].update(levels=["red", "blue"]), "sorted levels"),
        (lambda d: d["encoder"]["columns"][3].update(hashed_buckets=4), "sorted levels"),
        (lambda d: d["encoder"]["columns"][6].update(reason="boring"), "not one of"),
    ],
)
def test_foreign_json_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Schema.from_json(_changed(change))
    with pytest.raises(InputError, match="not an encoder"):
        Schema.from_json([1])


FLOATS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-100, 100), st.sampled_from([0.0, 1.0]))


VALUES = {
    "float": FLOATS,
    "int": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "str": st.text(max_size=3),
    "time": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    "span": st.timedeltas(dt.timedelta(days=-10_000), dt.timedelta(days=10_000)),
    "decimal": st.decimals(-1000, 1000, places=3),
    "nothing": st.none(),
}


@st.composite
def tables(draw):
    """A training table and another one with the same columns, as lists by name."""
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    train, test = {}, {}
    for name in draw(st.lists(st.text("abcxyz é0", min_size=1, max_size=4), min_size=1, max_size=5, unique=True)):
        kind = draw(st.sampled_from(sorted(VALUES)))
        cell = VALUES[kind]
        train[name] = draw(
            st.lists(cell if draw(st.booleans()) else st.one_of(st.none(), cell), min_size=n, max_size=n)
        )
        test[name] = draw(st.lists(st.one_of(st.none(), cell), min_size=m, max_size=m))
        if kind == "decimal":
            test[name] = [v if v is None else float(v) for v in test[name]]
    return train, test


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(1, 5), st.integers(1, 4), st.sampled_from(get_args(Scaling)))
def test_random_tables(both, max_levels, hash_buckets, scaling):
    train, test = (pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in t.items()}) for t in both)
    encoder = fit_or_none(train, max_levels=max_levels, hash_buckets=hash_buckets, scaling=scaling)
    if encoder is None:
        return
    out = encoder.encode(train)
    assert (out[:, -1] == 0).all()
    again = Schema.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    for data in (train, test):
        encoded = encoder.encode(data)
        assert encoded.shape == (len(data), encoder.n_outputs)
        assert len(encoder.output_names) == encoder.n_outputs
        assert np.isfinite(encoded).all()
        np.testing.assert_array_equal(again.encode(data), encoded)
        np.testing.assert_array_equal(encoder.encode(data.iloc[::-1]), encoded[::-1])
        assert set(encoder.decode(encoded[0])) == {name for name, _ in encoder.groups}


@settings(max_examples=60, deadline=None)
@given(tables())
def test_random_tables_in_all_libraries(both):
    train, test = both
    encoder = fit_or_none(pl.DataFrame(train, strict=False))
    if encoder is None:
        return
    frames = [pl.DataFrame(test, strict=False)]
    frames += [frames[0].to_arrow(), frames[0].to_pandas(), pd.DataFrame({k: pd.Series(v) for k, v in test.items()})]
    outs = [encoder.encode(f) for f in frames]
    for out in outs[1:]:
        np.testing.assert_allclose(out, outs[0], rtol=1e-5, atol=1e-5)


def test_the_name_of_before():
    """Stored detectors have it for ever, programs with a warning."""
    stored = Schema.fit(np.eye(3)).to_json()["encoder"]
    assert list(stored)[:2] == ["type", "columns"]
    assert stored["type"] == "TableEncoder"
    with pytest.warns(DeprecationWarning, match="Schema"):
        assert nrf.detect.TableEncoder is Schema
    with pytest.raises(AttributeError, match="Nothing"):
        nrf.detect.Nothing  # noqa: B018
    with pytest.raises(InputError, match="does not hold a TableEncoder"):
        Schema.from_json({"version": 1, "encoder": stored | {"type": "Schema"}})


def test_rounded_and_snapped_rows_of_a_schema():
    table = mixed()
    schema = Schema.fit(table)
    soft = schema.encode(table)[3] + np.float32(0.01)
    goal = schema.snap(soft)
    assert (goal.dtype, goal[-1]) == (np.float32, 0)
    assert schema.decode_rounded(soft) == schema.decode_rounded(goal)
    assert schema.decode_rounded(soft)["income"] != schema.decode(soft)["income"]
    with pytest.raises(InputError, match="one row of 15 finite numbers"):
        schema.snap(soft[:-1])
