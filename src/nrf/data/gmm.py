"""The toy mixture: 32 narrow Gaussians on four rings in the plane.

Reference: Song & Ou, "Generative Modeling by Inclusive Neural Random Fields", the GMM experiment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nrf.data.base import Check, Dataset, FloatArray, LabelArray, Splits, fact

SIGMA = 0.1
POINTS_PER_MODE = 50
_TRAIN_SEED, _TEST_SEED, _REPORTED_SEED = 20, 21, 22


def means() -> npt.NDArray[np.float64]:
    """Return the centres of the 32 modes, ring by ring from the inside.

    Rings of radius 2 and 4 have modes at angles 2πi/8, those of radius 3 and 5 at (2i+1)π/8.

    >>> means().shape
    (32, 2)
    >>> bool(np.allclose(means()[0], [2.0, 0.0]))
    True
    """
    i = np.arange(8)
    rings = []
    for radius in (2.0, 3.0, 4.0, 5.0):
        angle = 2 * np.pi * i / 8 if radius in (2.0, 4.0) else (2 * i + 1) * np.pi / 8
        rings.append(radius * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return np.concatenate(rings)


def draw(seed: int) -> tuple[FloatArray, LabelArray]:
    """Draw 50 points from each mode; labels are mode indices.

    Args:
        seed: Seed of the draw.

    >>> points, modes = draw(seed=0)
    >>> points.shape, np.bincount(modes).tolist() == [50] * 32
    ((1600, 2), True)
    """
    labels = np.repeat(np.arange(32, dtype=np.int64), POINTS_PER_MODE)
    noise = np.random.default_rng(seed).standard_normal((len(labels), 2))
    return (means()[labels] + SIGMA * noise).astype(np.float32), labels


def load(folder: Path | None = None) -> Splits:
    """Return the 1,600 training points and as many test points; the same ones every time."""
    train, train_labels = draw(_TRAIN_SEED)
    test, test_labels = draw(_TEST_SEED)
    return Splits("gmm", train, train_labels, test, test_labels, columns=("x1", "x2"))


def reported() -> FloatArray:
    """Return 1,600 more points, for reported likelihoods; settings were chosen by the test points.

    >>> reported().shape
    (1600, 2)
    """
    return draw(_REPORTED_SEED)[0]


def facts(splits: Splits) -> Iterable[Check]:
    """Check the number of points and their spread around the modes."""
    assert splits.train_labels is not None
    spread = (splits.train - means()[splits.train_labels]).std()
    return [
        fact("training points", splits.train.shape, (1600, 2)),
        fact("points per mode", sorted(set(np.bincount(splits.train_labels).tolist())), [POINTS_PER_MODE]),
        fact("spread around the modes", round(float(spread), 2), SIGMA),
    ]


DATASET = Dataset("gmm", "32 Gaussian modes on four rings, 1,600 points (generated)", (2,), load, facts=facts)
