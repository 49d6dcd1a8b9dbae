"""What `nrf detect` prints: tables, what each column was taken for, warnings, a progress bar over a file."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nrf.cli.parsing import say
from nrf.errors import printable

if TYPE_CHECKING:
    from nrf.detect.tables.schema import Schema

FEW_COLUMNS = 20
"""Up to this many columns get a line each; with more, the columns of a kind share a line."""


class Percent:
    """A progress bar over a file, in percent."""

    def __init__(self, label: str) -> None:
        from nrf.training import ProgressBar

        self._bar, self._done = ProgressBar(label, 100), 0

    def reached(self, rows: int, share: float) -> None:
        """Update the bar: this many rows, and this share of the file, are done."""
        while self._done < int(100 * share):
            self._done += 1
            self._bar.advance()
        self._bar.show({"rows": rows})

    def __enter__(self) -> Percent:
        self._bar.__enter__()
        return self

    def __exit__(self, *stop: Any) -> None:
        self._bar.__exit__(*stop)


def show_columns(schema: Schema, left_out: dict[str, str]) -> None:
    """Print what each column was taken for."""
    found = [(column.name, *column.summary) for column in schema.columns]
    found += [(name, "left out", option) for name, option in left_out.items()]
    if len(found) <= FEW_COLUMNS:
        print_table(("column", "kind", "found"), found)
    else:
        kinds: dict[str, list[str]] = {}
        for name, kind, detail in found:
            more = f" ({detail})" if kind in ("levels", "left out", "date") else ""
            kinds.setdefault(kind, []).append(name + more)
        rows = []
        for kind, names in kinds.items():
            others = f" and {len(names) - 8} more" if len(names) > 8 else ""
            rows.append((kind, str(len(names)), ", ".join(names[:8]) + others))
        print_table(("kind", "columns", "names"), rows)
    sys.stdout.flush()


def print_warnings(caught: Sequence[Any]) -> None:
    """Print warnings, one line each, and repeated ones once."""
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        print_warning(message)


@contextmanager
def said_warnings() -> Iterator[None]:
    """Print each warning when it comes, in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *rest, **more: print_warning(message)
        yield


def print_warning(message: Warning | str) -> None:
    """In one line, as what the program itself says."""
    print(f"nrf: {' '.join(printable(str(message)).split())}", file=sys.stderr)


def cell(value: Any) -> str:
    """A value of a table as text."""
    if value is None:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with aligned columns."""
    lines = [[one_line(text) for text in line] for line in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def one_line(text: str) -> str:
    """A name or value without control characters, which would move the cursor, and without line breaks."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
