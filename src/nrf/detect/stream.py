"""Scoring files larger than memory: read in batches, scored, written in the order of the input."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.calibration import warn_if_too_few
from nrf.detect.encoder import TableEncoder
from nrf.detect.files import BATCH_ROWS, Batch, batches, read_table
from nrf.detect.texts import arrow
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

__all__ = ["StreamSummary", "read_table", "score_batch", "score_stream", "table_encoder"]

Floats = NDArray[np.float64]
OnBatch = Callable[[int, float], object]
OUTPUTS = (".csv", ".parquet")


@dataclass(frozen=True)
class StreamSummary:
    """What became of a file."""

    rows: int
    anomalies: int
    lowest: float
    """Least score."""
    highest: float
    """Greatest score."""
    p_cutoff: float | None
    """With a false discovery rate, the p-value up to which rows are flagged; 0 if none is."""


def score_stream(
    detector: NRFDetector,
    source: str | Path,
    out: str | Path,
    *,
    drop: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
    fdr: float | None = None,
    on_batch: OnBatch | None = None,
) -> StreamSummary:
    """Score a file of any length in constant memory.

    The output has the columns ``row`` (from 1), ``score`` (high = normal), ``p_value`` and ``anomaly`` (0 or 1). It
    appears when it is whole: an error leaves what was there before.

    Args:
        detector: A fitted detector of tables.
        source: CSV or Parquet file with the columns of the training table, in any order.
        out: Where to write, ``.csv`` or ``.parquet``.
        drop: Columns of the source to pass over.
        batch_rows: Rows a batch.
        fdr: Flag rows by Benjamini–Hochberg over the whole file, so that of the flagged ones at most this share is
            expected to be normal; by the detector's threshold if not given.
        on_batch: Called after each batch with the number of rows and the share of the file done.
    """
    source, out = Path(source), Path(out)
    encoder = table_encoder(detector)
    _check_places(source, out)
    if fdr is not None:
        if not 0 < fdr < 1:
            raise InputError(f"the false discovery rate must lie between 0 and 1, got {fdr}")
        warn_if_too_few(len(detector.calibration_.scores), fdr)
    parts = batches(encoder, source, drop=drop, batch_rows=batch_rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    tally = _Tally(len(detector.calibration_.scores))
    with (
        _replaced(out) as partial,
        _writer(partial, out.suffix) as write,
        tempfile.TemporaryFile(dir=out.parent) as kept,
    ):
        for batch in parts:
            scores = score_batch(detector, batch)
            p_values = detector.calibration_.p_values(scores)
            tally.add(scores, p_values)
            if fdr is None:
                write(batch.first, scores, p_values, scores < detector.offset_)
            else:
                kept.write(scores.tobytes())
            if on_batch is not None:
                on_batch(batch.last, batch.share)
        if fdr is not None:
            cutoff = tally.cutoff(fdr)
            kept.seek(0)
            for first in range(1, tally.rows + 1, BATCH_ROWS):
                scores = np.frombuffer(kept.read(8 * BATCH_ROWS), dtype=np.float64)
                p_values = detector.calibration_.p_values(scores)
                write(first, scores, p_values, p_values <= cutoff)
    return StreamSummary(tally.rows, write.flagged, tally.lowest, tally.highest, None if fdr is None else cutoff)


def score_batch(detector: NRFDetector, batch: Batch) -> Floats:
    """Scores of some rows of a file; what is wrong with them is said with their numbers."""
    with warnings.catch_warnings():
        # A detector that was fitted without names finds a file's columns by their places.
        warnings.filterwarnings("ignore", message="X has feature names")
        try:
            return detector.score_samples(batch.table)
        except InputError as error:
            raise type(error)(f"rows {batch.first} to {batch.last}: {error}") from error


def table_encoder(detector: NRFDetector) -> TableEncoder:
    """The encoder of a fitted detector of tables."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(detector)
    if detector.encoder_ is None or detector.pixels_ is not None:
        raise InputError("this detector is one of images, which CSV and Parquet files do not hold")
    if detector.features_ is not None:
        raise InputError("this detector makes columns of its own of the rows (features=): score them from Python")
    return detector.encoder_


class _Tally:
    """What is counted on the way. A p-value is k/(n + 1), so a count for each k is all Benjamini–Hochberg needs."""

    def __init__(self, n_calibration: int) -> None:
        self.counts = np.zeros(n_calibration + 2, dtype=np.int64)
        self.lowest, self.highest = np.inf, -np.inf

    @property
    def rows(self) -> int:
        """Rows so far."""
        return int(self.counts.sum())

    def add(self, scores: Floats, p_values: Floats) -> None:
        """Count a batch in."""
        places = np.rint(p_values * (len(self.counts) - 1)).astype(np.int64)
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.lowest = min(self.lowest, float(scores.min()))
        self.highest = max(self.highest, float(scores.max()))

    def cutoff(self, rate: float) -> float:
        """The p-value up to which rows are flagged, as :func:`nrf.detect.false_discoveries` does; 0 if none is."""
        seen = np.flatnonzero(self.counts)
        p_values = seen / (len(self.counts) - 1)
        passing = p_values <= rate * self.counts.cumsum()[seen] / self.rows
        return float(p_values[passing][-1]) if passing.any() else 0.0


class _Writer:
    """Appends rows to a CSV or Parquet file."""

    columns = ("row", "score", "p_value", "anomaly")

    def __init__(self, append: Callable[[Any], object]) -> None:
        self._append, self.flagged = append, 0

    def __call__(self, first: int, scores: Floats, p_values: Floats, flagged: NDArray[np.bool_]) -> None:
        rows = np.arange(first, first + len(scores))
        values = (rows, scores, p_values, flagged.astype(np.int8))
        self._append(arrow().table(dict(zip(self.columns, values, strict=True))))
        self.flagged += int(flagged.sum())


@contextmanager
def _writer(path: Path, suffix: str) -> Iterator[_Writer]:
    pa, csv = arrow(), arrow("csv")
    if suffix == ".csv":
        with path.open("wb") as file:
            file.write(",".join(_Writer.columns).encode() + b"\n")
            options = csv.WriteOptions(include_header=False)
            yield _Writer(lambda table: csv.write_csv(table, file, options))
        return
    types = (pa.int64(), pa.float64(), pa.float64(), pa.int8())
    schema = pa.schema(list(zip(_Writer.columns, types, strict=True)))
    with arrow("parquet").ParquetWriter(path, schema) as parquet:
        yield _Writer(parquet.write_table)


def _check_places(source: Path, out: Path) -> None:
    if out.suffix not in OUTPUTS:
        raise InputError(f"{out}: the name must end in {' or '.join(OUTPUTS)}")
    if out.is_dir():
        raise InputError(f"{out}: is a directory; give a file")
    if out.exists() and source.exists() and os.path.samefile(source, out):
        raise InputError(f"{out}: is the input; write the scores to another file")


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file beside the path, which takes its place if all went well."""
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
