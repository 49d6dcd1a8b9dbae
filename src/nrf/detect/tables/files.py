"""Tables in files: CSV (also ``.csv.gz``) and Parquet, read whole for training, batch by batch for everything else.

In a CSV file an empty cell is a missing value, and so are ``NA``, ``NaN``, ``null`` and the like, also in columns of
strings. Whole numbers of which some begin with a zero, such as the zip code 00123, are strings. Blank lines are
skipped. Row numbers start at 1, below the header. The separator is detected, and reported if it is not a comma; a
column that is nearly all numbers or dates counts as one, and its other cells are refused or reported
(:mod:`nrf.detect.tables.odd`).
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nrf.detect.tables.dialect import Dialect, named, sniffed
from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.odd import settled
from nrf.detect.tables.readers import (
    BATCH_ROWS,
    BATCH_VALUES,
    CSV,
    PARQUET,
    bad_bytes,
    csv_header,
    explained,
    is_csv,
    parts,
    whole_csv,
)
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.texts import ISO, Cells, arrow, listed, with_missing
from nrf.errors import InputError

VALUE = rf"[+-]?[0-9]+[.,][0-9]+|{ISO}.*"
"""What is more likely a value than a name of a column: a number that is not whole, a date."""
SHOWN = 8
"""Names in a message, at most."""
ALIKE = 0.8
"""How like two names must be for one to be taken for the other misspelt, between 0 and 1."""


@dataclass(frozen=True)
class FileColumns:
    """Columns of training files that are not features. Later files may have them or not."""

    label: str | None = None
    ids: tuple[str, ...] = ()
    """Columns that identify rows; they are copied to the scores."""
    dropped: tuple[str, ...] = ()
    dialect: Dialect = Dialect()  # noqa: RUF009 - frozen
    """How the training file was written; later files are read in the same way."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.ids, *self.dropped, *(() if self.label is None else (self.label,)))


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file."""

    first: int
    """Number of the first row."""
    table: Any
    """Arrow table with all columns the schema was fitted on, under its names."""
    labels: Any
    """Label column as strings, if one was asked for."""
    ids: Any
    """Arrow table with the columns that identify rows, as they are in the file; it may have no columns."""
    share: float
    """Share of the file read so far."""

    @property
    def last(self) -> int:
        """Number of the last row."""
        return self.first + int(self.table.num_rows) - 1


def read_table(
    path: str | Path,
    drop: Sequence[str] = (),
    label: str | None = None,
    strings: Sequence[str] = (),
    dialect: Dialect | None = None,
) -> Any:
    """Read a whole file as an Arrow table; the types of a CSV file's columns are detected from all their values.

    Args:
        path: CSV or Parquet file.
        drop: Columns to leave out.
        label: A column to read as strings, whatever it looks like.
        strings: Columns of a CSV file to read as strings, as they are written; Parquet files have types of their own.
        dialect: How a CSV file is written.

    Raises:
        InputError: For example, a column of a CSV file is nearly all numbers or dates, and some cells are neither that
            nor a usual word for a missing value.

    Warns:
        UserWarning: A CSV file's columns are not separated by commas; words are read as missing values; columns look
            like numbers, but are read as strings: whole numbers, some with leading zeros.
    """
    return read_training(path, drop, label, strings, dialect)[0]


def read_training(
    path: str | Path,
    drop: Sequence[str] = (),
    label: str | None = None,
    strings: Sequence[str] = (),
    dialect: Dialect | None = None,
) -> tuple[Any, Dialect]:
    """Read a file as :func:`read_table` does; also returns how the file is written, for reading later files."""
    path = Path(path)
    dialect = _with_separator(path, dialect or Dialect())
    names = column_names(path, dialect.separator)
    kept = _without(path, names, drop)
    for name in (*strings, *(() if label is None else (label,))):
        _require(path, name, names)
    if label is not None:
        kept = kept if label in kept else [*kept, label]
    if not kept:
        raise InputError(f"{path}: no column is left; drop fewer")
    text = arrow().string()
    with explained(path, names):
        if is_csv(path):
            known = dict.fromkeys([*strings, *([] if label is None else [label])], text)
            table, dialect = _typed_csv(path, names, kept, known, dialect)
        else:
            table = arrow("parquet").ParquetFile(path).read(columns=kept)
            if label is not None:
                table = table.set_column(table.column_names.index(label), label, table[label].cast(text))
    if not table.num_rows:
        raise InputError(f"{path}: has a header, but no rows")
    return table, dialect


def _typed_csv(
    path: Path, names: list[str], kept: list[str], known: dict[str, Any], dialect: Dialect
) -> tuple[Any, Dialect]:
    """A CSV file with columns of the types of their values, and the dialect with the markers that were found."""
    table = whole_csv(path, kept, known, dialect)
    for field in table.schema:
        if arrow("types").is_binary(field.type):
            raise InputError(f"{path}: {bad_bytes(field.name, table[field.name])}; save the file as UTF-8")
    said, markers = [], set(dialect.markers)
    values = [name for name in names if re.fullmatch(VALUE, name.strip())]
    if values:
        said.append(
            f"{path}: the first line names a column {values[0]!r}; if that is a value and not a name, put a line with "
            "the column names above"
        )
    codes = _codes(path, names, table, dialect)
    if codes:
        known = known | dict.fromkeys(codes, arrow().string())
        table = whole_csv(path, kept, known, dialect)
    for i, field in enumerate(table.schema):
        if field.name not in known and arrow("types").is_string(field.type):
            found = settled(path, field.name, table[field.name], dialect)
            codes += [field.name] if found.is_code else []
            said += [found.said] if found.said else []
            markers |= set(found.markers)
            if found.values is not None:
                table = table.set_column(i, field.name, found.values)
    if codes:
        shown = listed_names(codes)
        said.append(f"{path}: numbers with leading zeros are codes and read as strings, as they are written: {shown}")
    for line in said:
        warnings.warn(line, stacklevel=4)
    return table, replace(dialect, markers=tuple(sorted(markers)))


def batches(
    schema: Schema,
    path: str | Path,
    *,
    drop: Sequence[str] = (),
    label: str | None = None,
    ids: Sequence[str] | None = None,
    known: FileColumns | None = None,
    batch_rows: int = BATCH_ROWS,
    dialect: Dialect | None = None,
) -> Generator[Batch, None, None]:
    """Read a file in batches, each with the columns a schema was fitted on; memory does not grow with the file.

    Args:
        schema: Says which columns there must be, and of which kind.
        path: CSV or Parquet file.
        drop: Columns to ignore. Others that were not there at fit are an error.
        label: A column to return in addition to the table.
        ids: Columns to return unchanged; if not given, the identifier columns of the training file that this one has
            too.
        known: Columns of the training file that are not features: they are ignored if present.
        batch_rows: Rows per batch, at most; fewer where there are many columns.
        dialect: How a CSV file is written; if not given, like the training file.
    """
    path = Path(path)
    if batch_rows < 1:
        raise InputError(f"batch_rows must be at least 1, got {batch_rows}")
    known = known or FileColumns()
    dialect = _with_separator(path, dialect or replace(known.dialect, separator=None), known.dialect.separator)
    names = column_names(path, dialect.separator)
    for name in ids or ():
        _require(path, name, names)
    ids = tuple(name for name in (known.ids if ids is None else dict.fromkeys(ids)) if name in names)
    found = found_columns(schema, path, names, drop, label, {*ids, *known.names})
    return _batches(schema, path, names, found, label, ids, batch_rows, dialect)


def _batches(
    schema: Schema,
    path: Path,
    names: list[str],
    found: dict[str, str],
    label: str | None,
    ids: Sequence[str],
    batch_rows: int,
    dialect: Dialect,
) -> Generator[Batch, None, None]:
    wanted = list(dict.fromkeys([*found.values(), *([label] if label is not None else []), *ids]))
    pa, first, told = arrow(), 1, set[str]()
    batch_rows = min(batch_rows, max(1024, BATCH_VALUES // max(1, len(wanted))))
    for part, share in parts(path, names, wanted, batch_rows, dialect):
        labels = None if label is None else part[label].cast(pa.string())
        if labels is not None and is_csv(path):
            labels = with_missing(labels, dialect.missing)
        columns: list[Any] = []
        for column in schema.columns:
            if column.name not in found:  # left out at fit and absent now: counts as unchanged
                columns.append(np.full(part.num_rows, column.stand_in))
                continue
            values = part[found[column.name]]
            if is_csv(path):
                values = column.from_text(Cells(path, column.name, values, first, dialect, told))
            columns.append(values)
        yield Batch(first, pa.table(columns, names=list(schema.names)), labels, part.select(list(ids)), share)
        first += part.num_rows
    if first == 1:
        raise InputError(f"{path}: has a header, but no rows")


def column_names(path: Path, separator: str | None = None) -> list[str]:
    """Names of a file's columns; an error if the file is not a table."""
    separator = separator or _with_separator(path, Dialect()).separator
    with explained(path):
        if is_csv(path):
            names = csv_header(path, separator or ",")
        else:
            names = list(arrow("parquet").ParquetFile(path).schema_arrow.names)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path}: column names are used more than once: {', '.join(map(repr, twice))}; rename them")
    return names


def _with_separator(path: Path, dialect: Dialect, known: str | None = None) -> Dialect:
    """The dialect with the separator of a file, which is reported if it is not the usual one."""
    if not path.name.lower().endswith(CSV + PARQUET):
        raise InputError(f"{path}: the name must end in {' or '.join(CSV + PARQUET)}")
    if not path.is_file():
        raise InputError(f"{path}: {'is a directory' if path.is_dir() else 'does not exist'}; give a file")
    if not path.stat().st_size:
        raise InputError(f"{path}: is empty")
    if dialect.separator is not None or not is_csv(path):
        return dialect
    with explained(path):
        found = sniffed(path, known)
    if found != (known or ","):
        warnings.warn(
            f"{path}: columns are taken to be separated by {named(found)}; --sep says otherwise", stacklevel=4
        )
    return replace(dialect, separator=found)


# -------------------------------------------------------------------------------------------------------- which columns


def _without(path: Path, names: list[str], drop: Sequence[str]) -> list[str]:
    for name in drop:
        _require(path, name, names)
    return [name for name in names if name not in set(drop)]


def _require(path: Path, name: str, names: list[str]) -> None:
    if name not in names:
        like = _like(name, names)
        hint = "" if like is None else f"did you mean {like!r}? "
        raise InputError(f"{path}: has no column {name!r}; {hint}its columns are {listed_names(names)}")


def found_columns(
    schema: Schema, path: Path, names: list[str], drop: Sequence[str], label: str | None, others: set[str]
) -> dict[str, str]:
    """For each column the schema is read for, the name of the file's column.

    Columns that were left out as constant numbers are read too, if present: other numbers are novelties.

    Args:
        schema: Knows the columns.
        path: The file, for errors.
        names: Its columns.
        drop: Columns to ignore, which must be there.
        label: Column of the labels.
        others: More columns that the schema need not know.
    """
    there = _without(path, names, drop)
    if label is not None:
        _require(path, label, names)
    by_name = schema.source != "array"
    if by_name and label in {column.name for column in schema.kept_columns}:
        raise InputError(f"the detector was fitted with the label {label!r} as a feature; fit it again with --drop")
    known = set(schema.names) if by_name else set[str]()
    there = [name for name in there if name in known or (name != label and name not in others)]
    match = schema.match(there)
    if match.wrong_number:
        raise SchemaError(
            f"{path}: has {len(there)} columns, the detector was fitted on {len(schema.columns)}; "
            "give the same ones in the same order, and leave others out with --drop"
        )
    require_columns(path, match.missing, match.extra)
    read = (column.name for column in schema.columns if column.is_read and column.name in match.places)
    return {name: there[match.places[name]] for name in read if there[match.places[name]] != label}


def require_columns(path: Path, missing: Sequence[str], extra: Sequence[str]) -> None:
    """Refuse a file that lacks columns, or has others, and name those that may be the missing ones misspelt."""
    likes = {name: _like(name, extra) for name in missing[:SHOWN]}
    wrong = []
    if missing:
        wrong.append(f"columns missing: {listed_names(missing)}; add them, or fit again without them")
    if extra:
        wrong.append(f"columns that were not there at fit: {listed_names(extra)}; leave them out with --drop")
    if renames := [f"{like!r} to {name!r}" for name, like in likes.items() if like is not None]:
        wrong.append(f"if they are the same, rename {', '.join(renames)}")
    if wrong:
        raise SchemaError(f"{path}: {'; '.join(wrong)}")


def _like(name: str, names: Sequence[str]) -> str | None:
    """The one of some names that is most like a name, if any is."""
    small = {other.casefold(): other for other in names}
    near = difflib.get_close_matches(name.casefold(), small, n=1, cutoff=ALIKE)
    return small[near[0]] if near else None


def listed_names(names: Sequence[str]) -> str:
    """The first names, for a message."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


# -------------------------------------------------------------------------------------------------------------- reading


def _codes(path: Path, names: list[str], table: Any, dialect: Dialect) -> list[str]:
    """Columns that were read as numbers, but are codes: only digits, some with a leading zero.

    Raises:
        InputError: A column of whole numbers holds one like 0x10, which Arrow reads as 16.
    """
    types, pc = arrow("types"), arrow("compute")
    digits = [f.name for f in table.schema if types.is_integer(f.type) or types.is_floating(f.type)]
    whole = [f.name for f in table.schema if types.is_integer(f.type)]
    led, first = set[str](), 1
    read = parts(path, names, digits, BATCH_ROWS, dialect) if digits else iter(())
    for part, _ in read:
        texts = {n: pc.utf8_trim_whitespace(with_missing(part[n], dialect.missing)) for n in {*digits, *whole}}
        for name in whole:
            _require_decimal(path, name, texts[name], first)
        first += part.num_rows
        digits = [n for n in digits if pc.all(pc.match_substring_regex(texts[n], "^[0-9]+$")).as_py() is not False]
        led |= {n for n in digits if pc.any(pc.match_substring_regex(texts[n], "^0[0-9]")).as_py()}
        if not digits and not whole:
            break
    return [name for name in digits if name in led]


def _require_decimal(path: Path, name: str, text: Any, first: int) -> None:
    odd = arrow("compute").match_substring(text, "x", ignore_case=True)
    if arrow("compute").any(odd).as_py():
        raise InputError(
            f"{path}: column {name!r} has numbers, and some that are not written in decimals: "
            f"{listed(odd, text, first)}; write them in decimals, or give --categorical {name} if all are names"
        )
