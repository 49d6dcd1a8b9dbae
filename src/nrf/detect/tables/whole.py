"""Read files for a detector: batch by batch, or whole if it sees windows, which may reach across batches."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nrf.detect.tables.dialect import Dialect
from nrf.detect.tables.files import Batch, batches, column_names, read_training, require_columns
from nrf.detect.tables.readers import BATCH_ROWS
from nrf.detect.tables.schema import Schema
from nrf.detect.windows import Windows
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector


def table_schema(detector: NRFDetector) -> Schema:
    """The schema of a fitted detector of tables."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(detector)
    if detector.encoder_ is None or detector.pixels_ is not None:
        raise InputError("this detector is for images, which CSV and Parquet files do not hold")
    if detector.features_ is not None and not isinstance(detector.features_, Windows):
        raise InputError("this detector turns rows into its own columns (features=): score them from Python")
    return detector.encoder_


def row_schema(detector: NRFDetector) -> Schema:
    """The schema of a detector that sees each row by itself, not windows."""
    schema = table_schema(detector)
    if isinstance(detector.features_, Windows):
        raise InputError(
            "this detector sees windows of rows in the order of time, not single rows: score whole files with "
            "`nrf detect score`, or fit another one without --window"
        )
    return schema


def batches_for(
    detector: NRFDetector,
    path: str | Path,
    *,
    drop: Sequence[str] = (),
    label: str | None = None,
    ids: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    dialect: Dialect | None = None,
) -> Generator[Batch, None, None]:
    """A file in batches with the columns of a detector's training file, as from
    :func:`nrf.detect.tables.files.batches`. For a detector of windows it is one batch, the whole file, which has to fit
    into memory; columns of time and group are then returned with those that identify rows.
    """
    schema, known = table_schema(detector), detector.file_columns_
    if isinstance(detector.features_, Windows):
        dialect = dialect or known.dialect
        return _whole(detector, detector.features_, schema, Path(path), drop, label, ids, dialect)
    return batches(schema, path, drop=drop, label=label, ids=ids, known=known, batch_rows=batch_rows, dialect=dialect)


def _whole(
    detector: NRFDetector,
    windows: Windows,
    schema: Schema,
    path: Path,
    drop: Sequence[str],
    label: str | None,
    ids: Sequence[str] | None,
    dialect: Dialect,
) -> Generator[Batch, None, None]:
    names, known = column_names(path, dialect.separator), detector.file_columns_
    needed = getattr(detector, "feature_names_in_", None)
    if needed is None:
        raise InputError("this detector was fitted to windows of an array; score arrays from Python")
    order = [name for name in (windows.group, windows.time) if isinstance(name, str)]
    copied = [*dict.fromkeys([*(known.ids if ids is None else ids), *order])]
    copied = [name for name in copied if name in names or name in (ids or ())]
    others = {*drop, *copied, *known.names, *([] if label is None else [label])}
    missing = [name for name in needed if name not in names or name in drop]
    extra = [name for name in names if name not in needed and name not in others]
    require_columns(path, missing, extra)
    unread = [name for name in names if name not in {*needed, *copied, label}]
    levels = {column.name for column in schema.columns if column.kind == "categorical"}
    strings = [name for name in windows.columns_ if f"{name}[0]" in levels]
    table, _ = read_training(path, unread, label, strings, dialect)
    labels = None if label is None else table[label]
    yield Batch(1, table.select(list(needed)), labels, table.select(copied), 1.0)
