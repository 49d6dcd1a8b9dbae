"""The former place of :mod:`nrf.detect.tables.files`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.detect.files",
    {
        "Dialect": "nrf.detect.tables.dialect.Dialect",
        "read_training": "nrf.detect.tables.files.read_training",
    },
)
