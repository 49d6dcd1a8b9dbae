"""What every kind of column must do: a new one in `KINDS` is tested here."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import nrf
from nrf import config
from nrf.detect.tables.columns import FAMILIES, KINDS, AnyColumn, Column, FitOptions, TrainingColumn
from nrf.detect.tables.frame import Frame
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.values import missing_in

DAY = 86_400.0
EXAMPLES = {  # numbers and times have heavy tails
    "numeric": [1.0, 2.5, -4.0, 100.25, 1.0, 7.5, 0.25, 3.5, 1.0, -2.0, 4.5, 6.0],
    "boolean": [1.0, 0.0, 0.0, 1.0, 0.0, 0.0] * 2,
    "categorical": ["red", "blue", "red", "green", "blue", "red"] * 2,
    "datetime": [0.0, DAY, 5 * DAY, 9 * DAY, 2 * DAY, 900 * DAY, 3 * DAY, DAY, 4 * DAY, 7 * DAY, 2 * DAY, 6 * DAY],
}
CASES = [
    pytest.param(kind, options, missing, id=f"{kind}-{options}-{missing}")
    for kind in EXAMPLES
    for options in ({}, {"max_levels": 2, "hash_buckets": 3}, {"scaling": "deviation"}, {"scaling": "quartiles"})
    for missing in (False, True)
]


def training(kind: str, missing: bool) -> TrainingColumn:
    dtype = object if kind == "categorical" else np.float64
    values = np.array(EXAMPLES[kind], dtype=dtype)
    if missing:
        values[2] = None if kind == "categorical" else np.nan
    return TrainingColumn("c", kind, values)


def encoded(column: Column, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out = np.zeros((len(values), len(column.outputs)), dtype=np.float32)
    unexpected = np.zeros(len(values), dtype=np.float32)
    column.encode(values, out, unexpected)
    return out, unexpected


@pytest.mark.parametrize("kind", ["numeric", "datetime"])
def test_examples_of_numbers_have_heavy_tails(kind):
    assert KINDS[kind].fit(training(kind, False), FitOptions()).knots


def test_every_kind_has_examples_a_family_and_a_name_in_files():
    assert set(EXAMPLES) == set(KINDS) - {"missing"}
    assert set(KINDS.values()) == set(get_args(AnyColumn))
    for column in KINDS.values():
        assert sum(issubclass(column, family) for family in FAMILIES) == 1


@pytest.mark.parametrize(("kind", "options", "missing"), CASES)
def test_encode_decode_and_snap(kind, options, missing):
    given = training(kind, missing)
    column = KINDS[kind].fit(given, FitOptions(**options))
    assert (type(column), column.kind, column.kept, column.is_read) == (KINDS[kind], kind, True, True)
    out, unexpected = encoded(column, given.values)
    assert not unexpected.any()
    assert not out[:, list(column.novelty_outputs)].any()
    assert len(column.jitter) == len(column.sizes) == len(column.outputs) == len(set(column.outputs))
    gone = missing_in(given.values)
    rows = [row.tolist() for row in out]
    for row, is_missing in zip(rows, gone, strict=True):
        assert (column.decode(row) is None) == (column.decode_rounded(row) is None) == is_missing
        np.testing.assert_allclose(column.snap(row), row, atol=1e-6)
    soft = (out + 0.3 * np.random.default_rng(0).normal(size=out.shape)).tolist()
    for row in soft:
        snapped = column.snap(row)
        np.testing.assert_allclose(column.snap(snapped), snapped, atol=1e-6)
        assert not np.array(snapped)[list(column.novelty_outputs)].any()
    assert column.decode_column(rows, given.values) == [
        float(value) if kind == "numeric" and value is not None else value for value in map(column.decode, rows)
    ]
    assert not any(new.rows.any() for new in column.new_values(given.values, None))


@pytest.mark.parametrize(("kind", "options", "missing"), CASES)
def test_a_column_alone_is_what_it_is_in_a_schema(kind, options, missing):
    """Those that are encoded together come out as one by one, beside columns of every kind."""
    columns = {k: training(k, m).values for k, m in ((kind, missing), *((k, True) for k in EXAMPLES if k != kind))}
    names = tuple(columns)
    frame = Frame(names, names, 12, "table", arrays=tuple(columns.values()))
    schema = Schema.fit(frame, **options)
    out = schema.encode(frame)
    for column, (name, part) in zip(schema.kept_columns, schema.groups, strict=True):
        np.testing.assert_array_equal(out[:, part], encoded(column, columns[name])[0])
    assert config.from_json(AnyColumn, json.loads(json.dumps(config.to_json(schema.columns[0])))) == schema.columns[0]


@pytest.mark.parametrize(("kind", "options", "missing"), CASES)
def test_the_order_of_encoded_rows_is_that_of_values(kind, options, missing):
    """Different values have different places; numbers and times rise with the value, and missing ones are below."""
    given = training(kind, missing)
    column = KINDS[kind].fit(given, FitOptions(**options))
    places = column.order(encoded(column, given.values)[0])
    gone = missing_in(given.values)
    assert places.dtype == np.float64
    assert np.isfinite(places).all()
    if options.get("max_levels") != 2 or kind != "categorical":
        assert len(set(places.tolist())) == len(set(given.values[~gone].tolist())) + missing
    if kind == "categorical":
        assert not set(places[gone].tolist()) & set(places[~gone].tolist())
    else:
        np.testing.assert_array_equal(np.argsort(places[~gone]), np.argsort(given.values[~gone]))
        assert not gone.any() or places[gone].max() < places[~gone].min() - 1e100


@pytest.mark.parametrize(("kind", "options", "missing"), CASES)
def test_missing_values_are_flagged_where_there_were_some_and_counted_elsewhere(kind, options, missing):
    column = KINDS[kind].fit(training(kind, missing), FitOptions(**options))
    nothing = column.in_form(np.full(2, np.nan), "missing")
    assert missing_in(nothing).all()
    out, unexpected = encoded(column, nothing)
    assert (unexpected == (not missing)).all()
    assert (column.decode(out[0].tolist()) is None) == missing
    found = [new.reason for new in column.new_values(nothing, None) if new.rows.any() and new.counted]
    assert found == ([] if missing else ["missing, which it never was at fit"])
    assert ("missing" in column.summary[1]) == missing


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_without_values_or_with_one_is_left_out(kind):
    dtype, nothing = (object, None) if kind == "categorical" else (np.float64, np.nan)
    empty = KINDS[kind].fit(TrainingColumn("c", kind, np.full(5, nothing, dtype)), FitOptions())
    assert (empty.kept, empty.is_read, empty.reason, empty.outputs) == (False, False, "all missing", ())
    if kind != "missing":
        same = KINDS[kind].fit(TrainingColumn("c", kind, np.full(5, EXAMPLES[kind][0], dtype)), FitOptions())
        assert (same.kept, same.reason, same.value) == (False, "constant", 1.0 if kind == "numeric" else None)
        assert same.is_read == (kind == "numeric")


def _asks(tree: ast.AST) -> list[str]:
    """Kinds of columns that a module asks for by their class."""
    found = [node.args[1] for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "isinstance"]
    found += [node.cls for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    names = {_name(part) for node in found for part in ast.walk(node)}
    return sorted(names & {"Column", "ScaledColumn", *(column.__name__ for column in KINDS.values())})


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def test_nobody_else_asks_what_kind_a_column_is():
    assert _asks(ast.parse("isinstance(c, a.BooleanColumn | DroppedColumn)")) == ["BooleanColumn", "DroppedColumn"]
    assert _asks(ast.parse("match c:\n    case NumericColumn():\n        pass")) == ["NumericColumn"]
    root = Path(nrf.__file__).parent
    own = root / "detect" / "tables" / "columns"
    others = [path for path in root.rglob("*.py") if own not in path.parents]
    assert {path.name: asked for path in others if (asked := _asks(ast.parse(path.read_text())))} == {}
