"""The result of a fit: a trained detector as one record, which scores rows, and can be explained, saved, exported."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from nrf.detect.calibration import IN_SEQUENCE, CalibratedOn, Calibration, ThresholdRule
from nrf.detect.parallel import in_threads, parts_of
from nrf.detect.pixels import PixelScale
from nrf.detect.replicas import Replicas
from nrf.detect.rows import RowReader, require_finite_rows
from nrf.detect.tables.files import FileColumns
from nrf.detect.tables.schema import Schema
from nrf.detect.windows import How, Layout
from nrf.errors import InputError
from nrf.models import LatentGenerator
from nrf.runs.spec import PairSpec

Floats = NDArray[np.float64]
Combine = Literal["potential", "rank"]
Own = tuple[nn.Module | None, LatentGenerator | None]
"""The user's own potential and generator, if any."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Scores of the calibration rows: normal rows that nothing has learned from."""

    scores: Calibration
    each: tuple[Calibration, ...]
    """The rows' potentials, model by model."""
    on: CalibratedOn
    """Which rows those are."""
    rows: Tensor | None = None
    """The rows, encoded; None in a detector that was saved without them."""

    def rule(self, false_alarm_rate: float) -> ThresholdRule:
        """The threshold that keeps a false-alarm rate."""
        threshold = self.scores.threshold(false_alarm_rate)
        return self._rule("false_alarm_rate", false_alarm_rate, threshold)

    def rule_by_share(self, contamination: float, scores: Floats) -> ThresholdRule:
        """The threshold that flags a share of the rows with these scores."""
        threshold = float(np.percentile(scores, 100 * contamination)) - self.scores.tolerance
        return self._rule("contamination", contamination, threshold)

    def _rule(self, kind: Literal["false_alarm_rate", "contamination"], rate: float, threshold: float) -> ThresholdRule:
        n_rows = len(self.scores.scores)
        return ThresholdRule(kind, float(rate), threshold, n_rows, self.on, self.scores.tolerance)


@dataclass(frozen=True)
class Provenance:
    """Where a fit comes from."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that the fit was made with."""
    split_seed: int = 0
    """Seed of the split into training and calibration rows."""
    file: FileColumns = field(default_factory=FileColumns)
    """Columns of the training file that are not features, and how the file was written."""
    n_rows: int | None = None
    """Number of rows that were given, including those to calibrate on; None in a detector of an earlier version."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Everything that a fit has learned; it no longer depends on the parameters of the detector.

    Its methods take rows that the detector has checked (:func:`nrf.detect.rows.checked`).
    """

    reader: RowReader
    """Turns rows into what the networks take."""
    replicas: Replicas
    """The networks."""
    spec: PairSpec
    """The settings with which the networks were trained in the end."""
    combine: Combine
    calibrated: Calibrated
    rule: ThresholdRule
    """Where the threshold comes from."""
    n_features_in: int
    feature_names_in: tuple[str, ...] | None = None
    own: Own = (None, None)
    """The user's own modules, as they were given."""
    n_iter: int = 0
    """Number of iterations."""
    history: tuple[dict[str, float], ...] = ()
    """Metrics of training, line by line."""
    health: dict[str, float] | None = None
    """What training gained, as :func:`nrf.detect.checkup.check_training` measures it."""
    warnings: tuple[str, ...] = ()
    """Warnings about the training."""
    provenance: Provenance = field(default_factory=Provenance)

    # ------------------------------------------------------------------------------------------------------- scoring

    def potentials(self, X: Any) -> Tensor:
        """The potential of each row under each model, ``(models, rows)``."""
        score = self.replicas.scorer()
        parts = parts_of(self.reader.prepared(X))
        values = torch.cat(in_threads(lambda part: score(self.reader.encoded(part)), parts), 1)
        require_finite_rows(torch.isfinite(values).all(0).cpu().numpy())
        return values

    def log_density(self, X: Any) -> Floats:
        """The log-density of each row, in nats."""
        if not self.replicas.has_density:
            raise InputError("the field of this detector is not normalised; fit with field='product' or 'density'")
        density = self.replicas.log_densities()
        parts = parts_of(self.reader.prepared(X))
        values = torch.cat(in_threads(lambda part: density(self.reader.encoded(part)), parts), 1).double()
        return self.reader.to_rows((torch.logsumexp(values, 0) - math.log(len(values))).cpu().numpy(), X)

    def scores(self, X: Any) -> Floats:
        """The score of each row: high = normal."""
        return self.reader.to_rows(self.combined(self.potentials(X)), X)

    def combined(self, potentials: Tensor) -> Floats:
        """Potentials of all models as one score per row."""
        mean: Floats = scores_by_model(potentials, self.combine, self.calibrated.each).mean(0)
        return mean

    def spread(self, X: Any) -> Floats:
        """Standard deviation of the score over the models."""
        spread: Floats = scores_by_model(self.potentials(X), self.combine, self.calibrated.each).std(0, ddof=1)
        return self.reader.to_rows(spread, X)

    def p_values(self, X: Any) -> Floats:
        """Conformal p-values."""
        return self.calibrated.scores.p_values(self.scores(X))

    # ----------------------------------------------------------------------------------- another threshold, other rows

    def with_rate(self, false_alarm_rate: float) -> Fitted:
        """A copy with the threshold that keeps a false-alarm rate."""
        return replace(self, rule=self.calibrated.rule(false_alarm_rate))

    def with_share(self, contamination: float, X: Any) -> Fitted:
        """A copy with the threshold that flags a share of these rows."""
        return replace(self, rule=self.calibrated.rule_by_share(contamination, self.scores(X)))

    def calibrated_on(self, X: Any) -> Fitted:
        """A copy calibrated on these rows; the threshold moves if it was set by a false-alarm rate."""
        rows = self.reader.read(X)
        calibrated = calibrate(
            self.replicas, self.reader, self.combine, rows, "given rows", layout=self.reader.layout(X)
        )
        found = replace(self, calibrated=calibrated)
        return found.with_rate(self.rule.rate) if self.rule.kind == "false_alarm_rate" else found

    # ------------------------------------------------------------------------------------------------------- copying

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"replicas": self.replicas.packed()}  # normalised layers can be copied by their values only

    def __setstate__(self, state: dict[str, Any]) -> None:
        reader: RowReader = state["reader"]
        potential, generator = state["own"]
        replicas = Replicas.unpacked(
            state["replicas"], state["spec"], potential, generator, reader.novelty_columns, reader.device
        )
        self.__dict__.update(state | {"replicas": replicas})


def scores_by_model(potentials: Tensor, combine: Combine, each: Sequence[Calibration]) -> Floats:
    """The values that are averaged over the models: the potentials ``(models, rows)`` themselves, or their ranks."""
    values: Floats = potentials.double().cpu().numpy()
    if combine == "potential":
        return values
    return np.stack([calibration.ranks(row) for calibration, row in zip(each, values, strict=True)])


def calibrate(
    replicas: Replicas,
    reader: RowReader,
    combine: Combine,
    rows: Tensor,
    on: CalibratedOn,
    *,
    layout: Layout | None = None,
) -> Calibrated:
    """Calibrate on these encoded rows, whose scores count as those of normal rows.

    Args:
        replicas: The networks.
        reader: What the rows were encoded by.
        combine: How the models' potentials are combined into scores.
        rows: Calibration rows.
        on: Which rows they are.
        layout: If these are windows, the rows that they hold: new rows are compared with the scores of those rows.
    """
    values = replicas.potentials(rows)
    sizes = 1.0 if reader.encoder is None else torch.from_numpy(reader.encoder.sizes()).to(rows)
    tolerance = replicas.tolerance(rows, values, sizes)
    if layout is not None:
        return _by_rows(values.double().cpu().numpy(), layout, reader.features.how, tolerance, on)
    each = tuple(Calibration.of(u.cpu().numpy(), tolerance) for u in values)
    scores: Floats = scores_by_model(values, combine, each).mean(0)
    if combine == "rank":  # the change by half of it, up or down
        moved = [scores_by_model(values + part * tolerance, combine, each).mean(0) - scores for part in (-0.5, 0.5)]
        tolerance = float(np.abs(moved).max())
    return Calibrated(Calibration.of(scores, tolerance), each, on, rows)


def _by_rows(potentials: Floats, layout: Layout, how: How, tolerance: float, on: CalibratedOn) -> Calibrated:
    """The calibration of a detector of windows. Windows are not kept: no later fit could know which rows they hold."""

    def calibration(scores: Floats) -> Calibration:
        found = layout.to_rows(scores, how)
        return Calibration.of(found[np.isfinite(found)], tolerance)

    return Calibrated(calibration(potentials.mean(0)), tuple(map(calibration, potentials)), IN_SEQUENCE.get(on, on))


def fitted_of(model: FittedAttributes | Fitted) -> Fitted:
    """The record of a fitted detector; a record is returned as it is."""
    if isinstance(model, Fitted):
        return model
    check_is_fitted(model)
    return model.fitted_


def opened(model: FittedAttributes | Fitted, X: Any) -> tuple[Fitted, Any]:
    """The record of a fitted detector, and the rows as it checks them; with a record, rows must have been checked."""
    return fitted_of(model), X if isinstance(model, Fitted) else model._checked(X)


class FittedAttributes:
    """Fitted attributes of a detector, read from the one record that it holds."""

    fitted_: Fitted

    @abstractmethod
    def _checked(self, X: Any) -> Any:
        """Rows checked against those of the fit; an error if there was no fit."""

    @property
    def threshold_rule_(self) -> ThresholdRule:
        """Where the threshold comes from: its kind, its rate, and the rows that set it."""
        return self.fitted_.rule

    @property
    def offset_(self) -> float:
        """The threshold: rows with a lower score are flagged."""
        return self.fitted_.rule.threshold

    @property
    def calibration_(self) -> Calibration:
        """Scores of the calibration rows."""
        return self.fitted_.calibrated.scores

    @property
    def calibrated_on_(self) -> CalibratedOn:
        """Which rows the calibration rows are."""
        return self.fitted_.calibrated.on

    @property
    def encoder_(self) -> Schema | None:
        """What was learned about the columns; None for images without a feature step."""
        return self.fitted_.reader.encoder

    @property
    def pixels_(self) -> PixelScale | None:
        """The shape and range of images; None for tables."""
        return self.fitted_.reader.pixels

    @property
    def features_(self) -> Any:
        """The fitted feature step, or None."""
        return self.fitted_.reader.features

    @property
    def members_(self) -> Replicas:
        """The trained networks."""
        return self.fitted_.replicas

    @property
    def recipe_(self) -> PairSpec:
        """The settings by which the networks were built and trained."""
        return self.fitted_.spec

    @property
    def n_iter_(self) -> int:
        """Number of iterations of the last fit."""
        return self.fitted_.n_iter

    @property
    def history_(self) -> list[dict[str, float]]:
        """Metrics of the last fit, line by line."""
        return list(self.fitted_.history)

    @property
    def health_(self) -> dict[str, float] | None:
        """Checks of the training that need no labels."""
        return self.fitted_.health

    @property
    def file_columns_(self) -> FileColumns:
        """Columns of the training file that are not features, and how the file was written."""
        return self.fitted_.provenance.file
