"""`NRFDetector`: an outlier detector with scikit-learn's interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from nrf.detect.calibration import ThresholdRule, rows_needed
from nrf.detect.defaults import OF_DENSITIES
from nrf.detect.fit_progress import FitProgress
from nrf.detect.fitted import Combine, Fitted, Provenance
from nrf.detect.fitting import FieldKind, Job, calibration_layout, calibration_part, encode_rows, split_rows, train
from nrf.detect.old_names import OldNames, takes_old_names
from nrf.detect.parameters import check_parameters
from nrf.detect.rows import RowReader, checked
from nrf.detect.settings import Training
from nrf.detect.tables.columns import Scaling
from nrf.detect.tables.frame import taken
from nrf.detect.thresholds import Thresholds
from nrf.errors import InputError
from nrf.models import LatentGenerator
from nrf.runs.spec import PairSpec
from nrf.training.checkpoint import versions

if TYPE_CHECKING:
    from nrf.detect.explain import Explanation

Floats = NDArray[np.float64]
Field = FieldKind | Literal["auto"]
Callback = Callable[["NRFDetector", dict[str, float]], object]


class NRFDetector(OldNames, Thresholds, OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Anomaly detection by a random field, such as nearest neighbours times a density: its potential u(x) is the score.

    A high score means normal. Train it on normal rows, or on rows that are nearly all normal. It takes arrays, tables
    (pandas, polars, Arrow) with numbers, booleans, categories, dates and missing values, and images
    ``(n, channels, height, width)``.

    Args:
        false_alarm_rate: Share of normal rows that ``predict`` may flag, 0.05 if nothing is given; kept by rows held
            out from training (split conformal), however good or bad the model is.
        contamination: Instead of a false-alarm rate, the share of the training rows to flag.
        calibration_fraction: Share of the rows held out to calibrate on. If None, a fifth, or as many as the
            false-alarm rate needs if that is at most half of the rows.
        n_estimators: Models trained at once (replicas); their spread is the score's uncertainty.
        combine: Mean of the models' potentials, or of their ranks among the calibration rows.
        field: Which field scores. ``product`` multiplies a field of neighbours with a density, a mixture of Gaussians;
            ``density`` is the density alone, which scores many times faster; ``inclusive`` is a network learned by
            maximum likelihood from revised samples, with its generator, as in the paper. ``auto`` is the product for
            columns, and ``inclusive`` for images on pixels, for networks of your own, and if ``training`` has settings
            that only ``inclusive`` has.
        max_iter: Iterations of training. If None, an inclusive field takes a number that depends on the number of rows,
            and the other fields train no network: on the tables measured, a network improved the density but not the
            detection (docs/detection.md). With 600, say, a network around the mixture is trained; held-out rows decide
            how much of it counts.
        training: Everything else about training: widths, sampler, learning rate, batch size. A
            :class:`nrf.detect.Training`, or None for what suits the table. In ``set_params`` and in the grid of a
            search ``training__sigma`` is its setting ``sigma``; ``training`` itself takes whole objects.
        features: A scikit-learn transformer that turns rows into columns, fitted on the training rows alone, so that it
            has never seen the calibration rows. ``auto`` is none for tables, and principal components for images; None
            is none for images too, which then get a pair of networks on pixels: much slower. Images reach it scaled to
            [−1, 1].
        potential: A module ``(n, *event) → (n,)`` of your own, in place of the default one.
        generator: A :class:`nrf.models.LatentGenerator` of your own.
        max_levels: Categorical columns with more levels, rare ones not counted, are hashed.
        categorical: Columns, by name or place, whose values are levels whatever they look like: zip codes, zones.
        keep: Columns to keep though they look like identifiers, which are left out otherwise, with a warning: levels
            nearly all distinct, free text, running numbers, dates at equal steps.
        scaling: Units of numbers and dates. ``auto``: standard deviations from the mean; in columns with heavy tails (a
            mean fourth power above 6), the average of that value, logarithmic beyond ±3, and the normal score of its
            rank in training. ``quartiles``: the distance from the median over the interquartile range, which no extreme
            value moves, logarithmic beyond ±3. ``deviation``: the same over the standard deviation, for columns in
            which half of all rows lie closely together, such as a network's outputs.
        warm_start: ``fit`` continues from the networks of the previous fit, with its encoding.
        keep_examples: Explanations name the nearest training rows, if the field remembers such rows, and ``save``
            stores the calibration rows, which are records of the training table, in addition to their scores. By
            default ``save`` stores the scores alone: after ``load``, explanations have no typical rows to compare with,
            and ``partial_fit`` calibrates only on the rows that it is given.
        callbacks: Called as ``callback(detector, numbers)`` while a network is trained: for an inclusive field about
            once per epoch, at most every ten iterations, for the others every fifty iterations. Returning True ends
            training. The detector is a copy of this one with the model as it is at that moment; use it during the call
            only.
        random_state: Seed, or a numpy ``RandomState``.
        device: Where to compute: "cpu", "cuda", …
        verbose: Progress, with the time left, of what takes more than two seconds: None shows it on a terminal, 1
            everywhere (as plain lines where standard error is not a terminal), 0 nowhere.

    Parameters by their names in version 0.1.0 are still taken, with a ``DeprecationWarning``: ``iterations`` is
    ``max_iter`` now, ``n_members`` is ``n_estimators``, ``calibration_share`` is ``calibration_fraction``, and the
    settings of ``training`` were parameters of their own.

    Attributes:
        fitted_: Everything that the fit has learned, as one record, :class:`nrf.detect.fitted.Fitted`; the attributes
            below are read from it.
        threshold_rule_: Where the threshold comes from: its kind, its rate, and the rows that set it.
        offset_: The threshold: rows with a lower score are flagged.
        calibration_: Scores of the calibration rows.
        calibrated_on_: Which rows those are: held-out ones, training rows (fewer than 20 rows: no promise), or rows
            given to ``calibrate``.
        features_: The fitted feature step, or None.
        encoder_: What was learned about the columns; None for images without a feature step.
        pixels_: The shape and range of images; None for tables.
        members_: The trained networks.
        recipe_: The settings by which the networks were built and trained.
        n_iter_: Number of iterations of the last fit: fewer than ``max_iter`` if a callback ended it.
        history_: The metrics of the last fit, one record per logged iteration.
        health_: Checks that need no labels: ``synthetic_auroc``, how well held-out normal rows are separated from
            synthetic anomalies made from them; absent with fewer than 20 held-out rows. For an inclusive field also
            ``untrained_synthetic_auroc``, the same before training; a fit warns if the first is not higher. For a
            network around a mixture ``strength``, how much of it counts, from 0 to 1, and ``held_out_gain``, the nats
            per row that it adds, with its standard error ``held_out_gain_error``. None if nothing was measured.
        file_columns_: For a detector fitted to a file: its columns that are not features, and how the file was written.
        n_features_in_: Number of columns, or of pixels.
        feature_names_in_: Names of the columns, if the table has names.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(600, 2))
        >>> detector = NRFDetector(false_alarm_rate=0.01, random_state=0).fit(X)
        >>> detector.predict([[0.1, 0.2], [9.0, -9.0]]).tolist()
        [1, -1]
    """

    @takes_old_names
    def __init__(
        self,
        *,
        false_alarm_rate: float | None = None,
        contamination: float | None = None,
        calibration_fraction: float | None = None,
        n_estimators: int = 1,
        combine: Combine = "potential",
        field: Field = "auto",
        max_iter: int | None = None,
        training: Training | None = None,
        features: Any = "auto",
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
        max_levels: int = 64,
        categorical: Sequence[str | int] | None = None,
        keep: Sequence[str | int] | None = None,
        scaling: Scaling = "auto",
        warm_start: bool = False,
        keep_examples: bool = False,
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: int | None = None,
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.contamination = contamination
        self.calibration_fraction = calibration_fraction
        self.n_estimators = n_estimators
        self.combine: Combine = combine
        self.field: Field = field
        self.max_iter = max_iter
        self.training = training
        self.features = features
        self.potential = potential
        self.generator = generator
        self.max_levels = max_levels
        self.categorical = categorical
        self.keep = keep
        self.scaling: Scaling = scaling
        self.warm_start = warm_start
        self.keep_examples = keep_examples
        self.callbacks = callbacks
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    n_features_in_: int
    feature_names_in_: NDArray[Any]

    # ------------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, *, false_alarm_rate: float | None = None) -> Self:
        """Learn what normal rows are like.

        Args:
            X: Rows: an array, a table, or images.
            y: Ignored.
            false_alarm_rate: Replaces the constructor's value for this fit.
        """
        check_parameters(self)
        threshold = self._false_alarm_rate(false_alarm_rate), self.contamination
        self._fit(X, threshold, self._before() if self.warm_start else None)
        for text in self.fitted_.warnings:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self.fitted_.rule.warn()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue training with these rows, which must have the columns of the first ones; the first call is ``fit``.

        Calibration rows of earlier calls are kept together with new ones, and the threshold is set again by the same
        rule. A detector that was saved without them (``keep_examples=False``) calibrates on the new ones alone, since
        its stored scores are those of the earlier model.
        """
        check_parameters(self)
        before = self._before()
        threshold = (self._false_alarm_rate(None), self.contamination) if before is None else before.rule.given
        self._fit(X, threshold, before, add=before is not None)
        for text in self.fitted_.warnings:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        rule = self.fitted_.rule
        if before is not None and before.calibrated.rows is None and rule.flags_nothing:
            warnings.warn(_too_few_alone(rule), RuntimeWarning, stacklevel=2)
        else:
            rule.warn()
        return self

    def _fit(
        self, X: Any, threshold: tuple[float | None, float | None], before: Fitted | None, *, add: bool = False
    ) -> None:
        """Frame, split, schema, encoding, training; the record of the fit is set last.

        Args:
            X: Rows.
            threshold: False-alarm rate or contamination, of which one is None.
            before: The fit to continue from, with its schema and its networks.
            add: Whether these rows are added to those of the previous fit, rather than the same rows.
        """
        with self._all_or_nothing(), ExitStack() as stack:
            X = checked(self, X, None if before is None else before.reader)
            state = check_random_state(self.random_state)
            seed = int(state.randint(0, 2**31 - 1)) if before is None or add else before.provenance.split_seed
            step = self.features if before is None else before.reader.features
            learned, held = split_rows(X, seed, self.calibration_fraction, threshold[0], step)
            progress = stack.enter_context(self._progress(len(learned) + len(held)))
            # Everything that learns from rows sees the training part alone: a calibration row is then treated like a
            # new one, which may have levels, gaps and values that no training row has.
            reader = self._read_schema(taken(X, learned)) if before is None else before.reader
            field = self._field(reader)
            progress.reach("rows")
            jitter = field == "inclusive"
            rows = encode_rows(reader, X, learned, held, state, self.n_estimators, jitter=jitter)
            job = Job(
                reader=reader,
                rows=rows,
                calibration=calibration_part(rows, before.calibrated if before is not None and add else None),
                calibration_layout=calibration_layout(reader, X, learned, held),
                threshold=threshold,
                X=X,
                combine=self.combine,
                own=(self.potential, self.generator),
                before=None if before is None else before.replicas,
                add=add,
                n_features_in=self.n_features_in_,
                feature_names_in=_names_in(self),
                provenance=_provenance(before, seed, len(X), add=add),
            )
            watch = self._show if self.callbacks else None
            settings = self.training or Training()
            self.fitted_ = train(
                job,
                field,
                settings,
                self.max_iter,
                verbose=self.verbose,
                watch=watch,
                change=self._changed_spec,
                progress=progress,
            )

    def _progress(self, n_rows: int) -> FitProgress:
        """The progress line of a fit of so many rows; training a network has its own."""
        silent = (self.verbose is not None and not self.verbose) or bool(self.max_iter) or self._field() == "inclusive"
        return FitProgress(n_rows * self.n_features_in_, quiet=silent, piped=bool(self.verbose))

    def _changed_spec(self, spec: PairSpec) -> PairSpec:
        """The spec of a field of columns, given its default: a subclass that compares defaults overrides it."""
        return spec

    def _field(self, reader: RowReader | None = None) -> FieldKind:
        """Which field is fitted, also if it is not known yet what the rows look like."""
        if self.field != "auto":
            return self.field
        own = self.potential is not None or self.generator is not None
        pixels = reader is not None and reader.encoder is None
        settings = set((self.training or Training()).given()) - set(OF_DENSITIES)
        return "inclusive" if own or pixels or settings else "product"

    def _read_schema(self, X: Any) -> RowReader:
        """Learn what training rows look like."""
        return RowReader.fit(
            X,
            features=self.features,
            max_levels=self.max_levels,
            scaling="quartiles" if self.scaling == "auto" and self._field() == "inclusive" else self.scaling,
            categorical=self.categorical,
            keep=self.keep,
            device=self.device,
        )

    def _show(self, fitted: Fitted, numbers: dict[str, float]) -> bool:
        """Call the callbacks with a copy that holds the model as it is; whether one of them ends training."""
        shown = object.__new__(type(self))
        shown.__dict__.update(self.__dict__ | {"fitted_": fitted})
        return any([callback(shown, numbers) is True for callback in self.callbacks or ()])

    def _before(self) -> Fitted | None:
        """The present fit, if there is one."""
        return vars(self).get("fitted_")

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

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return checked(self, X, self.fitted_.reader)

    # ------------------------------------------------------------------------------------------------------- scoring

    def score_samples(self, X: Any) -> Floats:
        """The potential u(x) of each row: high = normal. With several models, their combination."""
        X = self._checked(X)
        return self.fitted_.scores(X)

    def log_density(self, X: Any) -> Floats:
        """``log p(x)`` of each row in nats, by the density alone, without the neighbours.

        The density is over encoded columns: numbers in standard deviations with long tails compressed, and an output
        for each level. So values of two detectors cannot be compared; those of one can, and they sum up to the
        log-likelihood of a table. With several models it is the logarithm of their mean density.
        """
        X = self._checked(X)
        return self.fitted_.log_density(X)

    def score_spread(self, X: Any) -> Floats:
        """Standard deviation of the score over the models: how unsure the ensemble is of each row."""
        X = self._checked(X)
        if self.fitted_.replicas.count < 2:
            raise InputError("one model has no spread; fit with n_estimators of at least 2")
        return self.fitted_.spread(X)

    def decision_function(self, X: Any) -> Floats:
        """``score_samples`` minus the threshold: negative = anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for rows taken as normal, −1 for anomalies."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    # ------------------------------------------------------------------------------------------- explaining, keeping

    def explain(self, X: Any, **options: Any) -> list[Explanation]:
        """Explain why each row scores as it does; see :func:`nrf.detect.explain.explain`."""
        from nrf.detect.explain import explain

        X = self._checked(X)
        return explain(self.fitted_, X, neighbours=self.keep_examples, **options)

    def save(self, path: str | Path) -> None:
        """Write a directory with weights and JSON; see :mod:`nrf.detect.storage`."""
        from nrf.detect.storage import save

        check_is_fitted(self)
        check_parameters(self)
        save(self.fitted_, self.get_params(deep=False), path)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", **modules: Any) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            path: Its directory.
            device: Where to compute.
            modules: ``potential``, ``generator`` and ``features`` of your own, if it was fitted with them.
        """
        from nrf.detect.storage import load, refused

        fitted, parameters = load(path, device, modules)
        with refused(path):
            odd = sorted(set(parameters) - set(cls._get_param_names()))
            if odd:
                raise InputError(f"there are parameters that are not known: {', '.join(odd)}")
            detector = cls(**parameters, **modules, device=device)
            check_parameters(detector)
        detector.fitted_, detector.n_features_in_ = fitted, fitted.n_features_in
        if fitted.feature_names_in is not None:
            detector.feature_names_in_ = np.array(fitted.feature_names_in, dtype=object)
        return detector

    def export(self, path: str | Path, form: Literal["onnx"] = "onnx") -> None:
        """Write encoding and potential as one ONNX graph; see :mod:`nrf.detect.onnx`."""
        from nrf.detect.onnx import export_onnx

        if form != "onnx":
            raise InputError(f"the only form to export to is 'onnx', got {form!r}")
        check_is_fitted(self)
        export_onnx(self.fitted_, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _provenance(before: Fitted | None, seed: int, n_rows: int, *, add: bool) -> Provenance:
    """The provenance of a fit that continues another one, or starts fresh."""
    if before is None:
        return Provenance(versions(), seed, n_rows=n_rows)
    known = before.provenance.n_rows
    total = None if add and known is None else n_rows + (known or 0) * add
    return replace(before.provenance, versions=versions(), n_rows=total)


def _names_in(detector: NRFDetector) -> tuple[str, ...] | None:
    names = vars(detector).get("feature_names_in_")
    return None if names is None else tuple(map(str, names))


def _too_few_alone(rule: ThresholdRule) -> str:
    return (
        f"this detector was saved without its calibration rows (keep_examples=False), and {rule.n_calibration} rows "
        f"held out now cannot keep a false-alarm rate of {rule.rate:g} by themselves: nothing is flagged. Give enough "
        f"rows to hold out {rows_needed(rule.rate)}, calibrate(X) on as many, or fit it with keep_examples=True before "
        "it is saved"
    )
