"""Scoring files larger than memory: read in batches, scored, written in the order of the input."""

from __future__ import annotations

import csv
import heapq
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nrf.detect.calibration import warn_if_too_few
from nrf.detect.tables.dialect import Dialect
from nrf.detect.tables.files import Batch, read_table
from nrf.detect.tables.readers import BATCH_ROWS
from nrf.detect.tables.texts import arrow
from nrf.detect.tables.whole import batches_for, table_schema
from nrf.errors import InputError
from nrf.files import replaced, require_output

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

__all__ = ["Extreme", "StreamSummary", "batches_for", "read_table", "score_batch", "score_stream", "table_schema"]

Floats = NDArray[np.float64]
OnBatch = Callable[[int, float], object]
OUTPUTS = (".csv", ".parquet")
SCORE_COLUMNS = ("row", "score", "p_value", "anomaly")


class Extreme(NamedTuple):
    """One of the rows with the lowest scores."""

    score: float
    row: int
    """From 1."""
    p_value: float
    ids: tuple[Any, ...]
    """Its values in the columns that identify rows."""


@dataclass(frozen=True)
class StreamSummary:
    """Summary of a scored file."""

    rows: int
    anomalies: int
    lowest: float
    """Least score."""
    highest: float
    """Greatest score."""
    p_cutoff: float | None
    """With a false discovery rate, the p-value up to which rows are flagged; 0 if none is flagged."""
    ids: tuple[str, ...]
    """Columns that were copied."""
    top: tuple[Extreme, ...]
    """The most abnormal rows, the lowest score first, as many as were asked for."""
    examples: Any = None
    """Up to five of the rows that the threshold flagged, as an Arrow table, to look into; none with a false discovery
    rate."""


def score_stream(
    detector: NRFDetector,
    source: str | Path,
    out: str | Path,
    *,
    drop: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
    fdr: float | None = None,
    on_batch: OnBatch | None = None,
    ids: Sequence[str] | None = None,
    top: int = 0,
    dialect: Dialect | None = None,
) -> StreamSummary:
    """Score a file of any length in constant memory.

    The output has the columns ``row`` (from 1), ``score`` (high = normal), ``p_value`` and ``anomaly`` (0 or 1), and
    before them the columns that identify rows (``id_row`` if one of them is called ``row``). It appears only when it is
    complete: after an error, the former file stays. A symbolic link is replaced, not its target. A detector of windows
    reads the whole file at once; rows in no window have neither score nor p-value.

    Args:
        detector: A fitted detector of tables.
        source: CSV or Parquet file with the columns of the training table, in any order. Columns of the training file
            that were not features, such as the label, may be present or not.
        out: Where to write, ``.csv`` or ``.parquet``.
        drop: Columns of the source to ignore.
        batch_rows: Rows per batch, at most; fewer where there are many columns.
        fdr: Flag rows by Benjamini–Hochberg over the whole file, so that of the flagged ones at most this share is
            expected to be normal; by the detector's threshold if not given.
        on_batch: Called after each batch with the number of rows and the share of the file done.
        ids: Columns to copy from the source unchanged; if not given, the identifier columns of the training file.
        top: Number of the most abnormal rows to return.
        dialect: How a CSV file is written; if not given, like the training file.
    """
    source, out = Path(source), Path(out)
    table_schema(detector)
    _check_places(source, out)
    if fdr is not None:
        if not 0 < fdr < 1:
            raise InputError(f"the false discovery rate must lie between 0 and 1, got {fdr}")
        warn_if_too_few(len(detector.calibration_.scores), fdr)
    if top < 0:
        raise InputError(f"top must be 0 or more, got {top}")
    parts = batches_for(detector, source, drop=drop, ids=ids, batch_rows=batch_rows, dialect=dialect)
    tally, lowest, examples = _Tally(len(detector.calibration_.scores)), _Lowest(top), None
    with (
        closing(parts),
        replaced(out) as partial,
        _Writer(partial, out.suffix) as write,
        tempfile.TemporaryFile(dir=out.parent) as file,
        _Kept(file) as kept,
    ):
        for batch in parts:
            scores = score_batch(detector, batch)
            p_values = detector.calibration_.p_values(scores)
            tally.add(scores, p_values)
            lowest.add(batch, scores, p_values)
            if fdr is None:
                flagged = scores < detector.offset_
                write(batch.first, batch.ids, scores, p_values, flagged)
                if examples is None and flagged.any():
                    examples = batch.table.take(_spread(np.flatnonzero(flagged)))
            else:
                kept.add(batch.ids, scores)
            if on_batch is not None:
                on_batch(batch.last, batch.share)
        if fdr is not None:
            cutoff, first = tally.cutoff(fdr), 1
            for names, scores in kept.again():
                p_values = detector.calibration_.p_values(scores)
                write(first, names, scores, p_values, p_values <= cutoff)
                first += len(scores)
    return StreamSummary(
        tally.rows,
        write.flagged,
        tally.lowest,
        tally.highest,
        None if fdr is None else cutoff,
        tuple(batch.ids.column_names),
        tuple(lowest.rows),
        examples,
    )


def _spread(places: NDArray[np.intp], count: int = 5) -> NDArray[np.intp]:
    """A few of the places, from the first to the last."""
    chosen: NDArray[np.intp] = places[np.unique(np.linspace(0, len(places) - 1, count).round().astype(int))]
    return chosen


def score_batch(detector: NRFDetector, batch: Batch) -> Floats:
    """Scores of some rows of a file; errors name the row numbers."""
    with warnings.catch_warnings():
        # A detector that was fitted without names finds a file's columns by their places.
        warnings.filterwarnings("ignore", message="X has feature names")
        try:
            return detector.score_samples(batch.table)
        except InputError as error:
            raise type(error)(f"rows {batch.first} to {batch.last}: {error}") from error


class _Tally:
    """Counts during a pass. A p-value is k/(n + 1), so a count for each k is all that Benjamini–Hochberg needs."""

    def __init__(self, n_calibration: int) -> None:
        self.counts = np.zeros(n_calibration + 2, dtype=np.int64)
        self.lowest, self.highest, self.unscored = np.inf, -np.inf, 0

    @property
    def rows(self) -> int:
        """Number of rows so far, including those without a score."""
        return int(self.counts.sum()) + self.unscored

    def add(self, scores: Floats, p_values: Floats) -> None:
        """Count a batch in."""
        scored = ~np.isnan(scores)
        self.unscored += int((~scored).sum())
        scores, p_values = scores[scored], p_values[scored]
        places = np.rint(p_values * (len(self.counts) - 1)).astype(np.int64)
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.lowest = min(self.lowest, float(scores.min()))
        self.highest = max(self.highest, float(scores.max()))

    def cutoff(self, rate: float) -> float:
        """The p-value up to which rows are flagged, as :func:`nrf.detect.false_discoveries` does; 0 if none is."""
        seen = np.flatnonzero(self.counts)
        p_values = seen / (len(self.counts) - 1)
        passing = p_values <= rate * self.counts.cumsum()[seen] / self.counts.sum()
        return float(p_values[passing][-1]) if passing.any() else 0.0


class _Lowest:
    """The rows with the lowest scores so far, in memory that does not grow with the file."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.rows: list[Extreme] = []

    def add(self, batch: Batch, scores: Floats, p_values: Floats) -> None:
        """Look through a batch."""
        if not self._count:
            return
        for i in np.argsort(scores, kind="stable")[: min(self._count, int((~np.isnan(scores)).sum()))].tolist():
            ids = tuple(column[i].as_py() for column in batch.ids.columns)
            self.rows.append(Extreme(float(scores[i]), batch.first + i, float(p_values[i]), ids))
        self.rows = heapq.nsmallest(self._count, self.rows, key=lambda extreme: extreme[:2])


class _Kept:
    """Scores, and the identifiers of their rows, in a file until the cutoff is known."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._stream: Any = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *stop: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, ids: Any, scores: Floats) -> None:
        """Store a batch."""
        table = arrow().table([scores, *ids.columns], names=["", *ids.column_names])
        if self._stream is None:
            self._stream = arrow("ipc").new_stream(self._file, table.schema)
        self._stream.write_table(table)

    def again(self) -> Iterator[tuple[Any, Floats]]:
        """Everything that was stored, part by part."""
        assert self._stream is not None
        self._stream.close()
        self._stream = None
        self._file.seek(0)
        for part in arrow("ipc").open_stream(self._file):
            table = arrow().Table.from_batches([part])
            yield table.remove_column(0), table.column(0).to_numpy()


class _Writer:
    """Appends rows to a CSV or Parquet file. Its columns are known from the first rows."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._path, self._suffix = path, suffix
        self._close: Callable[[], object] | None = None
        self._append: Callable[[Any], object]
        self.flagged = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *stop: object) -> None:
        if self._close is not None:
            self._close()

    def __call__(self, first: int, ids: Any, scores: Floats, p_values: Floats, flagged: NDArray[np.bool_]) -> None:
        rows = np.arange(first, first + len(scores))
        numbers = [arrow().array(values, mask=np.isnan(values)) for values in (scores, p_values)]
        columns = [*ids.columns, rows, *numbers, flagged.astype(np.int8)]
        names = [f"id_{name}" if name in SCORE_COLUMNS else name for name in ids.column_names]
        table = arrow().table(columns, names=[*names, *SCORE_COLUMNS])
        if self._close is None:
            self._open(table.schema)
        self._append(table)
        self.flagged += int(flagged.sum())

    def _open(self, schema: Any) -> None:
        if self._suffix == ".parquet":
            parquet = arrow("parquet").ParquetWriter(self._path, schema)
            self._append, self._close = parquet.write_table, parquet.close
            return
        nested = [field.name for field in schema if arrow("types").is_nested(field.type)]
        if nested:
            raise InputError(f"column {nested[0]!r} holds nested values, which CSV files cannot; write .parquet")
        file, header, write = self._path.open("wb"), io.StringIO(), arrow("csv").write_csv
        self._close = file.close
        csv.writer(header, lineterminator="\n").writerow(schema.names)
        file.write(header.getvalue().encode())
        options = arrow("csv").WriteOptions(include_header=False)
        self._append = lambda table: write(table, file, options)


def _check_places(source: Path, out: Path) -> None:
    require_output(out, *OUTPUTS)
    if out.exists() and source.exists() and os.path.samefile(source, out):
        raise InputError(f"{out}: is the input; write the scores to another file")
