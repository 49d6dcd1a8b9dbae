"""The 8×8 handwritten digits that come with scikit-learn: small real images that need no download.

Reference: Alpaydin & Kaynak, "Optical Recognition of Handwritten Digits", UCI repository (its test images).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nrf.data.base import Check, Dataset, Splits, as_rows, fact

_SPLIT_SEED = 8


def load(folder: Path | None = None) -> Splits:
    """Return the digits in [0, 1] as 64 columns; a fixed half of every class is for training.

    >>> splits = load()
    >>> splits.train.shape, splits.test.shape
    ((901, 64), (896, 64))
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = as_rows(bunch.data, 16.0), bunch.target.astype(np.int64)
    rng = np.random.default_rng(_SPLIT_SEED)
    train = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(labels == digit))
        train[rows[: (len(rows) + 1) // 2]] = True
    return Splits("digits", images[train], labels[train], images[~train], labels[~train], bounds=(0.0, 1.0))


def facts(splits: Splits) -> Iterable[Check]:
    """Check the number of images and the range of the pixels."""
    assert splits.test is not None
    return [
        fact("images", len(splits.train) + len(splits.test), 1797),
        fact("range of pixels", (float(splits.train.min()), float(splits.train.max())), (0.0, 1.0)),
    ]


DATASET = Dataset(
    "digits",
    "8×8 digits of scikit-learn, 1,797 images (built in)",
    (64,),
    load,
    facts=facts,
    image_shape=(1, 8, 8),
)
