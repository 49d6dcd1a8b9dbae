"""The command line: one file per group of commands."""

from __future__ import annotations

from nrf.cli.main import main

__all__ = ["main"]
