"""KDD Cup 1999, the 10 % file: network connections, most of them attacks.

Reference: the protocol is the one of Zong et al., "Deep Autoencoding Gaussian Mixture Model", 2018. Attacks
are the normal class (label 0); the rows marked "normal.", 19.69 % of 494,021, are the anomalies (label 1).
A random half is set aside for testing; a model is trained on the label-0 rows of the other half.

Columns. 34 continuous features, then the 7 categorical ones one-hot encoded over the values that occur in
the file: protocol_type 3, service 66, flag 11, land 2, logged_in 2, is_host_login 1, is_guest_login 2,
together **121**. Other counts in print come from the same file:

- 118: only protocol_type, service and flag one-hot (80 columns); the four 0/1 features stay one column
  each, beside the 34 continuous ones. The array released with the paper is exactly this, 80 one-hot columns
  first, with min-max statistics taken from *all* attack rows, those of the test half among them.
- 120: one column less than 121. Two columns never change in this file, is_host_login and num_outbound_cmds,
  and dropping either gives 120. The paper's text says 120 but not which.

Scaling. Continuous columns are min-max scaled by the training rows alone, so test values can lie outside
[0, 1]. A column that is constant in the training rows becomes 0 everywhere: always num_outbound_cmds, and for
some seeds a rare counter (su_attempted, urgent, num_access_files).
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from nrf.data.base import (
    Check,
    DataFile,
    Dataset,
    FloatArray,
    LabelArray,
    Notify,
    Splits,
    fact,
    given,
    read_at_most,
    unreadable_as_data_error,
)
from nrf.data.sources import download, first_of
from nrf.errors import DataError

HOME = "https://ndownloader.figshare.com/files/5976042"
FILE = DataFile(
    "kddcup.data_10_percent.gz",
    "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
    2_144_903,
)
# fmt: off
FEATURES = (
    "duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment",
    "urgent", "hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted",
    "num_root", "num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds",
    "is_host_login", "is_guest_login", "count", "srv_count", "serror_rate", "srv_serror_rate",
    "rerror_rate", "srv_rerror_rate", "same_srv_rate", "diff_srv_rate", "srv_diff_host_rate",
    "dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate",
    "dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate",
)
# fmt: on
MOST_BYTES = 2**28
"""Largest size of the plain content in bytes; it has 75 million."""
CATEGORICAL = ("protocol_type", "service", "flag", "land", "logged_in", "is_host_login", "is_guest_login")


@dataclass(frozen=True, eq=False)
class Table:
    """The parsed file. Seven rows in ten repeat an earlier one, so distinct rows are kept once.

    Attributes:
        continuous: Continuous features of the distinct rows.
        one_hot: Categorical features of the distinct rows, one-hot encoded.
        columns: Names of the continuous columns, then of the one-hot columns.
        index: Row ``i`` of the file is ``continuous[index[i]]`` and ``one_hot[index[i]]``.
        labels: ``labels[i]`` is 1 if row ``i`` of the file is an anomaly, else 0.
    """

    continuous: npt.NDArray[np.float64]
    one_hot: FloatArray
    columns: tuple[str, ...]
    index: npt.NDArray[np.int64]
    labels: LabelArray


def read(folder: Path) -> Table:
    """Parse the file. For several splits read it once and call :func:`split` for each seed.

    Args:
        folder: Folder of the file.
    """
    path = folder / FILE.name
    with unreadable_as_data_error(path), gzip.open(path) as stream:
        lines = read_at_most(cast(IO[bytes], stream), MOST_BYTES).splitlines()
    if not lines:
        raise DataError(f"{path} is empty; run `nrf data fetch kddcup99`")
    distinct, index = _encode(lines)
    rows = [line.split(b",") for line in distinct]
    for line, row in zip(distinct, rows, strict=True):
        if len(row) != len(FEATURES) + 1:
            raise DataError(
                f"{path}, line {lines.index(line) + 1}: {len(row)} fields, expected {len(FEATURES) + 1}; "
                "run `nrf data fetch kddcup99`"
            )
    fields = dict(zip([*FEATURES, "label"], zip(*rows, strict=True), strict=True))

    continuous_names = [name for name in FEATURES if name not in CATEGORICAL]
    continuous = np.stack([_numbers(fields[name], name, path) for name in continuous_names], axis=1)
    blocks, block_names = [], []
    for name in CATEGORICAL:
        values, codes = _encode(fields[name])
        order = np.argsort(values)
        blocks.append((codes[:, None] == order).astype(np.float32))
        block_names += [f"{name}={values[k].decode()}" for k in order]
    anomaly = np.array([label == b"normal." for label in fields["label"]], dtype=np.int64)
    return Table(continuous, np.concatenate(blocks, axis=1), (*continuous_names, *block_names), index, anomaly[index])


def features(table: Table) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]]:
    """The distinct rows by column, as they are in the file: numbers, and categories as strings."""
    n_continuous = table.continuous.shape[1]
    found: dict[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]] = {}
    found |= zip(table.columns[:n_continuous], table.continuous.T, strict=True)
    names = [name.partition("=") for name in table.columns[n_continuous:]]
    for feature in dict.fromkeys(feature for feature, _, _ in names):
        places = [i for i, (owner, _, _) in enumerate(names) if owner == feature]
        levels = np.array([names[i][2] for i in places], dtype=object)
        found[feature] = levels[table.one_hot[:, places].argmax(axis=1)]
    return found


def _encode(values: Sequence[bytes]) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """Return the distinct values in order of appearance, and the position of each value among them."""
    codes: dict[bytes, int] = {}
    index = np.fromiter((codes.setdefault(value, len(codes)) for value in values), np.int64, len(values))
    return list(codes), index


def _numbers(values: Sequence[bytes], name: str, path: Path) -> npt.NDArray[np.float64]:
    distinct, codes = _encode(values)
    try:
        return np.array([float(value) for value in distinct])[codes]
    except ValueError as error:
        raise DataError(f"{path}, feature {name}: {error}; run `nrf data fetch kddcup99`") from error


class Halves(NamedTuple):
    """Numbers of the rows of the file to train on and to test on."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def divide(table: Table, seed: int) -> Halves:
    """Draw a random half to test on; the label-0 rows of the other half are to train on."""
    return halves(table.labels, seed)


def halves(labels: LabelArray, seed: int) -> Halves:
    """The same as :func:`divide`, from the labels of all rows."""
    order = np.random.default_rng(seed).permutation(len(labels))
    first, second = np.split(order, [len(order) // 2])
    train = first[labels[first] == 0]
    if len(train) == 0:
        raise DataError("kddcup99: the training half has no attack rows; run `nrf data verify kddcup99`")
    return Halves(train, second)


def scaled(table: Table, train: npt.NDArray[np.int64]) -> FloatArray:
    """All distinct rows, encoded, with continuous columns scaled by the training rows."""
    seen = table.continuous[np.unique(table.index[train])]
    low, span = seen.min(axis=0), np.ptp(seen, axis=0)
    continuous = np.where(span > 0, (table.continuous - low) / np.where(span > 0, span, 1.0), 0.0)
    return np.concatenate([continuous.astype(np.float32), table.one_hot], axis=1)


def split(table: Table, seed: int) -> Splits:
    """Set a random half aside for testing; train on the label-0 rows of the other half.

    Args:
        table: The parsed file.
        seed: Seed of the split.
    """
    train, test = divide(table, seed)
    rows = scaled(table, train)
    return Splits(
        "kddcup99",
        rows[table.index[train]],
        None,
        rows[table.index[test]],
        table.labels[test],
        columns=table.columns,
    )


def draw_split(folder: Path | None, seed: int) -> Splits:
    """Read the file in ``folder`` and return the split drawn with ``seed``."""
    return split(read(given(folder, "kddcup99")), seed)


def load(folder: Path | None) -> Splits:
    """Read the file in ``folder`` and return the split drawn with seed 0."""
    return draw_split(folder, 0)


def fetch(folder: Path, notify: Notify) -> None:
    """Fetch the file from the public source that scikit-learn uses."""

    def from_home() -> None:
        download(HOME, f"sha256:{FILE.sha256}", folder).rename(folder / FILE.name)

    first_of("kddcup99", {HOME: from_home}, notify)


def facts(splits: Splits) -> Iterable[Check]:
    """Check the number of columns, and the anomalies among the test rows of the split with seed 0."""
    assert splits.test is not None
    assert splits.test_labels is not None
    return [
        fact("columns", splits.event_shape, (121,)),
        fact("test rows", len(splits.test), 247_011),
        fact("share of anomalies", round(float(splits.test_labels.mean()), 2), 0.2),
        # All 97,278 anomalies of the file are either in the test half or were left out of the training rows.
        fact("training rows", len(splits.train), 247_010 - 97_278 + int(splits.test_labels.sum())),
        fact("range of training values", (float(splits.train.min()), float(splits.train.max())), (0.0, 1.0)),
    ]


DATASET = Dataset(
    "kddcup99",
    "KDD Cup 1999 10 % file, 494,021 connections, 121 columns; attacks are the normal class",
    (121,),
    load,
    (FILE,),
    fetch,
    facts,
    draw_split=draw_split,
)
