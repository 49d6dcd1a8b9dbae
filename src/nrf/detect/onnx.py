"""A fitted detector as one ONNX graph: encoding, potential of every member, and their mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from nrf._version import __version__
from nrf.detect.features import PrincipalComponents
from nrf.detect.fitted import Fitted, fitted_of
from nrf.detect.onnx_field import FieldNodes
from nrf.detect.tables.graph import OPSETS, Nodes
from nrf.detect.tables.onnx_columns import encoder_nodes
from nrf.errors import InputError
from nrf.fields import DetectionField
from nrf.files import write_atomically
from nrf.networks import Snapshot, replica_state
from nrf.networks.layers import Scalar
from nrf.seeds import DrawsFrom

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector
    from nrf.detect.pixels import PixelScale

SCORE = "score"


def export_onnx(detector: NRFDetector | Fitted, path: str | Path) -> None:
    """Write the graph; its output ``score`` equals ``score_samples``, and its metadata hold the threshold.

    A table of numbers is one input named ``input``; with other kinds of columns, each column is its own input; images
    are one input. How each kind of column is fed: :func:`nrf.detect.tables.onnx_columns.encoder_nodes`, and
    docs/export.md by example.

    For the values that the graph is given, ``score`` is within 1e-5 · max(1, |u|) of ``score_samples``: both sum in
    32-bit floats, in different orders, and the rounding grows with the potential u.
    """
    fitted = fitted_of(detector)
    reader = fitted.reader
    if fitted.combine != "potential":
        raise InputError("only combine='potential' can be exported: ranks need the calibration rows")
    graph = _Builder("potential", () if reader.encoder is None else reader.encoder.names)
    start = "input"
    if reader.pixels is not None:
        start = graph.pixels(reader.pixels)
    if isinstance(reader.features, PrincipalComponents):
        if reader.pixels is None:
            graph.inputs.append(graph.value("input", reader.features.shape_))
        start = graph.components(reader.features, start)
    elif reader.features is not None:
        kind = type(reader.features).__name__
        raise InputError(f"{kind} has no ONNX form here: export a detector of the columns that it makes")
    if reader.encoder is not None:
        encoding = encoder_nodes(reader.encoder)
        if reader.features is None:
            graph.inputs += encoding.inputs
        else:  # the encoding starts from the output of the feature step
            for node in encoding.nodes:
                node.input[:] = [start if name == "input" else name for name in node.input]
        graph.nodes += encoding.nodes
        graph.initializers += encoding.initializers
        start = encoding.output_name
    seen, odd = start, None
    if reader.encoder is not None:
        seen = given = graph.taken(start, reader.encoder.learned)
        odd = graph.total(graph.taken(start, reader.encoder.novelty_columns))
        if fitted.replicas.clamps:
            low, high = (graph.tensor(bound) for bound in fitted.replicas.bounds)
            seen = graph.add("Min", graph.add("Max", given, low), high)
            odd = graph.add("Add", odd, graph.total(graph.add("Abs", graph.add("Sub", given, seen))))
    values = [graph.network(module, seen) for module in potentials(fitted)]
    if odd is not None:
        costs = fitted.replicas.novelty_costs.cpu().numpy()
        lost = [graph.add("Mul", odd, graph.constant(np.array(cost))) for cost in costs]
        values = [graph.add("Sub", u, cost) for u, cost in zip(values, lost, strict=True)]
    total = values[0] if len(values) == 1 else graph.add("Mean", *values)
    graph.add("Reshape", total, graph.constant(np.array([-1], dtype=np.int64)), out=SCORE)
    write_atomically(Path(path), graph.model(fitted.rule.threshold).SerializeToString())


def potentials(fitted: Fitted) -> list[nn.Module]:
    """Each model's potential by itself, without parametrisations."""
    replicas = fitted.replicas
    module = replicas.module("potential")
    if replicas.count == 1:
        alone = [module]
    else:
        alone = []
        for i in range(replicas.count):
            own = _fresh(fitted)
            own.load_state_dict(replica_state(module.state_dict(), i))
            alone.append(own)
    found = []
    for one in alone:
        found.append(Snapshot(one).copy.cpu())
    return found


def _fresh(fitted: Fitted) -> nn.Module:
    import copy

    if fitted.own[0] is not None:
        return copy.deepcopy(fitted.own[0])
    with DrawsFrom(torch.Generator()):
        return fitted.spec.potential.build(fitted.replicas.shape)


class _Builder(Nodes):
    """The parts of the graph before and after the encoding of columns: pixels, a feature step, potentials."""

    def tensor(self, value: torch.Tensor) -> str:
        """A tensor of weights."""
        return self.constant(value.detach().numpy())

    def total(self, x: str) -> str:
        """The sum of each row."""
        return self.add("ReduceSum", x, self.constant(np.array([1], dtype=np.int64)), keepdims=1)

    def value(self, name: str, shape: Sequence[int]) -> Any:
        """An input of rows of this shape."""
        return self.onnx.helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, ["N", *shape])

    def components(self, step: PrincipalComponents, x: str) -> str:
        """Principal components of rows, and the length of the residual."""
        double, single = self.onnx.TensorProto.DOUBLE, self.onnx.TensorProto.FLOAT
        flat = self.add("Cast", self.add("Flatten", x, axis=1), to=double)
        centred = self.add("Sub", flat, self.constant(step.mean_))
        found = self.add("MatMul", centred, self.constant(step.components_.T))
        rest = self.add("Sub", centred, self.add("MatMul", found, self.constant(step.components_)))
        squares = self.add("ReduceSum", self.add("Mul", rest, rest), self.constant(np.array([1])), keepdims=1)
        return self.add("Cast", self.add("Concat", found, self.add("Sqrt", squares), axis=1), to=single)

    def pixels(self, scale: PixelScale) -> str:
        """The input of images, scaled to [−1, 1]."""
        self.inputs.append(self.value("input", scale.shape))
        width = scale.high - scale.low
        factor = self.constant(np.array(2 / width, dtype=np.float32))
        shift = self.constant(np.array(1 + 2 * scale.low / width, dtype=np.float32))
        return self.add("Sub", self.add("Mul", "input", factor), shift)

    def network(self, module: nn.Module, x: str) -> str:
        """A potential of plain layers, or a field of neighbours and density."""
        if isinstance(module, DetectionField):
            return FieldNodes(self).field(module, x)
        layers = list(module.body.children()) if isinstance(module, Scalar) else [module]
        out = x
        for layer in layers:
            out = self.layer(layer, out)
        confinement = module.confinement if isinstance(module, Scalar) else None
        if confinement is None:
            return out
        squares = self.add("ReduceSumSquare", self.add("Flatten", x, axis=1), axes=[1], keepdims=1)
        factor = self.constant(np.array(-1 / (2 * confinement**2), dtype=np.float32))
        return self.add("Add", out, self.add("Mul", squares, factor))

    def layer(self, layer: nn.Module, x: str) -> str:
        """One layer."""
        match layer:
            case nn.Sequential():
                for part in layer:
                    x = self.layer(part, x)
                return x
            case nn.Linear():
                return self.add("Gemm", x, *self._weights(layer), transB=1)
            case nn.Conv2d() if layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
                return self.add(
                    "Conv",
                    x,
                    *self._weights(layer),
                    pads=[*layer.padding, *layer.padding],
                    strides=list(layer.stride),
                    dilations=list(layer.dilation),
                    group=layer.groups,
                )
            case nn.LeakyReLU():
                return self.add("LeakyRelu", x, alpha=float(layer.negative_slope))
            case nn.SiLU():
                return self.add("Mul", x, self.add("Sigmoid", x))
            case nn.ReLU():
                return self.add("Relu", x)
            case nn.Tanh():
                return self.add("Tanh", x)
            case nn.Softplus() if layer.beta == 1:
                return self.add("Softplus", x)
            case nn.Flatten() if layer.start_dim == 1 and layer.end_dim == -1:
                return self.add("Flatten", x, axis=1)
            case nn.AdaptiveAvgPool2d() if layer.output_size in (1, (1, 1)):
                return self.add("GlobalAveragePool", x)
            case nn.BatchNorm1d() | nn.BatchNorm2d() if layer.running_mean is not None and layer.affine:
                parts = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
                return self.add(
                    "BatchNormalization",
                    x,
                    *(self.tensor(part) for part in parts if part is not None),
                    epsilon=layer.eps,
                )
            case nn.Identity():
                return x
        raise InputError(f"{type(layer).__name__} has no ONNX form here; export detectors with the default networks")

    def _weights(self, layer: nn.Linear | nn.Conv2d) -> list[str]:
        return [self.tensor(part) for part in (layer.weight, layer.bias) if part is not None]

    def model(self, offset: float) -> Any:
        """The whole model, checked."""
        helper = self.onnx.helper
        output = helper.make_tensor_value_info(SCORE, self.onnx.TensorProto.FLOAT, ["N"])
        graph = helper.make_graph(self.nodes, "nrf-detector", self.inputs, [output], self.initializers)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="nrf", producer_version=__version__)
        model.ir_version = min(model.ir_version, 10)
        helper.set_model_props(model, {"threshold": repr(float(offset)), "score": "high = normal"})
        self.onnx.checker.check_model(model)
        return model
