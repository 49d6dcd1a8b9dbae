"""A griffe extension: docstrings as the sources have them, told to mkdocstrings in the form it reads."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
LOOSE = re.compile(r"^>>> (?:.+\n?)+", flags=re.MULTILINE)
"""An example outside of a section, which Markdown would take for a quotation."""


def readable(text: str) -> str:
    """A docstring with its examples as sections and its roles as code.

    Example:
        >>> readable("See :func:`run`.")
        'See `run`.'
        >>> readable(">>> 1 + 1\\n2")
        'Examples:\\n    >>> 1 + 1\\n    2'
    """
    text = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
    text = LOOSE.sub(lambda found: "Examples:\n" + textwrap.indent(found[0], "    "), text)
    return ROLE.sub(r"`\1`", text)


class Readable(griffe.Extension):
    """Rewrites every docstring as it is loaded."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
