"""The former place of :mod:`nrf.detect.tables.stream`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.detect.stream",
    {
        "score_stream": "nrf.detect.tables.stream.score_stream",
    },
)
