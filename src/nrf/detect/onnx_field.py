"""Neighbours, density and pairs as nodes of an ONNX graph, operation by operation as in :mod:`nrf.fields`."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields import DetectionField, NeighbourField, PairField, ReferencedLevels
from nrf.fields.detection import TAIL, Standing
from nrf.fields.neighbours import TIE
from nrf.fields.pairs import TAIL as PAIR_TAIL
from nrf.fields.references import Components
from nrf.networks.levels import Reference

FARTHEST = 1e18
"""A distance beyond all others; its square is a 32-bit float."""
SINGLE, INT64, DOUBLE = 1, 7, 11
"""ONNX's codes of these types."""


class Builder(Protocol):
    """Adds nodes and the layers of networks to a graph."""

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node."""

    def constant(self, value: npt.NDArray[Any]) -> str:
        """A tensor."""

    def least(self, x: str, k: int) -> tuple[str, str]:
        """The k least values of each row, and their places."""

    def layer(self, layer: nn.Module, x: str) -> str:
        """A layer of a network."""


class FieldNodes:
    """Adds one model's field to a graph.

    Args:
        graph: Builder that adds nodes.
    """

    def __init__(self, graph: Builder) -> None:
        self.graph, self.add = graph, graph.add

    def field(self, field: DetectionField, x: str) -> str:
        """The score of rows ``x``, ``(N, 1)``."""
        if field.units:
            x = self.add("Mul", x, self.graph.constant(np.array(field.units, dtype=np.float32)))
        b = self.density(field.density, x)
        if field.neighbours is None:
            return b
        a, b = self.neighbours(field.neighbours, x), self.standing(field.standing, b)
        total = self.add("Add", a, self.add("Mul", b, self.number(field.weight)))
        if field.pairs is not None and field.pairs.is_fitted:
            c = self.pairs(field.pairs, x)
            total = self.add("Add", total, self.add("Mul", c, self.number(field.pairs.config.weight)))
        return self.add("Div", total, self.number(field.total_weight))

    # --------------------------------------------------------------------------------------------------------- density

    def density(self, density: ReferencedLevels, x: str) -> str:
        """``log r + λ c tanh(u / c) − log Z`` at the smallest level."""
        measure, tilt = density.measure, density.tilt
        if not isinstance(measure, Components):
            raise InputError(f"{type(measure).__name__} has no ONNX form here; take a mixture as the reference")
        found = self.mixture(measure, density.sigmas[0], x)
        strength, shift = float(tilt.strength), float(tilt.log_normaliser[0])
        if strength > 0:
            out = self.graph.layer(density.body, self.scaled(density.reference, x))
            out = self.add("Gather", out, self.whole([0]), axis=1)
            if tilt.bound is not None:
                turned = self.add("Tanh", self.add("Div", out, self.number(tilt.bound)))
                out = self.add("Mul", turned, self.number(tilt.bound))
            found = self.add("Add", found, self.add("Mul", out, self.number(strength)))
        return self.add("Sub", found, self.number(shift))

    def mixture(self, measure: Components, sigma: float, x: str) -> str:
        """``log r_σ``."""
        points = self.add("Sub", x, self.tensor(measure.centre))
        if measure.rotation.numel():
            points = self.add("MatMul", points, self.tensor(measure.rotation))
        variances, means = measure.variances + sigma**2, measure.means
        constant = (means.square() / variances + (2 * math.pi * variances).log()).sum(1)
        squares = self.add("MatMul", self.add("Mul", points, points), self.tensor((1 / variances).expand_as(means).T))
        products = self.add("MatMul", points, self.tensor(2 * (means / variances).T))
        squared = self.add("Mul", self.add("Sub", squares, products), self.number(0.5))
        logits = self.add("Sub", self.tensor((measure.log_weights - constant / 2)[None]), squared)
        return self.add("ReduceLogSumExp", logits, axes=[1], keepdims=1)

    def scaled(self, reference: Reference, x: str) -> str:
        """Rows as the network sees them."""
        centred = self.add("Sub", x, self.tensor(reference.mean))
        return self.add("Div", centred, self.number(float(reference.scale())))

    def standing(self, standing: Standing, b: str) -> str:
        """The ranks of log-densities among those of normal rows."""
        z = self.add(
            "Div", self.add("Sub", b, self.number(float(standing.middle))), self.number(float(standing.spread))
        )
        tail = self.number(-TAIL)
        below = self.add("Max", self.add("Sub", tail, z), self.number(0.0))
        bent = self.add("Sub", tail, self.add("Log", self.add("Add", below, self.number(1.0))))
        return self.add("Where", self.add("Less", z, tail), bent, z)

    # ------------------------------------------------------------------------------------------------------ neighbours

    def neighbours(self, field: NeighbourField, x: str) -> str:
        """The field of neighbours."""
        anchors, k = field.anchors, field.k
        n_found = min(k + 2, len(anchors))
        products = self.add("Mul", self.add("MatMul", x, self.tensor(anchors.T)), self.number(2.0))
        by_products = self.add("Sub", self.tensor(anchors.square().sum(1)[None]), products)
        found = self.graph.least(by_products, n_found)[1]
        there = self.add("Gather", self.tensor(anchors), found)
        away = self.add("Sub", self.add("Unsqueeze", x, self.whole([1])), there)
        distances, order = self.graph.least(self.add("ReduceL2", away, axes=[2], keepdims=0), n_found)
        places = self.add("GatherElements", found, order, axis=1)
        if n_found < k + 2:  # as far away as can be
            none = self.add("Mul", self._part(distances, 0, 1), self.number(0.0))
            distances = self.add("Concat", distances, self.add("Add", none, self.number(FARTHEST)), axis=1)
        itself = self.add("LessOrEqual", self._part(distances, 0, 1), self.number(float(field.epsilon)))
        farther = self.add("Where", itself, self._part(distances, k + 1, k + 2), self._part(distances, k, k + 1))
        near = self.add("Where", itself, self._part(distances, 1, k + 1), self._part(distances, 0, k))
        places = self.add("Where", itself, self._part(places, 1, k + 1), self._part(places, 0, k))
        own = self._own(field, x, by_products, near, places, farther)
        logs = self._mean(self.add("Log", self.add("Add", near, self.number(float(field.epsilon)))))
        raw = self.add("Sub", logs, self.add("Mul", own, self.number(field.config.share)))
        far = self.add("Sub", self.number(float(field.middle)), raw)
        return self.add("Div", far, self.number(float(field.spread)))

    def _own(self, field: NeighbourField, x: str, by_products: str, near: str, places: str, farther: str) -> str:
        """Mean of the neighbours' own logs; anchors as far away as the last one share its place."""
        before = self.add("Gather", self.tensor(field.own), places)
        squares = self.add("ReduceSumSquare", x, axes=[1], keepdims=1)
        most = 1 + float(field.anchors.square().sum(1).amax())
        slack = self.add("Mul", self.add("Add", squares, self.number(most)), self.number(TIE))
        last = self._part(near, field.k - 1, field.k)
        last = self.add("Mul", last, last)
        beyond = self.add("Sub", self.add("Mul", farther, farther), last)
        tied = self.add("Not", self.add("Greater", beyond, slack))
        off = self.add("Abs", self.add("Sub", by_products, self.add("Sub", last, squares)))
        level = self.add("Cast", self.add("Not", self.add("Greater", off, slack)), to=SINGLE)
        total = self.add("MatMul", level, self.tensor(field.own[:, None]))
        count = self.add("Max", self.add("ReduceSum", level, self.whole([1]), keepdims=1), self.number(1.0))
        mean = self.add("Div", total, count)
        closer = self.add("Greater", self.add("Sub", last, self.add("Mul", near, near)), slack)
        shared = self.add("Where", closer, before, mean)
        return self.add("Where", tied, self._mean(shared), self._mean(before))

    # ----------------------------------------------------------------------------------------------------------- pairs

    def pairs(self, field: PairField, x: str) -> str:
        """The field of pairs of columns: bins by comparisons, and their ratios by place."""
        bins = self._bins(field, x)
        tables = field.tables()
        sides = [self.add("Gather", bins, self.whole([table[side] for table in tables]), axis=1) for side in (0, 1)]
        sizes = field.config.sizes
        places = self.add("Mul", sides[0], self.whole([sizes[j] for _, j, _ in tables]))
        places = self.add("Add", places, sides[1])
        places = self.add("Add", places, self.whole([start for *_, start in tables]))
        ratios = self.add("Gather", self.tensor(field.ratios), places)
        total = self.add("ReduceSum", self.add("Cast", ratios, to=DOUBLE), self.whole([1]), keepdims=1)
        found = self.add("Neg", self.add("Cast", total, to=SINGLE))
        found = self.add("Sub", found, self.number(float(field.knee)))
        beyond = self.add("Max", self.add("Div", found, self.number(float(field.spread))), self.number(0.0))
        tail = self.number(PAIR_TAIL)
        above = self.add("Max", self.add("Sub", beyond, tail), self.number(0.0))
        bent = self.add("Add", tail, self.add("Log", self.add("Add", above, self.number(1.0))))
        return self.add("Neg", self.add("Where", self.add("Greater", beyond, tail), bent, beyond))

    def _bins(self, field: PairField, x: str) -> str:
        """The bin of each column, ``(N, columns)``."""
        config, found = field.config, list[str]()
        if config.codes:
            raise InputError("levels that are hashed have no ONNX form here; raise max_levels and fit again")
        for cuts, (start, stop) in zip(field.cuts, config.numbers, strict=True):
            above = self.add("Cast", self.add("Greater", self._part(x, start, start + 1), self.tensor(cuts)), to=INT64)
            place = self.add("ReduceSum", above, self.whole([1]), keepdims=1)
            place = self.add("Add", place, self.whole([1]))
            if stop - start == 2:
                missing = self.add("Greater", self._part(x, start + 1, stop), self.number(0.5))
                place = self.add("Where", missing, self.whole([0]), place)
            found.append(place)
        end = 0
        for start, stop in config.categories:
            outputs = self._part(x, start, stop)
            own = field.levels[end : end + stop - start]
            place = self.add("Gather", self.whole(own.tolist()), self.add("ArgMax", outputs, axis=1, keepdims=1))
            is_level = self.add("Greater", self.add("ReduceMax", outputs, axes=[1], keepdims=1), self.number(0.0))
            found.append(self.add("Where", is_level, place, self.whole([0])))
            end += stop - start
        return self.add("Concat", *found, axis=1)

    # ---------------------------------------------------------------------------------------------------------- pieces

    def _mean(self, x: str) -> str:
        return self.add("ReduceMean", x, axes=[1], keepdims=1)

    def _part(self, x: str, start: int, end: int) -> str:
        return self.add("Slice", x, self.whole([start]), self.whole([end]), self.whole([1]))

    def tensor(self, value: Tensor) -> str:
        """A tensor of 32-bit floats."""
        return self.graph.constant(value.detach().cpu().float().numpy())

    def number(self, value: float) -> str:
        """A number."""
        return self.graph.constant(np.array(value, dtype=np.float32))

    def whole(self, values: list[int]) -> str:
        """Whole numbers."""
        return self.graph.constant(np.array(values, dtype=np.int64))
