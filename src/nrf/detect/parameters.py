"""What a detector's parameters may be, checked before anything is computed."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from torch import nn

from nrf.detect.settings import Training, is_count
from nrf.detect.tables.columns import Scaling
from nrf.detect.windows import Windows
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

SHARES = {"calibration_fraction": 0.9, "false_alarm_rate": 0.999, "contamination": 0.5}
"""Parameters above 0 and up to this."""
FIELDS = ("auto", "product", "density", "inclusive")
COUNTS = ("n_estimators", "max_levels", "max_iter")


def check_parameters(detector: NRFDetector) -> None:
    """Raise for the first invalid parameter; what depends on the recipe is checked when it is built."""
    for name, most in SHARES.items():
        value = getattr(detector, name)
        if value is None:
            continue
        if not isinstance(value, numbers.Real) or not 0 < float(value) <= most:
            raise InputError(f"{name} must lie in (0, {most:g}], got {value!r}")
    if detector.combine not in ("potential", "rank"):
        raise InputError(f"combine must be 'potential' or 'rank', got {detector.combine!r}")
    if detector.field not in FIELDS:
        raise InputError(f"field must be one of {', '.join(map(repr, FIELDS))}, got {detector.field!r}")
    if detector.field in ("product", "density") and (detector.potential is not None or detector.generator is not None):
        raise InputError("networks of your own make an inclusive field; give field='inclusive', or leave it out")
    for name in COUNTS:
        value = getattr(detector, name)
        if name == "max_iter" and value == 0 and not isinstance(value, bool):
            continue
        if not (is_count(value) or (value is None and name == "max_iter")):
            raise InputError(f"{name} must be a whole number from 1 on, got {value!r}")
    if detector.scaling not in get_args(Scaling):
        raise InputError(f"scaling must be 'auto', 'quartiles' or 'deviation', got {detector.scaling!r}")
    if not isinstance(detector.training, Training | None):
        raise InputError(f"training must be a nrf.detect.Training or None, got {detector.training!r}")
    if not isinstance(detector.keep_examples, bool | np.bool_):
        raise InputError(f"keep_examples must be True or False, got {detector.keep_examples!r}")
    for name in ("categorical", "keep"):
        _check_columns(name, getattr(detector, name))
    if detector.potential is not None and not isinstance(detector.potential, nn.Module):
        raise InputError(f"potential must be a torch module, got {detector.potential!r}")
    step = detector.features
    if step is not None and step != "auto" and not (hasattr(step, "fit") and hasattr(step, "transform")):
        raise InputError(f"features must be a transformer of scikit-learn, 'auto' or None, got {step!r}")
    if isinstance(step, Windows) and detector.combine == "rank":
        raise InputError("ranks are those of rows, the models see windows; with windows give combine='potential'")
    check_device(detector.device)


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
