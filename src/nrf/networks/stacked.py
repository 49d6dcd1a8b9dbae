"""Stacked layers, the technique behind replicas: networks of one architecture as a single module.

A stacked network takes the rows of all replicas, those of the first one first, and applies to them the weights of
their own replica only. Layers that work row by row (activations, pooling, reshaping, sums) need no change, so only
layers with parameters are replaced by a stacked form. Names stay the same, so row ``r`` of every stacked tensor is the
state of replica ``r``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.grad import conv2d_input
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from nrf.errors import InputError
from nrf.models import apart


def stack(modules: Sequence[nn.Module]) -> nn.Module:
    """Combine modules of one architecture into one module, whose attribute ``replicas`` is their number.

    Args:
        modules: The replicas; they are not changed.

    Example:
        >>> nets = [nn.Sequential(nn.Linear(2, 3), nn.ReLU()) for _ in range(4)]
        >>> x = torch.randn(8, 2)
        >>> both = stack(nets)(x)
        >>> bool(torch.allclose(both[2:4], nets[1](x[2:4])))
        True
    """
    template = copy.deepcopy(modules[0])
    stacked = _stacked(template, modules)
    stacked.replicas = len(modules)  # type: ignore[assignment]
    stacked.train(modules[0].training)
    return stacked


def replica_state(state: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """The state of one replica, from that of a stacked module.

    Args:
        state: State dictionary of the stacked module.
        index: Number of the replica, from 0.
    """
    return {name: value[index] for name, value in state.items()}


def _stacked(template: nn.Module, modules: Sequence[nn.Module]) -> nn.Module:
    own: Callable[[Sequence[nn.Module]], nn.Module] | None = getattr(template, "stacked", None)
    if own is not None:
        return own(modules)
    for kind, form in FORMS.items():
        if isinstance(template, kind):
            return form(modules)
    if any(True for _ in template.parameters(recurse=False)) or any(True for _ in template.buffers(recurse=False)):
        return StackedByVmap(modules)
    for name, child in list(template.named_children()):
        setattr(template, name, _stacked(child, [m.get_submodule(name) for m in modules]))
    return template


def _pile(tensors: Sequence[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.stack([t.detach() for t in tensors]), requires_grad=tensors[0].requires_grad)


def _as_channels(rows: Tensor, n: int) -> Tensor:
    """Rows with the replicas side by side in their channels."""
    return apart(rows, n).transpose(0, 1).flatten(1, 2)


def _as_rows(channels: Tensor, n: int) -> Tensor:
    """The inverse of :func:`_as_channels`."""
    split = channels.reshape(len(channels), n, -1, *channels.shape[2:])
    return split.transpose(0, 1).flatten(0, 1)


class _Stacked(nn.Module):
    """Base class of stacked layers with weight and bias."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, modules: Sequence[Any]) -> None:
        super().__init__()
        self.n = len(modules)
        self.register_parameter("bias", None if modules[0].bias is None else _pile([m.bias for m in modules]))
        if not parametrize.is_parametrized(modules[0]):
            self.weight = _pile([m.weight for m in modules])
            return
        self.weight = nn.Parameter(torch.stack([m.weight.detach() for m in modules]))
        norms = [m.parametrizations["weight"] for m in modules]
        if set(modules[0].parametrizations) != {"weight"} or len(norms[0]) != 1:
            raise InputError(f"{type(modules[0]).__name__}: replicas support one normalisation, of the weight alone")
        kind = type(norms[0][0]).__name__
        if kind not in NORMS:
            raise InputError(f"the parametrisation {kind} has no stacked form; use weight or spectral norm")
        parametrize.register_parametrization(self, "weight", NORMS[kind]([n[0] for n in norms]), unsafe=True)
        mine: Any = self.parametrizations["weight"]  # type: ignore[index]
        for name, _ in norms[0].named_parameters(recurse=False):
            setattr(mine, name, _pile([getattr(n, name) for n in norms]))


class StackedLinear(_Stacked):
    """One batched product for all replicas."""

    def forward(self, x: Tensor) -> Tensor:
        rows, weight = apart(x, self.n), self.weight.mT
        out = torch.bmm(rows, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], rows, weight)
        return out.flatten(0, 1)

    def pull_back(self, x: Tensor) -> Tensor:
        """Take a gradient from the layer's output to its input: the product with the transposed weight."""
        rows = apart(x, self.n)
        if self.weight.shape[2] < 16:  # thin products are several times faster when transposed
            return torch.bmm(self.weight.mT.contiguous(), rows.mT).mT.flatten(0, 1)
        return torch.bmm(rows, self.weight).flatten(0, 1)


class StackedConv2d(_Stacked):
    """A grouped convolution, with one group per replica."""

    def __init__(self, modules: Sequence[Any]) -> None:
        super().__init__(modules)
        first = modules[0]
        if first.padding_mode != "zeros":
            raise InputError(f"replicas pad convolutions with zeros, not by {first.padding_mode!r}")
        self.groups = self.n * first.groups
        self.options = {"stride": first.stride, "padding": first.padding, "dilation": first.dilation}

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.flatten(0, 1), None if self.bias is None else self.bias.flatten()
        return _as_rows(self.convolve(_as_channels(x, self.n), weight, bias), self.n)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution itself."""
        return functional.conv2d(x, weight, bias, groups=self.groups, **self.options)

    def pull_back(self, grad: Tensor, shape: Sequence[int]) -> Tensor:
        """Take a gradient from the output to an input of this shape."""
        wide = (shape[0] // self.n, self.n * shape[1], *shape[2:])
        weight = self.weight.flatten(0, 1)
        back = conv2d_input(wide, weight, _as_channels(grad, self.n), groups=self.groups, **self.options)  # type: ignore[no-untyped-call]
        return _as_rows(back, self.n)


class StackedConvTranspose2d(StackedConv2d):
    """A grouped transposed convolution, with one group per replica."""

    def __init__(self, modules: Sequence[Any]) -> None:
        super().__init__(modules)
        self.options["output_padding"] = modules[0].output_padding

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv_transpose2d(x, weight, bias, groups=self.groups, **self.options)


class StackedBatchNorm(_BatchNorm):
    """Batch norm of each replica's rows separately, in one or two dimensions."""

    def __init__(self, modules: Sequence[Any]) -> None:
        first = modules[0]
        if first.momentum is None:
            raise InputError("replicas support batch norm with a momentum, not with cumulative averages")
        super().__init__(first.num_features, first.eps, first.momentum, first.affine, first.track_running_stats)
        self.n = len(modules)
        if first.affine:
            self.weight, self.bias = (_pile([getattr(m, k) for m in modules]) for k in ("weight", "bias"))
        if first.track_running_stats:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(self, name, torch.stack([getattr(m, name) for m in modules]))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and self.running_mean is not None and self.running_var is not None:
            return self._fixed(x)
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        out = functional.batch_norm(
            _as_channels(x, self.n),
            _flat(self.running_mean),
            _flat(self.running_var),
            _flat(self.weight),
            _flat(self.bias),
            training=True,
            momentum=self.momentum or 0.0,
            eps=self.eps,
        )
        return _as_rows(out, self.n)

    def pull_back(self, x: Tensor) -> Tensor:
        """Take a gradient from the output to the input, with running statistics."""
        scale = self._scale().view(self.n, 1, -1, *(1,) * (x.ndim - 2))
        return (apart(x, self.n) * scale).flatten(0, 1)

    def _scale(self) -> Tensor:
        assert self.running_var is not None
        scale = (self.running_var + self.eps).rsqrt()
        return scale if self.weight is None else scale * self.weight

    def _fixed(self, x: Tensor) -> Tensor:
        """The output with running statistics: an affine map of each channel."""
        assert self.running_mean is not None
        scale = self._scale()
        shift = -self.running_mean * scale
        shift = shift if self.bias is None else shift + self.bias
        shape = (self.n, 1, -1, *(1,) * (x.ndim - 2))
        return torch.addcmul(shift.view(shape), apart(x, self.n), scale.view(shape)).flatten(0, 1)


def _flat(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.view(-1)


class StackedByVmap(nn.Module):
    """Replicas of any other module with parameters, by ``torch.vmap``.

    This is slower than the forms above, and correct as long as nothing inside the module is parametrised.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        if any(parametrize.is_parametrized(m) for m in modules[0].modules()):
            kind = type(modules[0]).__name__
            raise InputError(f"{kind} holds parametrised layers beside parameters of its own; keep the two apart")
        self.n = len(modules)
        self._one = (copy.deepcopy(modules[0]),)  # in a tuple: its parameters are not this module's
        self._names: list[str] = []
        for name, _ in modules[0].named_parameters():
            self._place(name, _pile([m.get_parameter(name) for m in modules]), parameter=True)
            self._names.append(name)
        for name, _ in modules[0].named_buffers():
            self._place(name, torch.stack([m.get_buffer(name) for m in modules]), parameter=False)
            self._names.append(name)

    def _place(self, name: str, value: Any, *, parameter: bool) -> None:
        """Keep a tensor under a dotted name, as the module itself would."""
        holder: nn.Module = self
        *path, last = name.split(".")
        for part in path:
            if part not in holder._modules:
                holder.add_module(part, nn.Module())
            holder = holder.get_submodule(part)
        if parameter:
            holder.register_parameter(last, value)
        else:
            holder.register_buffer(last, value)

    def forward(self, x: Tensor) -> Tensor:
        one = self._one[0].train(self.training)
        state = dict(self.named_parameters()) | dict(self.named_buffers())

        def call(own: dict[str, Tensor], rows: Tensor) -> Tensor:
            out: Tensor = functional_call(one, own, (rows,))
            return out

        out: Tensor = torch.vmap(call, randomness="different")(state, apart(x, self.n))
        return out.flatten(0, 1)


class StackedWeightNorm(nn.Module):
    """Weight norm ``w = g v / ‖v‖`` of each replica; the norm is over all but one dimension."""

    def __init__(self, norms: Sequence[Any]) -> None:
        super().__init__()
        self.dim: int = norms[0].dim

    def forward(self, gain: Tensor, direction: Tensor) -> Tensor:
        if self.dim == 0:
            flat = torch._weight_norm(direction.flatten(0, 1), gain.flatten(0, 1), 0)
            return flat.reshape(direction.shape)
        return direction * (gain / self._norm(direction))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and direction of a weight."""
        return self._norm(weight), weight

    def _norm(self, weight: Tensor) -> Tensor:
        rest = [d for d in range(1, weight.ndim) if d != self.dim + 1]
        return weight.square().sum(rest, keepdim=True).sqrt()


class StackedSpectralNorm(nn.Module):
    """Each replica's weight divided by its largest singular value, by power iteration as in :mod:`torch.nn.utils`."""

    _u: Tensor
    _v: Tensor

    def __init__(self, norms: Sequence[Any]) -> None:
        super().__init__()
        self.dim, self.eps, self.n_power_iterations = norms[0].dim, norms[0].eps, norms[0].n_power_iterations
        for name in ("_u", "_v"):
            self.register_buffer(name, torch.stack([getattr(norm, name) for norm in norms]))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.movedim(self.dim + 1, 1).flatten(2)
        if self.training:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):
                    self._u = functional.normalize(torch.einsum("rmk,rk->rm", matrix, self._v), dim=1, eps=self.eps)
                    self._v = functional.normalize(torch.einsum("rmk,rm->rk", matrix, self._u), dim=1, eps=self.eps)
        largest = torch.einsum("rm,rmk,rk->r", self._u, matrix, self._v)
        return weight / largest.view(-1, *(1,) * (weight.ndim - 1))

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight itself."""
        return weight


FORMS: dict[type[nn.Module], Callable[[Sequence[Any]], nn.Module]] = {
    nn.Linear: StackedLinear,
    nn.Conv2d: StackedConv2d,
    nn.ConvTranspose2d: StackedConvTranspose2d,
    nn.BatchNorm1d: StackedBatchNorm,
    nn.BatchNorm2d: StackedBatchNorm,
}
NORMS: dict[str, Callable[[Sequence[Any]], nn.Module]] = {
    "_WeightNorm": StackedWeightNorm,
    "_SpectralNorm": StackedSpectralNorm,
}
