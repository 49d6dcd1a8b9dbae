"""What a detector's parameters may be, checked before anything is computed."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from torch import nn

from nrf.detect.tables.columns import Scaling
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

SHARES = {"calibration_share": 0.9, "false_alarm_rate": 0.999, "contamination": 0.5}
"""Parameters above 0 and up to this."""
COUNTS = ("n_members", "max_levels", "iterations", "batch_size", "latent_dim")
NUMBERS = ("sigma", "step_size", "first_step_size", "temperature", "learning_rate")


def check_parameters(detector: NRFDetector) -> None:
    """Raise for the first parameter that cannot be; what only the recipe can judge, it does."""
    for name, most in SHARES.items():
        value = getattr(detector, name)
        if value is None:
            continue
        if not isinstance(value, numbers.Real) or not 0 < float(value) <= most:
            raise InputError(f"{name} must lie in (0, {most:g}], got {value!r}")
    if detector.combine not in ("potential", "rank"):
        raise InputError(f"combine must be 'potential' or 'rank', got {detector.combine!r}")
    for name in COUNTS:
        value = getattr(detector, name)
        if (value is not None or name in ("n_members", "max_levels")) and not _is_count(value):
            raise InputError(f"{name} must be a whole number from 1 on, got {value!r}")
    if detector.scaling not in get_args(Scaling):
        raise InputError(f"scaling must be 'quartiles' or 'deviation', got {detector.scaling!r}")
    steps: object = detector.n_steps
    if steps is not None and not isinstance(steps, numbers.Integral):
        raise InputError(f"n_steps must be a whole number, got {steps!r}")
    for name in NUMBERS:
        value = getattr(detector, name)
        if value is not None and not isinstance(value, numbers.Real):
            raise InputError(f"{name} must be a number, got {value!r}")
    widths = detector.widths
    if widths is not None and not (isinstance(widths, Sequence) and widths and all(map(_is_count, widths))):
        raise InputError(f"widths must be whole numbers from 1 on, such as (256, 128), got {widths!r}")
    if not isinstance(detector.keep_examples, bool | np.bool_):
        raise InputError(f"keep_examples must be True or False, got {detector.keep_examples!r}")
    for name in ("categorical", "keep"):
        _check_columns(name, getattr(detector, name))
    if detector.potential is not None and not isinstance(detector.potential, nn.Module):
        raise InputError(f"potential must be a torch module, got {detector.potential!r}")
    step = detector.features
    if step is not None and step != "auto" and not (hasattr(step, "fit") and hasattr(step, "transform")):
        raise InputError(f"features must be a transformer of scikit-learn, 'auto' or None, got {step!r}")
    check_device(detector.device)


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= 1


def _check_columns(name: str, columns: object) -> None:
    if columns is None:
        return
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InputError(f"{name} must be a list of columns, such as ['code'], got {columns!r}")
    odd = [c for c in columns if isinstance(c, bool) or not isinstance(c, str | numbers.Integral)]
    if odd:
        raise InputError(f"{name} takes names of columns, or their places from 0 on, got {odd[0]!r}")


def check_device(device: str) -> None:
    """Raise if torch cannot compute there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!r} cannot be used: {reason}; device='cpu' is always there") from error
