"""Later tables: which of their columns are those of the training table, and what is wrong with the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nrf.detect import NRFDetector
from nrf.detect.explain import revised_rows
from nrf.detect.tables import frame as frame_module
from nrf.detect.tables.files import batches
from nrf.detect.tables.frame import as_columns
from nrf.detect.tables.given import novelties
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from some_tables import DAYS, mixed, quiet_fit

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


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


@pytest.mark.parametrize(
    "change", [{}, {"drop": ["same"]}, {"drop": ["age"]}, {"more": 1}, {"drop": ["age"], "more": 1}]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_tables_and_files_are_matched_alike(change, reverse, tmp_path):
    """What is found, missing and too much in a table is so in a file with the same names."""
    table = mixed().assign(same=1)
    schema = quiet_fit(table)
    given = table.drop(columns=change.get("drop", []))
    given = given.assign(more=change["more"]) if "more" in change else given
    given = given[given.columns[::-1]] if reverse else given
    match = schema.match(list(given.columns))
    assert match.missing == (("age",) if "age" in change.get("drop", []) else ())
    assert match.extra == (("more",) if "more" in change else ())
    assert [given.columns[place] for place in match.places.values()] == list(match.places)
    given.to_parquet(tmp_path / "t.parquet")
    if match.missing or match.extra:
        for read in (schema.read, lambda table: batches(schema, tmp_path / "t.parquet")):
            with pytest.raises(SchemaError) as error:
                read(given)
            assert all(f"'{name}'" in str(error.value) for name in (*match.missing, *match.extra))
    else:
        assert schema.read(given).places == match.places
        (batch,) = batches(schema, tmp_path / "t.parquet")
        np.testing.assert_array_equal(schema.encode(batch.table), schema.encode(given))


def test_columns_go_by_place_where_one_side_has_no_names():
    schema = Schema.fit(mixed())
    assert schema.match(["a"] * 6, "array").places == {name: i for i, name in enumerate(schema.names)}
    assert schema.match(schema.names, "table").places == schema.match(["a"] * 6, "array").places
    assert schema.match(schema.names[:5], "array").wrong_number
    assert not schema.match(schema.names[:5], "table").wrong_number
    assert Schema.fit(np.eye(3)).match(["c", "b", "a"]).places == {"x0": 0, "x1": 1, "x2": 2}


def test_names_that_lack_columns_left_out_at_fit_only():
    schema = quiet_fit(mixed().assign(same=1, other=2))
    names = list(schema.names)
    assert [schema.lacks_dropped_only(n) for n in (names[:6], names[:7], names[:6] + names[7:])] == [True] * 3
    swapped = [names[1], names[0], *names[2:6]]
    assert [schema.lacks_dropped_only(n) for n in (names, names[:5], swapped, [*names[:6], "new"])] == [False] * 4


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_table_is_read_once_in_a_call(library, monkeypatch):
    """A detector's calls read each column of a table once, whatever they need of it."""
    table = pa.Table.from_pandas(pd.concat([mixed()] * 10, ignore_index=True))
    table = {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table), "arrow": lambda: table}[library]()
    read = []
    real = frame_module._read_series
    monkeypatch.setattr(frame_module, "_read_series", lambda series: (read.append(series.name), real(series))[1])
    detector = NRFDetector(iterations=3, random_state=0, contamination=0.1).fit(table)
    calls = {
        "fit": lambda: NRFDetector(iterations=3, random_state=0, contamination=0.1).fit(table),
        "partial_fit": lambda: detector.partial_fit(table),
        "score_samples": lambda: detector.score_samples(table),
        "explain": lambda: detector.explain(table[:3] if library != "arrow" else table.slice(0, 3), max_steps=3),
        "revised_rows": lambda: revised_rows(detector, table, n_steps=2),
        "novelties": lambda: novelties(detector.encoder_, table),
    }
    for name, call in calls.items():
        read.clear()
        call()
        assert read == list(detector.encoder_.names), name
