"""The text of CSV cells as values of the kind a column had at fit, and labels compared as text."""

from __future__ import annotations

import datetime as dt
import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.tables.dialect import Dialect
from nrf.detect.tables.values import Kind
from nrf.errors import InputError, needs

DAY = 86_400
WANTED = {"numeric": "no number", "boolean": "neither true nor false", "datetime": "no ISO date or time"}


NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity|nan)$"
TIME = r"[0-9]{2}(:?[0-9]{2}(:?[0-9]{2}(\.[0-9]{1,9})?)?)?"
ISO = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([ T]{TIME})?"
DATE = rf"{ISO}(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?$"
CLOCK = r"^[0-9]{2}:[0-9]{2}(:[0-9]{2})?$"
"""Patterns of what Arrow reads as numbers, dates and times of day."""
SHOWN = 3
"""Maximum number of cells that an error names."""


@dataclass(frozen=True)
class Way:
    """One way to read a text."""

    pattern: str
    """Pattern that the text must match."""
    read: Callable[[Any], Any]
    """Reads the text; raises an error of Arrow if a cell cannot be read."""
    plain: Callable[[Any], Any]
    """Prepares the text before it is compared with the pattern."""

    def fitting(self, text: Any) -> Any:
        """Which cells match the pattern; null where there is no text."""
        pc = arrow("compute")
        fits = pc.match_substring_regex(self.plain(text), self.pattern)
        if self.pattern == DATE and tried(self.read, pc.if_else(fits, text, None)) is None:
            days = [v for v in pc.unique(pc.filter(text, fits)).to_pylist() if v is not None]
            wrong = arrow().array(filterfalse(_is_date, days), text.type)
            fits = pc.and_(fits, pc.invert(pc.is_in(text, value_set=wrong)))
        return fits

    def of_fitting(self, text: Any) -> tuple[Any, Any]:
        """Values with nulls for cells that do not fit, or ``None`` if they still cannot be read; and which ones fit."""
        fits = self.fitting(text)
        return tried(self.read, arrow("compute").if_else(fits, text, None)), fits


@dataclass(frozen=True)
class Cells:
    """The text of one column of a CSV file, or of some of its rows, to be read as a column had it at fit."""

    path: Path
    """The file, for errors."""
    name: str
    """The column, for errors."""
    text: Any
    """Arrow array of strings."""
    first: int = 1
    """Number of the first row, for errors."""
    dialect: Dialect = Dialect()  # noqa: RUF009 - frozen
    """How cells are written."""
    told: set[str] = field(default_factory=set)
    """Columns for which it was reported that odd cells are read as missing values; this is reported once."""

    def read(self, kind: Kind, *, clock: bool = False) -> Any:
        """Read the cells in the type that goes with a kind.

        Args:
            kind: The kind of the column at fit.
            clock: Whether numbers may be written as times of day.

        Raises:
            InputError: A cell cannot be read.
        """
        text = with_missing(self.text, self.dialect.missing)
        if kind == "categorical":
            return text
        text = trimmed(text, self.dialect)
        ways = _ways(kind, self.dialect, clock=clock)
        values = _by_first(ways, text)
        if values is None and self.dialect.odd == "missing" and kind != "boolean":
            values = self._without_odd(ways, text)
        if values is not None:
            return values
        bad = first_bad(ways[0].read, text)
        options = self._other_writings(text[bad]) if kind == "numeric" else []
        fix = "; if it means a missing value, name it after --missing, or give --odd missing"
        if kind == "boolean":
            fix = ""
        elif options:
            fix = f"; if this file writes numbers in another way, give {' or '.join(options)}"
        raise InputError(
            f"{self.path}: column {self.name!r}, row {self.first + bad}: {text[bad].as_py()!r} is {WANTED[kind]}{fix}"
        )

    def _other_writings(self, cell: Any) -> list[str]:
        """Options with which a cell is a number, the simplest ones."""
        pc, point, mark = arrow("compute"), self.dialect.decimal, "," if self.dialect.decimal == "." else "."
        ways = {
            f"--decimal '{mark}'": (mark, self.dialect.thousands),
            f"--decimal '{mark}' --thousands '{point}'": (mark, point),
            f"--thousands '{mark}'": (point, mark),
        }
        fits = list[str]()
        for option, (decimal, thousands) in ways.items():
            if decimal != thousands and not any(option.startswith(simple) for simple in fits):
                other = replace(self.dialect, decimal=decimal, thousands=thousands)
                text = standard(arrow().array([cell.as_py()]), other)
                fits += [option] if pc.match_substring_regex(text, NUMBER)[0].as_py() else []
        return fits

    def read_numbers(self) -> Any:
        """Numbers, and missing values for all other cells."""
        text = trimmed(with_missing(self.text, self.dialect.missing), self.dialect)
        values = _by_first([number_way(self.dialect)], text)
        if values is not None:
            return values
        return arrow().array([None if v is None else as_number(v) for v in text.to_pylist()], arrow().float64())

    def _without_odd(self, ways: Sequence[Way], text: Any) -> Any:
        """Values with nulls for odd cells, which is reported; ``None`` if they still cannot be read."""
        pc = arrow("compute")
        read = [(values, fits) for way in ways for values, fits in [way.of_fitting(text)] if values is not None]
        if not read:
            return None
        values, fits = max(read, key=lambda pair: pc.sum(pair[1]).as_py() or 0)
        if self.name not in self.told:
            cells = listed(pc.invert(fits), text, self.first)
            said = f"{self.path}: column {self.name!r}: read as missing values, here and further on: {cells}"
            warnings.warn(said, stacklevel=4)
        self.told.add(self.name)
        return values


def _by_first(ways: Sequence[Way], text: Any) -> Any:
    """Values by the first way that can read all cells; ``None`` if none can."""
    return next((values for way in ways if (values := tried(way.read, text)) is not None), None)


def with_missing(text: Any, words: Sequence[str] = ()) -> Any:
    """Strings of a CSV file with nulls for those that mean a missing value.

    Example:
        >>> import pyarrow as pa
        >>> with_missing(pa.array(["NA", "", "00123"])).to_pylist()
        [None, None, '00123']
    """
    pa, pc = arrow(), arrow("compute")
    values = pa.array([*arrow("csv").ConvertOptions().null_values, *words], text.type)
    return pc.if_else(pc.is_in(text, value_set=values), pa.scalar(None, text.type), text)


def trimmed(text: Any, dialect: Dialect) -> Any:
    """Cells of a column of numbers or dates without surrounding blanks; null if nothing, or only a marker, is left."""
    pa, pc = arrow(), arrow("compute")
    text = pc.utf8_trim_whitespace(text)
    gone = pc.is_in(text, value_set=pa.array(["", *dialect.missing], text.type))
    if dialect.markers:
        gone = pc.or_(gone, pc.is_in(pc.utf8_lower(text), value_set=pa.array(dialect.markers, text.type)))
    return pc.if_else(gone, pa.scalar(None, text.type), text)


def standard(text: Any, dialect: Dialect) -> Any:
    """Numbers in the form that Arrow reads; what is not a number in the dialect is not one in this form either.

    Example:
        >>> import pyarrow as pa
        >>> standard(pa.array(["1.234,5", "1.5", "7"]), Dialect(decimal=",", thousands=".")).to_pylist()
        ['1234.5', '1?5', '7']
    """
    pc, mark = arrow("compute"), dialect.thousands
    if mark is not None:
        grouped = rf"^[+-]?[0-9]{{1,3}}([{mark}][0-9]{{3}})+([{dialect.decimal}][0-9]*)?$"
        bare = pc.replace_substring(text, mark, "")
        text = pc.if_else(pc.match_substring_regex(text, grouped), bare, text)
    if dialect.decimal != ".":
        text = pc.replace_substring(pc.replace_substring(text, ".", "?"), dialect.decimal, ".")
    return text


def number_way(dialect: Dialect) -> Way:
    """How numbers are read."""
    return Way(NUMBER, lambda t: _to(arrow().float64())(standard(t, dialect)), lambda t: standard(t, dialect))


def date_way(unit: str, zone: str | None) -> Way:
    """How dates are read."""
    return Way(DATE, _to(arrow().timestamp(unit, zone)), lambda text: text)


def clock_way() -> Way:
    """How times of day are read: as seconds."""
    pa, pc = arrow(), arrow("compute")

    def read(text: Any) -> Any:
        return pc.cast(pc.cast(pc.binary_join_element_wise("1970-01-01", text, " "), pa.timestamp("s")), pa.int64())

    return Way(CLOCK, read, lambda text: text)


DATES = tuple((unit, zone) for unit in ("us", "ns") for zone in (None, "UTC"))


def _to(kind: Any) -> Callable[[Any], Any]:
    return lambda text: arrow("compute").cast(text, kind)


def _ways(kind: Kind, dialect: Dialect, *, clock: bool) -> list[Way]:
    """Ways to read the text, the likeliest first."""
    if kind == "datetime":
        return [date_way(*how) for how in DATES]
    if kind == "boolean":
        return [Way("", _to(arrow().bool_()), lambda text: text)]
    return [number_way(dialect), clock_way()] if clock else [number_way(dialect)]


def listed(mask: Any, text: Any, first: int = 1) -> str:
    """The first cells that a mask picks, with their rows."""
    pc = arrow("compute")
    places = pc.indices_nonzero(pc.fill_null(mask, False))
    shown = [f"row {first + i} {_short(text[i].as_py())}" for i in places[:SHOWN].to_pylist()]
    more = len(places) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _short(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:39] + "…")


def _is_date(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def first_bad(read: Callable[[Any], Any], text: Any) -> int:
    """Place of the first cell that cannot be read, found by bisection."""
    good, bad = 0, len(text)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if tried(read, text.slice(0, middle)) is None else (middle, bad)
    return good


def tried(read: Callable[[Any], Any], text: Any) -> Any:
    """The values, or ``None`` if some cell cannot be read."""
    try:
        return read(text)
    except arrow().ArrowInvalid:
        return None


def label_is(labels: Any, wanted: str) -> NDArray[np.bool_]:
    """Which labels are the wanted one: the same text, or if there is none such, the same number or truth value.

    Example:
        >>> import pyarrow as pa
        >>> label_is(pa.array(["1.0", "2.0", None]), "1").tolist()
        [True, False, False]
    """
    known = [v for v in labels.unique().to_pylist() if v is not None]
    same = [wanted] if wanted in known else [v for v in known if _meaning(v) == _meaning(wanted)]
    pa, pc = arrow(), arrow("compute")
    mask: NDArray[np.bool_] = np.asarray(pc.is_in(labels, value_set=pa.array(same, pa.string())))
    return mask


def _meaning(text: str) -> tuple[str, float | str]:
    number = as_number(text)
    if number is not None:
        return "number", number
    folded = text.strip().casefold()
    return ("truth", folded) if folded in ("true", "false") else ("text", text)


def as_number(text: str) -> float | None:
    """The number a text stands for, or ``None``."""
    try:
        return float(text)
    except ValueError:
        return None


def arrow(module: str = "") -> Any:
    """pyarrow, which is optional, or one of its modules."""
    with needs("tables", "a file of a table"):
        return importlib.import_module(f"pyarrow.{module}" if module else "pyarrow")
