"""`NRFDetector`: an outlier detector with scikit-learn's interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from nrf.detect.calibration import (
    ThresholdRule,
    rows_needed,
    rows_to_hold_out,
)
from nrf.detect.checkup import check_training
from nrf.detect.defaults import Recipe, recipe_for, spacing_of
from nrf.detect.members import Members, build_members, train_members
from nrf.detect.parallel import in_threads, parts_of
from nrf.detect.parameters import check_parameters
from nrf.detect.rows import RowReader, require_finite_rows
from nrf.detect.tables.column import Scaling
from nrf.detect.tables.files import FileColumns
from nrf.detect.tables.frame import taken
from nrf.detect.thresholds import Thresholds
from nrf.errors import InputError
from nrf.models import LatentGenerator
from nrf.training import Trainer

if TYPE_CHECKING:
    from nrf.detect.explain import Explanation

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Callback = Callable[["NRFDetector", dict[str, float]], object]


class NRFDetector(RowReader, Thresholds, OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Anomaly detection by an inclusive neural random field: the potential u(x) is the score, high = normal.

    Trained on normal rows, or on rows that are nearly all normal. Takes arrays, tables (pandas, polars, Arrow) with
    numbers, booleans, categories, dates and missing values, and images ``(n, channels, height, width)``.

    Args:
        false_alarm_rate: Share of normal rows that ``predict`` may flag, 0.05 if nothing is given; kept by rows held
            out from training (split conformal), however good or bad the model is.
        contamination: Instead of that, the share of the training rows to flag.
        calibration_share: Share of the rows held out to calibrate on; if None a fifth, or as many as the false-alarm
            rate needs where that is at most half of the rows.
        n_members: Models trained side by side; their spread is the score's uncertainty.
        combine: Mean of the members' potentials, or of their ranks among the calibration rows.
        widths: Hidden units of the potential; if None 256 and 128, and half of that for more than 100,000 rows.
        latent_dim: Size of the generator's code; by the number of columns if None.
        sigma: Noise of the generator's proposals, in units of the scaled columns.
        n_steps: Sampler steps L of a revision.
        step_size: Step size of the sampler.
        first_step_size: Step size of a revision's first step, if steps are to fall to ``step_size`` in its course.
            Larger ones bring in proposals from afar: with ``sigma=3`` and 0.05 here for columns with long tails.
        temperature: Temperature of the sampler.
        learning_rate: Of both networks.
        batch_size: Rows a batch; by the number of rows if None.
        iterations: Length of training; by the number of rows if None.
        features: A scikit-learn transformer that makes columns of the rows, fitted on the training rows alone, so that
            calibration rows stay rows it has never seen. ``auto`` is none for tables, and principal components for
            images; None is none for images too, which then get a pair of networks on pixels: much slower. Images
            reach it scaled to [−1, 1].
        potential: A module ``(n, *event) → (n,)`` of your own, in place of the default one.
        generator: A :class:`nrf.models.LatentGenerator` of your own.
        max_levels: Categorical columns with more levels, rare ones not counted, are hashed.
        categorical: Columns, by name or place, whose values are levels whatever they look like: zip codes, zones.
        keep: Columns to keep though they look like identifiers, which are left out otherwise, with a warning: levels
            nearly all distinct, free text, running numbers, dates at equal steps.
        scaling: Numbers are divided by the distance of their ``quartiles``, which no wild value moves, or by their
            standard ``deviation``, for columns in which half of all rows lie closely together, such as a network's
            answers.
        warm_start: ``fit`` goes on from the networks of the fit before, with its encoding.
        keep_examples: ``save`` stores the calibration rows, which are records of the training table, beside their
            scores. By default it stores the scores alone: a detector that was loaded then explains rows without typical
            rows to compare them with, and ``partial_fit`` calibrates it on the rows that it is given alone.
        callbacks: Called as ``callback(detector, numbers)`` about once an epoch, every ten iterations at most; one that
            returns True ends training. ``score_samples`` and ``p_values`` of the detector are then those of the model
            as it is.
        random_state: Seed, or a numpy ``RandomState``.
        device: Where to compute: "cpu", "cuda", …
        verbose: Progress, with the time left, of what takes more than two seconds: None shows it on a terminal, 1
            everywhere (as plain lines where standard error is not a terminal), 0 nowhere.

    Attributes:
        threshold_rule_: Where the threshold comes from: its kind, its rate, and the rows that keep it.
        offset_: The threshold: rows with a lower score are flagged.
        calibration_: Scores of the calibration rows.
        calibrated_on_: Which rows those are: held-out ones, training rows (fewer than 20 rows: no promise), or rows
            given to ``calibrate``.
        features_: The fitted feature step, or None.
        encoder_: What was learned of the columns; None for images without a feature step.
        pixels_: The shape and range of images; None for tables.
        n_iter_: Iterations of the last fit that were taken: fewer than ``iterations`` where a callback ended it.
        history_: The metrics of the last fit, line by line.
        health_: What training brought, without labels: ``synthetic_auroc``, how well held-out normal rows are told
            from synthetic anomalies made of them, and ``untrained_synthetic_auroc``, the same before training; None
            with fewer than 20 held-out rows. A fit warns if the first is not higher.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = NRFDetector(false_alarm_rate=0.01, iterations=200, random_state=0).fit(X)
        >>> detector.predict([[0.1, 0.2], [9.0, -9.0]]).tolist()
        [1, -1]
    """

    def __init__(
        self,
        *,
        false_alarm_rate: float | None = None,
        contamination: float | None = None,
        calibration_share: float | None = None,
        n_members: int = 1,
        combine: Literal["potential", "rank"] = "potential",
        widths: tuple[int, ...] | None = None,
        latent_dim: int | None = None,
        sigma: float | None = None,
        n_steps: int | None = None,
        step_size: float | None = None,
        first_step_size: float | None = None,
        temperature: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        iterations: int | None = None,
        features: Any = "auto",
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
        max_levels: int = 64,
        categorical: Sequence[str | int] | None = None,
        keep: Sequence[str | int] | None = None,
        scaling: Scaling = "quartiles",
        warm_start: bool = False,
        keep_examples: bool = False,
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: int | None = None,
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.contamination = contamination
        self.calibration_share = calibration_share
        self.n_members = n_members
        self.combine = combine
        self.widths = widths
        self.latent_dim = latent_dim
        self.sigma = sigma
        self.n_steps = n_steps
        self.step_size = step_size
        self.first_step_size = first_step_size
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.iterations = iterations
        self.features = features
        self.potential = potential
        self.generator = generator
        self.max_levels = max_levels
        self.categorical = categorical
        self.keep = keep
        self.scaling = scaling
        self.warm_start = warm_start
        self.keep_examples = keep_examples
        self.callbacks = callbacks
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    members_: Members
    n_iter_: int
    history_: list[dict[str, float]]
    health_: dict[str, float] | None
    file_columns_: FileColumns = FileColumns()

    # ------------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, *, false_alarm_rate: float | None = None) -> Self:
        """Learn what normal rows are like.

        Args:
            X: Rows: an array, a table, or images.
            y: Ignored.
            false_alarm_rate: In place of the constructor's, for this fit.
        """
        self._fit(X, false_alarm_rate)
        self.threshold_rule_.warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on training with these rows, which must have the columns of the first ones; the first call is ``fit``.

        Calibration rows of earlier calls are kept beside new ones, and the threshold moves by the rule it had. A
        detector that was saved without them (``keep_examples=False``) calibrates on the new ones alone: the scores that
        it has are those of the model before.
        """
        alone = hasattr(self, "members_") and self._calibration_rows is None
        if hasattr(self, "members_"):
            self._fit_further(X)
        else:
            self._fit(X, None)
        rule = self.threshold_rule_
        if alone and rule.flags_nothing:
            warnings.warn(_too_few_alone(rule), RuntimeWarning, stacklevel=2)
        else:
            rule.warn()
        return self

    def _fit(self, X: Any, false_alarm_rate: float | None) -> None:
        with self._all_or_nothing():
            check_parameters(self)
            rate = self._false_alarm_rate(false_alarm_rate)
            goes_on = self.warm_start and hasattr(self, "members_")
            X = self._checked(X, first=not goes_on)
            state = check_random_state(self.random_state)
            if not goes_on:
                self._split_seed = int(state.randint(0, 2**31 - 1))
            learned, held = self._split(X, self._split_seed, rate)
            if not goes_on:
                # All that learns from rows sees the training part alone: to a calibration row it is what it will be to
                # a new one, which may have levels, gaps and values that no training row has.
                self._read_schema(taken(X, learned))
            self._train(X, learned, held, state, keep=goes_on)
            self._set_rule(rate, self.contamination, X)

    def _fit_further(self, X: Any) -> None:
        with self._all_or_nothing():
            check_parameters(self)
            X, state = self._checked(X), check_random_state(self.random_state)
            rate, contamination = self.threshold_rule_.given
            learned, held = self._split(X, int(state.randint(0, 2**31 - 1)), rate)
            self._train(X, learned, held, state, keep=True, add=True)
            self._set_rule(rate, contamination, X)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that is refused, or ends early, leaves the detector as it was."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _split(self, X: Any, seed: int, rate: float | None) -> tuple[Places, Places]:
        """Which rows are trained on, and which are held out to calibrate on."""
        n_rows = len(X)
        if not n_rows and getattr(X, "ndim", 2) == 4:
            raise InputError("there are no images; give at least 2")
        if n_rows < 2:
            raise InputError(f"training needs at least 2 rows, got n_samples={n_rows}")
        order = np.random.RandomState(seed).permutation(n_rows)
        n_held = rows_to_hold_out(n_rows, self.calibration_share, rate)
        return order[n_held:], order[:n_held]

    def _train(
        self, X: Any, learned_places: Places, held_places: Places, state: Any, *, keep: bool, add: bool = False
    ) -> None:
        learned = self._encode(taken(X, learned_places))
        seeds = [int(s) for s in state.randint(0, 2**31 - 1, size=self.n_members)]
        surprises, seen = self._surprises(), learned
        if self.encoder_ is not None:
            seen = learned[:, self.encoder_.learned]
            noise = state.standard_normal(size=tuple(seen.shape)).astype(np.float32) * self.encoder_.jitter()
            seen = seen + torch.from_numpy(noise).to(learned.device)
        recipe = recipe_for(len(seen), tuple(seen.shape[1:]), self._changes(), spacing_of(seen))
        before = self.members_ if keep else None
        held = self._encode(taken(X, held_places)) if len(held_places) else learned[:0]
        calibrating, calibrated_on = self._calibration_part(held, learned, add=add)

        def build(recipe: Recipe) -> Members:
            self.history_ = []
            self.members_ = build_members(recipe, seen, seeds, self.potential, self.generator, surprises)
            if before is not None:
                self.members_.go_on_from(before)
            return self.members_

        def untrained() -> Members:
            members = build_members(self.recipe_, seen, seeds, self.potential, self.generator, surprises)
            if surprises:
                members.know(learned)
            return members

        def warn(text: str) -> None:
            warnings.warn(text, RuntimeWarning, stacklevel=6)  # the line that called fit

        def settle() -> None:
            if surprises:
                self.members_.know(learned, before)
            self._calibrate(calibrating, calibrated_on)

        def on_log(trainer: Trainer, row: Mapping[str, float]) -> bool:
            numbers = {name: float(value) for name, value in row.items()}
            self.history_.append(numbers)
            if self.callbacks:
                self.members_.take_averages(trainer)
                settle()
            return any([callback(self, numbers) is True for callback in self.callbacks or ()])

        trained = train_members(
            recipe,
            seen,
            seeds,
            build,
            verbose=self.verbose,
            on_log=on_log,
            warn=warn,
        )
        self.recipe_, self.n_iter_ = trained.recipe, trained.n_iter
        settle()
        groups = None if self.encoder_ is None else [group for _, group in self.encoder_.groups]
        self.health_ = check_training(self.members_, untrained, held, groups=groups, warn=warn)

    def _changes(self) -> dict[str, Any]:
        names = ("widths", "latent_dim", "sigma", "n_steps", "step_size", "first_step_size", "temperature")
        return {name: getattr(self, name) for name in (*names, "learning_rate", "batch_size", "iterations")}

    # ------------------------------------------------------------------------------------------------------- scoring

    def score_samples(self, X: Any) -> Floats:
        """The potential u(x) of each row: high = normal. With several members, their combination."""
        return self._combined(self._potentials(X))

    def score_spread(self, X: Any) -> Floats:
        """Standard deviation of the score over the members: how unsure the ensemble is of each row."""
        values = self._potentials(X)
        if len(values) < 2:
            raise InputError("one member has no spread; fit with n_members of at least 2")
        spread: Floats = self._as_scores(values).std(0, ddof=1)
        return spread

    def decision_function(self, X: Any) -> Floats:
        """``score_samples`` above the threshold: negative = anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for rows taken as normal, −1 for anomalies."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _potentials(self, X: Any) -> Tensor:
        check_is_fitted(self)
        score = self.members_.scorer()
        values = torch.cat(in_threads(lambda part: score(self._rows_of(part)), parts_of(self._valid(X))), 1)
        require_finite_rows(torch.isfinite(values).all(0).cpu().numpy())
        return values

    def _as_scores(self, potentials: Tensor) -> Floats:
        values = potentials.double().cpu().numpy()
        if self.combine == "potential":
            return np.asarray(values)
        pairs = zip(self._member_calibrations, values, strict=True)
        return np.stack([calibration.ranks(row) for calibration, row in pairs])

    def _combined(self, potentials: Tensor) -> Floats:
        mean: Floats = self._as_scores(potentials).mean(0)
        return mean

    # ------------------------------------------------------------------------------------------- explaining, keeping

    def explain(self, X: Any, **options: Any) -> list[Explanation]:
        """Why each row scores as it does; see :func:`nrf.detect.explain.explain`."""
        from nrf.detect.explain import explain

        check_is_fitted(self)
        return explain(self, X, **options)

    def save(self, path: str | Path) -> None:
        """Write a directory with weights and JSON; see :mod:`nrf.detect.storage`."""
        from nrf.detect.storage import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **modules: Any) -> NRFDetector:
        """Read what :meth:`save` wrote; modules of your own are given again as ``potential`` and ``generator``."""
        from nrf.detect.storage import load

        return load(Path(path), **modules)

    def export(self, path: str | Path, form: Literal["onnx"] = "onnx") -> None:
        """Write encoding and potential as one ONNX graph; see :mod:`nrf.detect.onnx`."""
        from nrf.detect.onnx import export_onnx

        if form != "onnx":
            raise InputError(f"the only form to export to is 'onnx', got {form!r}")
        export_onnx(self, Path(path))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "members_" in state:  # normalised layers can be copied by their values only
            state = state | {"members_": self.members_.packed()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "members_" in state:
            self.members_ = Members.unpacked(
                state["members_"], self.recipe_, self.potential, self.generator, self._surprises()
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _too_few_alone(rule: ThresholdRule) -> str:
    return (
        f"this detector was saved without its calibration rows (keep_examples=False), and {rule.n_calibration} rows "
        f"held out now cannot keep a false-alarm rate of {rule.rate:g} by themselves: nothing is flagged. Give enough "
        f"rows to hold out {rows_needed(rule.rate)}, calibrate(X) on as many, or fit it with keep_examples=True before "
        "it is saved"
    )
