"""Names that are on their way out: they work, and say what to use instead (docs/deprecation.md)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

SINCE, GONE = "0.2", "0.4"
"""The version that deprecated the present aliases, and the one that no longer has them."""


def deprecated(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name has another one now.

    Args:
        old: What was used.
        new: What to use instead.
        stacklevel: How many calls up the user's line is; 3 for a function that calls this one.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always")
        ...     deprecated("nrf.Trained", "nrf.TrainedModel")
        >>> str(seen[0].message)
        'nrf.Trained is deprecated since 0.2 and goes in 0.4; use nrf.TrainedModel'
    """
    message = f"{old} is deprecated since {SINCE} and goes in {GONE}; use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module some of whose names have moved.

    Args:
        module: The module's name.
        names: Where each of its former names is now, as ``package.module.name``.
    """
    import importlib

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, now = names[name].rpartition(".")
        deprecated(f"{module}.{name}", names[name])
        return getattr(importlib.import_module(home), now)

    return find
