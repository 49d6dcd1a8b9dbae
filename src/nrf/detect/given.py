"""The former place of :mod:`nrf.detect.tables.given`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.detect.given",
    {
        "novelties": "nrf.detect.tables.given.novelties",
    },
)
