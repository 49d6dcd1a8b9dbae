"""The former place of :mod:`nrf.runs.train`."""

from __future__ import annotations

from nrf.deprecation import former_names

__getattr__ = former_names(
    "nrf.experiments.run",
    {
        "train": "nrf.runs.train.train",
    },
)
