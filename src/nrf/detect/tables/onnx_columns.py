"""The encoding of a table as an ONNX graph, to be put in front of an exported network."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nrf.detect.tables.column import (
    LARGEST,
    TAIL,
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    DroppedColumn,
    NumericColumn,
    ScaledColumn,
)
from nrf.detect.tables.schema import TableEncoder
from nrf.errors import InputError, needs

OPSETS = {"": 17, "ai.onnx.ml": 3}
"""Versions of the operator sets the graph is made of."""
ROUNDING = 1e-5
"""How far 32-bit floats may move a value, in scales of its column."""


class EncoderGraph(NamedTuple):
    """The parts of a graph, as protocol buffers of the package ``onnx``."""

    inputs: list[Any]
    nodes: list[Any]
    initializers: list[Any]
    output_name: str
    """A float tensor of shape (N, n_outputs)."""


def encoder_nodes(encoder: TableEncoder) -> EncoderGraph:
    """The graph that computes :meth:`TableEncoder.encode <nrf.detect.tables.schema.TableEncoder.encode>`.

    If all columns with outputs are numeric, there is one input ``input`` of floats, shape (N, d), with the d columns of
    the training table in their order. Otherwise each column with outputs, and each with a constant number, is an input
    of its own under its name, shape (N, 1): floats for numbers and booleans (as 0 and 1), 64-bit floats for times (as
    seconds since 1970 in UTC, which 32 bits would round to minutes), strings for categories (numbers that are treated
    as levels as text: 7, 2.5). Floats have 32 bits, or 64 where 32 would round numbers by more than a 100,000th of
    their scale: those far from zero that differ by little.
    NaN and the empty string are missing values. Infinite numbers are not refused here: they count as very large ones.

    Args:
        encoder: A fitted encoder without hashed columns.

    Raises:
        InputError: A column cannot be written as a graph, or the package ``onnx`` is not there.
    """
    graph = _Graph(encoder)
    _check(encoder)
    scaled = [c for c in encoder.kept_columns if isinstance(c, NumericColumn | DatetimeColumn)]
    booleans = [c for c in encoder.kept_columns if isinstance(c, BooleanColumn)]
    constants = [(i, c) for i, c in enumerate(encoder.columns) if isinstance(c, DroppedColumn) and c.value is not None]
    if scaled:
        graph.emit_scaled(scaled, _scaled_input(graph, encoder, scaled))
    if constants:
        if encoder.is_numeric:
            given = graph.cast(graph.taken("input", [i for i, _ in constants]), "DOUBLE")
        else:
            given = graph.joined([graph.cast(graph.input(c.name, "FLOAT"), "DOUBLE") for _, c in constants])
        graph.count_changed(given, [c for _, c in constants])
    if booleans:
        graph.emit_booleans(booleans, graph.joined([graph.input(c.name, "FLOAT") for c in booleans]))
    for column in encoder.kept_columns:
        if isinstance(column, CategoricalColumn):
            graph.emit_levels(column, graph.input(column.name, "STRING"))
    return EncoderGraph(graph.inputs, graph.nodes, graph.initializers, graph.finish(encoder.n_outputs))


def _check(encoder: TableEncoder) -> None:
    categorical = [c for c in encoder.columns if isinstance(c, CategoricalColumn)]
    hashed = [f"{c.name!r} ({len(c.hashes)} levels)" for c in categorical if c.hashed_buckets is not None]
    if hashed:
        raise InputError(
            f"columns that are hashed cannot be exported: {', '.join(hashed)}; raise max_levels to at least their "
            "number of levels and fit again, or leave them out"
        )
    blank = [repr(c.name) for c in categorical if "" in c.levels]
    if blank:
        raise InputError(
            f"in an exported model the empty string is a missing value, but it is a level of {', '.join(blank)}; "
            "replace it by None or a word and fit again"
        )
    if not encoder.is_numeric and "" in encoder.names:
        raise InputError("a column has an empty name, which cannot be an input of an exported model; rename it")


def _scaled_input(graph: _Graph, encoder: TableEncoder, scaled: Sequence[ScaledColumn]) -> str:
    kinds = ["DOUBLE" if _needs_double(c) else "FLOAT" for c in scaled]
    if not encoder.is_numeric:
        inputs = [graph.input(c.name, kind) for c, kind in zip(scaled, kinds, strict=True)]
        return graph.joined([graph.cast(x, "DOUBLE") for x in inputs])
    x = graph.input("input", "DOUBLE" if "DOUBLE" in kinds else "FLOAT", len(encoder.columns))
    if len(scaled) < len(encoder.columns):
        x = graph.taken(x, encoder.kept)
    return graph.cast(x, "DOUBLE")


def _needs_double(column: ScaledColumn) -> bool:
    """Whether floats of 32 bits would move the column's values by more than the scores of a graph may differ."""
    far = max(abs(column.low), abs(column.high))
    if isinstance(column, DatetimeColumn) or far >= float(np.finfo(np.float32).max):  # the largest has no next one
        return True
    exact = isinstance(column, NumericColumn) and column.integer and far <= 2**24
    near = min(far, abs(column.median) + TAIL * column.scale)  # beyond that logarithms count: rounding does not
    return not exact and float(np.spacing(np.float32(near))) / 2 > ROUNDING * column.scale


class _Graph:
    """A graph under construction. Each step returns the name of its result; ``emit`` puts results among the outputs."""

    def __init__(self, encoder: TableEncoder) -> None:
        with needs("onnx", "the export"):
            self.onnx: Any = importlib.import_module("onnx")
        self.prefix = "encoder"
        while any(name.startswith(self.prefix) for name in encoder.names):
            self.prefix += "_"
        self.starts = {name: part.start for name, part in encoder.groups}
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.parts: list[str] = []
        self.order: list[int] = []  # which outputs the parts hold, in turn
        self.surprises: list[str] = []  # 1 where a value is missing that is not expected to

    def input(self, name: str, kind: str, width: int = 1) -> str:
        type_ = getattr(self.onnx.TensorProto, kind)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, type_, ["N", width]))
        return name

    def constant(self, value: npt.NDArray[Any]) -> str:
        name = f"{self.prefix}/constant_{len(self.initializers)}"
        self.initializers.append(self.onnx.numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{self.prefix}/{op}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def cast(self, x: str, kind: str) -> str:
        return self.add("Cast", x, to=getattr(self.onnx.TensorProto, kind))

    def joined(self, parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def taken(self, x: str, places: Sequence[int]) -> str:
        """Some columns of a matrix."""
        return self.add("Gather", x, self.constant(np.array(places, dtype=np.int64)), axis=1)

    def lookup(self, x: str, places: Mapping[str, int], other: int) -> str:
        """The place of each string, another one for those that have none."""
        return self.add(
            "LabelEncoder",
            x,
            domain="ai.onnx.ml",
            keys_strings=list(places),
            values_int64s=list(places.values()),
            default_int64=other,
        )

    def emit(self, x: str, outputs: Sequence[int]) -> None:
        self.parts.append(x)
        self.order += outputs

    def emit_scaled(self, columns: Sequence[ScaledColumn], x: str) -> None:
        """Scale and squash. In doubles up to the end, as the encoder does it."""
        medians = self.constant(np.array([[c.median for c in columns]]))
        scales = self.constant(np.array([[c.scale for c in columns]]))
        missing = self.add("IsNaN", x)
        z = self.add("Div", self.add("Sub", self.add("Where", missing, medians, x), medians), scales)
        # For |z| > 3 it is 3 + log1p(|z| − 3) = 3 + log(|z| − 2). Where computes both of its branches, hence the Max.
        tail = self.constant(np.array(TAIL))
        size = self.add("Abs", z)
        bounded = self.add("Max", self.add("Min", size, self.constant(np.array(LARGEST))), tail)
        log = self.add("Log", self.add("Sub", bounded, self.constant(np.array(TAIL - 1))))
        far = self.add("Mul", self.add("Sign", z), self.add("Add", log, tail))
        values = self.cast(self.add("Where", self.add("Greater", size, tail), far, z), "FLOAT")
        self.emit(values, [self.starts[c.name] for c in columns])
        self.emit_flags(columns, missing)

    def emit_booleans(self, columns: Sequence[BooleanColumn], x: str) -> None:
        missing = self.add("IsNaN", x)
        common = self.constant(np.array([[c.common for c in columns]], dtype=np.float32))
        self.emit(self.add("Where", missing, common, x), [self.starts[c.name] for c in columns])
        self.emit_flags(columns, missing)

    def emit_flags(self, columns: Sequence[ScaledColumn | BooleanColumn], missing: str) -> None:
        """Missing values where they are expected; the others are surprises."""
        flags = self.cast(missing, "FLOAT")
        expected = [i for i, c in enumerate(columns) if c.has_missing]
        others = [i for i, c in enumerate(columns) if not c.has_missing]
        if expected:
            self.emit(self.taken(flags, expected), [self.starts[columns[i].name] + 1 for i in expected])
        if others:
            self.surprises.append(self.taken(flags, others))

    def count_changed(self, x: str, columns: Sequence[DroppedColumn]) -> None:
        """Numbers that are not the constants they were at fit, see :meth:`DroppedColumn.differs`: surprises."""
        values = np.array([[c.value for c in columns]], dtype=np.float64)
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        single = self.constant(np.array([[c.single for c in columns]]))
        same = self.add("Equal", x, self.constant(values))
        same_rounded = self.add("Equal", x, self.constant(rounded.astype(np.float64)))
        same_single = self.add("Equal", self.cast(x, "FLOAT"), self.constant(rounded))
        same = self.add("Or", same, self.add("Or", same_rounded, self.add("And", single, same_single)))
        self.surprises.append(self.cast(self.add("Not", same), "FLOAT"))

    def emit_levels(self, column: CategoricalColumn, x: str) -> None:
        """One output per level, for rare and other levels as the column has it; the empty string is a missing value."""
        places = {level: column.place(level) for level in column.levels} | {"": column.place(None)}
        n_outputs = len(column.outputs)
        depth = self.constant(np.array(n_outputs, dtype=np.int64))
        zero_one = self.constant(np.array([0, 1], dtype=np.float32))
        hot = self.add("OneHot", self.lookup(x, places, column.place_of_others), depth, zero_one, axis=-1)
        start = self.starts[column.name]
        flat = self.add("Squeeze", hot, self.constant(np.array([1], dtype=np.int64)))
        self.emit(flat, range(start, start + n_outputs))
        if not column.has_missing:
            self.surprises.append(self.cast(self.lookup(x, {"": 1}, 0), "FLOAT"))

    def finish(self, n_outputs: int) -> str:
        """Count the surprises and bring all outputs into their order."""
        if self.surprises:
            axis = self.constant(np.array([1], dtype=np.int64))
            count = self.add("ReduceSum", self.joined(self.surprises), axis, keepdims=1)
        else:  # zeros, one a row
            count = self.add("Mul", self.taken(self.parts[0], [0]), self.constant(np.array(0, dtype=np.float32)))
        self.emit(count, [n_outputs - 1])
        x = self.joined(self.parts)
        return x if self.order == list(range(n_outputs)) else self.taken(x, np.argsort(self.order).tolist())
