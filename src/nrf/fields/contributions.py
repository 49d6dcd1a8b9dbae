"""Explaining the log-density of a row: its difference from that of another row, column by column."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.models import frozen, gradient

PATH_STEPS = 64


def contributions(field: nn.Module, x: Tensor, typical: Tensor, n_steps: int = PATH_STEPS) -> Tensor:
    """What each column adds to ``u(x) − u(typical)``: the gradient, integrated along the line between the two rows.

    A negative contribution makes the row less likely. A typical row is, for example, ``x`` after a revision. The sum
    over columns is the difference, up to the error of the midpoint rule.

    Args:
        field: Any field.
        x: Rows.
        typical: Rows to compare with, one for each row of ``x``.
        n_steps: Number of points on each line.

    Example:
        >>> from nrf.fields.references import GaussianReference
        >>> r = GaussianReference().build((2,))
        >>> contributions(r, torch.tensor([[2.0, 1.0]]), torch.zeros(1, 2))
        tensor([[-2.0000, -0.5000]])
    """
    if x.shape != typical.shape or n_steps < 1:
        raise InputError(
            f"contributions need a typical row for each row and at least 1 step, got rows of shape {tuple(x.shape)} "
            f"and {tuple(typical.shape)} and {n_steps} steps"
        )
    total = torch.zeros_like(x)
    with frozen(field):
        for i in range(n_steps):
            total += gradient(field, torch.lerp(typical, x, (i + 0.5) / n_steps))
    return (x - typical) * total / n_steps
