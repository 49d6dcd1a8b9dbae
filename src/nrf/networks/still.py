"""A frozen copy of a module: its plain values, without parametrisations, gradients or training mode.

During a revision parameters do not change. A copy whose normalised weights are plain tensors saves the normalisation at
every step, and only its values change between calls, which suits a compiler. Convolutions have their channels last,
which is the faster order.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nrf.networks.layers import is_weight_normed


class Snapshot:
    """A copy of a module in evaluation mode, whose values are updated on request.

    Args:
        module: The module that is copied; it is not changed.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
        >>> still = Snapshot(layer)
        >>> with torch.no_grad():
        ...     _ = layer.bias.add_(1.0)
        >>> still.refresh()
        >>> x = torch.ones(1, 2)
        >>> bool(still.copy(x) == layer(x))
        True
    """

    def __init__(self, module: nn.Module) -> None:
        self.copy = _plain(module)
        self._sources: list[tuple[nn.Module, str]] = []
        self._targets: list[Tensor] = []
        for path, part in self.copy.named_modules():
            original = module.get_submodule(path)
            for name, value in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
                self._sources.append((original, name))
                self._targets.append(value)
        # In training mode, reading a weight under spectral norm is a step of its training; not so under weight norm.
        parametrised = [m for m in module.modules() if parametrize.is_parametrized(m)]
        self._changed_by_reading = [m for m in parametrised if not is_weight_normed(m)]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current values of the module."""
        training = [m for m in self._changed_by_reading if m.training]
        for m in training:
            m.train(False)
        torch._foreach_copy_(self._targets, [getattr(owner, name) for owner, name in self._sources])
        for m in training:
            m.train(True)


def _plain(module: nn.Module) -> nn.Module:
    found = copy.deepcopy(module)
    for part in found.modules():
        if not parametrize.is_parametrized(part):
            continue
        part.train(False)
        names = list(part.parametrizations)  # type: ignore[arg-type]
        values = {name: getattr(part, name).detach().clone() for name in names}
        # The class that torch makes for a parametrised module is shared with the original; only this instance changes.
        part.__class__ = parametrize.type_before_parametrizations(part)
        del part.parametrizations
        for name, value in values.items():
            part.register_buffer(name, value)
    for value in (*found.parameters(), *found.buffers()):
        if value.ndim == 4:  # weights of replicas have five dimensions, and are reordered where they are used
            value.data = value.data.contiguous(memory_format=torch.channels_last)
    return found.eval().requires_grad_(False)
