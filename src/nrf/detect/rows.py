"""What stands before a detector's networks: checks, the range of pixels, the feature step, the encoding of columns."""

from __future__ import annotations

from collections.abc import Sequence
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
from nrf.errors import InputError


class RowReader:
    """The part of a detector that makes rows of numbers of whatever it is given."""

    features: Any
    categorical: Sequence[str | int] | None
    keep: Sequence[str | int] | None
    max_levels: int
    scaling: Scaling
    device: str
    n_features_in_: int
    encoder_: Schema | None
    pixels_: PixelScale | None
    features_: Any

    def _checked(self, X: Any, *, first: bool = False) -> Any:
        """Rows as an array, a table or images, with the names and the number of columns that the first ones had."""
        if isinstance(X, Frame):
            return X
        X = in_common_form(X)
        if getattr(X, "ndim", 2) == 4 if first else self.pixels_ is not None:
            if first:
                self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
            return np.asarray(X)
        names = names_of(X)
        if names is not None:
            own = None if first or self.features_ is not None else self.encoder_  # else its columns are the step's
            if own is None or not own.lacks_dropped_only(names):
                validate_data(self, X, reset=first, skip_check_array=True)
            if first:
                return as_columns(X) if self.features in ("auto", None) else X
            return X if own is None else read_columns(X)
        # Of later rows the encoder refuses infinite values, by column.
        finite, least = ("allow-nan", 2) if first else (False, 1)
        kinds = [np.float64, np.float32]
        return validate_data(self, X, reset=first, dtype=kinds, ensure_all_finite=finite, ensure_min_samples=least)

    def _read_schema(self, X: Any) -> None:
        """Fit what comes before the networks: the range of pixels, the feature step, and what stands in the columns."""
        self.encoder_, self.pixels_, self.features_ = None, None, None
        if getattr(X, "ndim", 2) == 4:
            if self.categorical or self.keep:
                raise InputError("images have no columns; leave out categorical and keep")
            self.pixels_ = PixelScale.fit(X)
            X = self.pixels_.encode(X)
        step = components_for(X) if self.features == "auto" else self.features
        if step is not None:
            self.features_ = clone(step).fit(X)
            X = self.features_.transform(X)
        if self.pixels_ is not None and step is None:
            return
        levels, keep = self.categorical or (), self.keep or ()
        self.encoder_ = Schema.fit(X, max_levels=self.max_levels, scaling=self.scaling, categorical=levels, keep=keep)

    def _encode(self, X: Any) -> Tensor:
        """Rows as the networks take them."""
        return self._rows_of(self._valid(X))

    def _valid(self, X: Any) -> Any:
        """Rows that were checked against the schema, and went through the feature step."""
        X = self._checked(X)
        if self.features_ is None:
            return X
        if self.pixels_ is None:
            return self.features_.transform(X)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self.features_.transform(self.pixels_.encode(X))
        require_finite_rows(np.isfinite(columns).all(1))
        return columns

    def _rows_of(self, X: Any) -> Tensor:
        encoder = self.encoder_ or self.pixels_
        assert encoder is not None
        return torch.from_numpy(encoder.encode(X)).to(self.device)

    def _surprises(self) -> list[int]:
        """Encoded columns that no network sees."""
        return [] if self.encoder_ is None else self.encoder_.surprises


def require_finite_rows(rows: NDArray[np.bool_]) -> None:
    """Which rows came out finite must be all of them."""
    bad = int((~rows).sum())
    if bad:
        raise InputError(f"{bad} rows have a potential that is not finite: their values are far out of any range")
