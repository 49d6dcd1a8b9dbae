"""Tables of every make to frames, frames to numbers, numbers back to values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import itertools
import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from nrf.detect.tables.column import (
    HASHED,
    UNSEEN,
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    DroppedColumn,
    NumericColumn,
    SchemaError,
    level_hash,
    squash,
    unsquash,
)
from nrf.detect.tables.frame import Frame, as_columns
from nrf.detect.tables.schema import UNEXPECTED, TableEncoder
from nrf.errors import InputError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

NAN = float("nan")
DAYS = [dt.datetime(2020, 1, d, 12, 30, 15, 250_000) for d in (1, 2, 5, 9)]
STAMPS = [d.replace(tzinfo=dt.UTC).timestamp() for d in DAYS]


def mixed(library: str = "pandas"):
    """One table with every kind of column, some with missing values."""
    table = pa.table(
        {
            "age": pa.array([30, 41, 25, 60]),
            "income": pa.array([1.5, None, 2.5, 1000.25]),
            "member": pa.array([True, False, None, True]),
            "colour": pa.array(["red", None, "blue", "red"]),
            "grade": pa.array(["b", "a", "c", "a"]).dictionary_encode(),
            "joined": pa.array(DAYS, pa.timestamp("us")),
        }
    )
    return {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table), "arrow": lambda: table}[library]()


def column(frame: Frame, name: str):
    i = frame.names.index(name)
    return frame.kinds[i], frame.column(i)


def one(values, **kwargs):
    """Kind and values of a pandas column."""
    return column(as_columns(pd.DataFrame({"c": pd.Series(values, **kwargs)})), "c")


def quiet_fit(table, **kwargs) -> TableEncoder:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return TableEncoder.fit(table, **kwargs)


def fit_or_none(table, **kwargs) -> TableEncoder | None:
    """``None`` if random columns happen to be constant, all of them."""
    frame = as_columns(table)
    columns = (frame.column(i) for i in range(len(frame.names)))
    if all(len({None if v != v else v for v in c}) < 2 for c in columns):
        with pytest.raises(InputError, match="no column tells rows apart"):
            TableEncoder.fit(frame, **kwargs)
        return None
    return quiet_fit(table, **kwargs)


# ------------------------------------------------------------------------------------------------------------ frames


def test_a_float_array_is_not_copied():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    frame = as_columns(x)
    assert frame.matrix is x
    assert (frame.names, frame.n_rows, frame.source) == (("x0", "x1", "x2"), 50, "array")
    assert frame.kinds == ("numeric",) * 3
    assert frame.column(1).dtype == np.float64
    assert np.array_equal(frame.column(1), x[:, 1])


def test_a_pandas_frame_of_plain_floats_goes_the_same_way():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    frame = as_columns(pd.DataFrame(x, columns=list("abc")))
    assert frame.names == ("a", "b", "c")
    assert frame.matrix is not None
    assert frame.matrix.dtype == np.float32
    assert np.array_equal(frame.matrix, x)


@pytest.mark.parametrize(
    "data",
    [
        [[1, 2.5], [3, NAN]],
        ((1, 2.5), (3, NAN)),
        np.array([[1, 2.5], [3, None]], dtype=object),
        np.ma.masked_invalid([[1, 2.5], [3, NAN]]),
        torch.tensor([[1, 2.5], [3, NAN]]),
        np.matrix([[1, 2.5], [3, NAN]]),
        pd.DataFrame([[1, 2.5], [3, None]]),
        pl.DataFrame([[1, 3], [2.5, None]]),
    ],
    ids=lambda d: f"{type(d).__module__}.{type(d).__name__}",
)
def test_whatever_holds_numbers_is_taken(data):
    frame = as_columns(data)
    assert frame.kinds == ("numeric", "numeric")
    assert frame.column(0).tolist() == [1, 3]
    assert frame.column(1)[0] == 2.5
    assert np.isnan(frame.column(1)[1])


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64", "longdouble"])
def test_real_arrays_of_any_type(dtype):
    x = np.array([[1, 2], [3, 4], [5, 7]], dtype=dtype)
    assert as_columns(x).matrix is x
    assert np.isfinite(TableEncoder.fit(x).encode(x)).all()


def test_arrays_of_other_types():
    assert as_columns(np.array([[True, False]])).kinds == ("boolean", "boolean")
    assert as_columns(np.array([["a", "b"]])).kinds == ("categorical", "categorical")
    times = as_columns(np.array([["2020-01-01", "NaT"]], dtype="datetime64[D]"))
    assert times.kinds == ("datetime", "datetime")
    assert times.column(0).tolist() == [1577836800.0]
    assert np.isnan(times.column(1)).all()
    spans = as_columns(np.array([[90, 1]], dtype="timedelta64[m]"))
    assert spans.kinds == ("numeric", "numeric")
    assert spans.column(0).tolist() == [5400.0]
    masked = np.ma.array([["a", "b"]], mask=[[False, True]])
    assert as_columns(masked).kinds == ("categorical", "missing")


def test_numbers_beside_strings_in_lists_stay_numbers():
    frame = as_columns([[1, "a", True], [2, None, False]])
    assert frame.kinds == ("numeric", "categorical", "boolean")
    assert frame.column(1).tolist() == ["a", None]


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_every_kind_from_every_library(library):
    frame = as_columns(mixed(library))
    assert frame.source == "table"
    assert frame.kinds == ("numeric", "numeric", "boolean", "categorical", "categorical", "datetime")
    np.testing.assert_array_equal(column(frame, "income")[1], [1.5, NAN, 2.5, 1000.25])
    np.testing.assert_array_equal(column(frame, "member")[1], [1, 0, NAN, 1])
    assert column(frame, "colour")[1].tolist() == ["red", None, "blue", "red"]
    assert column(frame, "grade")[1].tolist() == ["b", "a", "c", "a"]
    np.testing.assert_array_equal(column(frame, "joined")[1], STAMPS)


def test_a_record_batch_is_a_table():
    batch = mixed("arrow").to_batches()[0]
    assert as_columns(batch).names == ("age", "income", "member", "colour", "grade", "joined")


@pytest.mark.parametrize(
    ("values", "dtype", "kind", "expected"),
    [
        ([1, None, 3], "Int64", "numeric", [1, NAN, 3]),
        ([1.5, None, 3], "Float64", "numeric", [1.5, NAN, 3]),
        ([1, None, 3], "int64[pyarrow]", "numeric", [1, NAN, 3]),
        ([True, None, False], "boolean", "boolean", [1, NAN, 0]),
        ([True, None, False], "bool[pyarrow]", "boolean", [1, NAN, 0]),
        ([True, None, False], object, "boolean", [1, NAN, 0]),
        ([np.True_, False], object, "boolean", [1, 0]),
        (["a", None, "b"], "str", "categorical", ["a", None, "b"]),
        (["a", None, "b"], "string[python]", "categorical", ["a", None, "b"]),
        (["a", None, "b"], "string[pyarrow]", "categorical", ["a", None, "b"]),
        (["a", NAN, "b", None, pd.NA], object, "categorical", ["a", None, "b", None, None]),
        (["a", None, "b"], "category", "categorical", ["a", None, "b"]),
        ([2, None, 1], "category", "categorical", ["2", None, "1"]),
        ([2.0, None, 1.5], "category", "categorical", ["2", None, "1.5"]),
        ([1, 2.5, None, np.int8(3), pd.NA], object, "numeric", [1, 2.5, NAN, 3, NAN]),
        ([decimal.Decimal("1.5"), None, decimal.Decimal("NaN")], object, "numeric", [1.5, NAN, NAN]),
        ([decimal.Decimal("1.5"), None], pd.ArrowDtype(pa.decimal128(5, 2)), "numeric", [1.5, NAN]),
        ([dt.timedelta(seconds=1.5), None], "timedelta64[ns]", "numeric", [1.5, NAN]),
        ([dt.timedelta(seconds=1.5), None, np.timedelta64(2, "m")], object, "numeric", [1.5, NAN, 120]),
        ([dt.time(1, 2, 3, 500_000), None], object, "numeric", [3723.5, NAN]),
        ([dt.datetime(1970, 1, 2), None], "datetime64[ns]", "datetime", [86400, NAN]),
        ([dt.datetime(1970, 1, 2), None], "datetime64[s]", "datetime", [86400, NAN]),
        ([dt.date(1970, 1, 2), None, pd.NaT], object, "datetime", [86400, NAN, NAN]),
        ([dt.date(1970, 1, 2), None], pd.ArrowDtype(pa.date32()), "datetime", [86400, NAN]),
        ([np.datetime64("1970-01-02"), np.datetime64("NaT")], object, "datetime", [86400, NAN]),
        ([1.0, NAN, 0.0], pd.SparseDtype(float), "numeric", [1, NAN, 0]),
        ([None, None], object, "missing", [NAN, NAN]),
        ([None, None], pd.ArrowDtype(pa.null()), "missing", [NAN, NAN]),
    ],
    ids=str,
)
def test_pandas_types(values, dtype, kind, expected):
    found, array = one(values, dtype=dtype)
    assert found == kind
    if kind == "categorical":
        assert array.tolist() == expected
    else:
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == np.float64


def test_times_of_any_zone_become_utc():
    local = dt.datetime(2020, 7, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    seconds = dt.datetime(2020, 7, 1, 12, tzinfo=dt.UTC).timestamp()
    series = pd.Series(pd.to_datetime([local])).dt.tz_convert("Europe/Berlin")
    assert one(series)[1].tolist() == [seconds]
    assert one([local], dtype=object)[1].tolist() == [seconds]
    assert one([dt.datetime(2020, 7, 1, 12)], dtype=object)[1].tolist() == [seconds]


@pytest.mark.parametrize(
    ("series", "kind", "expected"),
    [
        (pl.Series(["a", None, "b"], dtype=pl.Enum(["a", "b"])), "categorical", ["a", None, "b"]),
        (pl.Series(["a", None, "b"], dtype=pl.Categorical), "categorical", ["a", None, "b"]),
        (pl.Series([decimal.Decimal("1.5"), None]), "numeric", [1.5, NAN]),
        (pl.Series([1, None], dtype=pl.UInt8), "numeric", [1, NAN]),
        (pl.Series([1.0, None, NAN]), "numeric", [1, NAN, NAN]),
        (pl.Series([dt.date(1970, 1, 2), None]), "datetime", [86400, NAN]),
        (pl.Series([dt.timedelta(days=1), None]), "numeric", [86400, NAN]),
        (pl.Series([dt.time(1), None]), "numeric", [3600, NAN]),
        (pl.Series([None, None]), "missing", [NAN, NAN]),
        (pl.Series([1, 2.5, None], dtype=pl.Object), "numeric", [1, 2.5, NAN]),
    ],
    ids=str,
)
def test_polars_types(series, kind, expected):
    found, array = column(as_columns(pl.DataFrame({"c": series})), "c")
    assert found == kind
    np.testing.assert_array_equal(array, np.array(expected, dtype=array.dtype))


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([1, None, 2]).dictionary_encode(), "categorical", ["1", None, "2"]),
        (pa.array(["a", None], pa.large_string()), "categorical", ["a", None]),
        (pa.array([dt.date(1970, 1, 2), None], pa.date64()), "datetime", [86400, NAN]),
        (pa.array([1, None], pa.timestamp("s", "Europe/Berlin")), "datetime", [1, NAN]),
        (pa.array([1, None], pa.duration("ms")), "numeric", [0.001, NAN]),
        (pa.array([decimal.Decimal("1.5"), None]), "numeric", [1.5, NAN]),
        (pa.array([2**53 + 1, None]), "numeric", [2.0**53, NAN]),
        (pa.array([2**64 - 1, 0], pa.uint64()), "numeric", [2.0**64, 0]),
        (pa.array([True, None, False]), "boolean", [1, NAN, 0]),
        (pa.nulls(2), "missing", [NAN, NAN]),
        (pa.chunked_array([[1.0], [None, 2.0]]), "numeric", [1, NAN, 2]),
    ],
    ids=lambda v: str(getattr(v, "type", v)),
)
def test_arrow_types(array, kind, expected):
    found, values = column(as_columns(pa.table({"c": array})), "c")
    assert found == kind
    np.testing.assert_array_equal(values, np.array(expected, dtype=values.dtype))


def test_names_for_arrays():
    frame = as_columns(np.ones((2, 2)), names=["a", "b"])
    assert (frame.names, frame.source) == (("a", "b"), "named array")
    assert as_columns(pd.DataFrame(np.ones((2, 2)))).names == ("0", "1")
    table = pd.DataFrame({"a": [1, 2]})
    assert as_columns(table, names=["a"]).names == ("a",)
    with pytest.raises(InputError, match="rename its columns"):
        as_columns(table, names=["b"])
    with pytest.raises(InputError, match="2 columns, but 1 names"):
        as_columns(np.ones((2, 2)), names=["a"])
    with pytest.raises(InputError, match="more than once: 'a'"):
        as_columns(np.ones((2, 2)), names=["a", "a"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (sparse.eye(3).tocsr(), r"\.toarray\(\)"),
        (pl.LazyFrame({"a": [1]}), r"\.collect\(\)"),
        (pd.Series([1, 2]), r"\.to_frame\(\)"),
        (pl.Series([1, 2]), r"\.to_frame\(\)"),
        ({"a": [1]}, "pandas.DataFrame"),
        ([{"a": 1}], "pandas.DataFrame"),
        (np.ones(3), r"reshape\(-1, 1\)"),
        (np.ones((2, 3, 4)), r"reshape\(len\(x\), -1\)"),
        (5, "int is not a table"),
        ("abc", "str is not a table"),
        (None, "NoneType is not a table"),
        ([[1, 2], [3]], "same number"),
        ([], "no rows"),
        (np.ones((0, 3)), "no rows"),
        (np.ones((3, 0)), "no columns"),
        (pd.DataFrame({"a": []}), "no rows"),
        (pd.DataFrame(index=[0, 1]), "no columns"),
        (pl.DataFrame({"a": []}), "no rows"),
        (np.array([[1j, 2]]), "complex"),
        (np.zeros((2, 2), dtype=[("a", int)]), "structured"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than once: 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than once: 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), "1 is of type int"),
        (pd.DataFrame([[1, 2]], columns=[0.5, 1.5]), "0.5 is of type float"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])), "of type tuple"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_what_is_no_table(data, message):
    with pytest.raises(InputError, match=message):
        as_columns(data)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "x", 2], "'c' mixes numbers and strings, for example 'x'"),
        (["x", "y", 2], "'c' mixes numbers and strings, for example 2"),
        ([True, 3, 4], "'c' mixes booleans and numbers, for example True"),
        ([dt.date(2020, 1, 1), "x"], "'c' mixes dates and strings"),
        ([[1], [2]], r"'c' holds nested values, for example \[1\]"),
        ([{"a": 1}, None], "'c' holds nested values"),
        ([1j, 2j], "'c' holds complex numbers"),
        ([b"a", b"b"], "'c' holds values of type bytes"),
        (pd.Series([10**400, 1], dtype=object), "'c' holds a number beyond"),
        (pd.period_range("2020", periods=2), "'c' holds values of type Period"),
        ([1.0, math.inf, -math.inf], "'c' has 2 infinite values"),
        (pd.array([1.0, math.inf], "Float64"), "'c' has 1 infinite value;"),
        ([decimal.Decimal("Infinity"), 1], "'c' has 1 infinite value;"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_used(values, message):
    table = pd.DataFrame({"fine": range(len(values)), "c": values})
    with pytest.raises(InputError, match=message):
        as_columns(table)


def test_nested_columns_of_polars_and_arrow():
    table = pl.DataFrame({"list": [[1], [2]], "struct": [{"a": 1}] * 2, "binary": [b"a", b"b"]})
    for data in (table, table.to_arrow()):
        with pytest.raises(InputError) as error:
            as_columns(data)
        assert "'list' holds nested" in str(error.value)
        assert "'struct' holds nested" in str(error.value)
        assert "'binary' holds values of type bytes" in str(error.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinite_values_are_counted_by_column(dtype):
    x = np.zeros((5000, 40), dtype=dtype)
    x[:, 1] = np.nan
    x[[3, 4999], 7] = np.inf
    x[17, 39] = -np.inf
    with pytest.raises(InputError) as error:
        as_columns(x)
    lines = str(error.value).splitlines()[1:]
    assert [line.split(";")[0] for line in lines] == [
        "- column 'x7' has 2 infinite values",
        "- column 'x39' has 1 infinite value",
    ]


def test_a_sum_that_overflows_is_not_infinite():
    as_columns(np.full((10, 3), 3e38, dtype=np.float32))


def test_a_tensor_is_an_array():
    assert as_columns(torch.ones(1, 1)).n_rows == 1


# --------------------------------------------------------------------------------------------------------------- fit


def test_robust_scale_and_squash():
    x = np.arange(101.0)[:, None]
    encoder = TableEncoder.fit(x, keep=["x0"])
    (c,) = encoder.columns
    assert c == NumericColumn("x0", 50.0, 50 / 1.349, False, 0.0, 100.0, integer=True)
    np.testing.assert_allclose(encoder.encode(x)[:, 0], (x[:, 0] - 50) / (50 / 1.349), rtol=1e-6)
    far = encoder.encode([[50 + 10 * c.scale], [50 - 10 * c.scale]])[:, 0]
    np.testing.assert_allclose(far, [3 + math.log(8), -3 - math.log(8)], rtol=1e-6)


def test_squash_is_monotone_smooth_and_invertible():
    z = np.concatenate([np.linspace(-20, 20, 4001), [1e3, 1e10, 1e300]])
    y = squash(z)
    assert (np.diff(y[:4001]) > 0).all()
    assert (np.abs(np.diff(y[:4001], 2)) < 1.1e-4).all()
    np.testing.assert_allclose([unsquash(v) for v in y], z, rtol=1e-10)
    assert np.isfinite(squash([math.inf, -math.inf])).all()
    assert math.isfinite(unsquash(1e6))


def test_standard_deviation_where_quartiles_agree():
    x = np.zeros((100, 1))
    x[0], x[1] = 7, 3
    (c,) = TableEncoder.fit(x).columns
    assert c.scale == pytest.approx(np.std(x), rel=0.01)
    tiny = TableEncoder.fit(x * 1e-200)
    assert tiny.encode(x * 1e-200)[0, 0] > 3


def test_scaling_by_deviation():
    x = np.concatenate([np.linspace(0, 1e-3, 800), np.linspace(-10, 0, 200)])[:, None]
    by_quartiles, by_deviation = (TableEncoder.fit(x, scaling=how).columns[0] for how in ("quartiles", "deviation"))
    assert by_quartiles.median == by_deviation.median
    np.testing.assert_allclose(by_deviation.scale, x.std())
    assert by_quartiles.scale < by_deviation.scale / 2
    with pytest.raises(InputError, match="'quartiles' or 'deviation', got 'range'"):
        TableEncoder.fit(x, scaling="range")


def test_rounding_errors_are_no_scale():
    x = np.array([0.1 + 0.2] * 50 + [0.3] * 50 + [1.0] * 5)[:, None]
    (c,) = TableEncoder.fit(x).columns
    assert c.scale == pytest.approx(np.std(x))


def test_numbers_at_the_end_of_the_range():
    x = np.array([[-1.7e308], [1.7e308], [0.0], [1e308], [5e-324]])
    encoder = TableEncoder.fit(x)
    assert np.isfinite(encoder.encode(x)).all()
    assert all(math.isfinite(encoder.decode(row)["x0"]) for row in encoder.encode(x))
    small = TableEncoder.fit([[0.0], [5e-324], [1e-323]])
    assert np.isfinite(small.encode([[1.7e308], [-1.7e308]])).all()


def test_single_precision_gives_what_doubles_give():
    rng = np.random.default_rng(0)
    x = (rng.standard_cauchy((500, 4)) * [1, 1e-3, 1e4, 1] + [0, 0, 0, 1e3]).astype(np.float32)
    x[::7, 1] = np.nan
    encoder = TableEncoder.fit(x)
    single, double = encoder.encode(x), encoder.encode(x.astype(np.float64))
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-4)
    assert (single != double).any()  # or the fast way was not taken


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_units_beyond_single_precision(unit):
    encoder = TableEncoder.fit(np.random.default_rng(0).normal(size=(100, 2)) * unit)
    out = encoder.encode(np.zeros((3, 2), dtype=np.float32))
    np.testing.assert_array_equal(out, encoder.encode(np.zeros((3, 2))))
    largest = np.full((1, 2), np.finfo(np.float32).max)
    assert np.isfinite(encoder.encode(largest)).all()
    assert np.isfinite(encoder.encode(-largest)).all()


def test_the_largest_number_of_single_precision_is_finite_when_encoded():
    encoder = TableEncoder.fit(np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32) * 1e-3 - 1)
    out = encoder.encode(np.full((1, 2), np.finfo(np.float32).max))
    assert np.isfinite(out).all()
    assert (out[0, :2] > 80).all()


def test_dropped_columns_are_named_in_one_warning():
    table = pd.DataFrame({"a": [1, 1, 1], "b": [1, 2, 3], "c": [None] * 3, "d": ["x"] * 3, "e": [True] * 3})
    with pytest.warns(UserWarning, match="left out") as caught:
        encoder = TableEncoder.fit(table)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert all(f"{n!r} (constant)" in text for n in "ade")
    assert "'c' (all missing)" in text
    assert encoder.columns[0] == DroppedColumn("a", "constant", 1.0)
    assert encoder.columns[2] == DroppedColumn("c", "all missing")
    assert encoder.kept == (1,)
    assert encoder.output_names == ("b", UNEXPECTED)


def test_a_column_that_is_constant_or_missing_tells_rows_apart():
    table = pd.DataFrame({"n": [5, None, 5], "b": [True, None, True], "s": ["x", None, "x"]})
    encoder = TableEncoder.fit(table)
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


def test_nothing_left_to_learn_from():
    with pytest.raises(InputError, match=r"'x0' \(constant\), 'x1' \(constant\)"):
        TableEncoder.fit(np.ones((3, 2)))


@pytest.mark.parametrize("options", [{"max_levels": 0}, {"hash_buckets": 0}])
def test_options_are_checked(options):
    with pytest.raises(InputError, match="at least 1"):
        TableEncoder.fit(mixed(), **options)


def test_names_and_a_frame():
    with pytest.raises(InputError, match="as_columns"):
        TableEncoder.fit(as_columns(np.eye(2)), names=["a", "b"])
    assert TableEncoder.fit(as_columns(np.eye(2), names=["a", "b"])).names == ("a", "b")


# ------------------------------------------------------------------------------------------------------------ encode


def test_the_layout():
    encoder = TableEncoder.fit(mixed())
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
    encoders = [TableEncoder.fit(mixed(library)) for library in ("pandas", "polars", "arrow")]
    assert encoders[0] == encoders[1] == encoders[2]
    outs = [encoders[0].encode(mixed(library)) for library in ("pandas", "polars", "arrow")]
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_rows_do_not_see_each_other():
    table = mixed()
    encoder = TableEncoder.fit(table)
    out = encoder.encode(table)
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(encoder.encode(table.iloc[order]), out[order])
    np.testing.assert_array_equal(np.concatenate([encoder.encode(table.iloc[[i]]) for i in range(4)]), out)


def test_columns_may_come_in_any_order():
    table = mixed()
    encoder = TableEncoder.fit(table)
    np.testing.assert_array_equal(encoder.encode(table[table.columns[::-1]]), encoder.encode(table))


def test_unexpected_missing_values_are_counted():
    table = mixed("polars")
    encoder = TableEncoder.fit(table)
    empty = table.with_columns([pl.lit(None).alias(c) for c in table.columns])
    out = encoder.encode(empty)
    assert (out[:, -1] == 3).all()  # age, grade, joined; the others had missing values at fit
    assert (out[:, 12] == 1).all()  # grade: missing counts as unseen
    middle = dt.datetime.fromtimestamp(float(np.median(STAMPS)), dt.UTC).replace(tzinfo=None)
    assert list(encoder.decode(out[0]).values()) == [36, None, None, None, UNSEEN, middle]
    numeric = TableEncoder.fit(np.eye(3))
    assert numeric.encode([[NAN, 0, NAN]])[0].tolist() == [0, 0, 0, 2]
    boolean = TableEncoder.fit(pd.DataFrame({"b": [True, False, False]}))
    assert boolean.encode(pd.DataFrame({"b": [None]})).tolist() == [[0, 1]]


def test_missing_values_may_have_any_type():
    """A batch with nothing in a column often comes as floats or objects, whatever the column holds."""
    table = mixed()
    encoder = TableEncoder.fit(table)
    for nothing in (NAN, None, pd.NA, pd.NaT):
        row = pd.DataFrame({c: [nothing] for c in table.columns})
        assert encoder.encode(row)[0, -1] == 3


def test_unseen_levels():
    encoder = TableEncoder.fit(pd.DataFrame({"c": ["a", "b"]}))
    out = encoder.encode(pd.DataFrame({"c": ["zzz", "", "b"]}))
    assert out.tolist() == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert encoder.decode(out[0]) == {"c": UNSEEN}


def test_hashed_levels():
    names = [f"user {i}" for i in range(200)]
    table = pd.DataFrame({"c": [*names, None, *names * 4]})
    encoder = TableEncoder.fit(table, max_levels=100, hash_buckets=16)
    (c,) = encoder.columns
    assert (c.levels, c.hashed_buckets, len(c.hashes)) == ((), 16, 200)
    assert encoder.n_outputs == 16 + 3
    out = encoder.encode(table)
    assert (out.sum(axis=1) == 1).all()
    assert [int(i) for i in out[:200].argmax(axis=1)] == [level_hash(n) % 16 for n in names]
    assert out[200, 16] == 1
    assert len(set(out[:200].argmax(axis=1))) == 16
    new = encoder.encode(pd.DataFrame({"c": ["somebody else"]}))
    assert new[0].tolist() == [0] * 17 + [1, 0]
    decoded = [encoder.decode(r)["c"] for r in (out[0], out[200], new[0])]
    assert level_hash(decoded[0]) % 16 == level_hash(names[0]) % 16
    assert decoded[0] in names
    assert decoded[1:] == [None, UNSEEN]
    old = dataclasses.replace(encoder, columns=(dataclasses.replace(c, examples=()),))
    assert old.decode(out[0])["c"] == HASHED
    assert TableEncoder.fit(table, max_levels=200).columns[0].hashed_buckets is None


def test_the_hash_never_changes():
    assert level_hash("a") == 4681665781835383343
    assert level_hash("") != level_hash(" ")
    assert 0 <= level_hash("\ud800") < 2**64


def test_booleans_take_zeros_and_ones():
    encoder = TableEncoder.fit(pd.DataFrame({"b": [True, False, False]}))
    assert encoder.encode(pd.DataFrame({"b": [1, 0]})).tolist() == [[1, 0], [0, 0]]
    with pytest.raises(SchemaError, match=r"'b' had booleans at fit, now it has numbers, for example 2\.0"):
        encoder.encode(pd.DataFrame({"b": [1, 2]}))


def test_all_violations_in_one_message():
    table = mixed()
    encoder = TableEncoder.fit(table)
    bad = pd.DataFrame(
        {
            "age": ["old", "young"],
            "income": [1.0, math.inf],
            "member": ["yes", "no"],
            "colour": [1, 2],
            "joined": [1.0, 2.0],
            "extra": [1, 2],
            "other": [[1], [2]],
        }
    )
    with pytest.raises(SchemaError) as error:
        encoder.encode(bad)
    lines = str(error.value).splitlines()
    assert lines[1:] == [
        "- column 'grade' is not in the table; add it",
        "- column 'extra' was not there at fit; remove it",
        "- column 'other' was not there at fit; remove it",
        "- column 'age' had numbers at fit, now it has strings, for example 'old'; give numbers",
        "- column 'income' has 1 infinite value; replace them by missing values (NaN) or drop these rows",
        "- column 'member' had booleans at fit, now it has strings, for example 'yes'; give booleans",
        "- column 'colour' had strings at fit, now it has numbers, for example 1.0; give strings",
        "- column 'joined' had dates at fit, now it has numbers, for example 1.0; give dates",
    ]
    assert isinstance(error.value, InputError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": DAYS}, "'age' had numbers at fit, now it has dates, for example '2020-01-01T12:30:15.250000'"),
        ({"age": [True] * 4}, "'age' had numbers at fit, now it has booleans, for example True"),
        ({"age": [1, 2, 3, "x"]}, "'age' mixes numbers and strings, for example 'x'"),
        ({"colour": [True] * 4}, "'colour' had strings at fit, now it has booleans"),
        ({"joined": ["2020-01-01"] * 4}, "'joined' had dates at fit, now it has strings"),
    ],
)
def test_wrong_kinds(change, message):
    encoder = TableEncoder.fit(mixed())
    with pytest.raises(SchemaError, match=message):
        encoder.encode(mixed().assign(**change))


def _beside(kind, constant, dtype, extra=0.0):
    """Ten rows of a column that varies and one that does not, both of a type, in a table of some kind."""
    x = np.arange(10).astype(dtype)
    same = np.full(10, constant, dtype) + dtype(extra)
    if kind == "array":
        return np.column_stack([x, same])
    columns = {"x": x, "same": same}
    if kind == "pandas":
        return pd.DataFrame(columns)
    columns["word"] = list("ab") * 5
    frame = pd.DataFrame(columns)
    return {"mixed": frame, "polars": pl.from_pandas(frame), "arrow": pa.Table.from_pandas(frame)}[kind]


@pytest.mark.parametrize("constant", [0.1, 1 / 3, -1e-20, 16777217.0, 7.0])
@pytest.mark.parametrize("kind", ["array", "pandas", "mixed", "polars", "arrow"])
def test_a_constant_is_the_same_in_another_precision(kind, constant):
    for fit_in, score_in in itertools.product([np.float32, np.float64], repeat=2):
        encoder = quiet_fit(_beside(kind, constant, fit_in))
        assert encoder.encode(_beside(kind, constant, score_in))[:, -1].tolist() == [0.0] * 10, (fit_in, score_in)
        other = _beside(kind, constant, score_in, extra=constant / 1000)
        assert encoder.encode(other)[:, -1].tolist() == [1.0] * 10, (fit_in, score_in)
        again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
        assert again == encoder


def test_a_constant_of_64_bits_is_told_from_its_neighbours():
    encoder = quiet_fit(_beside("mixed", 1.0, np.float64))
    assert encoder.encode(_beside("mixed", 1.0, np.float64, 1e-12))[:, -1].tolist() == [1.0] * 10


def test_dropped_columns_may_be_there_or_not():
    table = mixed().assign(same=1)
    encoder = quiet_fit(table)
    expected = encoder.encode(table)
    np.testing.assert_array_equal(encoder.encode(table.drop(columns="same")), expected)
    for content, surprises in (
        ("text", [1] * 4),
        (math.inf, [1] * 4),
        ([[1]] * 4, [1] * 4),
        ([1, None, 1, 2.0], [0, 1, 0, 1]),
    ):
        changed = encoder.encode(table.assign(same=content))
        np.testing.assert_array_equal(changed[:, :-1], expected[:, :-1])
        np.testing.assert_array_equal(changed[:, -1] - expected[:, -1], np.array(surprises))


def test_dropped_columns_of_an_array():
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    x[:, 1] = 4
    encoder = quiet_fit(x)
    out = encoder.encode(x)
    np.testing.assert_array_equal(out[:, :2], TableEncoder.fit(x[:, [0, 2]]).encode(x[:, [0, 2]])[:, :2])
    assert (out[:, -1] == 0).all()
    x[:5, 1] = np.inf
    x[5, 1] = np.nan
    np.testing.assert_array_equal(encoder.encode(x)[:, :-1], out[:, :-1])
    np.testing.assert_array_equal(encoder.encode(x)[:, -1], [1] * 6 + [0] * 14)
    with pytest.raises(SchemaError, match="has 2 columns, the encoder was fitted on 3"):
        encoder.encode(x[:, [0, 2]])
    x[3, 2] = np.inf
    with pytest.raises(SchemaError, match="'x2' has 1 infinite"):
        encoder.encode(x)


def test_arrays_and_tables_for_each_other():
    x = np.random.default_rng(0).normal(size=(20, 3))
    table = pd.DataFrame(x, columns=list("abc"))
    from_table, from_array = TableEncoder.fit(table), TableEncoder.fit(x)
    named = TableEncoder.fit(x, names=["a", "b", "c"])
    expected = from_table.encode(table)
    swapped = table[["c", "a", "b"]]
    for encoder in (from_table, from_array, named):
        for data in (x, x.tolist(), table, pl.DataFrame(table.to_dict("list")), as_columns(table), as_columns(x)):
            np.testing.assert_array_equal(encoder.encode(data), expected)
    for encoder in (from_table, named):
        np.testing.assert_array_equal(encoder.encode(swapped), expected)
        np.testing.assert_array_equal(encoder.encode(as_columns(x[:, [2, 0, 1]], names=["c", "a", "b"])), expected)
    np.testing.assert_array_equal(from_array.encode(swapped), from_array.encode(x[:, [2, 0, 1]]))
    for encoder in (from_table, from_array):
        with pytest.raises(SchemaError, match="2 columns"):
            encoder.encode(x[:, :2])
    with pytest.raises(SchemaError, match="2 columns"):
        from_array.encode(table[["a", "b"]])
    with pytest.raises(SchemaError, match="'a' has 1 infinite"):
        from_table.encode([[math.inf, 1, 2]])
    with pytest.raises(SchemaError, match="'a' had numbers at fit, now it has strings"):
        from_table.encode([["x", 1, 2]])


def test_an_array_for_a_table_that_is_not_numeric():
    table = mixed()
    rows = table.to_numpy(dtype=object)
    with pytest.raises(SchemaError, match="give a data frame"):
        TableEncoder.fit(table).encode(rows)
    expected = TableEncoder.fit(table).encode(table)
    for names in (None, list(table.columns)):
        np.testing.assert_array_equal(TableEncoder.fit(rows, names=names).encode(rows), expected)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_do_not_show(missing, order):
    x = np.random.default_rng(0).standard_t(1, size=(3001, 130)).astype(np.float32)
    if missing:
        x[::7, ::3] = np.nan
    x = np.asarray(x, order=order)
    encoder = TableEncoder.fit(x)
    out = encoder.encode(x)
    np.testing.assert_array_equal(out, np.concatenate([encoder.encode(x[i : i + 1]) for i in range(len(x))]))
    np.testing.assert_allclose(out, encoder.encode(pl.DataFrame(x)), atol=2e-6)  # a table's go by way of doubles
    for j in (0, 1, 129):
        c = encoder.columns[j]
        z = np.nan_to_num(squash((x[:, j].astype(float) - c.median) / c.scale))
        np.testing.assert_allclose(out[:, encoder.groups[j][1].start], z, atol=2e-6)


# ------------------------------------------------------------------------------------------------------------ decode


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_decode_gives_back_what_was_encoded(library):
    table = mixed(library)
    encoder = TableEncoder.fit(table)
    rows = [encoder.decode(row) for row in encoder.encode(table)]
    for row, wanted in zip(rows, mixed("arrow").to_pylist(), strict=True):
        assert list(row) == list(wanted)
        assert isinstance(row["age"], int)
        assert row["income"] == (None if wanted["income"] is None else pytest.approx(wanted["income"], rel=1e-5))
        assert abs(row["joined"] - wanted["joined"]) < dt.timedelta(seconds=1)
        for name in ("age", "member", "colour", "grade"):
            assert row[name] == wanted[name]


def test_decode_takes_soft_rows():
    encoder = TableEncoder.fit(mixed())
    row = np.zeros(encoder.n_outputs)
    row[3], row[5], row[6], row[10] = 0.6, 0.2, 0.4, 0.1
    decoded = encoder.decode(row)
    assert (decoded["member"], decoded["colour"], decoded["grade"]) == (True, "red", "b")
    row[2] = row[7] = 0.7
    assert encoder.decode(row)["income"] is None
    assert encoder.decode(row)["colour"] is None
    row[0] = row[13] = 1e4  # neither numbers nor calendars reach so far
    assert encoder.decode(row)["joined"] == dt.datetime.max
    assert encoder.decode(row)["age"] > 10**300
    assert encoder.decode(-row)["joined"] == dt.datetime.min


@pytest.mark.parametrize("row", [np.zeros(3), np.zeros((1, 15)), np.full(15, np.nan)])
def test_decode_checks_its_row(row):
    with pytest.raises(InputError, match="one row of 15 finite numbers"):
        TableEncoder.fit(mixed()).decode(row)


# -------------------------------------------------------------------------------------------------------------- JSON


def test_json_and_back():
    table = mixed().assign(same=1, many=["p", "q", "r", "s"])
    encoder = quiet_fit(table, max_levels=3, hash_buckets=5)
    data = json.loads(json.dumps(encoder.to_json(), allow_nan=False))
    again = TableEncoder.from_json(data)
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
        (lambda d: d["encoder"]["columns"][0].update(name="income"), "different names"),
        (lambda d: d["encoder"]["columns"][3].update(levels=["red", "blue"]), "sorted levels"),
        (lambda d: d["encoder"]["columns"][3].update(hashed_buckets=4), "sorted levels"),
        (lambda d: d["encoder"]["columns"][6].update(reason="boring"), "not one of"),
    ],
)
def test_foreign_json_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        TableEncoder.from_json(_changed(change))
    with pytest.raises(InputError, match="not an encoder"):
        TableEncoder.from_json([1])


# ------------------------------------------------------------------------------------------------------ random tables

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
@given(tables(), st.integers(1, 5), st.integers(1, 4))
def test_random_tables(both, max_levels, hash_buckets):
    train, test = (pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in t.items()}) for t in both)
    encoder = fit_or_none(train, max_levels=max_levels, hash_buckets=hash_buckets)
    if encoder is None:
        return
    out = encoder.encode(train)
    assert (out[:, -1] == 0).all()
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(FLOATS, min_size=2, max_size=2), min_size=2, max_size=20), st.data())
def test_random_numbers_come_back(rows, data):
    x = np.array(rows)
    encoder = fit_or_none(x)
    if encoder is None:
        return
    row = data.draw(st.sampled_from(rows))
    decoded = encoder.decode(encoder.encode([row])[0])
    for i, c in zip(encoder.kept, encoder.kept_columns, strict=True):
        # An output is a 32-bit float; in the tail it is a logarithm, whose error becomes a relative one.
        distance = abs(row[i] - c.median)
        if distance / c.scale < 1e300:
            error = 1e-6 * c.scale + 2e-4 * distance + 1e-12 * abs(row[i]) + 0.5 * c.integer + 1e-300
            assert abs(decoded[c.name] - row[i]) <= error


def test_numbers_of_two_values_are_levels():
    column = np.array([0.0, 0, 0, 5, 0, np.nan])
    other = np.array([7.0, 7, 7, 7, -1, 7])
    third = np.array([0.0, 1, 2, 3, 4, 5])
    encoder = TableEncoder.fit(np.stack([column, other, third], axis=1), names=["a", "b", "c"])
    assert [c.two_valued for c in encoder.kept_columns] == [True, True, False]
    rows = encoder.encode(np.stack([column, other, third], axis=1))
    assert rows[:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert rows[:, 1].tolist() == [0, 0, 0, 0, 0, 1]  # the flag
    assert rows[:, 2].tolist() == [0, 0, 0, 0, -1, 0]
    assert encoder.jitter()[encoder.learned.index(encoder.groups[2][1].start)] == 0
    assert (encoder.jitter() > 0).sum() == 3  # both columns and the flag
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert encoder.decode(rows[3])["a"] == 5
    assert encoder.decode(rows[4])["b"] == -1
