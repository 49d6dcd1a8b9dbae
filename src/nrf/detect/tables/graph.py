"""An ONNX graph under construction, to which columns add what they compute."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nrf.errors import needs

OPSETS = {"": 17, "ai.onnx.ml": 3}
"""Versions of the operator sets the graph is made of."""


class Nodes:
    """Nodes under fresh names. Each step returns the name of its result.

    Args:
        prefix: Prefix of their names; it gets ``_`` appended while a taken name begins with it.
        names: Taken names: those of the table's columns.
    """

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        with needs("onnx", "the export"):
            self.onnx: Any = importlib.import_module("onnx")
        while any(name.startswith(prefix) for name in names):
            prefix += "_"
        self.prefix = prefix
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, value: npt.NDArray[Any]) -> str:
        """Add a constant tensor."""
        name = f"{self.prefix}/constant_{len(self.initializers)}"
        self.initializers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, op: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node; its result has the name ``out``, if given."""
        name = out or f"{self.prefix}/{op}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def least(self, x: str, k: int) -> tuple[str, str]:
        """The k least values of each row, in ascending order, and their places."""
        name = f"{self.prefix}/TopK_{len(self.nodes)}"
        count = self.constant(np.array([k], dtype=np.int64))
        out = [name, f"{name}/places"]
        self.nodes.append(self.onnx.helper.make_node("TopK", [x, count], out, name=name, axis=1, largest=0, sorted=1))
        return name, out[1]

    def taken(self, x: str, places: Sequence[int]) -> str:
        """Some columns of a matrix."""
        return self.add("Gather", x, self.constant(np.array(places, dtype=np.int64)), axis=1)


class Graph(Nodes):
    """The encoding of a table's columns; ``emit`` puts results among its outputs.

    Args:
        names: Names of the table's columns: no node has one of them.
        is_matrix: Whether the columns are one input, a matrix of numbers, and not an input each.
    """

    def __init__(self, names: Sequence[str], *, is_matrix: bool) -> None:
        super().__init__("encoder", names)
        self.width, self.is_matrix = len(names), is_matrix
        self._parts: list[str] = []
        self._order: list[int] = []  # which outputs the parts hold, in order
        self._counts: list[str] = []  # 1 where a value is a novelty without an output

    def input(self, name: str, kind: str, width: int = 1) -> str:
        """Add an input to the graph: rows of values of some type."""
        type_ = getattr(self.onnx.TensorProto, kind)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, type_, ["N", width]))
        return name

    def doubles(self, columns: Sequence[tuple[str, int, str]]) -> str:
        """Columns of numbers as a matrix of doubles: each by its name, its place in the table, and its type."""
        if not self.is_matrix:
            return self.joined([self.cast(self.input(name, kind), "DOUBLE") for name, _, kind in columns])
        if not self.inputs:
            self.input("input", "DOUBLE" if any(kind == "DOUBLE" for *_, kind in columns) else "FLOAT", self.width)
        x = "input" if len(columns) == self.width else self.taken("input", [place for _, place, _ in columns])
        return self.cast(x, "DOUBLE")

    def cast(self, x: str, kind: str) -> str:
        """Values in another type."""
        return self.add("Cast", x, to=getattr(self.onnx.TensorProto, kind))

    def joined(self, parts: Sequence[str]) -> str:
        """Matrices side by side."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def lookup(self, x: str, places: Mapping[str, int], other: int) -> str:
        """The place of each string, or ``other`` for strings without a place."""
        return self.add(
            "LabelEncoder",
            x,
            domain="ai.onnx.ml",
            keys_strings=list(places),
            values_int64s=list(places.values()),
            default_int64=other,
        )

    def emit(self, x: str, outputs: Sequence[int]) -> None:
        """Take the columns of a matrix as these outputs."""
        self._parts.append(x)
        self._order += outputs

    def emit_one_hot(self, places: str, start: int, n_outputs: int) -> None:
        """Emit ``n_outputs`` outputs from ``start`` on, of which the one at the place is 1."""
        depth = self.constant(np.array(n_outputs, dtype=np.int64))
        zero_one = self.constant(np.array([0, 1], dtype=np.float32))
        hot = self.add("OneHot", places, depth, zero_one, axis=-1)
        flat = self.add("Squeeze", hot, self.constant(np.array([1], dtype=np.int64)))
        self.emit(flat, range(start, start + n_outputs))

    def emit_flags(self, missing: str, outputs: Sequence[int | None]) -> None:
        """Flag missing values if there is an output for that; count the others."""
        flags = self.cast(missing, "FLOAT")
        expected = [i for i, output in enumerate(outputs) if output is not None]
        others = [i for i, output in enumerate(outputs) if output is None]
        if expected:
            self.emit(self.taken(flags, expected), [output for output in outputs if output is not None])
        if others:
            self.count(self.taken(flags, others))

    def count(self, x: str) -> None:
        """Add to the last output, the count of novelties."""
        self._counts.append(x)

    def finish(self, n_outputs: int) -> str:
        """Count the novelties and bring all outputs into order."""
        if self._counts:
            axis = self.constant(np.array([1], dtype=np.int64))
            count = self.add("ReduceSum", self.joined(self._counts), axis, keepdims=1)
        else:  # zeros, one per row
            count = self.add("Mul", self.taken(self._parts[0], [0]), self.constant(np.array(0, dtype=np.float32)))
        self.emit(count, [n_outputs - 1])
        x = self.joined(self._parts)
        return x if self._order == list(range(n_outputs)) else self.taken(x, np.argsort(self._order).tolist())
