"""Inclusive neural random fields: learn ``p(x) ∝ exp u(x)`` with a latent generator; generate, revise, score.

Everything public can be reached from here and is loaded on first use: ``nrf.NRFDetector``, ``nrf.samplers.SGLD``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nrf._version import __version__
from nrf.errors import CheckpointError, DataError, InputError, NonFiniteError, NRFError

if TYPE_CHECKING:
    from nrf import (
        data,
        detect,
        errors,
        fields,
        gaussian,
        learners,
        losses,
        metrics,
        models,
        networks,
        runs,
        samplers,
        seeds,
        targets,
        training,
    )
    from nrf.detect.detector import NRFDetector
    from nrf.runs.presets import PRESETS, find_preset
    from nrf.runs.spec import Preset
    from nrf.runs.train import train
    from nrf.runs.trained import TrainedModel

__all__ = [
    "PRESETS",
    "CheckpointError",
    "DataError",
    "InputError",
    "NRFDetector",
    "NRFError",
    "NonFiniteError",
    "Preset",
    "TrainedModel",
    "__version__",
    "data",
    "detect",
    "errors",
    "fields",
    "find_preset",
    "gaussian",
    "learners",
    "losses",
    "metrics",
    "models",
    "networks",
    "runs",
    "samplers",
    "seeds",
    "targets",
    "train",
    "training",
]

# `import nrf` and `nrf --help` need not wait for torch. What is public and neither here nor above is a module.
_HOMES = {
    "NRFDetector": "nrf.detect.detector",
    "PRESETS": "nrf.runs.presets",
    "Preset": "nrf.runs.spec",
    "TrainedModel": "nrf.runs.trained",
    "find_preset": "nrf.runs.presets",
    "train": "nrf.runs.train",
}
_FORMER = {"Trained": "TrainedModel"}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _FORMER:
        from nrf.deprecation import deprecated

        deprecated(f"nrf.{name}", f"nrf.{_FORMER[name]}")
        name = _FORMER[name]
    if name not in __all__:
        raise AttributeError(f"module 'nrf' has no attribute {name!r}")
    if name not in _HOMES:
        return importlib.import_module(f"nrf.{name}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
