"""Anomaly detection: a detector with scikit-learn's interface, calibrated, explained, kept and exported."""

from __future__ import annotations

from nrf.detect.calibration import Calibration, false_discoveries
from nrf.detect.detector import NRFDetector
from nrf.detect.features import OneSided, PrincipalComponents, TurnFeatures
from nrf.detect.tables.column import SchemaError
from nrf.detect.tables.schema import TableEncoder

__all__ = [
    "Calibration",
    "NRFDetector",
    "OneSided",
    "PrincipalComponents",
    "SchemaError",
    "TableEncoder",
    "TurnFeatures",
    "false_discoveries",
]
