"""Sines of random projections, with which a perceptron learns sharp functions of few columns."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.models import apart
from nrf.networks.closed_form import Back


def check_waves(n: int, scale: float) -> None:
    """Check the number of waves and their scale."""
    if n < 0 or not scale > 0:
        raise InputError(f"n_waves must be ≥ 0 and wave_scale > 0, got {n} and {scale}")


class Waves(nn.Module):
    """Appends sines of random projections to rows; without them a perceptron learns narrow modes slowly.

    Args:
        size: Number of values in a row.
        n: Number of sines.
        scale: Root mean square length of their wave vectors.
    """

    weight: Tensor
    phase: Tensor

    def __init__(self, size: int, n: int, scale: float) -> None:
        super().__init__()
        self.n = 1
        self.register_buffer("weight", torch.empty(size, n).normal_(0, scale / math.sqrt(size)))
        self.register_buffer("phase", torch.empty(n).uniform_(0, 2 * math.pi))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.sin(self._angles(x))], 1)

    def passed(self, x: Tensor) -> tuple[Tensor, Back]:
        """The output, and a function that takes a gradient back to the input."""
        angles = self._angles(x)

        def back(grad: Tensor) -> Tensor:
            size = x.shape[1]
            turned = apart(grad[:, size:] * torch.cos(angles), self.n)
            return grad[:, :size] + (turned @ self.weight.view(self.n, size, -1).mT).flatten(0, 1)

        return torch.cat([x, torch.sin(angles)], 1), back

    def stacked(self, layers: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        together = copy.deepcopy(self)
        together.n = len(layers)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in layers]))
        return together

    def _angles(self, x: Tensor) -> Tensor:
        weight, phase = self.weight.view(self.n, x.shape[1], -1), self.phase.view(self.n, 1, -1)
        return torch.baddbmm(phase, apart(x, self.n), weight).flatten(0, 1)
