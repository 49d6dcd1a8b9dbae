"""Bodies of requests as tables: JSON, CSV, Parquet and Arrow, from memory. Nothing in a request names a file."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from nrf.detect.tables.dialect import sniffed
from nrf.detect.tables.files import FileColumns
from nrf.detect.tables.readers import csv_header, explained
from nrf.detect.tables.schema import Schema
from nrf.detect.tables.texts import Cells, arrow
from nrf.errors import InputError, needs
from nrf.serve.limits import Limits, Refused
from nrf.serve.requested import Given, Plain, arrow_columns, checked_names, given_arrow, given_columns

with needs("serve", "nrf serve"):
    from pydantic_core import from_json

pa, pa_csv, pa_parquet = arrow(), arrow("csv"), arrow("parquet")
JSON, CSV = "application/json", "text/csv"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
KINDS = (JSON, CSV, PARQUET, ARROW)
CSV_BODY, PARQUET_BODY = Path("body.csv"), Path("body.parquet")
"""Names of bodies in error messages; there are no such files."""


@dataclass(frozen=True, eq=False)
class RowsReader:
    """Reads the rows of a body for one model."""

    schema: Schema
    known: FileColumns
    """Columns of the training file that are not features: they are ignored."""

    def read(self, kind: str, body: bytes, limits: Limits) -> Given:
        """Rows that fit the model's columns.

        Args:
            kind: One of :data:`KINDS`.
            body: The whole body.
            limits: Limits of the service.

        Raises:
            Refused: The body cannot be read, is too large, or does not fit.
        """
        if not body:
            raise Refused(400, "the body is empty; send rows")
        if kind == JSON:
            return self._json(body, limits)
        try:
            if kind == CSV:
                return self._csv(body, limits)
            table = _parquet(self, body, limits) if kind == PARQUET else _arrow(body, limits)
        except InputError as error:
            raise Refused(400, str(error)) from error
        return given_arrow(self.schema, self.known.names, table, limits)

    def _json(self, body: bytes, limits: Limits) -> Given:
        names, rows = _names_and_rows(parsed(body))
        limits.check_rows(len(rows))
        frame = None if self._plain is None else self._plain.frame(names, rows)
        if frame is not None:
            return Given(frame, lambda: arrow_columns(self.schema, _by_column(names, rows)))
        return given_columns(self.schema, self.known.names, _by_column(names, rows), len(rows))

    @cached_property
    def _plain(self) -> Plain | None:
        return Plain.of(self.schema)

    def _csv(self, body: bytes, limits: Limits) -> Given:
        dialect = self.known.dialect

        def opened(path: Path) -> IO[str]:
            return io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", "surrogateescape", newline="")

        with explained(CSV_BODY):
            separator = sniffed(CSV_BODY, dialect.separator, opened)
            names = list(checked_names(csv_header(CSV_BODY, separator, opened)))
        if body.count(b'"') % 2:
            raise Refused(400, "a quote is opened and never closed")
        with explained(CSV_BODY, names):
            table = pa_csv.read_csv(
                pa.BufferReader(body),
                read_options=pa_csv.ReadOptions(use_threads=False, block_size=max(1 << 20, len(body) + 1)),
                parse_options=pa_csv.ParseOptions(newlines_in_values=True, delimiter=separator),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            )
        limits.check_rows(table.num_rows)
        wrong: dict[str, str] = {}
        known = {column.name: column for column in self.schema.columns}
        with warnings.catch_warnings():  # what the dialect of the training file reads as missing values
            warnings.simplefilter("ignore", UserWarning)
            for i, name in enumerate(names):
                if name in known and known[name].is_read:
                    cells = Cells(CSV_BODY, name, table[name].combine_chunks(), 1, dialect)
                    try:
                        table = table.set_column(i, name, known[name].from_text(cells))
                    except InputError as error:
                        wrong[name] = _cell_problem(str(error))
        if wrong:
            raise Refused(422, "some cells cannot be read:" + "".join(f"\n- {w}" for w in wrong.values()), wrong)
        return given_arrow(self.schema, self.known.names, table, limits)


# ---------------------------------------------------------------------------------------------------------------- JSON


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON; write null for a missing value")


_decoder = json.JSONDecoder(parse_constant=_no_number)


def parsed(body: bytes) -> Any:
    """A JSON body as Python values.

    Raises:
        Refused: The body is not JSON.
    """
    try:
        return from_json(body, allow_inf_nan=False)  # pydantic's parser takes half the time of Python's
    except ValueError:
        pass  # Python's parser has clear error messages, and takes some bodies that this one does not
    try:
        found = _decoder.decode(body.decode("utf-8-sig"))
        if b"\\ud" in body or b"\\uD" in body:  # half of a surrogate pair is not text
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise Refused(400, f"the body is not UTF-8: {error}; send UTF-8") from error
    except RecursionError as error:
        raise Refused(400, "the body is nested too deeply; rows hold plain values") from error
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    return found


SHAPE = 'send {"rows": [{"column": value, …}, …]}, or {"columns": [name, …], "rows": [[value, …], …]}'


def _names_and_rows(found: Any) -> tuple[list[str] | None, list[Any]]:
    """Names of columns and rows that are all lists, or None and rows that are all objects."""
    if not isinstance(found, dict) or "rows" not in found:
        raise Refused(422, f'the body has no "rows"; {SHAPE}')
    odd = sorted(set(found) - {"rows", "columns"})
    if odd:
        raise Refused(422, f"the body has {odd[0]!r}, which is not known; {SHAPE}")
    rows, names = found["rows"], found.get("columns")
    if not isinstance(rows, list):
        raise Refused(422, f'"rows" is no list; {SHAPE}')
    wanted = dict if names is None else list
    if set(map(type, rows)) - {wanted}:
        raise Refused(422, f"some rows are no {'objects' if names is None else 'lists'}; {SHAPE}")
    if names is None:
        return None, rows
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(422, f'"columns" is no list of names; {SHAPE}')
    return names, rows


def _by_column(names: list[str] | None, rows: list[Any]) -> dict[str, list[Any]]:
    """Values by column."""
    if names is None:
        return _by_name(list(rows[0]), rows)
    checked_names(names)
    _check_widths(names, rows)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _by_name(names: Sequence[str], rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Columns of rows that are objects, all with the same names."""
    try:
        columns = {name: [row[name] for row in rows] for name in names}
    except KeyError as error:
        name = error.args[0]
        at = next(i for i, row in enumerate(rows, start=1) if name not in row)
        problem = f"column {name!r} is in the first row, but not in row {at}; give null where a value is missing"
        raise Refused(422, problem, {name: problem}) from error
    if len(rows) > 1 and set(map(len, rows)) != {len(names)}:
        at, extra = next((i, set(row) - set(names)) for i, row in enumerate(rows, start=1) if len(row) > len(names))
        problem = f"column {min(extra)!r} is in row {at}, but not in the first row; give all rows the same columns"
        raise Refused(422, problem, {min(extra): problem})
    return columns


def _check_widths(names: Sequence[str], rows: list[list[Any]]) -> None:
    if set(map(len, rows)) != {len(names)}:
        at, width = next((i, len(row)) for i, row in enumerate(rows, start=1) if len(row) != len(names))
        raise Refused(422, f"row {at} has {width} values, there are {len(names)} columns")


# ------------------------------------------------------------------------------------------------------- other bodies


def _cell_problem(text: str) -> str:
    """What is wrong with a cell, without the options of the command line."""
    return text.removeprefix(f"{CSV_BODY}: ").partition("; if ")[0] + "; leave the cell empty if it is missing"


def _parquet(reader: RowsReader, body: bytes, limits: Limits) -> Any:
    """The columns that the model reads; the size is known before anything is unpacked."""
    with explained(PARQUET_BODY):
        file = pa_parquet.ParquetFile(pa.BufferReader(body))
        meta, fields = file.metadata, file.schema_arrow
    limits.check_rows(meta.num_rows)
    limits.check_unpacked(sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)))
    checked_names(fields.names)
    nested = [field.name for field in fields if pa.types.is_nested(field.type)]
    if nested:
        problem = f"column {nested[0]!r} holds nested values; give each part a column of its own"
        raise Refused(422, problem, {nested[0]: problem})
    # One long text in many rows takes little memory as long as it stays in a dictionary.
    texts = [f.name for f in fields if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    with explained(PARQUET_BODY):
        file = pa_parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts)
        table = file.read(columns=[n for n in fields.names if n not in reader.known.names], use_threads=False)
        table.validate(full=True)
    return table


def _arrow(body: bytes, limits: Limits) -> Any:
    """A stream of record batches, read in place: neither compressed nor longer than the limit."""
    try:
        _require_plain(body)
        with pa.ipc.open_stream(pa.BufferReader(body)) as stream:
            checked_names(stream.schema.names)
            batches, n_rows = [], 0
            for batch in stream:
                n_rows += batch.num_rows
                if n_rows > limits.max_rows:
                    limits.check_rows(n_rows)
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, IndexError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise Refused(400, f"the body is truncated, damaged or no Arrow stream ({error})") from error


def _require_plain(body: bytes) -> None:
    """Refuse compressed buffers: how large they are is known only when they are unpacked."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(body))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type in ("record batch", "dictionary") and _is_compressed(message.metadata.to_pybytes()):
            raise Refused(422, "the buffers of the Arrow stream are compressed; send them uncompressed")


def _is_compressed(metadata: bytes) -> bool:
    """Whether the header of a message names a codec. It is a flatbuffer: tables with offsets to their fields.

    Of ``Message`` the fields are version, type of header, header; of ``DictionaryBatch`` id and batch; of
    ``RecordBatch`` length, nodes, buffers, compression.
    """

    def number(at: int, width: int) -> int:
        if at < 0 or at + width > len(metadata):
            raise ValueError("the header of a message is damaged")
        return int.from_bytes(metadata[at : at + width], "little", signed=width == 4)

    def field(table: int, index: int) -> int | None:
        names = table - number(table, 4)
        place = 4 + 2 * index
        offset = number(names + place, 2) if place < number(names, 2) else 0
        return table + offset if offset else None

    def inner(table: int, index: int) -> int:
        at = field(table, index)
        if at is None:
            raise ValueError("the header of a message lacks a part")
        return at + number(at, 4)

    message = number(0, 4)
    kind = field(message, 1)
    batch = inner(message, 2)
    if kind is not None and number(kind, 1) == 2:  # a dictionary, which holds a batch
        batch = inner(batch, 1)
    return field(batch, 3) is not None
