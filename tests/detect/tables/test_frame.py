"""Tables of every make to frames."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pytest
import torch
from scipy import sparse

from nrf.detect.tables.frame import Frame, as_columns, read_columns
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from some_tables import DAYS, NAN, STAMPS, mixed

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


def column(frame: Frame, name: str):
    i = frame.names.index(name)
    return frame.kinds[i], frame.column(i)


def one(values, **kwargs):
    """Kind and values of a pandas column."""
    return column(as_columns(pd.DataFrame({"c": pd.Series(values, **kwargs)})), "c")


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
    assert np.isfinite(Schema.fit(x).encode(x)).all()


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


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_frame_has_the_values_as_they_were_given(library):
    frame = as_columns(mixed(library))
    own = {name: frame.own_values(i) for i, name in enumerate(frame.names)}
    assert own["age"] == [30, 41, 25, 60]
    assert own["income"] == [1.5, None, 2.5, 1000.25]
    assert own["joined"] == DAYS
    assert [frame.time_zone(i) for i in range(6)] == [None] * 6
    part = frame.taken(np.array([3, 1]))
    assert (part.n_rows, part.given) == (2, None)
    assert part.own_values(frame.names.index("income")) == [1000.25, None]  # as the frame has them
    assert part.own_values(frame.names.index("joined")) == [STAMPS[3], STAMPS[1]]
    assert part.own_values(frame.names.index("colour")) == ["red", None]


def test_zones_and_times_as_they_were_given():
    zoned = pd.DataFrame({"at": pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Berlin"), "x": [1]})
    assert [as_columns(zoned).time_zone(i) for i in (0, 1)] == ["Europe/Berlin", None]
    times = as_columns(np.array([["2020-01-01T00:00:00.5", "NaT"]], dtype="datetime64[ns]"))
    assert [times.own_values(i) for i in (0, 1)] == [[dt.datetime(2020, 1, 1, 0, 0, 0, 500_000)], [None]]
    assert times.time_zone(0) is None


def test_problems_are_kept_where_they_are_no_error_yet():
    frame = read_columns([[1.0, np.inf], [2.0, 1.0]], names=["fine", "c"])
    assert list(frame.problems) == ["c"]
    assert list(frame.taken(np.array([1])).problems) == ["c"]
