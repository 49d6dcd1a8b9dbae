"""Anomaly detection: a detector with scikit-learn's interface, calibrated, explained, kept and exported."""

from __future__ import annotations

import warnings
from typing import Any

from nrf.detect.calibration import Calibration, false_discoveries
from nrf.detect.detector import NRFDetector
from nrf.detect.features import OneSided, PrincipalComponents, TurnFeatures
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import Schema

__all__ = [
    "Calibration",
    "NRFDetector",
    "OneSided",
    "PrincipalComponents",
    "Schema",
    "SchemaError",
    "TurnFeatures",
    "false_discoveries",
]


def __getattr__(name: str) -> Any:
    """Names of before, with a warning."""
    if name == "TableEncoder":
        warnings.warn("TableEncoder is called Schema now", DeprecationWarning, stacklevel=2)
        return Schema
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
