"""Plain networks with gradients in closed form: one forward pass, one backward pass, no graph.

Autograd spends more time on bookkeeping than a small network on arithmetic, and convolutions are fastest in a memory
format that autograd does not choose by itself. Linear layers, convolutions, activations, reshapes and batch norm with
running statistics have a derivative that can be written down; without convolutions it can be compiled as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input
from torch.nn.modules.batchnorm import _BatchNorm

from nrf.networks.layers import Scalar
from nrf.networks.stacked import StackedBatchNorm, StackedConv2d, StackedLinear

Back = Callable[[Tensor], Tensor]
"""Takes a gradient from the output of a layer to its input (a vector-Jacobian product)."""


class Plain(nn.Sequential):
    """A sequence of layers, each of which :func:`passed` supports."""

    def linearised(self, x: Tensor) -> tuple[Tensor, Back]:
        """The output, and a function that takes a gradient back to the input (a vector-Jacobian product)."""
        return linearised(self, x)

    @property
    def has_closed_form(self) -> bool:
        """Whether each row is mapped independently now: batch norm by the batch's own statistics mixes rows."""
        return not any(isinstance(m, _BatchNorm) and (m.training or m.running_mean is None) for m in self)


class PlainPotential(Scalar):
    """A potential of plain layers, whose gradient is in closed form."""

    body: Plain

    @property
    def worth_compiling(self) -> bool:
        """Whether compiling makes it faster: convolutions are library calls, compiled or not."""
        return not any(isinstance(layer, nn.Conv2d | StackedConv2d) for layer in self.body)

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        """``∇u`` row by row; the value of ``u`` is not computed."""
        found = _gradient(self.body, x)
        return found if self.confinement is None else found - x / self.confinement**2

    @torch.no_grad()
    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``u`` and ``∇u`` row by row, by one forward and one backward pass."""
        out, pull_back = linearised(self.body, x)
        value, grad = out.squeeze(-1), pull_back(torch.ones_like(out))
        if self.confinement is not None:
            value = value - x.flatten(1).square().sum(1) / (2 * self.confinement**2)
            grad = grad - x / self.confinement**2
        return value.to(x.dtype), grad

    @torch.no_grad()
    def gradient_behind(self, layer: nn.Module, out: Tensor) -> Tensor:
        """The gradient with respect to the output of one of the body's layers, given that output."""
        layers = list(self.body.children())
        return _gradient(layers[layers.index(layer) + 1 :], out)


def _gradient(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    *hidden, last = layers
    out, pull_back = linearised(hidden, x)
    return pull_back(_back_through(last, out.new_ones(len(out), 1)))


@torch.no_grad()
def linearised(layers: Iterable[nn.Module], x: Tensor) -> tuple[Tensor, Back]:
    """The output of a sequence of layers, and a function that takes a gradient back through all of them."""
    steps: list[Back] = []
    for layer in layers:
        x, back = passed(layer, x)
        steps.append(back)

    def pull_back(grad: Tensor) -> Tensor:
        for step in reversed(steps):
            grad = step(grad)
        return grad

    return x, pull_back


def passed(layer: nn.Module, x: Tensor) -> tuple[Tensor, Back]:
    """A layer's output, and a function that takes a gradient back through it."""
    aten: Any = torch.ops.aten
    if isinstance(layer, nn.Conv2d):
        return _convolved(layer, x)
    own: Callable[[Tensor], tuple[Tensor, Back]] | None = getattr(layer, "passed", None)
    if own is not None:
        return own(x)
    out: Tensor = layer(x)
    match layer:
        case nn.Linear() | StackedLinear():
            return out, lambda grad: _back_through(layer, grad)
        case nn.LeakyReLU():
            return out, lambda grad: aten.leaky_relu_backward(grad, x, layer.negative_slope, False)
        case nn.ReLU():
            return out, lambda grad: aten.threshold_backward(grad, x, 0)
        case nn.Tanh():
            return out, lambda grad: aten.tanh_backward(grad, out)
        case nn.Sigmoid():
            return out, lambda grad: aten.sigmoid_backward(grad, out)
        case nn.Softplus():
            return out, lambda grad: aten.softplus_backward(grad, x, layer.beta, layer.threshold)
        case nn.SiLU():
            return out, lambda grad: aten.silu_backward(grad, x)
        case nn.Identity():
            return out, lambda grad: grad
        case StackedConv2d():
            return out, lambda grad: layer.pull_back(grad, x.shape)
        case nn.AdaptiveAvgPool2d(output_size=1):
            return out, lambda grad: (grad / x[0, 0].numel()).expand(x.shape)
        case nn.Flatten() | nn.Unflatten():
            return out, lambda grad: grad.reshape(x.shape)
        case StackedBatchNorm():
            return out, layer.pull_back
        case nn.BatchNorm1d():
            return out, lambda grad: grad * _slope(layer)
    raise TypeError(f"{type(layer).__name__} has no closed form")


def _back_through(layer: nn.Module, grad: Tensor) -> Tensor:
    if isinstance(layer, StackedLinear):
        return layer.pull_back(grad)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return grad @ weight


def _convolved(layer: nn.Conv2d, x: Tensor) -> tuple[Tensor, Back]:
    """A convolution with its weight's channels last, whatever order the layer has: a third faster on CPUs."""
    weight = layer.weight.contiguous(memory_format=torch.channels_last)
    options = layer.stride, layer.padding, layer.dilation, layer.groups
    out = layer._conv_forward(x, weight, layer.bias)
    return out, lambda grad: conv2d_input(x.shape, weight, grad, *options)  # type: ignore[no-untyped-call]


def _slope(layer: nn.BatchNorm1d) -> Tensor:
    assert layer.running_var is not None
    return layer.weight * (layer.running_var + layer.eps).rsqrt()
