"""Later tables: which of their columns are those of the training table, and what is wrong with the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nrf.detect.tables.frame import as_columns
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from some_tables import DAYS, mixed

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def test_columns_may_come_in_any_order():
    table = mixed()
    encoder = Schema.fit(table)
    np.testing.assert_array_equal(encoder.encode(table[table.columns[::-1]]), encoder.encode(table))


def test_all_violations_in_one_message():
    table = mixed()
    encoder = Schema.fit(table)
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
    encoder = Schema.fit(mixed())
    with pytest.raises(SchemaError, match=message):
        encoder.encode(mixed().assign(**change))


def test_arrays_and_tables_for_each_other():
    x = np.random.default_rng(0).normal(size=(20, 3))
    table = pd.DataFrame(x, columns=list("abc"))
    from_table, from_array = Schema.fit(table), Schema.fit(x)
    named = Schema.fit(x, names=["a", "b", "c"])
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
        Schema.fit(table).encode(rows)
    expected = Schema.fit(table).encode(table)
    for names in (None, list(table.columns)):
        np.testing.assert_array_equal(Schema.fit(rows, names=names).encode(rows), expected)
