"""The former place of :mod:`nrf.runs.trained`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.experiments.trained",
    {
        "Trained": "nrf.runs.trained.TrainedModel",
    },
)
