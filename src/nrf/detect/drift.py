"""`DriftMonitor`: reports when the rows of a stream no longer resemble those that a detector was calibrated on.

The promise: a stream that does not change raises an alarm, however long it is, with probability ``level`` at most. The
monitor also reports which columns have moved, within the same promise. docs/drift.md explains it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from nrf.detect.evidence import Bets, Floats, OnlineRanks
from nrf.detect.fitted import Fitted, FittedAttributes, fitted_of, opened
from nrf.detect.tables.schema import UNEXPECTED
from nrf.detect.windows import Windows
from nrf.errors import InputError
from nrf.files import read_json, require_output, write_atomically
from nrf.seeds import derive

Reference = Literal["calibration", "stream"]
FORMAT, VERSION = "nrf-drift", 1
BURN_IN = 128
"""Number of rows of the stream that serve as a reference if there is no other; nothing is bet on them."""
MOST_POINTS = 500
"""Maximum number of points of the history."""
ROUNDINGS = 4.0
"""Scores closer than this many times the rounding of the detector may count as equal."""
LARGEST = 300.0
"""Evidence is shown up to 10 to this power."""
FRESH = "start again, without --resume or with a new DriftMonitor"


@dataclass(frozen=True)
class SeriesDrift:
    """The evidence in the score, or in one column."""

    name: str
    log10_e: float
    """Logarithm of the evidence now, times its share of the level: an alarm is raised where it reaches 1/level."""
    log10_peak: float
    """The largest so far."""
    alarm_row: int | None = None
    """The row at which it first reached 1/level, counted from 1."""
    alarm_time: str | None = None
    """When that row was seen, in UTC."""

    @property
    def alarm(self) -> bool:
        """Whether it ever reached 1/level."""
        return self.alarm_row is not None


@dataclass(frozen=True)
class DriftState:
    """What a monitor has found so far."""

    n: int
    """Rows seen."""
    level: float
    """Probability of any alarm, ever, while nothing changes: at most this."""
    score: SeriesDrift
    columns: tuple[SeriesDrift, ...]
    waiting: int
    """Rows that are still needed before columns can be compared (or scores, where the stream is their reference)."""
    history: tuple[tuple[int, float], ...]
    """Numbers of rows and :attr:`log10_e` at those rows, a few hundred of them."""
    column_history: tuple[tuple[float, ...], ...] = ()
    """At the same rows: the evidence of the score, then that of each column."""

    @property
    def series(self) -> tuple[SeriesDrift, ...]:
        """The score, and the columns."""
        return (self.score, *self.columns)

    @property
    def log10_e(self) -> float:
        """The largest evidence now."""
        return max(s.log10_e for s in self.series)

    @property
    def log10_peak(self) -> float:
        """The largest evidence so far."""
        return max(s.log10_peak for s in self.series)

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised; it stays."""
        return any(s.alarm for s in self.series)

    @property
    def moved(self) -> tuple[str, ...]:
        """Columns with an alarm."""
        return tuple(column.name for column in self.columns if column.alarm)


class DriftMonitor:
    """Watches a stream of rows for a change, with a false-alarm promise that holds at any time.

    The score of each row is ranked among the calibration scores and all scores before it, and so is its value in each
    column; the monitor bets on the ranks (:mod:`nrf.detect.evidence`). While rows are exchangeable with the calibration
    rows, the probability that the evidence ever reaches 1/level is at most ``level``, for the score and all columns
    together: the score has half of the level, the columns share the other half.

    Columns are compared with the calibration rows if the detector keeps them (``keep_examples=True``), else with the
    first 128 rows of the stream.

    Args:
        detector: A fitted detector.
        level: Probability of a false alarm, at any time.
        columns: Whether to watch the columns too, or which ones; images have none. There is also a column
            ``(unexpected)``: values that are missing or differ where they never did in training.
        reference: What the first scores are compared with. With ``stream`` it is the first 128 rows of the stream: for
            streams that hold anomalies all the time, which the calibration rows do not. If a detector was calibrated on
            its training rows, since it had no others, it is always the stream.
        seed: Seed of the random numbers that break ties.

    Example:
        >>> from nrf.detect import NRFDetector
        >>> rng = np.random.default_rng(0)
        >>> monitor = DriftMonitor(NRFDetector(random_state=0).fit(rng.normal(size=(600, 2))))
        >>> monitor.update(rng.normal(size=(1000, 2))).alarm
        False
        >>> monitor.update(rng.normal(size=(200, 2)) + [0.0, 1.5]).moved
        ('x1',)
    """

    def __init__(
        self,
        detector: FittedAttributes | Fitted,
        level: float = 0.01,
        columns: bool | Sequence[str] = True,
        *,
        reference: Reference = "calibration",
        seed: int = 0,
    ) -> None:
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, got {level}")
        if reference not in get_args(Reference):
            raise InputError(f"reference must be 'calibration' or 'stream', got {reference!r}")
        fitted = fitted_of(detector)
        if isinstance(fitted.reader.features, Windows):
            raise InputError("rows of a series depend on each other, so there is no promise: fit one without windows")
        self.level, self.reference, self.seed = float(level), reference, int(seed)
        self._detector, self._fitted = detector, fitted
        self._places = _watched(fitted, columns)
        self._lock = threading.Lock()
        self._step = ROUNDINGS * fitted.calibrated.scores.tolerance
        self._n, self._stride = 0, 1
        n_columns = len(self._places)
        shares = [0.5, *[0.5 / n_columns] * n_columns] if n_columns else [1.0]
        self._log_shares = np.log(shares)
        self._now = np.zeros(1 + n_columns)
        """Logarithms of the evidence, before they are multiplied by their shares."""
        self._peaks = np.zeros(1 + n_columns)
        self._alarms: dict[int, tuple[int, str]] = {}
        self._rows: list[int] = []
        self._points: list[list[float]] = []
        scores, seed = self._known_scores(), derive(self.seed, "drift", "score")
        self._watches = [(OnlineRanks(1, seed, scores, BURN_IN), Bets(1))]
        if n_columns:
            values, seed = self._known_values(), derive(self.seed, "drift", "columns")
            self._watches.append((OnlineRanks(n_columns, seed, values, BURN_IN), Bets(n_columns)))

    # ------------------------------------------------------------------------------------------------------- updating

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are watched."""
        return tuple(self._places)

    def update(self, X: Any) -> DriftState:
        """Score the next rows of the stream and update the evidence; how rows are split into calls does not matter."""
        fitted, rows = self._opened(X)
        return self.update_values(fitted.scores(rows), self._values(rows) if self._places else None)

    def update_scores(self, scores: Floats, rows: Any = None) -> DriftState:
        """Update the evidence with rows that were scored already.

        Args:
            scores: Scores of the next rows of the stream, as ``detector.score_samples`` returns them.
            rows: Those rows, as the detector takes them; not needed by a monitor with ``columns=False``.
        """
        if rows is None and self._places:
            raise InputError("this monitor watches columns: give the rows too, or make it with columns=False")
        return self.update_values(scores, self.values(rows) if self._places else None)

    def _opened(self, X: Any) -> tuple[Fitted, Any]:
        fitted, rows = opened(self._detector, X)
        if fitted.calibrated is not self._fitted.calibrated:
            raise InputError("the detector was fitted or calibrated again: make a new DriftMonitor of it")
        return fitted, rows

    def values(self, rows: Any) -> Floats:
        """What is watched in each row: a number for each of :attr:`columns`."""
        return self._values(self._opened(rows)[1])

    def update_values(self, scores: Any, values: Floats | None = None) -> DriftState:
        """:meth:`update_scores` with the result of :meth:`values`, for rows that are used several times."""
        if (values is None) == bool(self._places):
            raise InputError("values of rows are given if and only if the monitor watches columns")
        given: Floats = np.asarray(scores, dtype=np.float64)
        if given.ndim != 1 or (values is not None and len(given) != len(values)):
            n = "n" if values is None else len(values)
            raise InputError(f"give one score for each row, shape ({n},); the scores have the shape {given.shape}")
        if not np.isfinite(given).all():
            raise InputError(f"{int((~np.isfinite(given)).sum())} scores are not finite; leave those rows out")
        with self._lock:
            if len(given):
                looked_at = [self._keys(given)[:, None], *([] if values is None else [values])]
                found = [
                    bets.update(ranks.update(x)) for (ranks, bets), x in zip(self._watches, looked_at, strict=True)
                ]
                self._note(np.concatenate([_padded(log_e, len(given)) for log_e in found], axis=1))
            return self._state()

    def _note(self, log_e: Floats) -> None:
        """Update peaks, alarms and history by the evidence after each row, ``(n, 1 + columns)``."""
        first, self._n, self._now = self._n + 1, self._n + len(log_e), log_e[-1]
        self._peaks = np.maximum(self._peaks, log_e.max(0))
        reached = log_e + self._log_shares >= -math.log(self.level)
        for i in np.flatnonzero(reached.any(0)).tolist():
            if i not in self._alarms:
                self._alarms[i] = first + int(reached[:, i].argmax()), _utc_now()
        while self._n // self._stride > MOST_POINTS:
            self._stride *= 2
        kept = [j for j, row in enumerate(self._rows) if row % self._stride == 0]
        self._rows, self._points = [self._rows[j] for j in kept], [self._points[j] for j in kept]
        for row in range(-(-first // self._stride) * self._stride, self._n + 1, self._stride):
            self._rows.append(row)
            self._points.append(self._shown(log_e[row - first]).round(4).tolist())

    def _shown(self, log_e: Floats) -> Floats:
        """Evidence times its share of the level, as logarithms to base 10."""
        shown: Floats = (log_e + self._log_shares) / math.log(10)
        return shown

    # ---------------------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> DriftState:
        """The state so far."""
        with self._lock:
            return self._state()

    def _state(self) -> DriftState:
        now, peaks = self._shown(self._now).tolist(), self._shown(self._peaks).tolist()
        score, *columns = (
            SeriesDrift(name, now[i], peaks[i], *self._alarms.get(i, (None, None)))
            for i, name in enumerate(("score", *self._places))
        )
        history = tuple((row, max(point)) for row, point in zip(self._rows, self._points, strict=True))
        waiting = max(ranks.waiting for ranks, _ in self._watches)
        return DriftState(self._n, self.level, score, tuple(columns), waiting, history, tuple(map(tuple, self._points)))

    def to_json(self) -> dict[str, Any]:
        """All of the monitor but the detector, ready for :func:`json.dumps`. A monitor read from it continues bit by
        bit as if it had not been stopped. It holds a few hundred scores, and values of each column."""
        with self._lock:
            return {
                "format": FORMAT,
                "version": VERSION,
                "detector": _fingerprint(self._fitted),
                "level": self.level,
                "reference": self.reference,
                "seed": self.seed,
                "columns": list(self._places),
                "n": self._n,
                "now": self._now.tolist(),
                "peaks": self._peaks.tolist(),
                "alarms": [[i, row, time] for i, (row, time) in self._alarms.items()],
                "stride": self._stride,
                "rows": self._rows,
                "points": self._points,
                "watches": [{"ranks": ranks.to_json(), "bets": bets.to_json()} for ranks, bets in self._watches],
                "report": drift_report(self._state()),
            }

    @classmethod
    def from_json(cls, data: Any, detector: FittedAttributes | Fitted) -> Self:
        """The monitor that :meth:`to_json` described, of the same detector."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError(f"not the state of a drift monitor; {FRESH}")
        if data.get("version") != VERSION:
            raise InputError(
                f"the drift monitor has version {data.get('version')!r}, this nrf reads {VERSION}; {FRESH}"
            )
        if data.get("detector") != _fingerprint(fitted_of(detector)):
            raise InputError(f"the drift monitor belongs to another detector, or to another calibration of it; {FRESH}")
        try:
            found = cls(detector, data["level"], data["columns"], reference=data["reference"], seed=data["seed"])
            found._read(data)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"the state of the drift monitor is damaged ({error!r}); {FRESH}") from error
        return found

    def _read(self, data: dict[str, Any]) -> None:
        n_series = 1 + len(self._places)
        self._n, self._stride = int(data["n"]), int(data["stride"])
        self._now, self._peaks = (np.array(data[name], dtype=np.float64).reshape(n_series) for name in ("now", "peaks"))
        self._alarms = {int(i): (int(row), str(time)) for i, row, time in data["alarms"]}
        self._rows = [int(row) for row in data["rows"]]
        self._points = [[float(value) for value in point] for point in data["points"]]
        self._watches = [(OnlineRanks.from_json(w["ranks"]), Bets.from_json(w["bets"])) for w in data["watches"]]
        found = [(ranks.n_series, bets.n_series) for ranks, bets in self._watches]
        expected = [(n, n) for n in (1, len(self._places)) if n]
        widths = {len(point) for point in self._points} | {n_series}
        if found != expected or len(widths) > 1 or len(self._rows) != len(self._points) or self._stride < 1:
            raise ValueError("series that do not belong together")

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a ``.json`` file that only its owner can read."""
        path = Path(path)
        require_output(path, ".json")
        write_atomically(path, (json.dumps(self.to_json(), allow_nan=False) + "\n").encode(), private=True)

    @classmethod
    def load(cls, path: str | Path, detector: FittedAttributes | Fitted) -> Self:
        """Read what :meth:`save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: does not exist; {FRESH}")
        try:
            return cls.from_json(read_json(path, FRESH), detector)
        except InputError as error:
            raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error

    # --------------------------------------------------------------------------------------------- what is looked at

    def _keys(self, scores: Floats) -> Floats:
        """Scores on a grid so coarse that rounding, which differs between machines, does not order equal rows."""
        return np.round(scores / self._step) if self._step > 0 else scores

    def _known_scores(self) -> Floats | None:
        calibrated = self._fitted.calibrated
        if self.reference == "stream" or calibrated.on == "training rows":
            return None
        return self._keys(calibrated.scores.scores)[:, None]

    def _known_values(self) -> Floats | None:
        rows = self._fitted.calibrated.rows
        keeps = getattr(self._detector, "keep_examples", rows is not None)
        if self._known_scores() is None or rows is None or not keeps:
            return None
        return self.values_of(rows.cpu().numpy())

    def _values(self, checked: Any) -> Floats:
        """A number for each watched column and each row."""
        reader = self._fitted.reader
        assert reader.encoder is not None
        return self.values_of(reader.encoder.encode(reader.prepared(checked)))

    def values_of(self, encoded: NDArray[np.float32]) -> Floats:
        """:meth:`values` of rows that were encoded already, as the detector's schema does it."""
        schema = self._fitted.reader.encoder
        assert schema is not None
        found = np.empty((len(encoded), len(self._places)))
        groups = [group for _, group in schema.groups]
        for i, place in enumerate(self._places.values()):
            if place is None:
                found[:, i] = encoded[:, -1]
            else:
                found[:, i] = schema.kept_columns[place].order(encoded[:, groups[place]])
        return found


def drift_report(state: DriftState, model: str | None = None) -> dict[str, Any]:
    """A state in the form of the service's answer at ``/drift``: all numbers are finite.

    ``e_value`` is evidence times its share of the level, up to 1e300: 1/level raises the alarm.

    Args:
        state: State of a monitor.
        model: Name of the model, if the answer is to have one.
    """
    return {
        **({} if model is None else {"model": model}),
        "n": state.n,
        "e_value": _power(state.log10_e),
        "peak": _power(state.log10_peak),
        "alarm": state.alarm,
        "level": state.level,
        "waiting": state.waiting,
        "score": _described(state.score),
        "columns": [_described(column) for column in state.columns],
        "history": [list(point) for point in state.history],
    }


def _described(series: SeriesDrift) -> dict[str, Any]:
    return {
        "name": series.name,
        "e_value": _power(series.log10_e),
        "peak": _power(series.log10_peak),
        "alarm": series.alarm,
        "alarm_row": series.alarm_row,
        "alarm_time": series.alarm_time,
    }


def _power(log10: float) -> float:
    return float(10.0 ** min(log10, LARGEST))


def _watched(fitted: Fitted, columns: bool | Sequence[str]) -> dict[str, int | None]:
    """Places of the watched columns among those with outputs; None for what is unexpected in all of them."""
    schema = fitted.reader.encoder
    if columns is False or (columns is True and schema is None):
        return {}
    if schema is None:
        raise InputError("this detector is for images, which have no columns to watch; give columns=False")
    places: dict[str, int | None] = {column.name: i for i, column in enumerate(schema.kept_columns)}
    places.setdefault(UNEXPECTED, None)
    if columns is True:
        return places
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in places]
    if unknown:
        known = ", ".join(map(repr, places))
        raise InputError(
            f"column {unknown[0]!r} cannot be watched: the detector learned none of that name, but {known}"
        )
    return {name: places[name] for name in names}


def _padded(log_e: Floats, n: int) -> Floats:
    """Evidence of n rows, with zeros for the first ones, on which nothing was bet."""
    return np.concatenate([np.zeros((n - len(log_e), log_e.shape[1])), log_e])


def _fingerprint(fitted: Fitted) -> str:
    """A digest of what a monitor's numbers depend on: the calibration scores, and the columns."""
    names = None if fitted.reader.encoder is None else [column.name for column in fitted.reader.encoder.kept_columns]
    content = fitted.calibrated.scores.scores.tobytes() + json.dumps(names).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _utc_now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
