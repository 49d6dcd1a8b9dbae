"""The steps of a fit, each of which passes its result on: split, encode, train, calibrate, threshold.

:class:`nrf.detect.NRFDetector` calls them in this order and holds what comes out, a :class:`~nrf.detect.fitted.Fitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.detect.calibration import FALSE_ALARM_RATE, SMALLEST_SPLIT, CalibratedOn, rows_to_hold_out
from nrf.detect.checkup import check_field, check_training
from nrf.detect.defaults import ColumnField, field_spec, spacing_of, spec_for
from nrf.detect.fit_progress import FitProgress
from nrf.detect.fitted import Calibrated, Combine, Fitted, Own, Provenance, calibrate
from nrf.detect.parallel import one_thread
from nrf.detect.replicas import Replicas, train_replicas
from nrf.detect.rows import RowReader
from nrf.detect.settings import Training
from nrf.detect.settling import PATIENCE, Judge, Parts
from nrf.detect.tables.frame import taken
from nrf.detect.windows import Layout, Windows
from nrf.errors import InputError
from nrf.runs.spec import PairSpec
from nrf.training import Trainer

FieldKind = ColumnField | Literal["inclusive"]
Places = NDArray[np.intp]
Watch = Callable[[Fitted, dict[str, float]], bool]
"""Called with the model as it is, and a line of metrics; returning True ends training."""
Change = Callable[[PairSpec], PairSpec]
"""A change of a spec."""


def split_rows(
    X: Any, seed: int, fraction: float | None, rate: float | None, step: Any = None
) -> tuple[Places, Places]:
    """Which rows are trained on, and which are held out to calibrate on.

    Args:
        X: Checked rows.
        seed: Seed of the split.
        fraction: Fraction of the rows to hold out, if given.
        rate: False-alarm rate that the held-out rows should keep, if any.
        step: The feature step: with windows, blocks of time are held out, since rows held out at random would be in
            windows that are trained on.
    """
    n_rows = len(X)
    if not n_rows and getattr(X, "ndim", 2) == 4:
        raise InputError("there are no images; give at least 2")
    if n_rows < 2:
        raise InputError(f"training needs at least 2 rows, got n_samples={n_rows}")
    n_held = rows_to_hold_out(n_rows, fraction, rate)
    if isinstance(step, Windows):
        return step.split(X, n_held, seed)
    order = np.random.RandomState(seed).permutation(n_rows)
    return order[n_held:], order[:n_held]


@dataclass(frozen=True)
class EncodedRows:
    """Rows as numbers, and the seed of each model that is trained on them."""

    learned: Tensor
    """Training rows."""
    seen: Tensor
    """What the networks see of them: without novelties, and with noise on discrete columns."""
    held: Tensor
    """Held-out rows."""
    seeds: tuple[int, ...]


def encode_rows(
    reader: RowReader,
    X: Any,
    learned: Places,
    held: Places,
    state: np.random.RandomState,
    n_estimators: int,
    *,
    jitter: bool = True,
) -> EncodedRows:
    """Encode rows for training.

    Args:
        reader: What was learned about training rows.
        X: Checked rows.
        learned: Which rows are trained on.
        held: Which rows are held out.
        state: Draws the seeds, then the noise.
        n_estimators: How many models there will be.
        jitter: Whether discrete columns get noise.
    """
    rows = reader.read(taken(X, learned))
    seeds = tuple(int(s) for s in state.randint(0, 2**31 - 1, size=n_estimators))
    seen = rows
    if reader.encoder is not None:
        seen = rows[:, reader.encoder.learned]
        if jitter:
            noise = state.standard_normal(size=tuple(seen.shape)).astype(np.float32) * reader.encoder.jitter()
            seen = seen + torch.from_numpy(noise).to(rows.device)
    return EncodedRows(rows, seen, reader.read(taken(X, held)) if len(held) else rows[:0], seeds)


def calibration_part(rows: EncodedRows, before: Calibrated | None) -> tuple[Tensor, CalibratedOn]:
    """Rows to calibrate on: held-out ones, with those of earlier calls; training rows only where there are none.

    Args:
        rows: Rows of this fit.
        before: Calibration of the fit that this one adds rows to, if any.
    """
    held = rows.held
    if before is None:
        return (held, "held-out rows") if len(held) else (rows.learned, "training rows")
    if not len(held):
        if before.rows is None:
            raise InputError(
                f"with fewer than {SMALLEST_SPLIT} rows none is held out, and this detector was saved without its "
                "calibration rows: nothing is left to calibrate on. Give more rows, or fit it with "
                "keep_examples=True before it is saved"
            )
        return before.rows, before.on
    if before.rows is not None and before.on != "training rows":
        held = torch.cat([before.rows, held])
    return held, "held-out rows"


def calibration_layout(reader: RowReader, X: Any, learned: Places, held: Places) -> Layout | None:
    """For a detector of windows, which rows are in the calibration windows; None for any other."""
    if not isinstance(reader.features, Windows):
        return None
    return reader.layout(taken(X, held if len(held) else learned))


@dataclass(frozen=True)
class Job:
    """The input of training beside its settings, and what is needed to make a :class:`Fitted` of its networks."""

    reader: RowReader
    rows: EncodedRows
    calibration: tuple[Tensor, CalibratedOn]
    """Encoded rows to calibrate on, and which rows they are."""
    calibration_layout: Layout | None
    """For a detector of windows: which rows are in them."""
    threshold: tuple[float | None, float | None]
    """False-alarm rate or contamination, of which one is None."""
    X: Any
    """Checked rows, a share of which a threshold by contamination flags."""
    combine: Combine
    own: Own
    before: Replicas | None
    """Networks to continue from."""
    add: bool
    """Whether the rows are added to those of the previous fit."""
    n_features_in: int
    feature_names_in: tuple[str, ...] | None
    provenance: Provenance

    def build(self, spec: PairSpec, rows: Tensor | None = None) -> Replicas:
        """Networks before training, started from these rows or from all."""
        rows = self.rows.seen if rows is None else rows
        return Replicas.of(spec, rows, self.rows.seeds, *self.own, self.reader.novelty_columns)

    def fitted(
        self,
        replicas: Replicas,
        spec: PairSpec,
        n_iter: int,
        history: list[dict[str, float]],
        progress: FitProgress | None = None,
    ) -> Fitted:
        """The record of trained networks, with the ranges they know, their calibration and the threshold."""
        if self.reader.novelty_columns:
            replicas.know(self.rows.learned, self.before)
        if progress is not None:
            progress.reach("calibration")
        calibrated = calibrate(replicas, self.reader, self.combine, *self.calibration, layout=self.calibration_layout)
        rate, contamination = self.threshold
        found = Fitted(
            reader=self.reader,
            replicas=replicas,
            spec=spec,
            combine=self.combine,
            calibrated=calibrated,
            rule=calibrated.rule(FALSE_ALARM_RATE if rate is None else rate),
            n_features_in=self.n_features_in,
            feature_names_in=self.feature_names_in,
            own=self.own,
            n_iter=n_iter,
            history=tuple(history),
            provenance=self.provenance,
        )
        return found if contamination is None else found.with_share(contamination, self.X)


def train(
    job: Job,
    field: FieldKind,
    training: Training,
    max_iter: int | None,
    *,
    verbose: int | None = None,
    watch: Watch | None = None,
    change: Change | None = None,
    progress: FitProgress,
) -> Fitted:
    """Train, in several attempts if need be, and make the record of it.

    Args:
        job: What to train on.
        field: Which field.
        training: Settings that differ from the defaults.
        max_iter: Length of training; if None, chosen by the field and the number of rows.
        verbose: As for :class:`nrf.detect.NRFDetector`.
        watch: Called about once per epoch.
        change: Changes the default spec of a field of columns before anything is built; if not given, it stays.
        progress: Shows which stage is reached; training a network has a progress line of its own.
    """
    # A field of columns needs many small matrix products: a second thread costs more than it gains.
    with nullcontext() if field == "inclusive" else one_thread():
        return _trained(job, field, training.given() | {"iterations": max_iter}, verbose, watch, change, progress)


def _trained(
    job: Job,
    field: FieldKind,
    changes: dict[str, Any],
    verbose: int | None,
    watch: Watch | None,
    change: Change | None,
    progress: FitProgress,
) -> Fitted:
    seen = job.rows.seen
    if field == "inclusive":
        if changes["iterations"] == 0:
            raise InputError("max_iter must be a whole number from 1 on in an inclusive field, which is learned; got 0")
        spec = spec_for(len(seen), tuple(seen.shape[1:]), changes, spacing_of(seen))
        attempts: _Attempts = _Attempts(job, watch, progress)
    else:
        attempts = _Judged(job, watch, progress)
        columns = len(job.reader.groups or ())
        spec = field_spec(field, len(attempts.data), columns, changes, job.reader.units, job.reader.pairs)
        spec = spec if change is None else change(spec)
    warned = list[str]()
    if spec.train.iterations != 0:
        progress.leave()
    progress.reach("density")
    trained = train_replicas(
        spec,
        attempts.data,
        job.rows.seeds,
        attempts.build,
        verbose=verbose,
        on_log=attempts.on_log,
        warn=warned.append,
    )
    attempts.end()
    progress.reach("ranges")
    fitted = job.fitted(trained.replicas, trained.spec, trained.n_iter, attempts.history, progress)
    progress.reach("health")
    health = attempts.health(fitted, warned.append)
    return replace(fitted, health=health, warnings=tuple(warned))


class _Attempts:
    """The attempts of a training, one after the other: their networks, and the metrics of the last one."""

    def __init__(self, job: Job, watch: Watch | None, progress: FitProgress) -> None:
        self.job, self.watch, self.progress = job, watch, progress
        self.data = job.rows.seen
        self.history: list[dict[str, float]] = []

    def build(self, spec: PairSpec) -> Replicas:
        """The networks of a new attempt."""
        self.history = []
        self.spec, self.replicas = spec, self.job.build(spec, self.data)
        if self.job.before is not None:
            self.replicas.go_on_from(self.job.before)
        return self.replicas

    def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> bool:
        """Keep a line of metrics, and show the model as it is to whoever watches."""
        numbers = {name: float(value) for name, value in row.items()}
        self.history.append(numbers)
        if self.watch is None:
            return False
        self.replicas.take_averages(trainer)
        return self.watch(self.job.fitted(self.replicas, self.spec, trainer.step, self.history), numbers)

    def end(self) -> None:
        """After the last attempt."""

    def health(self, fitted: Fitted, warn: Callable[[str], None]) -> dict[str, float] | None:
        """Checks of the training."""

        def untrained() -> Replicas:
            replicas = self.job.build(fitted.spec)
            if self.job.reader.novelty_columns:
                replicas.know(self.job.rows.learned)
            return replicas

        rows, groups = self.job.rows.held, self.job.reader.groups
        return check_training(fitted.replicas, untrained, rows, groups=groups, warn=warn)


class _Judged(_Attempts):
    """Attempts of a density that held-out rows judge: training ends when it gains nothing more."""

    judge: Judge

    def __init__(self, job: Job, watch: Watch | None, progress: FitProgress) -> None:
        super().__init__(job, watch, progress)
        rows, units = job.rows.seen, job.reader.units
        rows = rows * rows.new_tensor(units) if units else rows
        self.parts = Parts.of(rows, job.rows.seeds[0], job.before if job.add else None)
        self.data = self.parts.learned

    def build(self, spec: PairSpec) -> Replicas:
        replicas = super().build(spec)
        self.progress.reach("neighbours")
        self.judge = Judge(replicas, spec, self.parts, self.job.rows.seeds)
        return replicas

    def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> bool:
        self.replicas.take_averages(trainer)
        found = self.judge.look(trainer.step)
        if self.watch is not None:
            self.judge.settle(best=False)
        stop = super().on_log(trainer, {**row, **found})
        return stop or trainer.step - self.judge.best_step >= PATIENCE * trainer.config.log_every

    def end(self) -> None:
        self.choices = self.judge.settle(best=True)

    def health(self, fitted: Fitted, warn: Callable[[str], None]) -> dict[str, float] | None:
        rows, groups = self.job.rows.held, self.job.reader.groups
        return check_field(fitted.replicas, self.choices, rows, groups=groups, n_iter=fitted.n_iter, warn=warn)
