"""Tables and single numbers of Markdown pages, made from records.

A table stands between markers on lines of their own, ``<!-- table: NAME -->`` and ``<!-- end -->``; a number within a
sentence between ``<!-- value: RECORD; METHOD; METRIC; … -->`` and ``<!-- /value -->`` (``inline.py``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from nrf.errors import InputError
from nrf.files import write_atomically
from nrf.reproduce.pages import (
    benchmarks,
    choice,
    claims,
    detector_tables,
    drift_tables,
    generated,
    performance,
    readme,
    reproduction,
    studies,
    summary,
)
from nrf.reproduce.pages.inline import fill_values
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.report import Table

TABLES: dict[str, Callable[[Records], Table]] = {
    **summary.TABLES,
    **readme.TABLES,
    **reproduction.TABLES,
    **claims.TABLES,
    **studies.TABLES,
    **generated.TABLES,
    **detector_tables.TABLES,
    **drift_tables.TABLES,
    **performance.TABLES,
    **benchmarks.TABLES,
    **choice.TABLES,
}
"""By the name in the marker."""

WORDS = {
    "made anomalies": "synthetic anomalies",
    "AUROC, made": "AUROC, synthetic",
    "GFLOP an image": "GFLOP per image",
    "seconds an iteration": "seconds per iteration",
    "rows a second": "rows per second",
    "scored a second": "scored per second",
    "turned digits": "rotated digits",
    "network that tells rotations, beside its answers": "rotation classifier, beside its probabilities",
    "the same answers added up": "the same probabilities added up",
}
"""Words that records are named by, and keep; pages have others for them."""

_BLOCK = re.compile(r"^(<!-- table: (?P<name>[^>\n]*) -->\n)(?P<table>.*?)^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"^<!-- (?:table: .*|end) -->$", re.MULTILINE)


def fill(text: str, records: Records, where: str = "page") -> str:
    """The page with each of its tables and numbers made anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            near = difflib.get_close_matches(name, TABLES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{where}: there is no table {name!r}{hint}")
        text = TABLES[name](records).as_markdown()
        for word, plain in WORDS.items():
            text = text.replace(word, plain)
        return f"{match[1]}{text}\n{match[4]}"

    if len(_MARKER.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise InputError(
            f"{where}: each <!-- table: NAME --> needs an <!-- end --> of its own, and the other way round"
        )
    return fill_values(_BLOCK.sub(table, text), records, where)


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
