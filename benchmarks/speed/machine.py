"""What the machine can do: large products and convolutions, and the bare arithmetic of a potential's gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from nrf.networks import Snapshot
from speed.timing import Block, Effort, in_turn

GEMM_SIZES = (512, 1024, 2048)
CONVOLUTION = (64, 192, 16, 3)
"""Images, channels, side and kernel of the convolution that stands for the machine's best."""


def gemm_peak(effort: Effort) -> float:
    """Floating-point operations a second of a product of large matrices, the best size of a few."""
    blocks: dict[str, Block] = {}
    for n in GEMM_SIZES:
        a, b, out = (torch.randn(n, n) for _ in range(3))
        blocks[str(n)] = lambda a=a, b=b, out=out: torch.mm(a, b, out=out)  # type: ignore[misc]
    times = in_turn(blocks, effort)
    return max(2 * int(n) ** 3 / min(seconds) for n, seconds in times.rounds.items())


def convolution_peak(effort: Effort) -> float:
    """The same for a convolution of the kind that image networks spend their time in."""
    images, channels, side, kernel = CONVOLUTION
    weight = torch.randn(channels, channels, kernel, kernel).to(memory_format=torch.channels_last)
    x = torch.randn(images, channels, side, side).to(memory_format=torch.channels_last)
    times = in_turn({"convolution": lambda: torch.conv2d(x, weight, padding=kernel // 2)}, effort)
    work = 2 * images * side**2 * channels**2 * kernel**2
    return work / min(times.rounds["convolution"])


@dataclass(frozen=True)
class Arithmetic:
    """The products and convolutions of one gradient ``∇u`` of a batch, and nothing else."""

    calls: tuple[Callable[[], object], ...]
    operations: float
    """Floating-point operations of all calls."""

    def __call__(self) -> None:
        for call in self.calls:
            call()


@torch.no_grad()
def bare_gradient(potential: nn.Module, x: Tensor) -> Arithmetic:
    """Every linear and convolutional layer of a potential, forward and back to its input, on tensors of their own.

    No bias, no activation, no sampler: what is left when all but the arithmetic is taken out. In the forms that are
    fastest here: products into tensors that are there already, convolutions with the channels last.
    """
    calls: list[Callable[[], object]] = []
    work = 0.0

    def seen(layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        nonlocal work
        done = _linear(layer, inputs[0]) if isinstance(layer, nn.Linear) else _convolution(layer, inputs[0], out)  # type: ignore[arg-type]
        calls.extend(done)
        weight: Tensor = layer.weight  # type: ignore[assignment]
        outputs = out.numel() if isinstance(layer, nn.Linear) else out[:, 0].numel() * out.shape[1]
        work += 2 * 2 * outputs * weight[0].numel()

    still = Snapshot(potential)
    still.refresh()
    layers = [m for m in still.copy.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    hooks = [layer.register_forward_hook(seen) for layer in layers]
    still.copy(x)
    for hook in hooks:
        hook.remove()
    return Arithmetic(tuple(calls), work)


def _linear(layer: nn.Linear, x: Tensor) -> list[Callable[[], object]]:
    weight = layer.weight
    out, back = x.new_empty(len(x), len(weight)), torch.empty_like(x)
    return [lambda: torch.mm(x, weight.T, out=out), lambda: torch.mm(out, weight, out=back)]


def _convolution(layer: nn.Conv2d, x: Tensor, out: Tensor) -> list[Callable[[], object]]:
    last = torch.channels_last
    x, weight, grad = x.to(memory_format=last), layer.weight.to(memory_format=last), out.to(memory_format=last)
    shape = (layer.stride, layer.padding, layer.dilation)
    backward = torch.ops.aten.convolution_backward
    return [
        lambda: torch.conv2d(x, weight, None, *shape),  # type: ignore[arg-type]
        lambda: backward(grad, x, weight, None, *shape, False, (0, 0), 1, (True, False, False)),
    ]


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts floating-point operations of products and convolutions, forward and back, by torch's own formulas."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def operations(block: Block) -> float:
    """Floating-point operations of the products and convolutions in one call."""
    with _Operations() as counter:  # type: ignore[no-untyped-call]
        block()
    return float(counter.total)
