"""Presets that differ in one part."""

from __future__ import annotations

from dataclasses import replace

from nrf.runs.spec import Preset
from nrf.samplers import Sampler


def each_sampler(name: str, preset: Preset, sgld: Sampler, sghmc: Sampler, kind: str) -> dict[str, Preset]:
    """The preset with each of two samplers, under the names `NAME-sgld-KIND` and `NAME-sghmc-KIND`."""
    return {
        f"{name}-sgld-{kind}": replace(preset, sampler=sgld),
        f"{name}-sghmc-{kind}": replace(preset, sampler=sghmc),
    }
