"""How a CSV file is written: what separates its cells, decimals, thousands, words for missing values."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Literal

from nrf.errors import InputError

SEPARATORS = (",", ";", "\t", "|")
"""Separators that can be detected; others must be given."""
LOOKED_AT = 50
"""Number of rows from which the separator is detected."""
THOUSANDS = (",", ".", " ", "'", "’", "_", "\u00a0", "\u202f")
WORDS = "- -- --- – — ? ?? . .. ... * none nil na n/a n.a. nan null missing unknown undefined blank empty (null)"
MARKERS = frozenset(WORDS.split()) | {"no data", "not available", "not applicable", "not known", "no value"}
"""Words that people write for a missing number, in small letters. In columns of strings they are strings."""


@dataclass(frozen=True)
class Dialect:
    """How the cells of a CSV file are written.

    Args:
        separator: What stands between cells; if not given, it is detected from the first rows.
        decimal: The decimal point, ``.`` or ``,``.
        thousands: What separates groups of three digits, if anything.
        missing: Words that mean a missing value in all columns, in addition to ``NA``, ``NaN``, ``null`` and the like.
        markers: Words, in small letters, that mean a missing value in columns of numbers and dates.
        odd: What to do with other cells of these columns that are not a number or date.
    """

    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    odd: Literal["refuse", "missing"] = "refuse"

    def __post_init__(self) -> None:
        sep = self.separator
        if sep is not None and (len(sep) != 1 or not sep.isascii() or sep.isalnum() or sep in '"\r\n\0.+-'):
            raise InputError(f"the separator must be one character such as ; or | or a tab, got {sep!r}")
        if self.decimal not in (".", ","):
            raise InputError(f"the decimal point must be . or , — got {self.decimal!r}")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise InputError(f"thousands must be separated by one of {' '.join(map(repr, THOUSANDS))}")
        if self.thousands == self.decimal:
            raise InputError(f"{self.decimal!r} cannot be the decimal point and separate thousands, too")


def sniffed(path: Path, known: str | None = None, opened: Callable[[Path], IO[str]] | None = None) -> str:
    """Find what separates the cells of a CSV file, from its header and first rows.

    Args:
        path: The file.
        known: The separator of the training file, which is preferred if it is possible here.
        opened: Opens the text, if it is not that of the file.

    Raises:
        InputError: Several separators are possible, and none is known.
    """
    usual, opened = known or ",", opened or text_of
    with opened(path) as text:
        header = next((line for line in text if line.strip()), "")
    there = [c for c in dict.fromkeys([usual, *SEPARATORS]) if c in header]
    if there in ([], [usual]):
        return usual
    even = [c for c in there if _is_even(path, c, opened)]
    if known in even:
        return usual
    if len(even) > 1:
        shown = " and ".join(map(named, even))
        raise InputError(f"{path}: {shown} both separate the header and the first rows evenly; say which with --sep")
    if even:
        return even[0]
    if usual in there or len(there) == 1:  # a row that does not fit is named when it is read
        return usual if usual in there else there[0]
    raise InputError(f"{path}: it is not clear what separates the columns of {header.strip()[:60]!r}; give --sep")


def named(separator: str) -> str:
    """A separator in a message."""
    return {"\t": "tabs", " ": "blanks"}.get(separator, f"'{separator}'")


def _is_even(path: Path, separator: str, opened: Callable[[Path], IO[str]]) -> bool:
    """Whether all of the first rows have as many cells as the header, and more than one."""
    try:
        with opened(path) as text:
            rows = csv.reader(text, delimiter=separator)
            widths = {len(row) for row in islice(filter(None, rows), LOOKED_AT)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def text_of(path: Path) -> IO[str]:
    """A CSV file as text; bytes that are not UTF-8 are reported later, with their place."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    return io.TextIOWrapper(opened(path, "rb"), "utf-8-sig", "surrogateescape", newline="")
