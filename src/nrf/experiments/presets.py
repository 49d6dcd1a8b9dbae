"""The former place of :mod:`nrf.runs.presets`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.experiments.presets",
    {
        "PRESETS": "nrf.runs.presets.PRESETS",
        "find_preset": "nrf.runs.presets.find_preset",
    },
)
