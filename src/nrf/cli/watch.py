"""`nrf detect watch`: read a stream of rows, from a file or standard input, and report evidence of change."""

from __future__ import annotations

import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nrf.cli.csvs import AS_KNOWN, CsvOptions
from nrf.cli.parsing import Stopped, say
from nrf.cli.show import one_line, print_table, said_warnings
from nrf.errors import InputError
from nrf.files import require_output

if TYPE_CHECKING:
    from nrf.detect import DriftMonitor, DriftState, NRFDetector
    from nrf.detect.tables.dialect import Dialect
    from nrf.detect.tables.files import Batch

ALARM = 3
"""Exit code with --fail if drift was found."""
FILE_ROWS = 8192
"""Maximum number of rows of a file that are processed together."""
SHOWN = 10
"""Maximum number of columns in the summary."""

Model = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
Stream = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STREAM")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COL [COL ...]]")]


def watch(
    model: Model,
    stream: Stream,
    /,
    *,
    level: float | None = None,
    columns: Names = (),
    score_only: bool = False,
    reference: Literal["calibration", "stream"] | None = None,
    seed: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    every: int = 10_000,
    figure: Path | None = None,
    fail: bool = False,
    drop: Names = (),
    device: str = "cpu",
    csv: tyro.conf.OmitArgPrefixes[CsvOptions] = AS_KNOWN,
) -> int:
    """Report when the rows of a stream no longer resemble the calibration rows, and which columns have changed.

    If nothing changes, an alarm is raised, however long the stream, with probability --level at most (docs/drift.md).
    The exit code is 0, with --fail 3 if drift was found, in this call or before.

    Example: nrf detect watch model new.csv --out drift.json --figure drift.png

    Row by row: tail -f -n +1 new.csv | nrf detect watch model - --out drift.json --resume

    Args:
        model: Folder of the detector.
        stream: The next rows: .csv, .csv.gz or .parquet, or - for CSV lines on standard input, with a header.
        level: Probability of a false alarm, at any time; 0.01 if not given.
        columns: Columns to watch in addition to the score; all if not given.
        score_only: Watch the score alone.
        reference: What the first scores are compared with: the calibration rows, or the first rows of the stream, for
            streams that hold anomalies all the time; calibration if not given.
        seed: Seed of the random numbers that break ties; 0 if not given.
        out: Where to keep the state, after every --every rows and at the end: .json.
        resume: Continue from the state in --out, if there is one; all rows of STREAM then count as new.
        every: Rows between two lines that report the evidence.
        figure: Where to draw the evidence: .png.
        fail: End with the exit code 3 if drift was found.
        drop: Columns to leave out.
        device: Where to compute: cpu, cuda, …
        csv: How the stream is written, where it differs from the training file.
    """
    if every < 1:
        raise InputError(f"--every must be at least 1, got {every}")
    if score_only and columns:
        raise InputError("--score-only and --columns exclude each other; give one of them")
    for path, suffix in ((out, ".json"), (figure, ".png")):
        if path is not None:
            require_output(path, suffix)
    if figure is not None:
        import nrf.figures  # noqa: F401 - a missing package is reported now, not after the stream
    from nrf.detect import NRFDetector

    given: dict[str, Any] = {"level": level, "reference": reference, "seed": seed}
    given["columns"] = False if score_only else columns or None
    given = {name: value for name, value in given.items() if value is not None}
    detector = NRFDetector.load(model, device=device)
    monitor = _monitor(detector, given, out, resume)
    state = monitor.state
    dialect = csv.over(detector.file_columns_.dialect)
    try:
        with said_warnings(), closing(_batches(detector, stream, drop, dialect, min(every, FILE_ROWS))) as parts:
            for batch in parts:
                before, state = state, _updated(monitor, detector, batch)
                _say_alarms(before, state)
                if state.n // every > before.n // every:
                    say(_standing(state))
                    if out is not None:
                        monitor.save(out)
    except KeyboardInterrupt as stop:
        if out is None:
            raise
        monitor.save(out)
        raise Stopped(f"stopped; {monitor.state.n} rows are in {out}: --resume goes on with the next ones") from stop
    if out is not None:
        monitor.save(out)
    _summary(state, out)
    if figure is not None:
        _draw(state, figure)
    return ALARM if fail and state.alarm else 0


def _monitor(detector: NRFDetector, given: dict[str, Any], out: Path | None, resume: bool) -> DriftMonitor:
    from nrf.detect import DriftMonitor

    if resume and out is None:
        raise InputError("--resume needs --out, the file with the state to go on from")
    if out is None or not out.exists():
        return DriftMonitor(detector, **given)
    if not resume:
        raise InputError(f"{out} exists; go on from it with --resume, or delete it to start again")
    monitor = DriftMonitor.load(out, detector)
    asked = DriftMonitor(detector, **given)
    for name in given:
        if getattr(monitor, name) != getattr(asked, name):
            option = "--score-only" if given[name] is False else f"--{name}"
            raise InputError(f"{out}: {option} is not that of the state; leave it out, or start again without --resume")
    return monitor


def _batches(detector: NRFDetector, stream: Path, drop: tuple[str, ...], dialect: Dialect, n_rows: int) -> Any:
    from nrf.detect.tables.arriving import line_batches
    from nrf.detect.tables.files import batches
    from nrf.detect.tables.stream import table_schema

    schema, known = table_schema(detector), detector.file_columns_
    if str(stream) == "-":
        return line_batches(schema, sys.stdin.buffer, drop=drop, known=known, dialect=dialect)
    return batches(schema, stream, drop=drop, known=known, batch_rows=n_rows, dialect=dialect)


def _updated(monitor: DriftMonitor, detector: NRFDetector, batch: Batch) -> DriftState:
    from nrf.detect.tables.stream import score_batch

    scores = score_batch(detector, batch)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X has feature names")
        return monitor.update_scores(scores, batch.table if monitor.columns else None)


def _say_alarms(before: DriftState, state: DriftState) -> None:
    """A line for each new alarm, in the order of the rows."""
    named = zip(["the score", *(f"column {one_line(c.name)}" for c in state.columns)], state.series, strict=True)
    new = [(what, now) for (what, now), then in zip(named, before.series, strict=True) if now.alarm and not then.alarm]
    for what, series in sorted(new, key=lambda pair: pair[1].alarm_row or 0):
        say(f"row {series.alarm_row}, {series.alarm_time}: drift in {what}, evidence above {1 / state.level:g}")


def _standing(state: DriftState) -> str:
    return f"rows {state.n}: evidence {_e(state.log10_e)}, largest {_e(state.log10_peak)}"


def _summary(state: DriftState, out: Path | None) -> None:
    say(f"{_standing(state)}, an alarm is raised at {1 / state.level:g}")
    if state.waiting:
        say(f"columns are compared after {state.waiting} more rows")
    rows = [
        (s.name, _e(s.log10_e), _e(s.log10_peak), "" if s.alarm_row is None else f"row {s.alarm_row}")
        for s in (state.score, *_strongest(state, SHOWN))
    ]
    print_table(("watched", "evidence", "largest", "alarm"), rows)
    if out is not None:
        say(f"state: {out}")


def _strongest(state: DriftState, n: int) -> list[Any]:
    return sorted(state.columns, key=lambda column: -column.log10_peak)[:n]


def _e(log10: float) -> str:
    return f"{10**log10:.3g}" if log10 < 6 else f"1e{log10:.0f}"


def _draw(state: DriftState, path: Path) -> None:
    from nrf.figures import evidence, save

    rows = [row for row, _ in state.history]
    names = [s.name for s in state.series]
    shown = [("the score", 0)]
    shown += [(one_line(c.name), 1 + names[1:].index(c.name)) for c in _strongest(state, 5)]
    lines = {name: [point[i] for point in state.column_history] for name, i in shown}
    alarms = [s.alarm_row for s in state.series if s.alarm_row is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    save(evidence(rows, lines, state.level, min(alarms, default=None)), path)
    say(f"figure: {path}")
