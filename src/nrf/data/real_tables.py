"""Sixteen real tables with labelled anomalies, from ADBench's classical collection.

Reference: Han, Hu, Huang, Jiang & Zhao, "ADBench: Anomaly detection benchmark", 2022 (BSD 2-clause); each table comes
from UCI or ODDS.

A file ``NAME.npz`` holds ``X``, float32, and ``y``, int8, 1 for an anomaly. ADBench's own files differ: they
hold doubles, and three of them (ALOI, campaign, cover) have more rows. Of these at most 12,000 normal rows and 2,000
anomalies were drawn at random, once, and stay in ADBench's order. A fetch takes ADBench's files at a fixed commit and
picks the same rows by their hashes, which ``real_tables_rows.npz`` keeps in order. Sizes and hashes are those of the
numbers, ``X`` and then ``y``, so that they do not change with the compression of a file.

Protocol: a random half of the normal rows trains; the other half and all anomalies test. Labels may be used to report,
never to choose.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nrf.data.base import Check, Collection, DataFile, FloatArray, Notify, fact
from nrf.data.sources import MOST_BYTES, download, first_of
from nrf.errors import DataError, InputError

COMMIT = "f7fed68dea6901fe9a81ed51b251b1d2456790cd"
HOME = f"https://raw.githubusercontent.com/Minqi824/ADBench/{COMMIT}/adbench/datasets/Classical/"
KEPT_ROWS = "real_tables_rows.npz"
Labels = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class RealTable:
    """The rows of one table, and labels that mark the anomalies."""

    name: str
    rows: FloatArray
    labels: Labels
    """1 for an anomaly."""


class ArraysFile(DataFile):
    """A table in an .npz file; size and hash are those of the numbers in it."""

    def check(self, folder: Path) -> Check:
        """Compare size and SHA-256 of the numbers with the known ones."""
        path, expected = folder / self.name, f"{self.size} bytes of numbers, sha256 {self.sha256}"
        if not path.is_file():
            return Check(str(path), False, "missing", expected)
        try:
            rows, labels = _arrays(path, self.size)
        except DataError as error:
            return Check(str(path), False, f"unreadable ({error})", expected)
        found = f"{rows.nbytes + labels.nbytes} bytes of numbers, sha256 {_digest(rows, labels)}"
        return Check(str(path), found == expected, found, expected)


@dataclass(frozen=True)
class Source:
    """Known facts about one table."""

    number: int
    """Number of ADBench's file."""
    sha256: str
    shape: tuple[int, int]
    anomalies: int
    cut: bool = False
    """Whether ADBench's table has more rows."""

    @property
    def size(self) -> int:
        """Bytes of rows and labels."""
        return self.shape[0] * (4 * self.shape[1] + 1)


# fmt: off
TABLES: dict[str, Source] = {
    "ALOI": Source(1, "1d9ab82c1b2ad816d38c7581a4163c8226d055fba5ef2a71b9312875092dc245", (13508, 27), 1508, True),
    "annthyroid": Source(2, "5ac334c2355c3322ff024fac90c9044b02ee409bb0fccaecce5d5eb21f8e6b38", (7200, 6), 534),
    "campaign": Source(5, "ac8b4539274efdf8e56e943c8cd84b53473463591afe723991c94125a31e34f8", (14000, 62), 2000, True),
    "Cardiotocography": Source(7, "8725dbfc56cd3f027d3db14eda7d987fbabc7586360cdcba8534e7ab4d67079d", (2114, 21), 466),
    "cover": Source(10, "be1d43b68bb98905beb98ba4fa3e817527f5c148a312d1afe6585fd14b0be194", (14000, 10), 2000, True),
    "fault": Source(12, "a68d9dc1c7e16f0e97a0b59ddf66b10d5b7d2d61aeb2dc69cf26ec4075c402c5", (1941, 27), 673),
    "glass": Source(14, "294135c59e6f42ef6804f02e6e6db39e30595b5f8a836acc7955681cafb4f9bf", (214, 7), 9),
    "landsat": Source(19, "561f0b3c748089e9adb87191dab949b01b2d0516d536f4ed527973bbd081174f", (6435, 36), 1333),
    "letter": Source(20, "a743ae7a36f2cc34a8d0eec32c934e789cbc6ab7bd4f253702f1bfd51e94f95d", (1600, 32), 100),
    "mammography": Source(23, "d3b8f1440f253da0e680587c974aa58813d10770d103d9b93366988c5ac93196", (11183, 6), 260),
    "optdigits": Source(26, "40a4f2bcbcc7f623288a6766ff1c360beb1906bb12fde63fce8189b177eb8b0f", (5216, 64), 150),
    "PageBlocks": Source(27, "fc0f2338896fba2ab2e3b196a6e47c5dd0b051add3f0f929dc603c982165ea33", (5393, 10), 510),
    "Pima": Source(29, "76560843bddc27599615fd82f8e3dd813c02fc43136ab9be96ffcb8173cb4141", (768, 8), 268),
    "vowels": Source(40, "12769c8f7e5e3e0bd5a28951573d9be88edd1639fa5ed4e7db341959bbc5ec05", (1456, 12), 50),
    "Waveform": Source(41, "38677bd7be654e2ee230094358ba820be63cba89c6c9e69b37210e64e6b13d7b", (3443, 21), 100),
    "Wilt": Source(44, "ed80c2228c4920079d950bb72f913be891eb45a5009138f68c3d55d6a88d3ba0", (4819, 5), 257),
}
# fmt: on
FILES = tuple(ArraysFile(f"{name}.npz", source.sha256, source.size) for name, source in TABLES.items())


def read(folder: Path, name: str) -> RealTable:
    """Read one table.

    Args:
        folder: The folder that :func:`nrf.data.folder_of` returns.
        name: Name of the table, in ``TABLES``.
    """
    if name not in TABLES:
        raise InputError(f"unknown table {name!r}; there are {', '.join(TABLES)}")
    return RealTable(name, *_arrays(folder / f"{name}.npz", TABLES[name].size))


def _arrays(path: Path, most: int) -> tuple[FloatArray, Labels]:
    """Rows and labels of a file; an error if they have more than ``most`` bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > most + 2**16:  # for the headers
                raise DataError(f"{path} holds more than {most} bytes")
        with np.load(path, allow_pickle=False) as content:
            rows, labels = content["X"], content["y"].reshape(-1)
    except (OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise DataError(f"{path} holds rows {rows.shape} and labels {labels.shape}")
    return np.ascontiguousarray(rows, dtype="<f4"), np.ascontiguousarray(labels, dtype=np.int8)


def _digest(rows: FloatArray, labels: Labels) -> str:
    return hashlib.sha256(rows.tobytes() + labels.tobytes()).hexdigest()


# ------------------------------------------------------------------------------------------------------------ fetching


def row_hashes(rows: FloatArray, labels: Labels) -> npt.NDArray[np.uint32]:
    """Four bytes for each row and its label."""
    lines = np.concatenate([rows.view(np.uint8).reshape(len(rows), -1), labels.view(np.uint8)[:, None]], axis=1)
    found = b"".join(hashlib.blake2b(line.tobytes(), digest_size=4).digest() for line in lines)
    return np.frombuffer(found, dtype="<u4")


def pick(hashes: npt.NDArray[np.uint32], kept: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Indices of the rows that were kept, in order; equal rows are distinguished by the rows before and after them.

    Example:
        >>> pick(np.array([5, 7, 5, 9], dtype=np.uint32), np.array([7, 5], dtype=np.uint32)).tolist()
        [1, 2]
    """
    places, wanted = list[int](), kept.tolist()
    for i, value in enumerate(hashes.tolist()):
        if len(places) < len(wanted) and value == wanted[len(places)]:
            places.append(i)
    if len(places) < len(wanted):
        raise DataError(f"{len(wanted) - len(places)} of {len(wanted)} rows are not there")
    return np.array(places, dtype=np.int64)


def fetch(folder: Path, notify: Notify) -> None:
    """Fetch ADBench's files from its repository; keep the rows that belong to the collection, as float32."""

    def from_home() -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            for name, source in TABLES.items():
                notify(f"downloading {source.number}_{name}.npz")
                path = download(f"{HOME}{source.number}_{name}.npz", None, Path(temporary))
                rows, labels = _arrays(path, MOST_BYTES)
                if source.cut:
                    rows, labels = _cut(name, rows, labels)
                np.savez_compressed(folder / f"{name}.npz", X=rows, y=labels)

    first_of("tables", {HOME: from_home}, notify)


def _cut(name: str, rows: FloatArray, labels: Labels) -> tuple[FloatArray, Labels]:
    with as_file(files("nrf.data") / KEPT_ROWS) as path, np.load(path, allow_pickle=False) as kept:
        try:
            places = pick(row_hashes(rows, labels), kept[name])
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    return rows[places], labels[places]


def facts(folder: Path) -> Iterable[Check]:
    """Rows, columns and anomalies of each table."""
    for name, source in TABLES.items():
        table = read(folder, name)
        yield fact(f"{name}: shape", table.rows.shape, source.shape)
        yield fact(f"{name}: anomalies", int(table.labels.sum()), source.anomalies)
        yield fact(f"{name}: finite", bool(np.isfinite(table.rows).all()), True)


COLLECTION = Collection(
    "tables",
    "sixteen tables of ADBench with labelled anomalies, 214 to 14,000 rows; nrf.data.real_tables.read takes one",
    FILES,
    fetch,
    facts,
)
