"""Columns that are left out, and constants that change later."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from nrf.detect.tables.columns import (
    DroppedColumn,
)
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import UNEXPECTED, Schema
from nrf.errors import InputError
from some_tables import mixed, quiet_fit

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


def test_dropped_columns_are_named_in_one_warning():
    table = pd.DataFrame({"a": [1, 1, 1], "b": [1, 2, 3], "c": [None] * 3, "d": ["x"] * 3, "e": [True] * 3})
    with pytest.warns(UserWarning, match="left out") as caught:
        encoder = Schema.fit(table)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert all(f"{n!r} (constant)" in text for n in "ade")
    assert "'c' (all missing)" in text
    assert encoder.columns[0] == DroppedColumn("a", "constant", 1.0)
    assert encoder.columns[2] == DroppedColumn("c", "all missing")
    assert encoder.kept == (1,)
    assert encoder.output_names == ("b", UNEXPECTED)


def test_nothing_left_to_learn_from():
    with pytest.raises(InputError, match=r"'x0' \(constant\), 'x1' \(constant\)"):
        Schema.fit(np.ones((3, 2)))


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
        again = Schema.from_json(json.loads(json.dumps(encoder.to_json())))
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
    np.testing.assert_array_equal(out[:, :2], Schema.fit(x[:, [0, 2]]).encode(x[:, [0, 2]])[:, :2])
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


def test_what_fit_leaves_out_it_can_be_told_to_keep():
    assert DroppedColumn("user", "identifier").summary == (
        "left out",
        "identifier; --keep user uses it, --id user copies it to the scores",
    )
    assert DroppedColumn("user", "identifier", detail="free text").summary[1].startswith("identifier: free text;")
    assert DroppedColumn("same", "constant", 4.0).summary == ("left out", "constant")
