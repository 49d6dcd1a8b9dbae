"""Options that say how a CSV file is written, the same for all actions of `nrf detect`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from nrf.detect.tables.dialect import Dialect

SPELLED = {"tab": "\t", "\\t": "\t", "space": " "}


@dataclass(frozen=True)
class CsvOptions:
    """How a CSV file is written. What `fit` was given or found is remembered; later actions may override it."""

    sep: Annotated[str | None, tyro.conf.arg(metavar="CHAR")] = None
    """What separates the columns: ';', '|', tab, … If not given, it is detected from the first rows, and reported if it
    is not a comma."""
    decimal: Literal[".", ","] | None = None
    """The decimal point."""
    thousands: Annotated[str | None, tyro.conf.arg(metavar="CHAR")] = None
    """What separates groups of three digits, as in 1,000 or 1_000; write space for a blank."""
    missing: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[WORD [WORD ...]]")] = ()
    """Cells that mean a missing value, in addition to empty ones, NA, NaN and null; write --missing=-1 for a single
    word that begins with a dash."""
    odd: Literal["refuse", "missing"] | None = None
    """What to do with cells that are not numbers in a column of numbers, or not dates in a column of dates: refuse
    them, or read them as missing values and report it."""

    def over(self, known: Dialect) -> Dialect:
        """The options given here, and the known ones for the rest."""
        return replace(
            known,
            separator=SPELLED.get(self.sep or "", self.sep),
            decimal=self.decimal or known.decimal,
            thousands=SPELLED.get(self.thousands or "", self.thousands) or known.thousands,
            missing=tuple(dict.fromkeys([*known.missing, *self.missing])),
            odd=self.odd or known.odd,
        )


AS_KNOWN = CsvOptions()
"""No option given."""
