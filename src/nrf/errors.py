"""The errors a user can cause or can act on.

Every message says what is wrong, where, and what to do about it. The command line turns each into one line and exit
code 2; library users can catch them by class.
"""

from __future__ import annotations


class NRFError(Exception):
    """Base of all errors this package raises on purpose."""


class InputError(NRFError, ValueError):
    """A value, file or array given by the user cannot be used as it is."""


class DataError(NRFError):
    """A dataset is missing, incomplete, or does not have the content it should have."""


class CheckpointError(NRFError):
    """A checkpoint or run folder cannot be read: missing, corrupt, foreign, or of an unknown version."""


class NonFiniteError(NRFError, ArithmeticError):
    """A loss or a sample became NaN or infinite; nothing was replaced and training stopped."""
