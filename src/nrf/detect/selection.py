"""Choosing settings: by labels if there are any, else by synthetic anomalies made from normal rows."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.deprecation import former_names
from nrf.detect.tables.frame import Frame, as_array, as_columns, in_common_form, is_table
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from nrf.metrics import auroc

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

Floats = NDArray[np.float64]

NEIGHBOURS_AMONG = 2000
"""Number of rows among which the nearest one is searched."""


def labelled_auroc(scores: Floats, y: Any) -> float:
    """AUROC of scores, high = normal, against labels: ±1 with −1 = anomaly, or 0/1 with 1 = anomaly."""
    labels = np.asarray(y).ravel()
    if len(labels) != len(scores):
        raise InputError(f"{len(labels)} labels for {len(scores)} rows")
    kinds = set(np.unique(labels).tolist())
    if not kinds <= {-1, 1} and not kinds <= {0, 1}:
        raise InputError(f"labels must be ±1 (−1 = anomaly) or 0/1 (1 = anomaly), got {sorted(kinds)[:5]}")
    normal = labels > 0 if -1 in kinds else labels == 0
    if normal.all() or not normal.any():
        raise InputError("AUROC needs normal rows and anomalies; all labels are equal")
    return auroc(scores, (~normal).astype(np.int64))


def synthetic_anomalies(rows: Tensor, seed: int = 0, groups: Sequence[slice] | None = None) -> dict[str, Tensor]:
    """Five kinds of synthetic anomalies from encoded normal rows.

    ``shuffled``: each column from another row, which keeps every column's distribution and breaks their dependence.
    With ``groups`` the outputs that encode one column of the table stay together, so that a row has one level of a
    category, not none or three, which would be recognised too easily. ``uniform``: anywhere in the range of each
    column. ``noised``: 1.5 standard deviations of noise on a third of them. ``outward``: twice as far from the median,
    since a score that is as high outside as inside is of no use. ``apart``: away from the nearest other row by 0.7 of
    the distance, too little to leave a cluster, enough to lie in a sparser region.
    """
    rng = torch.Generator().manual_seed(seed)
    flat = rows.flatten(1).cpu()
    n, d = flat.shape
    order = torch.argsort(torch.rand(n, d, generator=rng), dim=0)
    for group in groups or ():
        order[:, group] = order[:, group.start, None]
    shuffled = torch.gather(flat, 0, order)
    low, high = flat.amin(0), flat.amax(0)
    uniform = low + (high - low) * torch.rand(n, d, generator=rng)
    chosen = torch.rand(n, d, generator=rng) < 1 / 3
    noised = flat + chosen * 1.5 * flat.std(0) * torch.randn(n, d, generator=rng)
    middle = flat.median(0).values
    outward = middle + 2 * (flat - middle)
    apart = flat + 0.7 * (flat - _nearest(flat))
    made = {"shuffled": shuffled, "uniform": uniform, "noised": noised, "outward": outward, "apart": apart}
    return {name: value.reshape(rows.shape).to(rows.device) for name, value in made.items()}


def synthetic_images(images: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Five kinds of synthetic anomalies from normal images ``(n, channels, side, side)``.

    ``turned``: rotated by 90°. ``blended``: the mean of two. ``noised``: with noise of a quarter of the range, within
    it. ``pasted``: a square of half the side from another image, somewhere else. ``quartered``: the four quarters
    exchanged.
    """
    rng = torch.Generator().manual_seed(seed)
    cpu = images.cpu()
    n, side = len(cpu), cpu.shape[2]
    low, high = cpu.min(), cpu.max()
    others = cpu[(torch.arange(n) + torch.randint(1, max(2, n), (n,), generator=rng)) % n]
    noise = (high - low) / 4 * torch.randn(cpu.shape, generator=rng)
    half = side // 2
    pasted = cpu.clone()
    corners = torch.randint(0, side - half + 1, (n, 4), generator=rng).tolist()
    for image, other, (top, left, row, column) in zip(pasted, others, corners, strict=True):
        image[:, top : top + half, left : left + half] = other[:, row : row + half, column : column + half]
    made = {
        "turned": cpu.rot90(1, (2, 3)),
        "blended": (cpu + others) / 2,
        "noised": (cpu + noise).clamp(low, high),
        "pasted": pasted,
        "quartered": cpu.roll((half, half), (2, 3)),
    }
    return {name: value.to(images.device) for name, value in made.items()}


def _nearest(flat: Tensor) -> Tensor:
    """The nearest other row of each row."""
    among = flat[:NEIGHBOURS_AMONG]
    found = []
    for start in range(0, len(flat), NEIGHBOURS_AMONG):
        distances = torch.cdist(flat[start : start + NEIGHBOURS_AMONG], among)
        if start == 0:
            distances.fill_diagonal_(float("inf"))
        found.append(among[distances.argmin(1)])
    return torch.cat(found)


def synthetic_auroc(detector: Any, X: Any, y: Any = None, *, seed: int = 0) -> float:
    """Mean AUROC of normal rows against synthetic anomalies: a criterion for settings that needs no labels.

    Rows of a table against :func:`synthetic_anomalies`, images against :func:`synthetic_images`.

    It has the form of a scorer: ``GridSearchCV(NRFDetector(), grid, scoring=synthetic_auroc, error_score="raise")``.
    Without ``error_score`` scikit-learn turns errors of a scorer into NaN and a warning, and the search goes on.

    A pipeline, or another detector with scikit-learn's interface, is scored as a whole: anomalies are made from the
    rows it is given, not from what its last step gets. So all candidates of a search face the same anomalies, also
    where they differ in an earlier step. The rows are encoded and decoded by a :class:`nrf.detect.tables.schema.Schema`
    of their own, which keeps missing values, categories and dates as they are; numbers become 64-bit floats. Steps
    before the detector must take values they have not seen.

    Args:
        detector: A fitted detector, or a fitted pipeline that ends in one; it must have ``score_samples``.
        X: Normal rows it was not trained on.
        y: Ignored.
        seed: Seed of the anomalies.

    Raises:
        InputError: The detector has no ``score_samples``, there are fewer than two rows, or a score is not finite.
    """
    from nrf.detect.detector import NRFDetector

    if isinstance(detector, NRFDetector):
        normal, made = _scores_of_encoded(detector, X, seed)
    elif hasattr(detector, "score_samples"):
        normal = _scores(detector, X)
        made = [_scores(detector, rows) for rows in _synthetic_like(X, seed)]
    else:
        last = detector.steps[-1][1] if hasattr(detector, "steps") else detector
        raise InputError(
            f"synthetic_auroc needs score_samples, which {type(last).__name__} does not have; "
            "let the pipeline end in a detector such as NRFDetector"
        )
    if not all(np.isfinite(scores).all() for scores in (normal, *made)):
        raise InputError("some scores are not finite, so there is no AUROC; look at score_samples of these rows")
    truth = np.repeat([0, 1], len(normal))
    return float(np.mean([auroc(np.concatenate([normal, scores]), truth) for scores in made]))


def _scores_of_encoded(detector: NRFDetector, X: Any, seed: int) -> tuple[Floats, list[Floats]]:
    """Scores of the rows, and of anomalies made from them in the form that the networks take."""
    X, fitted = detector._checked(X), detector.fitted_
    rows = fitted.reader.read(X)
    _require_rows(len(rows))
    anomalies = anomalies_of(rows, seed, fitted.reader.groups)
    normal, *made = (fitted.combined(fitted.replicas.potentials(x)) for x in (rows, *anomalies.values()))
    return normal, made


def anomalies_of(rows: Tensor, seed: int = 0, groups: Sequence[slice] | None = None) -> dict[str, Tensor]:
    """:func:`synthetic_anomalies` of encoded rows of a table, :func:`synthetic_images` of images."""
    return synthetic_images(rows, seed) if rows.ndim == 4 else synthetic_anomalies(rows, seed, groups)


def _scores(detector: Any, X: Any) -> Floats:
    return np.asarray(detector.score_samples(X), dtype=np.float64)


def _synthetic_like(X: Any, seed: int) -> list[Any]:
    """Synthetic anomalies made from rows, in the form of those rows."""
    X = in_common_form(X)
    if np.ndim(X) == 4:
        _require_rows(len(X))
        images = np.asarray(X)
        made = synthetic_images(torch.from_numpy(images.astype(np.float32)), seed)
        return [x.numpy().astype(images.dtype) for x in made.values()]
    frame = as_columns(X)
    _require_rows(frame.n_rows)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="columns left out")
        # No column is hashed, since hashes cannot be decoded. Anomalies are the same whatever the scaling of a detector
        # is.
        encoder = Schema.fit(frame, max_levels=max(2, frame.n_rows), scaling="quartiles")
    groups = [group for _, group in encoder.groups]
    made = synthetic_anomalies(torch.from_numpy(encoder.encode(frame)), seed, groups)
    return [_decoded(encoder, rows.numpy(), frame, X) for rows in made.values()]


def _decoded(encoder: Schema, rows: NDArray[np.float32], frame: Frame, like: Any) -> Any:
    """Encoded rows as a table or an array like the one they were made from, whose frame is given too.

    Columns that the encoder left out, and outputs that match no level of the column, keep their former values.
    """
    values: dict[str, list[Any]] = {}
    for place, column, (name, group) in zip(encoder.kept, encoder.kept_columns, encoder.groups, strict=True):
        values[name] = column.decode_column(rows[:, group].tolist(), frame.column(place))
    if not is_table(like):
        array = as_array(like)
        array = array.astype(np.float64 if array.dtype.kind in "iuf" else array.dtype)
        for place, name in zip(encoder.kept, values, strict=True):
            array[:, place] = np.array(values[name], dtype=array.dtype)
        return array
    import narwhals.stable.v2 as nw

    table = nw.from_native(like, eager_only=True)
    made = [_series_like(column, values[column.name]) for column in table.iter_columns() if column.name in values]
    return table.with_columns(*made).to_native()


def _series_like(column: Any, values: list[Any]) -> Any:
    """Values as a column of a table, in the type of another column unless that one holds numbers."""
    import narwhals.stable.v2 as nw

    dtype = column.dtype
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        values = [None if v is None else v.replace(tzinfo=dt.UTC) for v in values]
    try:
        if isinstance(dtype, nw.Duration):
            values = [None if v is None else dt.timedelta(seconds=v) for v in values]
        made = nw.new_series(column.name, values, backend=column.implementation)
        return made if dtype.is_numeric() else made.cast(dtype)
    except Exception as error:  # each library has exceptions of its own
        raise InputError(
            f"no anomalies can be made of column {column.name!r} of type {dtype} ({error}); give its values as numbers"
        ) from error


def _require_rows(count: int) -> None:
    if count < 2:
        raise InputError(f"anomalies are made of at least two normal rows, got {count}")


__getattr__ = former_names(
    __name__,
    {
        "made_anomalies": "nrf.detect.selection.synthetic_anomalies",
        "made_images": "nrf.detect.selection.synthetic_images",
    },
)
