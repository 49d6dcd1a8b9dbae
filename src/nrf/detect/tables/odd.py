"""Columns of a training file that are numbers or dates except for some cells.

Arrow reads a column as strings if one cell is not a number. Then every value that did not occur before is a novelty: a
stray dash would make nearly all later rows anomalies. So a column that is nearly all numbers, dates or times of day
stays one: the usual words for a missing value are read as such and reported, and other cells are refused.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.tables.dialect import MARKERS, THOUSANDS, Dialect
from nrf.detect.tables.texts import (
    CLOCK,
    DATES,
    ISO,
    NUMBER,
    TIME,
    arrow,
    clock_way,
    date_way,
    listed,
    number_way,
    standard,
    tried,
    trimmed,
)
from nrf.errors import InputError

Mask = NDArray[np.bool_]

NEARLY = 0.95
HANDFUL, MOST = 5, 0.8
"""In a short column, up to a handful of odd cells are few enough if most cells are not odd."""
SAMPLE = 1000
"""Number of cells of a column that are checked first; most columns of strings are recognised by these."""
REST = rf"([ T]{TIME}.*)?$"
SHAPES = {
    "2024-02-01": rf"{ISO}$",
    "2024-02-01 00:00Z": rf"{ISO}(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$",
    "1/2/2024": rf"^[0-9]{{1,2}}/[0-9]{{1,2}}/([0-9]{{4}}|[0-9]{{2}}){REST}",
    "1.2.2024": rf"^[0-9]{{1,2}}\.[0-9]{{1,2}}\.([0-9]{{4}}|[0-9]{{2}}){REST}",
    "1-2-2024": rf"^[0-9]{{1,2}}-[0-9]{{1,2}}-[0-9]{{4}}{REST}",
    "2024/2/1": rf"^[0-9]{{4}}/[0-9]{{1,2}}/[0-9]{{1,2}}{REST}",
    "2024-2-1": rf"^[0-9]{{4}}-([0-9]-[0-9]{{1,2}}|[0-9]{{2}}-[0-9]){REST}",
    "1 Feb 2024": r"^[0-9]{1,2}[ -][A-Za-z]{3,9}\.?[ -]([0-9]{4}|[0-9]{2})$",
}
"""Ways to write dates; the first two are read as dates."""
SIGNED = r"^[+-]?[€$£¥] ?[+-]?[0-9][0-9.,]*$|^[+-]?[0-9][0-9.,]* ?[€$£¥%]$"
"""Numbers with the sign of a currency, or a percentage."""


@dataclass(frozen=True)
class Settled:
    """The result for a column of strings; by default it stays one."""

    values: Any = None
    """The column with other values."""
    markers: tuple[str, ...] = ()
    """Words that were read as missing values."""
    said: str = ""
    """What the user should know."""
    is_code: bool = False
    """Whether values are digits, some with leading zeros, which are kept as strings."""


def settled(path: Path, name: str, column: Any, dialect: Dialect) -> Settled:
    """Check whether a column of strings holds numbers or dates, except for some cells.

    Args:
        path: The file, for messages.
        name: The column's name.
        column: Arrow array of strings, with nulls where values are missing.
        dialect: How cells are written.

    Raises:
        InputError: It does, and these cells cannot be read.
    """
    present = column.drop_null()
    places = np.unique(np.linspace(0, max(len(present) - 1, 0), min(SAMPLE, len(present))).astype(np.int64))
    sample = _Column(path, name, present.take(places), dialect)
    kind = sample.guess()
    if kind == "":
        return sample.with_signs()
    whole = _Column(path, name, column, dialect)
    if kind == "number":
        return whole.as_numbers()
    return whole.as_times() if kind == "time" else whole.as_dates()


class _Column:
    def __init__(self, path: Path, name: str, column: Any, dialect: Dialect) -> None:
        pa, pc = arrow(), arrow("compute")
        self.where, self.name, self.dialect = f"{path}: column {name!r}", name, dialect
        self.text = trimmed(column, dialect)
        words = pa.array(sorted(MARKERS), self.text.type)
        self.marked = _mask(pc.is_in(pc.utf8_lower(self.text), value_set=words))
        self.judged = _mask(pc.is_valid(self.text)) & ~self.marked
        """Cells that hold something."""

    def matching(self, pattern: str, dialect: Dialect | None = None) -> Mask:
        """Cells that match a pattern, as numbers of a dialect if one is given."""
        text = self.text if dialect is None else standard(self.text, dialect)
        return _mask(arrow("compute").match_substring_regex(text, pattern)) & self.judged

    def guess(self) -> str:
        """The kind of value that at least half of the cells look like."""
        half = self.judged.sum() / 2
        if not half or self.matching(r"^[+-]?[.,]?[0-9]").sum() < half:
            return ""
        shares = {
            "number": max(self.matching(NUMBER, way).sum() for way in (self.dialect, *self.writings().values())),
            "time": self.matching(CLOCK).sum(),
            "date": sum(self.matching(shape).sum() for shape in SHAPES.values()),
        }
        kind = max(shares, key=lambda k: shares[k])
        return kind if shares[kind] >= half else ""

    def nearly(self, fits: Mask) -> bool:
        """Whether nearly all cells are among these."""
        good, all_ = int(fits.sum()), int(self.judged.sum())
        return good >= NEARLY * all_ or (all_ - good <= HANDFUL and good >= MOST * all_)

    def writings(self) -> dict[str, Dialect]:
        """Other ways to write numbers, by their command-line options."""
        found = {}
        for decimal in (".", ","):
            for thousands in (self.dialect.thousands, *THOUSANDS):
                if thousands != decimal:
                    other = replace(self.dialect, decimal=decimal, thousands=thousands)
                    options = [f"--decimal '{decimal}'"] if decimal != self.dialect.decimal else []
                    options += (
                        [f'--thousands "{thousands}"' if thousands == "'" else f"--thousands '{thousands}'"]
                        if thousands != self.dialect.thousands
                        else []
                    )
                    found[" ".join(options)] = other
        found.pop("", None)
        return found

    def options(self, above: int = 0) -> list[str]:
        """Options with which nearly all cells, and more than ``above``, are numbers; the simplest of the best."""
        fits = {option: self.matching(NUMBER, other) for option, other in self.writings().items()}
        counts = {option: int(f.sum()) for option, f in fits.items() if self.nearly(f) and f.sum() > above}
        best = [option for option, count in counts.items() if count == max(counts.values())]
        return [option for option in best if option.count("--") == min(b.count("--") for b in best)]

    def as_numbers(self) -> Settled:
        """Numbers, and some cells that are not numbers."""
        pa, pc = arrow(), arrow("compute")
        numbers = self.matching(NUMBER, self.dialect)
        if not self.nearly(numbers):
            return self.as_other_numbers()
        if self.matching("^0[0-9]", self.dialect).any() and (self.matching("^[0-9]+$", self.dialect) == numbers).all():
            return Settled(is_code=True)
        self.require_no_odd(numbers, "numbers", self.options(int(numbers.sum())))
        text = self.only(numbers)
        values = tried(lambda t: pc.cast(standard(t, self.dialect), pa.int64()), text)
        return self.read(number_way(self.dialect).read(text) if values is None else values, numbers, "numbers")

    def as_other_numbers(self) -> Settled:
        """Refuse numbers that are written in another way, and name the options for it."""
        options = self.options()
        if not options:
            return Settled()
        cells = listed(_flags(self.judged & ~self.matching(NUMBER, self.dialect)), self.text)
        raise InputError(
            f"{self.where} looks like numbers written in another way: {cells}; give {' or '.join(options)}, "
            f"or --categorical {_quoted(self.name)} if they are names"
        )

    def with_signs(self) -> Settled:
        """Names, but say so if they look like prices or percentages."""
        signed = self.matching(SIGNED)
        if not signed.any() or not self.nearly(signed):
            return Settled()
        first = self.text[int(signed.argmax())].as_py()
        return Settled(
            said=f"{self.where} has numbers with a sign, such as {first!r}, which are read as names; take out the sign"
        )

    def as_times(self) -> Settled:
        """Times of day, and some cells that are not."""
        pa, pc = arrow(), arrow("compute")
        times = self.matching(CLOCK)
        if not self.nearly(times):
            return Settled()
        self.require_no_odd(times, "times of day")
        seconds = tried(clock_way().read, self.only(times))
        if seconds is None:  # such as 25:00
            return Settled()
        return self.read(pc.cast(pc.cast(seconds, pa.int32()), pa.time32("s")), times, "times of day")

    def as_dates(self) -> Settled:
        """Dates, and some cells that are not dates or are written in another way."""
        shapes = {name: self.matching(shape) for name, shape in SHAPES.items()}
        if not self.nearly(np.logical_or.reduce(list(shapes.values()))):
            return Settled()
        main = max(shapes, key=lambda name: int(shapes[name].sum()))
        mixed = [name for name, fits in shapes.items() if fits.any()]
        if len(mixed) > 1 and self.dialect.odd == "refuse":
            firsts = "; ".join(f"like {name}: {listed(_flags(shapes[name]), self.text)}" for name in mixed)
            raise InputError(
                f"{self.where} has dates written in several ways: {firsts}. Write all like 2024-02-01, or give "
                f"--categorical {_quoted(self.name)} if they are names, or --odd missing"
            )
        if main not in list(SHAPES)[:2]:
            self.require_no_odd(shapes[main], "dates", like=main)
            return Settled(said=f"{self.where} has dates like {main}, which are read as names; write 2024-02-01")
        for way in (date_way(*how) for how in DATES):
            values, fits = way.of_fitting(self.only(shapes[main]))
            if values is not None:
                self.require_no_odd(_mask(fits), "dates")
                return self.read(values, _mask(fits), "dates")
        return Settled()

    def require_no_odd(self, fits: Mask, what: str, options: list[str] | None = None, like: str = "") -> None:
        """Refuse cells that are neither what the others are nor a word for a missing value."""
        odd = self.judged & ~fits
        if self.dialect.odd == "missing" and not like:
            return
        name = _quoted(self.name)
        if odd.any():
            first = _quoted(self.text[int(odd.argmax())].as_py())
            written = f"; if they are numbers, give {' or '.join(options)}" if options else ""
            raise InputError(
                f"{self.where} has {fits.sum()} {what}{f' like {like}' if like else ''}, and {odd.sum()} other: "
                f"{listed(_flags(odd), self.text)}. If such cells mean missing values, give --missing {first} … or "
                f"--odd missing{written}; if all are names, --categorical {name}; or correct the file"
            )
        if self.marked.sum() > fits.sum():
            words = " ".join(map(_quoted, self.words()))
            raise InputError(
                f"{self.where} has {fits.sum()} {what}, and {self.marked.sum()} words that may mean missing values: "
                f"{listed(_flags(self.marked), self.text)}. If they do, give --missing {words}; if all are names, "
                f"--categorical {name}"
            )

    def read(self, values: Any, fits: Mask, what: str) -> Settled:
        """The column with these values, and what was read as missing."""
        gone = self.marked | (self.judged & ~fits)
        if not gone.any():
            return Settled(values)
        cells = listed(_flags(gone), self.text)
        count = f"{gone.sum()} cell{'s' if gone.sum() > 1 else ''}"
        said = f"{self.where}: {count} among {fits.sum()} {what} read as missing: {cells}"
        return Settled(values, self.words(), f"{said}; --categorical {_quoted(self.name)} reads all as names")

    def words(self) -> tuple[str, ...]:
        """Words in the column that may mean missing values."""
        pc = arrow("compute")
        return tuple(sorted(pc.unique(pc.utf8_lower(self.text.filter(_flags(self.marked)))).to_pylist()))

    def only(self, fits: Mask) -> Any:
        """The text of these cells, null elsewhere."""
        return arrow("compute").if_else(_flags(fits), self.text, None)


def _mask(flags: Any) -> Mask:
    return np.asarray(arrow("compute").fill_null(flags, False), dtype=bool)


def _flags(flags: Mask) -> Any:
    return arrow().array(flags)


def _quoted(word: str | None) -> str:
    """A word quoted for a shell."""
    return shlex.quote(word or "")
