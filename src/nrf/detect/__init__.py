"""Anomaly detection: a detector with scikit-learn's interface: calibrate, explain, save and export it."""

from __future__ import annotations

from typing import Any

from nrf.deprecation import deprecated
from nrf.detect.calibration import Calibration, false_discoveries
from nrf.detect.detector import NRFDetector
from nrf.detect.drift import DriftMonitor, DriftState, drift_report
from nrf.detect.features import OLD_NAMES, ClipBenignTail, PrincipalComponents, RotationFeatures
from nrf.detect.fitted import Fitted
from nrf.detect.settings import Training
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import Schema
from nrf.detect.windows import Windows

__all__ = [
    "Calibration",
    "ClipBenignTail",
    "DriftMonitor",
    "DriftState",
    "Fitted",
    "NRFDetector",
    "PrincipalComponents",
    "RotationFeatures",
    "Schema",
    "SchemaError",
    "Training",
    "Windows",
    "drift_report",
    "false_discoveries",
]


def __getattr__(name: str) -> Any:
    """Former names, with a warning."""
    renamed = {**OLD_NAMES, "TableEncoder": Schema}
    if name not in renamed:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    deprecated(name, renamed[name].__name__)
    return renamed[name]
