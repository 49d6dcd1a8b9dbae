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
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from nrf.detect.calibration import Calibration, false_discoveries
from nrf.detect.columns import Scaling
from nrf.detect.encoder import TableEncoder
from nrf.detect.frames import in_common_form, is_table
from nrf.detect.members import Members, build_members, train_members
from nrf.detect.parallel import in_threads, parts_of
from nrf.detect.parameters import check_parameters
from nrf.detect.pixels import PixelScale
from nrf.detect.recipe import Recipe, recipe_for, spacing_of
from nrf.errors import InputError
from nrf.models import LatentGenerator
from nrf.training import Trainer

if TYPE_CHECKING:
    from nrf.detect.explain import Explanation

Floats = NDArray[np.float64]
Callback = Callable[["NRFDetector", dict[str, float]], object]

SMALLEST_SPLIT = 20
"""With fewer rows none can be spared for calibration: the training rows serve."""


class NRFDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Anomaly detection by an inclusive neural random field: the potential u(x) is the score, high = normal.

    Trained on normal rows, or on rows that are nearly all normal. Takes arrays, tables (pandas, polars, Arrow) with
    numbers, booleans, categories, dates and missing values, and images ``(n, channels, height, width)``.

    Args:
        false_alarm_rate: Share of normal rows that ``predict`` may flag; kept by rows held out from training
            (split conformal), however good or bad the model is.
        contamination: Instead of that, the share of the training rows to flag.
        calibration_share: Share of the rows held out to calibrate on.
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
        callbacks: Called as ``callback(detector, numbers)`` about once an epoch; one that returns True ends training.
            ``score_samples`` and ``p_values`` of the detector are then those of the model as it is.
        random_state: Seed, or a numpy ``RandomState``.
        device: Where to compute: "cpu", "cuda", …
        verbose: 1 shows a progress bar.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = NRFDetector(false_alarm_rate=0.01, random_state=0).fit(X)
        >>> detector.predict([[0.1, 0.2], [9.0, -9.0]]).tolist()
        [1, -1]
    """

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.05,
        contamination: float | None = None,
        calibration_share: float = 0.2,
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
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
        max_levels: int = 64,
        categorical: Sequence[str | int] | None = None,
        keep: Sequence[str | int] | None = None,
        scaling: Scaling = "quartiles",
        warm_start: bool = False,
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: int = 0,
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
        self.potential = potential
        self.generator = generator
        self.max_levels = max_levels
        self.categorical = categorical
        self.keep = keep
        self.scaling = scaling
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    members_: Members
    _calibration_rows: Tensor

    # ------------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, *, false_alarm_rate: float | None = None) -> Self:
        """Learn what normal rows are like.

        Args:
            X: Rows: an array, a table, or images.
            y: Ignored.
            false_alarm_rate: In place of the constructor's, for this fit.
        """
        with self._all_or_nothing():
            check_parameters(self)
            X = in_common_form(X)
            goes_on = self.warm_start and hasattr(self, "members_")
            if not goes_on:
                self._read_schema(X)
            self._train(self._encode(X, fitting=not goes_on), keep=goes_on)
            return self._set_default_threshold(X, false_alarm_rate)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on training with these rows, which must have the columns of the first ones; the first call is ``fit``.

        Calibration rows of earlier calls are kept beside new ones, so the threshold moves as the model does.
        """
        if not hasattr(self, "members_"):
            return self.fit(X, y)
        with self._all_or_nothing():
            check_parameters(self)
            self._train(self._encode(X), keep=True, add=True)
            return self._set_default_threshold(X, None)

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

    def _read_schema(self, X: Any) -> None:
        """What stands in the columns, or the range of the pixels."""
        self.encoder_: TableEncoder | None = None
        self.pixels_: PixelScale | None = None
        if is_table(X):
            validate_data(self, X, skip_check_array=True)
            self.encoder_ = self._encoder_of(X)
        elif getattr(X, "ndim", 2) == 4:
            if self.categorical or self.keep:
                raise InputError("images have no columns; leave out categorical and keep")
            self.pixels_ = PixelScale.fit(X)
            self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        else:
            X = validate_data(
                self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", ensure_min_samples=2
            )
            self.encoder_ = self._encoder_of(X)

    def _encoder_of(self, X: Any) -> TableEncoder:
        levels, keep = self.categorical or (), self.keep or ()
        return TableEncoder.fit(X, max_levels=self.max_levels, scaling=self.scaling, categorical=levels, keep=keep)

    def _encode(self, X: Any, *, fitting: bool = False) -> Tensor:
        """Rows as the networks take them."""
        return self._rows_of(self._valid(X, fitting=fitting))

    def _valid(self, X: Any, *, fitting: bool = False) -> Any:
        X = in_common_form(X)
        if self.pixels_ is not None:
            return X
        if is_table(X):
            if self.encoder_ is None or not self.encoder_.lacks_dropped_only(X):
                validate_data(self, X, reset=False, skip_check_array=True)
            return X
        least = 2 if fitting else 1
        kinds = [np.float64, np.float32]
        # The encoder refuses infinite values, by column.
        return validate_data(self, X, reset=False, dtype=kinds, ensure_all_finite=False, ensure_min_samples=least)

    def _rows_of(self, X: Any) -> Tensor:
        encoder = self.pixels_ or self.encoder_
        assert encoder is not None
        return torch.from_numpy(encoder.encode(X)).to(self.device)

    def _train(self, rows: Tensor, *, keep: bool, add: bool = False) -> None:
        if len(rows) < 2:
            raise InputError(f"training needs at least 2 rows, got n_samples={len(rows)}")
        state = check_random_state(self.random_state)
        seeds = [int(s) for s in state.randint(0, 2**31 - 1, size=self.n_members)]
        order = torch.from_numpy(state.permutation(len(rows))).to(rows.device)
        n_held = round(self.calibration_share * len(rows)) if len(rows) >= SMALLEST_SPLIT else 0
        held, learned = rows[order[:n_held]], rows[order[n_held:]]
        surprises, seen = self._surprises(), learned
        if self.encoder_ is not None:
            seen = learned[:, self.encoder_.learned]
            noise = state.standard_normal(size=tuple(seen.shape)).astype(np.float32) * self.encoder_.jitter()
            seen = seen + torch.from_numpy(noise).to(rows.device)
        spacing = spacing_of(seen) if surprises else 0.0
        recipe = recipe_for(len(seen), tuple(seen.shape[1:]), self._changes(), spacing)
        before = self.members_ if keep else None
        calibrating = held if n_held else learned
        if add:
            calibrating = torch.cat([self._calibration_rows, calibrating])
        self._calibration_rows = calibrating
        self.calibrated_on_ = "held-out rows" if n_held else "training rows"

        def build(recipe: Recipe) -> Members:
            self.members_ = build_members(recipe, seen, seeds, self.potential, self.generator, surprises)
            if before is not None:
                self.members_.go_on_from(before)
            return self.members_

        def settle() -> None:
            if surprises:
                self.members_.know(learned, before)
            values = self.members_.potentials(calibrating)
            self._member_calibrations = [Calibration.of(u.cpu().numpy()) for u in values]
            self.calibration_ = Calibration.of(self._combined(values))

        def on_log(trainer: Trainer, row: Mapping[str, float]) -> bool:
            numbers = {name: float(value) for name, value in row.items()}
            self.history_.append(numbers)
            if self.callbacks:
                self.members_.take_averages(trainer)
                settle()
            return any([callback(self, numbers) is True for callback in self.callbacks or ()])

        self.history_: list[dict[str, float]] = []
        _, self.recipe_ = train_members(
            recipe,
            seen,
            seeds,
            build,
            quiet=not self.verbose,
            on_log=on_log,
            warn=lambda text: warnings.warn(text, RuntimeWarning, stacklevel=4),
        )
        self.n_iter_ = self.recipe_.train.iterations
        settle()

    def _surprises(self) -> list[int]:
        """Encoded columns that no network sees."""
        return [] if self.encoder_ is None else self.encoder_.surprises

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

    def p_values(self, X: Any) -> Floats:
        """Conformal p-values: for a normal row the chance of one at most α is at most α."""
        scores = self.score_samples(X)
        return self.calibration_.p_values(scores)

    def discoveries(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Rows to look at, chosen over the whole batch so that at most that share of them is expected to be normal."""
        return false_discoveries(self.p_values(X), rate)

    def set_threshold(
        self, *, false_alarm_rate: float | None = None, contamination: float | None = None, X: Any = None
    ) -> Self:
        """Another threshold without another fit.

        Args:
            false_alarm_rate: Flag normal rows with at most this probability.
            contamination: Flag this share of ``X``.
            X: Rows for ``contamination``.
        """
        check_is_fitted(self)
        if (false_alarm_rate is None) == (contamination is None):
            raise InputError("give either false_alarm_rate or contamination")
        if false_alarm_rate is not None:
            self.offset_ = self.calibration_.threshold(false_alarm_rate)
            if not np.isfinite(self.offset_):
                n = len(self.calibration_.scores)
                warnings.warn(
                    f"{n} calibration rows cannot keep a false-alarm rate below {1 / (n + 1):.3g}: at "
                    f"{false_alarm_rate:g} nothing is flagged; give more rows or a higher rate",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return self
        if X is None:
            raise InputError("a threshold by contamination needs X, the rows of which that share is to be flagged")
        assert contamination is not None
        if not 0 < contamination <= 0.5:
            raise InputError(f"contamination must lie in (0, 0.5], got {contamination}")
        self.offset_ = float(np.percentile(self.score_samples(X), 100 * contamination))
        return self

    def _potentials(self, X: Any) -> Tensor:
        check_is_fitted(self)
        score = self.members_.scorer()
        values = torch.cat(in_threads(lambda part: score(self._rows_of(part)), parts_of(self._valid(X))), 1)
        if not torch.isfinite(values).all():
            bad = int((~torch.isfinite(values)).any(0).sum())
            raise InputError(f"{bad} rows have a potential that is not finite: their values are far out of any range")
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

    def _set_default_threshold(self, X: Any, false_alarm_rate: float | None) -> Self:
        if false_alarm_rate is None and self.contamination is not None:
            return self.set_threshold(contamination=self.contamination, X=X)
        if false_alarm_rate is not None:
            return self.set_threshold(false_alarm_rate=false_alarm_rate)
        self.offset_ = self.calibration_.threshold(self.false_alarm_rate)
        return self

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
        """Write encoding and potential as one ONNX graph; see :mod:`nrf.detect.export`."""
        from nrf.detect.export import export_onnx

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
