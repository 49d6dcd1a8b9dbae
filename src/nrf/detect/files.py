"""Tables in files: CSV (also ``.csv.gz``) and Parquet, whole for training, batch by batch for all else.

In a CSV file an empty cell is a missing value, and so are ``NA``, ``NaN``, ``null`` and their kin, also in columns of
strings. Whole numbers of which some begin with a zero, such as the zip code 00123, are strings. Blank lines are
skipped. Row numbers start at 1, below the header.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from nrf.detect.columns import Column, DroppedColumn, SchemaError
from nrf.detect.encoder import TableEncoder
from nrf.detect.texts import arrow, as_number, converted, with_missing
from nrf.errors import InputError

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet",)
BATCH_ROWS = 65_536
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 22, 1 << 28
"""Bytes of a CSV file that are parsed in one go; a row must be shorter."""


@dataclass(frozen=True)
class FileColumns:
    """Columns of training files that are no features. Later files may have them or not."""

    label: str | None = None
    ids: tuple[str, ...] = ()
    """Columns that say which row is which; they are copied to the scores."""
    dropped: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.ids, *self.dropped, *(() if self.label is None else (self.label,)))


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    first: int
    """Number of the first of them."""
    table: Any
    """Arrow table with all columns the encoder was fitted on, under its names."""
    labels: Any
    """Label column as strings, if one was asked for."""
    ids: Any
    """Arrow table with the columns that say which row is which, as they are in the file; it may have none."""
    share: float
    """Share of the file read so far."""

    @property
    def last(self) -> int:
        """Number of the last row."""
        return self.first + int(self.table.num_rows) - 1


def read_table(
    path: str | Path, drop: Sequence[str] = (), label: str | None = None, strings: Sequence[str] = ()
) -> Any:
    """A whole file as an Arrow table; the types of a CSV file's columns are found by looking at all their values.

    Args:
        path: CSV or Parquet file.
        drop: Columns to leave out.
        label: A column to read as strings, whatever it looks like.
        strings: Columns of a CSV file to read as strings, as they are written; Parquet files have types of their own.

    Warns:
        UserWarning: Columns look like numbers, but are read as strings: whole numbers, some with leading zeros.
    """
    path = Path(path)
    names = column_names(path)
    kept = _without(path, names, drop)
    for name in (*strings, *(() if label is None else (label,))):
        _require(path, name, names)
    if label is not None:
        kept = kept if label in kept else [*kept, label]
    if not kept:
        raise InputError(f"{path}: no column is left; drop fewer")
    text = arrow().string()
    with _explained(path, names):
        if _is_csv(path):
            known = dict.fromkeys([*strings, *([] if label is None else [label])], text)
            table = _whole_csv(path, kept, known)
            codes = _codes(path, names, table)
            if codes:
                table = _whole_csv(path, kept, known | dict.fromkeys(codes, text))
        else:
            codes = []
            table = arrow("parquet").ParquetFile(path).read(columns=kept)
            if label is not None:
                table = table.set_column(table.column_names.index(label), label, table[label].cast(text))
    if not table.num_rows:
        raise InputError(f"{path}: has a header, but no rows")
    for field in table.schema:
        if _is_csv(path) and arrow("types").is_binary(field.type):
            raise InputError(f"{path}: {_bad_bytes(field.name, table[field.name])}; save the file as UTF-8")
    if codes:
        warnings.warn(
            f"{path}: numbers with leading zeros are codes and read as strings, as they are written: {_listed(codes)}",
            stacklevel=2,
        )
    return table


def batches(
    encoder: TableEncoder,
    path: str | Path,
    *,
    drop: Sequence[str] = (),
    label: str | None = None,
    ids: Sequence[str] | None = None,
    known: FileColumns | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[Batch]:
    """A file in parts, each with the columns an encoder was fitted on; memory does not grow with the file.

    Args:
        encoder: Says which columns there must be, and of which kind.
        path: CSV or Parquet file.
        drop: Columns to pass over. Others that were not there at fit are an error.
        label: A column to hand over beside the table.
        ids: Columns to hand over as they are; if not given, those of the training file that this one has too.
        known: Columns of the training file that are no features: they are passed over where they are.
        batch_rows: Rows per batch.
    """
    path = Path(path)
    if batch_rows < 1:
        raise InputError(f"batch_rows must be at least 1, got {batch_rows}")
    names, known = column_names(path), known or FileColumns()
    for name in ids or ():
        _require(path, name, names)
    ids = tuple(name for name in (known.ids if ids is None else dict.fromkeys(ids)) if name in names)
    found = _found(encoder, path, names, drop, label, {*ids, *known.names})
    return _batches(encoder, path, names, found, label, ids, batch_rows)


def _batches(
    encoder: TableEncoder,
    path: Path,
    names: list[str],
    found: dict[str, str],
    label: str | None,
    ids: Sequence[str],
    batch_rows: int,
) -> Iterator[Batch]:
    wanted = list(dict.fromkeys([*found.values(), *([label] if label is not None else []), *ids]))
    pa, first = arrow(), 1
    for part, share in _parts(path, names, wanted, batch_rows):
        labels = None if label is None else part[label].cast(pa.string())
        if labels is not None and _is_csv(path):
            labels = with_missing(labels)
        columns: list[Any] = []
        for column in encoder.columns:
            if column.name not in found:  # left out at fit, and not missed now: all is as it was
                value = column.value if isinstance(column, DroppedColumn) else None
                columns.append(np.full(part.num_rows, np.nan if value is None else value))
                continue
            values = part[found[column.name]]
            columns.append(converted(path, column, values, first) if _is_csv(path) else values)
        yield Batch(first, pa.table(columns, names=list(encoder.names)), labels, part.select(list(ids)), share)
        first += part.num_rows
    if first == 1:
        raise InputError(f"{path}: has a header, but no rows")


def column_names(path: Path) -> list[str]:
    """Names of a file's columns; here, a file that is none is found out."""
    if not path.name.lower().endswith(CSV + PARQUET):
        raise InputError(f"{path}: the name must end in {' or '.join(CSV + PARQUET)}")
    if not path.is_file():
        raise InputError(f"{path}: {'is a directory' if path.is_dir() else 'does not exist'}; give a file")
    if not path.stat().st_size:
        raise InputError(f"{path}: is empty")
    with _explained(path):
        names = _csv_header(path) if _is_csv(path) else list(arrow("parquet").ParquetFile(path).schema_arrow.names)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path}: column names are used more than once: {', '.join(map(repr, twice))}; rename them")
    return names


# -------------------------------------------------------------------------------------------------------- which columns


def _without(path: Path, names: list[str], drop: Sequence[str]) -> list[str]:
    for name in drop:
        _require(path, name, names)
    return [name for name in names if name not in set(drop)]


def _require(path: Path, name: str, names: list[str]) -> None:
    if name not in names:
        raise InputError(f"{path}: has no column {name!r}; its columns are {_listed(names)}")


def _found(
    encoder: TableEncoder, path: Path, names: list[str], drop: Sequence[str], label: str | None, others: set[str]
) -> dict[str, str]:
    """For each column the encoder looks at, the name of the file's column.

    It does look at columns it left out as constant numbers, where they are: other numbers are a surprise.

    Args:
        encoder: Knows the columns.
        path: The file, for errors.
        names: Its columns.
        drop: Columns to pass over, which must be there.
        label: Column of the labels.
        others: More columns that need not be known to the encoder.
    """
    there = _without(path, names, drop)
    if label is not None:
        _require(path, label, names)
    if encoder.source == "array":  # fitted without names: by place
        there = [name for name in there if name != label and name not in others]
        if len(there) != len(encoder.columns):
            raise SchemaError(
                f"{path}: has {len(there)} columns, the detector was fitted on {len(encoder.columns)}; "
                "give the same ones in the same order, and leave others out with --drop"
            )
        pairs = zip(encoder.columns, there, strict=True)
        return {column.name: name for column, name in pairs if _is_looked_at(column)}
    kept = {column.name for column in encoder.kept_columns}
    if label in kept:
        raise InputError(f"the detector was fitted with the label {label!r} as a feature; fit it again with --drop")
    missing = [name for name in encoder.names if name in kept and name not in there]
    extra = [name for name in there if name not in {*encoder.names, *others, label}]
    wrong = [f"columns missing: {_listed(missing)}"] if missing else []
    if extra:
        wrong.append(f"columns that were not there at fit: {_listed(extra)}; leave them out with --drop")
    if wrong:
        raise SchemaError(f"{path}: {'; '.join(wrong)}")
    looked_at = [column.name for column in encoder.columns if _is_looked_at(column)]
    return {name: name for name in looked_at if name in there and name != label}


def _is_looked_at(column: Column) -> bool:
    return not isinstance(column, DroppedColumn) or column.value is not None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


# -------------------------------------------------------------------------------------------------------------- reading


def _whole_csv(path: Path, columns: list[str], types: dict[str, Any]) -> Any:
    with _CsvSource(path) as source:
        table = arrow("csv").read_csv(source.file, **_csv_settings(path, columns, types, missing=True))
        _require_closed_quotes(source, table)
    return table


def _codes(path: Path, names: list[str], table: Any) -> list[str]:
    """Columns that were read as numbers but hold digits only, and of some values the first digit is not needed."""
    types, pc = arrow("types"), arrow("compute")
    digits = [f.name for f in table.schema if types.is_integer(f.type) or types.is_floating(f.type)]
    led = set[str]()
    parts = _parts(path, names, digits, BATCH_ROWS) if digits else iter(())
    for part, _ in parts:
        texts = {name: pc.utf8_trim_whitespace(with_missing(part[name])) for name in digits}
        digits = [n for n in digits if pc.all(pc.match_substring_regex(texts[n], "^[0-9]+$")).as_py() is not False]
        led |= {n for n in digits if pc.any(pc.match_substring_regex(texts[n], "^0[0-9]")).as_py()}
        if not digits:
            break
    return [name for name in digits if name in led]


def _parts(path: Path, names: list[str], wanted: list[str], batch_rows: int) -> Iterator[tuple[Any, float]]:
    """Tables of ``batch_rows`` rows, the last one of fewer, and the share of the file read.

    The cells of a CSV file are the strings that stand there: what is missing is not yet told from what is not.
    """
    with _explained(path, names):
        if _is_csv(path):
            with _CsvSource(path) as source:
                settings = _csv_settings(path, wanted, dict.fromkeys(wanted, arrow().string()), missing=False)
                table = None
                with arrow("csv").open_csv(source.file, **settings) as reader:
                    for table in _regrouped(reader, batch_rows):
                        yield table, source.share
                if table is not None:
                    _require_closed_quotes(source, table)
        else:
            # Buffers that Arrow fills ahead are kept until the file is closed: without them memory stays constant.
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


class _CsvSource(io.RawIOBase):
    """The bytes of a CSV file, unpacked; counts quotes and knows how far it is."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._size = path.stat().st_size
        self._bytes = _unpacked(path, self._file)
        self.quotes = 0
        self.file = arrow().PythonFile(self, mode="r")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        content = self._bytes.read(size)
        self.quotes += content.count(b'"')
        return content

    @property
    def share(self) -> float:
        """Share of the file read."""
        return self._file.tell() / self._size

    def close(self) -> None:
        if not self.closed:
            self._bytes.close()
            self._file.close()
        super().close()


def _unpacked(path: Path, file: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(file) if path.name.lower().endswith(".gz") else file


def _csv_header(path: Path) -> list[str]:
    # More than the first line is decoded here; bytes that are no UTF-8 are found where they stand.
    with (
        path.open("rb") as file,
        io.TextIOWrapper(_unpacked(path, file), "utf-8-sig", "surrogateescape", newline="") as text,
    ):
        names = next((row for row in csv.reader(text) if row), None)
    if names is None:
        raise InputError(f"{path}: is empty")
    if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
        raise InputError(f"{path}: the header is not UTF-8; save the file as UTF-8")
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise InputError(f"{path}: the header {names[0]!r} has no comma; separate columns by commas")
    values = [as_number(name) for name in names]
    if None not in values and any("." in name for name in names):
        raise InputError(f"{path}: the first line holds numbers, not names; put a line with the column names above")
    return names


def _csv_settings(path: Path, columns: list[str], types: dict[str, Any], *, missing: bool) -> dict[str, Any]:
    module = arrow("csv")
    with path.open("rb") as file:  # room for rows far longer than the first line
        block = min(max(SMALLEST_BLOCK, 64 * len(_unpacked(path, file).readline(LARGEST_BLOCK))), LARGEST_BLOCK)
    return {
        # With one thread, Arrow knows the row of an error.
        "read_options": module.ReadOptions(use_threads=False, block_size=block),
        "parse_options": module.ParseOptions(newlines_in_values=True),
        "convert_options": module.ConvertOptions(
            include_columns=columns, column_types=types, strings_can_be_null=missing
        ),
    }


def _require_closed_quotes(source: _CsvSource, last: Any) -> None:
    """A quote that is never closed swallows all that follows; Arrow takes that for a value."""
    tail = last.slice(last.num_rows - 1).to_pylist()[0] if source.quotes % 2 and last.num_rows else {}
    if any(isinstance(value, str) and "\n" in value for value in tail.values()):
        raise InputError(f"{source._file.name}: a quote is opened and never closed")


# --------------------------------------------------------------------------------------------------------------- errors


@contextmanager
def _explained(path: Path, names: Sequence[str] = ()) -> Iterator[None]:
    """What the readers complain of, in our words."""
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
    return f"{'cannot be read' if _is_csv(path) else 'truncated, damaged or no Parquet file'} ({error})"


def _bad_bytes(name: str, column: Any) -> str:
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return f"column {name!r}, row {row} is not UTF-8: {value[:40]!r}"
    return f"column {name!r} is not text"


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith(CSV)
