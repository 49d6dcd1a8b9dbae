"""The energy distance: how far samples are from other samples, for any number of columns and without settings."""

from __future__ import annotations

import torch
from torch import Tensor

from nrf.errors import InputError


def energy_distance(x: Tensor, y: Tensor) -> float:
    """The energy distance ``2 E‖X − Y‖ − E‖X − X'‖ − E‖Y − Y'‖``, which is 0 only if both laws are the same.

    The estimate is unbiased, so it can be negative.

    Reference: Székely & Rizzo, "Energy statistics: a class of statistics based on distances".

    Args:
        x: Samples, ``(n, d)``.
        y: Other samples, ``(m, d)``.

    Example:
        >>> a, b, c = (torch.randn(1000, 2, generator=torch.Generator().manual_seed(i)) for i in range(3))
        >>> abs(energy_distance(a, b)) < 0.01 < energy_distance(a, c + 1)
        True
    """
    if min(len(x), len(y)) < 2:
        raise InputError("the energy distance needs at least two samples of each kind")
    x, y = x.double(), y.double()
    within = sum(float(torch.cdist(z, z).sum()) / (len(z) * (len(z) - 1)) for z in (x, y))
    return 2 * float(torch.cdist(x, y).mean()) - within
