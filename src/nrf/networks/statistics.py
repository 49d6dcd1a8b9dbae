"""Batch norm by the statistics of one batch, held fixed while other rows pass.

In training mode batch norm makes a network a function of its whole batch. If one iteration evaluates the network more
than once and needs the same function each time, all passes must use the statistics of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from nrf.models import apart
from nrf.networks.stacked import StackedBatchNorm

Statistics = dict[str, tuple[Tensor, Tensor]]
"""Mean and variance of the input of each batch norm layer, by the layer's name."""


def batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    """The batch norm layers that keep running statistics, by name; others use the batch's own at all times.

    Args:
        module: A network.
    """
    layers = {name: part for name, part in module.named_modules() if isinstance(part, _BatchNorm)}
    return {name: layer for name, layer in layers.items() if layer.running_mean is not None}


def note_statistics(module: nn.Module, found: Statistics) -> list[RemovableHandle]:
    """Register hooks that record the statistics by which each pass in training mode normalises.

    Args:
        module: A network.
        found: Where statistics are written to, with a graph if the pass has one.

    Returns:
        The hooks.
    """

    def noting(name: str) -> Callable[[_BatchNorm, tuple[Tensor]], None]:
        def note(layer: _BatchNorm, args: tuple[Tensor]) -> None:
            if layer.training:
                found[name] = _statistics_of(layer, args[0])

        return note

    return [layer.register_forward_pre_hook(noting(name)) for name, layer in batch_norms(module).items()]


def pass_noted(module: nn.Module, x: Tensor) -> tuple[Tensor, Statistics]:
    """Evaluate a network, and return the output and the statistics by which it was normalised.

    Args:
        module: A network; in evaluation mode there are no statistics.
        x: Its input.
    """
    found: Statistics = {}
    hooks = note_statistics(module, found)
    try:
        return module(x), found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def held(module: nn.Module, statistics: Statistics) -> Iterator[None]:
    """Context in which a network in evaluation mode normalises by given statistics in place of running ones.

    Args:
        module: A network.
        statistics: The statistics, used as constants.
    """
    layers = {name: module.get_submodule(name) for name in statistics}
    running = {name: (layer.running_mean, layer.running_var) for name, layer in layers.items()}
    for name, (mean, var) in statistics.items():
        layers[name].running_mean, layers[name].running_var = mean.detach(), var.detach()
    try:
        yield
    finally:
        for name, (was_mean, was_var) in running.items():
            layers[name].running_mean, layers[name].running_var = was_mean, was_var


def called_with(module: nn.Module, statistics: Statistics, state: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Evaluate a network by given statistics; gradients flow into parameters and statistics alike.

    Batch norm passes gradients to its gain γ and shift β, but not to running statistics. So γ and β are replaced by
    functions of the statistics that have the same value: γ s / s̄ and β + γ s (m̄ − m), where s = (v + ε)^−½ and a bar
    marks a constant.

    Args:
        module: A network whose batch norm layers are in evaluation mode.
        statistics: The statistics of each of these layers, as :func:`pass_noted` returned them.
        state: Values that replace parameters and buffers of the module; those that are not here keep their own.
        x: Its input.
    """
    state = dict(state)
    for name, (mean, var) in statistics.items():
        layer = module.get_submodule(name)
        scale = (var + layer.eps).rsqrt()  # type: ignore[operator]
        gain, shift = (state.get(f"{name}.{key}", getattr(layer, key)) for key in ("weight", "bias"))
        gain, shift = (torch.ones_like(var), torch.zeros_like(var)) if gain is None else (gain, shift)
        state[f"{name}.running_mean"], state[f"{name}.running_var"] = mean.detach(), var.detach()
        state[f"{name}.bias"] = shift + gain * scale * (mean.detach() - mean)
        state[f"{name}.weight"] = gain * (scale / scale.detach())
    out: Tensor = functional_call(module, state, (x,))
    return out


def _statistics_of(layer: _BatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(layer, StackedBatchNorm):
        rows = apart(x, layer.n).transpose(1, 2).flatten(2)
    else:
        rows = x.transpose(0, 1).flatten(1)
    var, mean = torch.var_mean(rows.float() if rows.dtype == torch.bfloat16 else rows, -1, correction=0)
    return mean, var
