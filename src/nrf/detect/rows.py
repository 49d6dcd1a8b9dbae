"""The steps before a detector's networks: checks, the range of pixels, the feature step, the encoding of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import validate_data
from torch import Tensor

from nrf.detect.features import components_for
from nrf.detect.pixels import PixelScale
from nrf.detect.tables.columns import Scaling
from nrf.detect.tables.frame import Frame, as_columns, in_common_form, names_of, read_columns
from nrf.detect.tables.schema import Schema
from nrf.detect.windows import Layout, Windows
from nrf.errors import InputError
from nrf.fields import PairTree

MOST_PAIRED = 200
"""Maximum number of columns of which all pairs are compared; with more there is no tree, since it would take longer
than all else."""


@dataclass(frozen=True)
class RowReader:
    """Turns rows into the numbers that the networks take, as learned from training rows."""

    encoder: Schema | None
    """What was learned about the columns; None for images without a feature step."""
    pixels: PixelScale | None
    """The shape and range of images; None for tables."""
    features: Any
    """The fitted feature step, or None."""
    device: str
    """The device that the numbers go to."""

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        features: Any = "auto",
        max_levels: int = 64,
        scaling: Scaling = "auto",
        categorical: Sequence[str | int] | None = None,
        keep: Sequence[str | int] | None = None,
        device: str = "cpu",
    ) -> RowReader:
        """Fit what comes before the networks: the range of pixels, the feature step, and the encoding of columns.

        Args:
            X: Training rows that were checked.
            features: As for :class:`nrf.detect.NRFDetector`, like all parameters below.
            max_levels: Columns with more levels than this are hashed.
            scaling: Units of numbers.
            categorical: Columns of levels.
            keep: Columns to keep though they look like identifiers.
            device: Where to compute.
        """
        pixels = fitted = None
        if getattr(X, "ndim", 2) == 4:
            if categorical or keep:
                raise InputError("images have no columns; leave out categorical and keep")
            pixels = PixelScale.fit(X)
            X = pixels.encode(X)
        step = components_for(X) if features == "auto" else features
        if isinstance(step, Windows) and (categorical or keep):
            raise InputError(
                "windows have columns of their own names; leave out categorical and keep, and give levels as text"
            )
        if step is not None:
            fitted = clone(step).fit(X)
            X = fitted.transform(X)
        if pixels is not None and step is None:
            return cls(None, pixels, None, device)
        encoder = Schema.fit(X, max_levels=max_levels, scaling=scaling, categorical=categorical or (), keep=keep or ())
        return cls(encoder, pixels, fitted, device)

    @property
    def novelty_columns(self) -> list[int]:
        """Encoded columns that no network sees."""
        return [] if self.encoder is None else self.encoder.novelty_columns

    @property
    def units(self) -> tuple[float, ...]:
        """Factors of encoded columns in distances between rows; empty if all are 1."""
        units = () if self.encoder is None else tuple(float(unit) for unit in self.encoder.units())
        return () if set(units) <= {1.0} else units

    @property
    def pairs(self) -> PairTree | None:
        """The tree of pairs of columns, if some column has levels; the density already covers pairs of numbers."""
        spans = [] if self.encoder is None else self.encoder.learned_spans
        levels = [(column, span) for column, span in spans if column.kind == "categorical"]
        if not levels or not 2 <= len(spans) <= MOST_PAIRED:
            return None
        return PairTree(
            numbers=tuple(span for column, span in spans if column.kind != "categorical"),
            categories=tuple(span for column, span in levels if not column.n_signs),
            codes=tuple((start, start + column.n_signs, stop) for column, (start, stop) in levels if column.n_signs),
        )

    @property
    def groups(self) -> list[slice] | None:
        """Which outputs encode a column of the table; None for images."""
        return None if self.encoder is None else [group for _, group in self.encoder.groups]

    def layout(self, X: Any) -> Layout | None:
        """Which rows are in which window, if the networks see windows; None if they see rows."""
        return self.features.layout(X) if isinstance(self.features, Windows) else None

    def to_rows(self, values: NDArray[np.floating], X: Any) -> NDArray[np.float64]:
        """Turn values of what the networks see (rows or windows) into one value per row: NaN for a row in no window."""
        layout = self.layout(X)
        return np.asarray(values, np.float64) if layout is None else layout.to_rows(values, self.features.how)

    def prepared(self, X: Any) -> Any:
        """Checked rows after the feature step."""
        if self.features is None:
            return X
        if self.pixels is None:
            return self.features.transform(X)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self.features.transform(self.pixels.encode(X))
        require_finite_rows(np.isfinite(columns).all(1))
        return columns

    def encoded(self, prepared: Any) -> Tensor:
        """Prepared rows as the networks take them."""
        encoder = self.encoder or self.pixels
        assert encoder is not None
        return torch.from_numpy(encoder.encode(prepared)).to(self.device)

    def read(self, X: Any) -> Tensor:
        """Checked rows as the networks take them."""
        return self.encoded(self.prepared(X))


def checked(estimator: Any, X: Any, reader: RowReader | None) -> Any:
    """Check rows: an array, a table or images, with the names and the number of columns of the first rows.

    Args:
        estimator: Keeps those names and that number as scikit-learn does; the first rows set them.
        X: Rows.
        reader: What was learned about the first rows; None if these are the first.
    """
    if isinstance(X, Frame):
        return X
    X, first = in_common_form(X), reader is None
    if getattr(X, "ndim", 2) == 4 if reader is None else reader.pixels is not None:
        if first:
            estimator.n_features_in_ = int(np.prod(np.shape(X)[1:]))
            vars(estimator).pop("feature_names_in_", None)  # of a table that was fitted before
        return np.asarray(X)
    names = names_of(X)
    if names is not None:
        own = None if reader is None or reader.features is not None else reader.encoder  # else they are the step's
        if own is None or not own.lacks_dropped_only(names):
            validate_data(estimator, X, reset=first, skip_check_array=True)
        if first:
            return as_columns(X) if estimator.features in ("auto", None) else X
        return X if own is None else read_columns(X)
    # In later rows the encoder refuses infinite values, by column.
    finite, least = ("allow-nan", 2) if first else (False, 1)
    kinds = [np.float64, np.float32]
    return validate_data(estimator, X, reset=first, dtype=kinds, ensure_all_finite=finite, ensure_min_samples=least)


def require_finite_rows(rows: NDArray[np.bool_]) -> None:
    """Raise unless all rows have finite values."""
    bad = int((~rows).sum())
    if bad:
        raise InputError(f"{bad} rows have a potential that is not finite: their values are far out of any range")
