"""The errors a user can cause or can act on.

Every message says what is wrong, where, and what to do about it. The command line turns each into one line and exit
code 2; library users can catch them by class.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager


class NRFError(Exception):
    """Base of all errors this package raises on purpose."""


class InputError(NRFError, ValueError):
    """A value, file or array given by the user cannot be used as it is."""


class MissingPackageError(ImportError, InputError):
    """An optional package is needed but not installed."""


class DataError(NRFError):
    """A dataset is missing, incomplete, or does not have the content it should have."""


class CheckpointError(NRFError):
    """A checkpoint or run folder cannot be read: missing, corrupt, foreign, or of an unknown version."""


class NonFiniteError(NRFError, ArithmeticError):
    """A loss or a sample became NaN or infinite; nothing was replaced and training stopped."""


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Context for imports of optional packages: if an import fails, the error names the extra to install.

    Args:
        extra: Name of the extra in pyproject.toml.
        what: What needs the packages, for the message.

    Example:
        >>> with needs("figures", "a picture"):  # doctest: +NORMALIZE_WHITESPACE
        ...     import no_such_package
        Traceback (most recent call last):
        ...
        nrf.errors.MissingPackageError: a picture needs more (No module named 'no_such_package'); install it with
        `pip install "nrf[figures]"`
    """
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f'{what} needs more ({error}); install it with `pip install "nrf[{extra}]"`', name=error.name
        ) from error


def printable(text: str) -> str:
    r"""The text with control characters escaped, which could otherwise move the cursor or hide other text.

    Line breaks and tabs stay. File names, column names and levels can hold anything, even bytes that are not text.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return "".join(c if c in "\n\t" or not _is_control(c) else _escaped(c) for c in text)


def _is_control(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cs") or unicodedata.bidirectional(c) in _TURNS


def _escaped(c: str) -> str:
    return c.encode("unicode_escape", "surrogatepass").decode()


_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Characters that change the direction of the text after them."""
