"""CSV and Parquet files as Arrow tables, whole or in parts, with the readers' errors in plain words."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nrf.detect.tables.dialect import Dialect, text_of
from nrf.detect.tables.texts import arrow, as_number
from nrf.errors import InputError

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet",)
BATCH_ROWS = 65_536
"""Rows read at a time."""
BATCH_VALUES = 1 << 21
"""Maximum number of values read at a time: fewer rows of a wide file."""
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 22, 1 << 28
"""Bytes of a CSV file that are parsed in one go; a row must be shorter."""


def whole_csv(path: Path, columns: list[str], types: dict[str, Any], dialect: Dialect) -> Any:
    table = arrow("csv").read_csv(_opened(path)[0], **_csv_settings(path, columns, types, dialect, missing=True))
    _require_closed_quotes(path, table)
    return table


def parts(
    path: Path, names: list[str], wanted: list[str], batch_rows: int, dialect: Dialect
) -> Iterator[tuple[Any, float]]:
    """Tables of ``batch_rows`` rows (the last one may have fewer), and the share of the file read.

    The cells of a CSV file are the strings as written: missing values are not yet recognised.
    """
    with explained(path, names):
        if is_csv(path):
            types, table = dict.fromkeys(wanted, arrow().string()), None
            settings = _csv_settings(path, wanted, types, dialect, missing=False)
            (file, raw), size = _opened(path), path.stat().st_size
            with arrow("csv").open_csv(file, **settings) as reader:
                for table in _regrouped(reader, batch_rows):
                    yield table, raw.tell() / size
            if table is not None:
                _require_closed_quotes(path, table)
        else:
            # Buffers that Arrow fills in advance are kept until the file is closed: without them memory stays constant.
            with arrow("parquet").ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
                total, done = max(1, file.metadata.num_rows), 0
                parts = file.iter_batches(min(batch_rows, BATCH_ROWS), columns=wanted, use_threads=False)
                for table in _regrouped(parts, batch_rows):
                    done += table.num_rows
                    yield table, done / total


def _regrouped(parts: Iterator[Any], n_rows: int) -> Iterator[Any]:
    pa = arrow()
    held: list[Any] = []
    count = 0
    for part in parts:
        held.append(part)
        count += part.num_rows
        while count >= n_rows:
            table = pa.Table.from_batches(held)
            yield table.slice(0, n_rows)
            held, count = table.slice(n_rows).to_batches(), count - n_rows
    if count:
        yield pa.Table.from_batches(held)


def _opened(path: Path) -> tuple[Any, Any]:
    """The bytes of a CSV file, unpacked, and as they are on the disk.

    Arrow opens the file itself: its thread reads ahead, and aborts the process if it calls Python while Python exits.
    """
    raw = arrow().OSFile(str(path))
    return (arrow().CompressedInputStream(raw, "gzip") if path.name.lower().endswith(".gz") else raw), raw


def _unpacked(path: Path, file: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(file) if path.name.lower().endswith(".gz") else file


def csv_header(path: Path, separator: str, opened: Callable[[Path], IO[str]] = text_of) -> list[str]:
    with opened(path) as text:
        names = next((row for row in csv.reader(text, delimiter=separator) if row), None)
    if names is None:
        raise InputError(f"{path}: is empty")
    if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
        raise InputError(f"{path}: the header is not UTF-8; save the file as UTF-8")
    values = [as_number(name.replace(",", ".")) for name in names]
    if None not in values and any("." in name or "," in name for name in names):
        raise InputError(f"{path}: the first line holds numbers, not names; put a line with the column names above")
    return names


def _csv_settings(
    path: Path, columns: list[str], types: dict[str, Any], dialect: Dialect, *, missing: bool
) -> dict[str, Any]:
    module = arrow("csv")
    with path.open("rb") as file:  # room for rows far longer than the first line
        block = min(max(SMALLEST_BLOCK, 64 * len(_unpacked(path, file).readline(LARGEST_BLOCK))), LARGEST_BLOCK)
    return {
        # With one thread, Arrow can report the row of an error.
        "read_options": module.ReadOptions(use_threads=False, block_size=block),
        "parse_options": module.ParseOptions(newlines_in_values=True, delimiter=dialect.separator or ","),
        "convert_options": module.ConvertOptions(
            include_columns=columns,
            column_types=types,
            strings_can_be_null=missing,
            null_values=[*module.ConvertOptions().null_values, *dialect.missing],
            decimal_point=dialect.decimal,
        ),
    }


def _require_closed_quotes(path: Path, last: Any) -> None:
    """Refuse a quote that is never closed: it swallows all that follows, and Arrow takes that for a value."""
    tail = last.slice(last.num_rows - 1).to_pylist()[0] if last.num_rows else {}
    if any(isinstance(value, str) and "\n" in value for value in tail.values()):
        with path.open("rb") as file, _unpacked(path, file) as content:
            quotes = sum(part.count(b'"') for part in iter(lambda: content.read(1 << 20), b""))
        if quotes % 2:
            raise InputError(f"{path}: a quote is opened and never closed")


# --------------------------------------------------------------------------------------------------------------- errors


@contextmanager
def explained(path: Path, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn the readers' errors into input errors in plain words."""
    try:
        yield
    except (arrow().ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        raise InputError(f"{path}: {_in_words(str(error), path, names)}") from error


def _in_words(error: str, path: Path, names: Sequence[str]) -> str:
    if width := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", error):
        row, expected, got = map(int, width.groups())
        return f"row {row - 1} has {got} values, the header has {expected}"
    if text := re.search(r"CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to string: invalid UTF8", error):
        where = f", row {int(text[2]) - 1}" if text[2] else ""
        return f"column {names[int(text[1])]!r}{where} is not UTF-8; save the file as UTF-8"
    if "cannot infer number of columns" in error:
        return "has a header, but no rows"
    if "straddl" in error:
        return "a row is longer than any should be; is a quote opened and never closed?"
    return f"{'cannot be read' if is_csv(path) else 'truncated, damaged or no Parquet file'} ({error})"


def bad_bytes(name: str, column: Any) -> str:
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return f"column {name!r}, row {row} is not UTF-8: {value[:40]!r}"
    return f"column {name!r} is not text"


def is_csv(path: Path) -> bool:
    return path.name.lower().endswith(CSV)
