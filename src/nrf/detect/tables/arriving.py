"""CSV text that arrives bit by bit, for example on standard input: rows are passed on as soon as they are complete."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nrf.detect.tables.dialect import Dialect
from nrf.detect.tables.files import Batch, FileColumns, found_columns
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.texts import Cells, arrow
from nrf.errors import InputError

PIECE, LONGEST = 1 << 20, 1 << 28
"""Maximum bytes that are read at once, and that one row may have."""
NAME = Path("standard input")


def line_batches(
    schema: Schema,
    source: BinaryIO,
    *,
    drop: Sequence[str] = (),
    known: FileColumns | None = None,
    dialect: Dialect | None = None,
) -> Generator[Batch, None, None]:
    """The rows of a CSV text with a header, as it arrives; :func:`.files.batches` has those of files.

    Args:
        schema: Says which columns there must be, and of which kind.
        source: Bytes in UTF-8.
        drop: Columns to ignore.
        known: Columns of the training file that are not features.
        dialect: How the text is written; what it leaves open is as in the training file.
    """
    known = known or FileColumns()
    dialect = dialect or known.dialect
    separator = dialect.separator or known.dialect.separator or ","
    dialect = replace(dialect, separator=separator)
    names: list[str] | None = None
    found: dict[str, str] = {}
    pa, first, told = arrow(), 1, set[str]()
    for rows in _records(source, separator):
        if names is None:
            names, rows = _checked(rows[0]), rows[1:]
            found = found_columns(schema, NAME, names, drop, None, set(known.names))
        if not rows:
            continue
        for i, row in enumerate(rows):
            if len(row) != len(names):
                raise InputError(f"{NAME}: row {first + i} has {len(row)} values, the header has {len(names)}")
        texts = dict(zip(names, zip(*rows, strict=True), strict=True))
        columns: list[Any] = []
        for column in schema.columns:
            if column.name not in found:
                columns.append(np.full(len(rows), column.stand_in))
            else:
                cells = pa.array(texts[found[column.name]], pa.string())
                columns.append(column.from_text(Cells(NAME, column.name, cells, first, dialect, told)))
        ids = [name for name in known.ids if name in names]
        table = pa.table([pa.array(texts[name], pa.string()) for name in ids], names=ids)
        yield Batch(first, pa.table(columns, names=list(schema.names)), None, table, 0.0)
        first += len(rows)
    if names is None:
        raise InputError(f"{NAME}: is empty; the first line must name the columns")


def _records(source: BinaryIO, separator: str) -> Iterator[list[list[str]]]:
    """Lists of complete rows, without blank ones; a line break within quotes does not end a row."""
    waiting, read = b"", getattr(source, "read1", source.read)
    while piece := read(PIECE):
        waiting += piece
        end = waiting.rfind(b"\n") + 1
        while end and waiting.count(b'"', 0, end) % 2:
            end = waiting.rfind(b"\n", 0, end - 1) + 1
        if rows := _parsed(waiting[:end], separator):
            yield rows
        waiting = waiting[end:]
        if len(waiting) > LONGEST:
            raise InputError(f"{NAME}: a row is longer than any should be; is a quote opened and never closed?")
    if waiting.count(b'"') % 2:
        raise InputError(f"{NAME}: a quote is opened and never closed")
    if rows := _parsed(waiting, separator):
        yield rows


def _parsed(text: bytes, separator: str) -> list[list[str]]:
    try:
        lines = io.StringIO(text.decode("utf-8-sig"), newline="")
        return [row for row in csv.reader(lines, delimiter=separator) if row]
    except UnicodeDecodeError as error:
        raise InputError(f"{NAME}: is not UTF-8 ({error.reason}); send it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{NAME}: cannot be read ({error})") from error


def _checked(names: list[str]) -> list[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{NAME}: column names are used more than once: {', '.join(map(repr, twice))}; rename them")
    return names
