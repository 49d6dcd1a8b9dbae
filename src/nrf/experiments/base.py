"""The former place of :mod:`nrf.runs.spec`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.experiments.base",
    {
        "DataConfig": "nrf.runs.spec.DataConfig",
        "Preset": "nrf.runs.spec.Preset",
    },
)
