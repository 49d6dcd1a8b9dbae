"""Inclusive neural random fields: learn ``p(x) ∝ exp u(x)`` with a latent generator; generate, revise, score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nrf._version import __version__
from nrf.errors import CheckpointError, DataError, InputError, NonFiniteError, NRFError

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector
    from nrf.runs.presets import PRESETS, find_preset
    from nrf.runs.spec import Preset
    from nrf.runs.train import train
    from nrf.runs.trained import Trained

__all__ = [
    "PRESETS",
    "CheckpointError",
    "DataError",
    "InputError",
    "NRFDetector",
    "NRFError",
    "NonFiniteError",
    "Preset",
    "Trained",
    "__version__",
    "find_preset",
    "train",
]

# Loaded on first use: `import nrf` and `nrf --help` need not wait for torch.
_HOMES = {
    "NRFDetector": "nrf.detect.detector",
    "PRESETS": "nrf.runs.presets",
    "Preset": "nrf.runs.spec",
    "Trained": "nrf.runs.trained",
    "find_preset": "nrf.runs.presets",
    "train": "nrf.runs.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nrf' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
