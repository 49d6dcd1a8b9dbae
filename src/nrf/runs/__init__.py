"""Train presets, and use the trained models. Its modules are loaded on first use: ``nrf.runs.spec.DataConfig``."""

from __future__ import annotations

from typing import Any

__all__ = ["presets", "products", "spec", "train", "trained"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nrf.runs' has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"nrf.runs.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
