"""The exported graph of an encoder computes what the encoder computes."""

from __future__ import annotations

import datetime as dt
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.detect.tables.columns import CategoricalColumn, DatetimeColumn
from nrf.detect.tables.frame import as_columns
from nrf.detect.tables.onnx_columns import OPSETS, encoder_nodes
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pd = pytest.importorskip("pandas")

NAN = float("nan")
EDGES = [NAN, 0.0, -0.0, 1.0, 3.0, -3.0, 1e-45, 3.4e38, -3.4e38, 1e10]


def fitted(table, **kwargs) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Schema.fit(table, **kwargs)


def session(encoder: Schema):
    inputs, nodes, initializers, output = encoder_nodes(encoder)
    result = onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, ["N", encoder.n_outputs])
    graph = onnx.helper.make_graph(nodes, "encoder", inputs, [result], initializers)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run(encoder: Schema, table) -> np.ndarray:
    """The graph's output for a table, fed column by column as the export asks for it."""
    running = session(encoder)
    feed = {}
    frame = as_columns(table)
    for item in running.get_inputs():
        if item.type == "tensor(string)":
            values = frame.column(frame.names.index(item.name))
            values = np.array(["" if v is None or v != v else v for v in values], dtype=object)
        else:
            dtype = np.float64 if item.type == "tensor(double)" else np.float32
            values = frame.column(frame.names.index(item.name)).astype(dtype)
        feed[item.name] = values[:, None]
    return running.run(None, feed)[0]


def agree(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def mixed(n: int = 60, seed: int = 0):
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": draw.standard_t(1, n).astype(np.float32),
            "colour": draw.choice(["red", "blue", "grün", None], n),
            "count": draw.integers(0, 5, n),
            "member": draw.choice([True, False, None], n),
            "since": [dt.datetime(2024, 3, 1) + dt.timedelta(seconds=15 * int(s)) for s in draw.integers(0, 40, n)],
            "active": draw.random(n) < 0.5,
            "grade": draw.choice(["a", "b"], n),
            "same": 1,
            "weight": draw.normal(size=n).astype(np.float32),
        }
    )
    table.loc[::5, "weight"] = None
    return table


@pytest.mark.parametrize("missing", ["none", "some", "all"])
def test_a_matrix_of_numbers(missing):
    x = np.random.default_rng(0).standard_t(1, size=(300, 7)).astype(np.float32)
    if missing != "none":
        x[::4, :: 1 if missing == "all" else 3] = np.nan
    encoder = Schema.fit(x)
    running = session(encoder)
    assert [(i.name, i.type, i.shape) for i in running.get_inputs()] == [("input", "tensor(float)", ["N", 7])]
    edges = np.array([np.roll(EDGES, i)[:7] for i in range(len(EDGES))], dtype=np.float32)
    for rows in (x, x[:1], edges):
        agree(running.run(None, {"input": rows})[0], encoder.encode(rows))


@pytest.mark.parametrize("missing", [False, True])
def test_heavy_columns_beside_others(missing):
    rng = np.random.default_rng(0)
    x = np.stack(
        [
            rng.standard_t(1, 600),
            rng.normal(size=600),
            np.round(np.exp(3 * rng.normal(size=600))),
            (np.arange(600) % 40 == 0) + 2 * (np.arange(600) == 3),
            np.arange(600) % 2,
        ],
        axis=1,
    ).astype(np.float32)
    if missing:
        x[::7, [0, 1, 3]] = np.nan
    encoder = Schema.fit(x)
    assert [len(c.knots) > 3 for c in encoder.columns] == [True, False, True, False, False]
    assert (len(encoder.columns[3].knots), encoder.columns[4].two_valued) == (3, True)
    running = session(encoder)
    knots = [np.resize(c.centre + c.scale * np.array(c.knots or [0.0]), 300) for c in encoder.columns]
    edges = np.array([np.roll(EDGES, i)[:5] for i in range(len(EDGES))])
    for rows in (x, x[:1], np.stack(knots, axis=1).astype(np.float32), edges.astype(np.float32)):
        np.testing.assert_allclose(running.run(None, {"input": rows})[0], encoder.encode(rows), rtol=1e-6, atol=1e-6)


def test_a_heavy_column_far_from_zero():
    x = 1e6 + np.random.default_rng(0).standard_t(2, size=(300, 3))
    encoder = Schema.fit(x)
    assert all(c.knots and c.needs_double for c in encoder.columns)
    agree(session(encoder).run(None, {"input": x})[0], encoder.encode(x))


def test_scalings_side_by_side():
    x = np.random.default_rng(0).standard_t(1, size=(300, 3)).astype(np.float32)
    ways = [Schema.fit(x, scaling=scaling) for scaling in ("auto", "quartiles")]
    encoder = Schema((ways[0].columns[0], ways[1].columns[1], ways[0].columns[2]), "array")
    agree(session(encoder).run(None, {"input": x})[0], encoder.encode(x))


def test_one_column():
    encoder = Schema.fit([[1.0], [2.0], [5.0]])
    edges = np.array(EDGES, dtype=np.float32)[:, None]
    agree(session(encoder).run(None, {"input": edges})[0], encoder.encode(edges))


def test_the_matrix_keeps_columns_that_were_left_out():
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    x[:, 1] = 8
    encoder = fitted(pd.DataFrame(x, columns=list("abcd")))
    agree(session(encoder).run(None, {"input": x})[0], encoder.encode(x))


def test_a_large_offset_is_not_lost():
    x = 1e6 + np.random.default_rng(0).normal(size=(50, 2))
    encoder = Schema.fit(x)
    running = session(encoder)
    assert [i.type for i in running.get_inputs()] == ["tensor(double)"]  # 32 bits would round to sixteenths
    agree(running.run(None, {"input": x})[0], encoder.encode(x))


@pytest.mark.parametrize(
    ("values", "wide"),
    [
        ([290.3, 291.5, 289.2, 300.1], False),
        ([100_000.01, 100_000.03, 100_000.02, 100_000.06], True),
        ([2_000_000, 2_000_001, 2_000_003, 2_000_007], False),  # whole ones are exact up to 2²⁴
        ([20_000_000, 20_000_001, 20_000_003, 20_000_007], True),
        ([1e40, 3e40, 2e40, 7e40], True),
    ],
)
def test_numbers_have_the_bits_they_need(values, wide):
    encoder = Schema.fit(pd.DataFrame({"x": values, "word": list("abab")}))
    running = session(encoder)
    kinds = {i.name: i.type for i in running.get_inputs()}
    assert kinds == {"x": "tensor(double)" if wide else "tensor(float)", "word": "tensor(string)"}
    x = np.array(values, dtype=np.float64 if wide else np.float32)[:, None]
    out = running.run(None, {"x": x, "word": np.array(list("abab"), dtype=object)[:, None]})[0]
    want = encoder.encode(pd.DataFrame({"x": values, "word": list("abab")}))
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_constants_beside_numbers_that_need_64_bits():
    x = np.column_stack([1e6 + np.random.default_rng(0).normal(size=50), np.full(50, 0.1)])
    encoder = fitted(x)
    changed = x.copy()
    changed[::2, 1] = 0.2
    out = session(encoder).run(None, {"input": changed})[0]
    assert out[:, -1].tolist() == [1.0, 0.0] * 25


@pytest.mark.parametrize("wide", [False, True], ids=["of 32 bits", "of 64 bits"])
@pytest.mark.parametrize("fit_in", [np.float32, np.float64])
def test_a_constant_is_the_same_in_another_precision(fit_in, wide):
    """Fed in 32 bits, and in 64 where the graph asks for that."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=20) + (1e6 if wide else 0)
    rows = np.column_stack([x, np.full(20, 0.1), np.full(20, 1 / 3)]).astype(fit_in)
    encoder = fitted(rows)
    running = session(encoder)
    wanted = np.float64 if running.get_inputs()[0].type == "tensor(double)" else np.float32
    for given_in in (np.float32, np.float64):
        for extra, count in (
            (0.0, 0.0),
            (1e-3, 2.0),
            (1e-12, 2.0 if given_in == fit_in == wanted == np.float64 else 0.0),
        ):
            table = np.column_stack([x, np.full(20, 0.1 + extra), np.full(20, 1 / 3 + extra)]).astype(given_in)
            out = running.run(None, {"input": table.astype(wanted)})[0]
            assert out[:, -1].tolist() == [count] * 20, (given_in, extra)
    frame = pd.DataFrame({"x": x, "same": np.full(20, 0.1, fit_in), "word": list("ab") * 10})
    mixed_encoder = fitted(frame)
    for given_in in (np.float32, np.float64):
        for extra, count in ((0.0, 0.0), (1e-3, 1.0)):
            table = frame.assign(same=np.full(20, 0.1 + extra, given_in))
            assert run(mixed_encoder, table)[:, -1].tolist() == [count] * 20
            assert mixed_encoder.encode(table)[:, -1].tolist() == [count] * 20


@pytest.mark.parametrize(
    ("scaling", "tail", "far"), [("quartiles", [], 100), ("auto", [], 29.9), ("auto", [9.0] * 20 + [1e6], 29.9)]
)
def test_infinite_numbers_are_large_ones(scaling, tail, far):
    encoder = Schema.fit(np.array([1.0, 2.0, 5.0, *tail])[:, None], scaling=scaling)
    out = session(encoder).run(None, {"input": np.array([[np.inf], [-np.inf]], dtype=np.float32)})[0]
    assert np.isfinite(out).all()
    assert out[0, 0] > far > -far > out[1, 0]


def test_every_kind():
    table = mixed()
    encoder = fitted(table)
    types = {i.name: i.type for i in session(encoder).get_inputs()}
    assert types == {
        **dict.fromkeys(["size", "count", "member", "active", "weight", "same"], "tensor(float)"),
        **dict.fromkeys(["colour", "grade"], "tensor(string)"),
        "since": "tensor(double)",
    }
    agree(run(encoder, table), encoder.encode(table))
    agree(run(encoder, table.iloc[:1]), encoder.encode(table.iloc[:1]))
    agree(run(encoder, mixed(seed=1)), encoder.encode(mixed(seed=1)))


def test_edges_of_every_kind():
    encoder = fitted(mixed())
    n = len(EDGES)
    rows = pd.DataFrame(
        {
            "size": np.array(EDGES, dtype=np.float32),
            "same": ([1.0, 2.0, np.nan] * n)[:n],
            "count": np.roll(EDGES, 1).astype(np.float32),
            "weight": np.roll(EDGES, 2).astype(np.float32),
            "colour": (["red", None, "unseen", "Red", " "] * n)[:n],
            "grade": (["a", None, "unseen", "b"] * n)[:n],
            "member": pd.Series(([True, None, False] * n)[:n], dtype=object),
            "active": pd.Series(([None, True] * n)[:n], dtype=object),
            "since": ([dt.datetime(1901, 1, 1), None, dt.datetime(2100, 1, 1)] * n)[:n],
        }
    )
    expected = encoder.encode(rows)
    assert expected[:, -1].max() > 1
    agree(run(encoder, rows), expected)


@pytest.mark.parametrize(
    "table",
    [
        {"c": ["a", "b", "a"]},
        {"c": ["a", None, "b"]},
        {"b": [True, False, True]},
        {"b": [True, None, True]},
        {"t": [dt.datetime(2020, 1, d) for d in (1, 2, 5)]},
        {"t": [dt.datetime(2020, 1, 1), None, dt.datetime(2020, 1, 3)]},
        {"input": [1.0, 2.0, 4.0], "encoder/constant_0": ["a", "b", "c"], "encoder": [True, False, True]},
    ],
    ids=str,
)
def test_single_kinds_and_odd_names(table):
    table = pd.DataFrame(table)
    encoder = Schema.fit(table)
    agree(run(encoder, table), encoder.encode(table))


def test_seconds_are_not_rounded():
    table = pd.DataFrame({"t": [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=s) for s in range(20)]})
    encoder = Schema.fit(table)
    assert isinstance(encoder.columns[0], DatetimeColumn)
    agree(run(encoder, table), encoder.encode(table))


def test_many_levels():
    levels = [f"level {i}" for i in range(500)]
    table = pd.DataFrame({"c": levels * 5})
    encoder = Schema.fit(table, max_levels=500)
    assert len(encoder.columns[0].levels) == 500
    agree(run(encoder, table), encoder.encode(table))


@pytest.mark.parametrize("missing", [False, True])
def test_rare_levels(missing):
    """Rare levels and those that were not there at fit share an output; a missing value does not."""
    levels = ["a"] * 60 + ["b"] * 40 + [f"r{i}" for i in range(20)] + [None] * (20 * missing)
    table = pd.DataFrame({"c": levels, "x": np.linspace(0, 1, len(levels)), "code": [7, 8] * (len(levels) // 2)})
    encoder = Schema.fit(table, categorical=["code"])
    assert encoder.columns[0].rare
    rows = pd.DataFrame({"c": ["a", "r3", "never seen", None], "x": 0.5, "code": [7, 8, 9, None]})
    for data in (table, rows):
        feed = data.assign(code=[None if v != v else str(int(v)) for v in data["code"]])
        agree(run(encoder, feed), encoder.encode(data))


def test_hashed_columns_cannot_be_exported():
    table = pd.DataFrame({"a": [str(i) for i in range(9)], "b": range(9), "c": list("xyzuvwrst")})
    encoder = Schema.fit(table, max_levels=4)
    with pytest.raises(InputError, match=r"'a' \(9 levels\), 'c' \(9 levels\); raise max_levels"):
        encoder_nodes(encoder)
    assert isinstance(Schema.fit(table, max_levels=9).columns[0], CategoricalColumn)
    encoder_nodes(Schema.fit(table, max_levels=9))


def test_an_empty_string_cannot_be_a_level():
    with pytest.raises(InputError, match="a level of 'c'; replace it"):
        encoder_nodes(Schema.fit(pd.DataFrame({"c": ["", "a"]})))


def test_an_input_needs_a_name():
    with pytest.raises(InputError, match="empty name"):
        encoder_nodes(Schema.fit(pd.DataFrame({"": ["b", "a"]})))


def test_the_largest_float_of_32_bits():
    """It has no next one, so its rounding cannot be told by the gap to that."""
    table = pd.DataFrame({"x": [0.0, float(np.finfo(np.float32).max)]})
    encoder = Schema.fit(table)
    agree(session(encoder).run(None, {"input": table.to_numpy()})[0], encoder.encode(table))


def test_without_onnx(monkeypatch):
    encoder = Schema.fit(np.eye(3))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r'pip install "nrf\[onnx\]"'):
        encoder_nodes(encoder)


# 32-bit numbers, as the graph takes them; smaller than any that matters, runtimes may take for zero.
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3)
CELLS = {"number": FLOATS, "flag": st.booleans(), "word": WORDS}


@st.composite
def tables(draw):
    n, m = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    copies = draw(st.sampled_from([1, 30]))  # of all training rows but the last: then a column may have heavy tails
    train, test = {}, {}
    for i in range(draw(st.integers(1, 4))):
        cell = CELLS[draw(st.sampled_from(sorted(CELLS)))]
        drawn = draw(st.lists(cell if draw(st.booleans()) else cell | st.none(), min_size=n, max_size=n))
        train[f"c{i}"] = drawn[:-1] * copies + drawn[-1:]
        test[f"c{i}"] = draw(st.lists(cell | st.none(), min_size=m, max_size=m))
    train["last"] = [*range(n - 1)] * copies + [n]
    test["last"] = [*range(m)]
    return tuple(pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in t.items()}) for t in (train, test))


@settings(max_examples=40, deadline=None)
@given(tables(), st.sampled_from(["auto", "quartiles"]))
def test_random_tables(both, scaling):
    encoder = fitted(both[0], scaling=scaling, keep=["last"])
    for table in both:
        expected = encoder.encode(table)
        if encoder.is_numeric:
            running = session(encoder)
            dtype = np.float64 if running.get_inputs()[0].type == "tensor(double)" else np.float32
            x = np.full((len(table), len(encoder.names)), np.nan, dtype=dtype)
            numeric = [i for i, c in enumerate(encoder.columns) if getattr(c, "value", 0.0) is not None]
            x[:, numeric] = table.iloc[:, numeric].astype(float)
            agree(running.run(None, {"input": x})[0], expected)
        else:
            agree(run(encoder, table), expected)
