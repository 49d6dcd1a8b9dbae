"""What a fit returns: a trained detector as one record. It scores, and is what is explained, saved and exported."""

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
"""Potential and generator of the user's own, where there are any."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Scores of the calibration rows: normal rows that nothing has learned from."""

    scores: Calibration
    each: tuple[Calibration, ...]
    """Their potentials, model by model."""
    on: CalibratedOn
    """Which rows those are."""
    rows: Tensor | None = None
    """The rows, encoded; None in a detector that was saved without them."""

    def rule(self, false_alarm_rate: float) -> ThresholdRule:
        """The threshold that keeps a false-alarm rate."""
        threshold = self.scores.threshold(false_alarm_rate)
        return self._rule("false_alarm_rate", false_alarm_rate, threshold)

    def rule_by_share(self, contamination: float, scores: Floats) -> ThresholdRule:
        """The threshold that flags a share of rows, whose scores these are."""
        threshold = float(np.percentile(scores, 100 * contamination)) - self.scores.tolerance
        return self._rule("contamination", contamination, threshold)

    def _rule(self, kind: Literal["false_alarm_rate", "contamination"], rate: float, threshold: float) -> ThresholdRule:
        n_rows = len(self.scores.scores)
        return ThresholdRule(kind, float(rate), threshold, n_rows, self.on, self.scores.tolerance)


@dataclass(frozen=True)
class Provenance:
    """Where a fit comes from."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the libraries it was made with."""
    split_seed: int = 0
    """Seed of the split into training and calibration rows."""
    file: FileColumns = field(default_factory=FileColumns)
    """Columns of the training file that were no features, and how it was written."""
    n_rows: int | None = None
    """Rows that were given, those to calibrate on among them; None in a detector of an earlier version."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """All that a fit has learned; nothing in it depends on the parameters of the detector any more.

    Its methods take rows that the detector has checked (:func:`nrf.detect.rows.checked`).
    """

    reader: RowReader
    """From rows to what the networks take."""
    replicas: Replicas
    """The networks."""
    spec: PairSpec
    """By which they were trained in the end."""
    combine: Combine
    calibrated: Calibrated
    rule: ThresholdRule
    """Where the threshold comes from."""
    n_features_in: int
    feature_names_in: tuple[str, ...] | None = None
    own: Own = (None, None)
    """Modules of the user's own, as they were given."""
    n_iter: int = 0
    """Iterations that were taken."""
    history: tuple[dict[str, float], ...] = ()
    """Metrics of training, line by line."""
    health: dict[str, float] | None = None
    """What training brought, as :func:`nrf.detect.checkup.check_training` has it."""
    warnings: tuple[str, ...] = ()
    """What a user should hear of the training."""
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
        """Of each row, in nats."""
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
        """The same with the threshold that keeps a false-alarm rate."""
        return replace(self, rule=self.calibrated.rule(false_alarm_rate))

    def with_share(self, contamination: float, X: Any) -> Fitted:
        """The same with the threshold that flags a share of these rows."""
        return replace(self, rule=self.calibrated.rule_by_share(contamination, self.scores(X)))

    def calibrated_on(self, X: Any) -> Fitted:
        """The same, calibrated on these rows; the threshold moves if it is one by false-alarm rate."""
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
    """Potentials ``(models, rows)`` as what is averaged over the models: themselves, or their ranks."""
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
    """Take the scores of these encoded rows as those of normal ones.

    Args:
        replicas: The networks.
        reader: What rows were encoded by.
        combine: How scores are made of the models' potentials.
        rows: Calibration rows.
        on: Which rows they are.
        layout: Where these are windows, the rows that they hold: scores of those are what new rows are compared with.
    """
    values = replicas.potentials(rows)
    sizes = 1.0 if reader.encoder is None else torch.from_numpy(reader.encoder.sizes()).to(rows)
    tolerance = replicas.tolerance(rows, values, sizes)
    if layout is not None:
        return _by_rows(values.double().cpu().numpy(), layout, reader.features.how, tolerance, on)
    each = tuple(Calibration.of(u.cpu().numpy(), tolerance) for u in values)
    scores: Floats = scores_by_model(values, combine, each).mean(0)
    if combine == "rank":  # what half of it, up or down, changes
        moved = [scores_by_model(values + part * tolerance, combine, each).mean(0) - scores for part in (-0.5, 0.5)]
        tolerance = float(np.abs(moved).max())
    return Calibrated(Calibration.of(scores, tolerance), each, on, rows)


def _by_rows(potentials: Floats, layout: Layout, how: How, tolerance: float, on: CalibratedOn) -> Calibrated:
    """The calibration of a detector of windows. Windows are not kept: no later fit could tell which rows they hold."""

    def calibration(scores: Floats) -> Calibration:
        found = layout.to_rows(scores, how)
        return Calibration.of(found[np.isfinite(found)], tolerance)

    return Calibrated(calibration(potentials.mean(0)), tuple(map(calibration, potentials)), IN_SEQUENCE.get(on, on))


def fitted_of(model: FittedAttributes | Fitted) -> Fitted:
    """The record of a detector, which must be fitted; or the record itself."""
    if isinstance(model, Fitted):
        return model
    check_is_fitted(model)
    return model.fitted_


def opened(model: FittedAttributes | Fitted, X: Any) -> tuple[Fitted, Any]:
    """The record of a fitted detector, and rows as that detector checks them; a record takes rows that were checked."""
    return fitted_of(model), X if isinstance(model, Fitted) else model._checked(X)


class FittedAttributes:
    """Fitted attributes of a detector, read from the one record that it holds."""

    fitted_: Fitted

    @abstractmethod
    def _checked(self, X: Any) -> Any:
        """Rows that were checked against those of the fit, which there must have been."""

    @property
    def threshold_rule_(self) -> ThresholdRule:
        """Where the threshold comes from: its kind, its rate, and the rows that keep it."""
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
        """What was learned of the columns; None for images without a feature step."""
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
        """What the networks were built and trained by."""
        return self.fitted_.spec

    @property
    def n_iter_(self) -> int:
        """Iterations of the last fit that were taken."""
        return self.fitted_.n_iter

    @property
    def history_(self) -> list[dict[str, float]]:
        """Metrics of the last fit, line by line."""
        return list(self.fitted_.history)

    @property
    def health_(self) -> dict[str, float] | None:
        """What training brought, without labels."""
        return self.fitted_.health

    @property
    def file_columns_(self) -> FileColumns:
        """Columns of the training file that were no features, and how it was written."""
        return self.fitted_.provenance.file
