"""Named presets."""

from nrf.runs.presets.cifar10 import PRESETS, find_preset

__all__ = ["PRESETS", "find_preset"]
