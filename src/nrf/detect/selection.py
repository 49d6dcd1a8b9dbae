"""Choosing settings: by labels where there are some, by anomalies made from normal rows where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.errors import InputError
from nrf.metrics import auroc

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

Floats = NDArray[np.float64]

NEIGHBOURS_AMONG = 2000
"""Rows among which the nearest one is looked for."""


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


def made_anomalies(rows: Tensor, seed: int = 0, groups: Sequence[slice] | None = None) -> dict[str, Tensor]:
    """Five kinds of anomalies from encoded normal rows.

    ``shuffled``: each column from another row, which keeps every column's distribution and breaks what ties them.
    With ``groups`` what encodes a column of the table stays together, so that a row has one level of a category, not
    none or three, which would be told too easily.
    ``uniform``: anywhere in the range of each column. ``noised``: 1.5 standard deviations of noise on a third of them.
    ``outward``: twice as far from the median, for a score that is as high outside as inside is of no use.
    ``apart``: away from the nearest other row by 0.7 of the distance, too little to leave a cluster, enough to thin it.
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


def made_images(images: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Five kinds of anomalies from normal images ``(n, channels, side, side)``.

    ``turned`` by a quarter. ``blended``: the mean of two. ``noised``: with noise of a quarter of the range, within it.
    ``pasted``: a square of half the side from another image, somewhere else. ``quartered``: the quarters exchanged.
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
    """The nearest other row of each."""
    among = flat[:NEIGHBOURS_AMONG]
    found = []
    for start in range(0, len(flat), NEIGHBOURS_AMONG):
        distances = torch.cdist(flat[start : start + NEIGHBOURS_AMONG], among)
        if start == 0:
            distances.fill_diagonal_(float("inf"))
        found.append(among[distances.argmin(1)])
    return torch.cat(found)


def synthetic_auroc(detector: NRFDetector, X: Any, y: Any = None, *, seed: int = 0) -> float:
    """Mean AUROC of normal rows against anomalies made of them: a criterion for settings that needs no labels.

    Rows of a table against :func:`made_anomalies`, images against :func:`made_images`.

    It has the form of a scorer: ``GridSearchCV(NRFDetector(), grid, scoring=synthetic_auroc).fit(X)``.

    Args:
        detector: A fitted detector.
        X: Normal rows it was not trained on.
        y: Ignored.
        seed: Seed of the anomalies.
    """
    rows = detector._encode(X)
    groups = None if detector.encoder_ is None else [group for _, group in detector.encoder_.groups]
    normal, truth = detector._combined(detector.members_.potentials(rows)), np.repeat([0, 1], len(rows))
    made = [detector._combined(detector.members_.potentials(x)) for x in anomalies_of(rows, seed, groups).values()]
    return float(np.mean([auroc(np.concatenate([normal, scores]), truth) for scores in made]))


def anomalies_of(rows: Tensor, seed: int = 0, groups: Sequence[slice] | None = None) -> dict[str, Tensor]:
    """:func:`made_anomalies` of encoded rows of a table, :func:`made_images` of images."""
    return made_images(rows, seed) if rows.ndim == 4 else made_anomalies(rows, seed, groups)
