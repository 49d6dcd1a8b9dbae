"""A griffe extension: docstrings as the sources have them, told to mkdocstrings in the form it reads."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")


def readable(text: str) -> str:
    """A docstring with its example as a section and its roles as code.

    Example:
        >>> readable("See :func:`run`.")
        'See `run`.'
    """
    return ROLE.sub(r"`\1`", re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE))


class Readable(griffe.Extension):
    """Rewrites every docstring as it is loaded."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
