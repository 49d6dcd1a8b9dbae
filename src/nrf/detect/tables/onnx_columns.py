"""The encoding of a table as an ONNX graph, for use in front of an exported network."""

from __future__ import annotations

from typing import Any, NamedTuple

from nrf.detect.tables.graph import OPSETS, Graph
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

__all__ = ["OPSETS", "EncoderGraph", "encoder_nodes"]


class EncoderGraph(NamedTuple):
    """The parts of a graph, as protocol buffers of the package ``onnx``."""

    inputs: list[Any]
    nodes: list[Any]
    initializers: list[Any]
    output_name: str
    """A float tensor of shape (N, n_outputs)."""


def encoder_nodes(schema: Schema) -> EncoderGraph:
    """The graph that computes :meth:`Schema.encode <nrf.detect.tables.schema.Schema.encode>`.

    If all columns with outputs are numeric, there is one input named ``input`` of floats, shape (N, d), with the d
    columns of the training table in their order. Otherwise each column with outputs, and each with a constant number,
    has its own input, named like the column, of shape (N, 1): floats for numbers and booleans (as 0 and 1), 64-bit
    floats for times (as seconds since 1970 in UTC, which 32 bits would round to minutes), strings for categories
    (numbers that are treated as levels as text: 7, 2.5). Floats have 32 bits, or 64 where 32 would move outputs by more
    than a 100,000th: numbers far from zero that differ by little. NaN and the empty string are missing values. Infinite
    numbers are not refused here: they count as very large ones.

    Args:
        schema: A fitted schema without hashed columns.

    Raises:
        InputError: A column cannot be written as a graph, or the package ``onnx`` is not installed.
    """
    graph = Graph(schema.names, is_matrix=schema.is_numeric)
    for family, columns in schema.families:
        family.to_onnx(graph, columns)
    if not schema.is_numeric and "" in schema.names:
        raise InputError("a column has an empty name, which cannot be an input of an exported model; rename it")
    return EncoderGraph(graph.inputs, graph.nodes, graph.initializers, graph.finish(schema.n_outputs))
