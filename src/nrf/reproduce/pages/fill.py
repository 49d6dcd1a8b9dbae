"""Tables between markers in Markdown, lines of their own: ``<!-- table: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from nrf.errors import InputError
from nrf.files import write_atomically
from nrf.reproduce.pages import detector_tables, performance, readme, reproduction, studies
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.report import Table

TABLES: dict[str, Callable[[Records], Table]] = {
    **readme.TABLES,
    **reproduction.TABLES,
    **studies.TABLES,
    **detector_tables.TABLES,
    **performance.TABLES,
}
"""By the name in the marker."""

_BLOCK = re.compile(r"^(<!-- table: (?P<name>[^>\n]*) -->\n)(?P<table>.*?)^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"^<!-- (?:table: .*|end) -->$", re.MULTILINE)


def fill(text: str, records: Records, where: str = "page") -> str:
    """The page with each of its tables made anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            near = difflib.get_close_matches(name, TABLES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{where}: there is no table {name!r}{hint}")
        return f"{match[1]}{TABLES[name](records).as_markdown()}\n{match[4]}"

    if len(_MARKER.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise InputError(
            f"{where}: each <!-- table: NAME --> needs an <!-- end --> of its own, and the other way round"
        )
    return _BLOCK.sub(table, text)


def pages_beside(results: Path) -> Iterator[Path]:
    """README and docs of the checkout that a results folder lies in."""
    root = results.resolve().parent
    yield from (path for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if path.is_file())


def write_pages(results: Path) -> list[Path]:
    """Fill the tables of all pages beside a results folder; returns those that changed."""
    records, changed = Records(results), []
    for path in pages_beside(results):
        before = path.read_text()
        after = fill(before, records, path.name)
        if after != before:
            write_atomically(path, after.encode())
            changed.append(path)
    return changed
