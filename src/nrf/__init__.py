"""Inclusive neural random fields: learn ``p(x) ∝ exp u(x)`` with a latent generator; generate, revise, score."""

from __future__ import annotations

from nrf._version import __version__
from nrf.errors import CheckpointError, DataError, InputError, NonFiniteError, NRFError

__all__ = ["CheckpointError", "DataError", "InputError", "NRFError", "NonFiniteError", "__version__"]
