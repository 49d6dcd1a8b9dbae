"""KDD Cup 1999 as the array that was released with the paper: the same rows in the same order, in 118 columns.

The first 80 columns are protocol, service and flag, one-hot; 38 numbers follow, the four 0/1 features among them. They
are min-max scaled by *all* attack rows, those of the test half too (see :mod:`nrf.data.kddcup99`). Row i is that of the
10 % file, so the split of one seed has the same rows in both. No public source of the file is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from nrf.data.base import (
    Check,
    DataFile,
    Dataset,
    FloatArray,
    LabelArray,
    Splits,
    fact,
    given,
    unreadable_as_data_error,
)
from nrf.data.kddcup99 import Halves, halves
from nrf.errors import DataError

NAME = "kddcup99-released"
FILE = DataFile(
    "kdd_cup_released.npz",
    "d2c0a6ebb3dcfeccb61ca413bbb0af78eba06de0ff5944e48c770964545e1904",
    2_289_061,
)


@dataclass(frozen=True, eq=False)
class Released:
    """The array: rows of 118 columns, and labels, 1 for an anomaly."""

    rows: FloatArray
    labels: LabelArray

    def divide(self, seed: int) -> Halves:
        """The same halves as :func:`nrf.data.kddcup99.divide` draws with this seed."""
        return halves(self.labels, seed)


def read(folder: Path) -> Released:
    """Read the array in ``folder``; its last column holds the labels."""
    path = folder / FILE.name
    try:
        with unreadable_as_data_error(path), np.load(path, allow_pickle=False) as content:
            array = content["kdd"]
    except (BadZipFile, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}; it must hold the array `kdd`") from error
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path}: `kdd` has the shape {array.shape}, not rows of columns and a label")
    return Released(array[:, :-1].astype(np.float32), array[:, -1].astype(np.int64))


def draw_split(folder: Path | None, seed: int) -> Splits:
    """Read the array in ``folder`` and return the split drawn with ``seed``."""
    array = read(given(folder, NAME))
    train, test = array.divide(seed)
    return Splits(NAME, array.rows[train], None, array.rows[test], array.labels[test])


def load(folder: Path | None) -> Splits:
    """Read the array in ``folder`` and return the split drawn with seed 0."""
    return draw_split(folder, 0)


def facts(splits: Splits) -> Iterable[Check]:
    """Check the numbers of columns and rows of the split with seed 0."""
    assert splits.test is not None
    assert splits.test_labels is not None
    return [
        fact("columns", splits.event_shape, (118,)),
        fact("test rows", len(splits.test), 247_011),
        fact("training rows", len(splits.train), 247_010 - 97_278 + int(splits.test_labels.sum())),
        fact("range of training values", (float(splits.train.min()), float(splits.train.max())), (0.0, 1.0)),
    ]


DATASET = Dataset(
    NAME,
    "KDD Cup 1999 10 % file as the array released with the paper, 118 columns; not fetched: copy it to $NRF_DATA",
    (118,),
    load,
    (FILE,),
    facts=facts,
    draw_split=draw_split,
)
