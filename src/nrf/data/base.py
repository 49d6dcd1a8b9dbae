"""Classes of datasets, and the search for their files.

The order is always the same: the folder given as an argument, then ``$NRF_DATA``, then the cache folder, then
a fetch into the cache folder. A file is used only after its size and SHA-256 have been compared with the
known ones; a wrong file is an error, never a reason to look elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from nrf.errors import DataError, InputError
from nrf.files import STALE_SECONDS, held, is_abandoned

FloatArray = npt.NDArray[np.float32]
LabelArray = npt.NDArray[np.int64]
Notify = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Splits:
    """Training and test rows of one dataset, ready for a model.

    Args:
        name: Name of the dataset.
        train: Training rows, ``(n, *event)``.
        train_labels: One label for each training row, if there are labels.
        test: Test rows, if there are any.
        test_labels: One label for each test row.
        bounds: The range of pixel values; ``None`` where values have no natural limits.
        columns: Names of the columns of a table.

    >>> rows = np.zeros((4, 2), dtype=np.float32)
    >>> Splits("toy", rows).event_shape
    (2,)
    """

    name: str
    train: FloatArray
    train_labels: LabelArray | None = None
    test: FloatArray | None = None
    test_labels: LabelArray | None = None
    bounds: tuple[float, float] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for part, rows, labels in (
            ("train", self.train, self.train_labels),
            ("test", self.test, self.test_labels),
        ):
            if labels is not None and (rows is None or len(rows) != len(labels)):
                n = 0 if rows is None else len(rows)
                raise InputError(f"{self.name}: {n} {part} rows but {len(labels)} labels; give one label for each row")

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.train.shape[1:])


def one_class(splits: Splits, normal: int) -> Splits:
    """Make a one-class detection task: train on one label, test on all of them.

    Test labels become 0 for the ``normal`` class and 1 for every other one (an anomaly).

    Args:
        splits: Rows with labels.
        normal: The label of the normal class.

    >>> x = np.arange(3, dtype=np.float32).reshape(3, 1)
    >>> y = np.array([7, 8, 7])
    >>> task = one_class(Splits("toy", x, y, x, y), normal=7)
    >>> task.train.ravel().tolist(), task.test_labels.tolist()
    ([0.0, 2.0], [0, 1, 0])
    """
    if splits.train_labels is None:
        raise InputError(f"{splits.name} has no training labels, so no class of it can be picked out")
    keep = splits.train_labels == normal
    if not keep.any():
        classes = ", ".join(str(c) for c in np.unique(splits.train_labels))
        raise InputError(f"{splits.name} has no class {normal}; choose one of {classes}")
    test_labels = None if splits.test_labels is None else (splits.test_labels != normal).astype(np.int64)
    return replace(splits, train=splits.train[keep], train_labels=None, test_labels=test_labels)


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset and the content it must have.

    Args:
        name: File name.
        sha256: SHA-256 of the plain content.
        size: Size of the plain content in bytes.
        or_gz: Whether the file may also be compressed, as ``NAME.gz``.
    """

    name: str
    sha256: str
    size: int
    or_gz: bool = False

    def find(self, folder: Path) -> Path | None:
        """Return the path of this file in ``folder``, or ``None``."""
        names = (self.name, f"{self.name}.gz") if self.or_gz else (self.name,)
        return next((folder / name for name in names if (folder / name).is_file()), None)

    def open(self, path: Path) -> IO[bytes]:
        """Open the plain content, whichever form ``path`` has."""
        return cast(IO[bytes], gzip.open(path)) if path.name != self.name else path.open("rb")

    def read(self, folder: Path) -> bytes:
        """Return the whole plain content of this file in ``folder``."""
        path = self.find(folder)
        if path is None:
            raise DataError(f"{folder / self.name} is missing")
        with unreadable_as_data_error(path), self.open(path) as stream:
            return read_at_most(stream, self.size)

    def check(self, folder: Path) -> Check:
        """Compare size and SHA-256 with the known ones."""
        path = self.find(folder)
        expected = f"{self.size} bytes, sha256 {self.sha256}"
        if path is None:
            return Check(str(folder / self.name), False, "missing", expected)
        digest, size = hashlib.sha256(), 0
        try:
            with self.open(path) as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
                    size += len(block)
                    if size > self.size:  # a small .gz can hold terabytes
                        return Check(str(path), False, f"more than {self.size} bytes", expected)
        except (OSError, EOFError, zlib.error) as error:
            return Check(str(path), False, f"unreadable ({error})", expected)
        found = f"{size} bytes, sha256 {digest.hexdigest()}"
        return Check(str(path), found == expected, found, expected)


def read_at_most(stream: IO[bytes], most: int) -> bytes:
    """The whole stream; an OSError if it has more bytes than that.

    >>> import io
    >>> read_at_most(io.BytesIO(b"abc"), 3)
    b'abc'
    """
    content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(f"it has more than {most} bytes")
    return content


class unreadable_as_data_error:  # noqa: N801 - used like a function
    """Context that turns errors of a damaged or forbidden file into a :class:`DataError` that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OSError, EOFError, zlib.error)):
            raise DataError(f"{self.path} cannot be read: {error}") from error


@dataclass(frozen=True)
class Check:
    """One line of a verification: a file's content, or a fact about the loaded data.

    Args:
        item: Path of the file, or name of the fact.
        ok: Whether it is as expected.
        found: The actual value, as text.
        expected: The expected value, as text.
    """

    item: str
    ok: bool
    found: str
    expected: str

    def __str__(self) -> str:
        if self.ok:
            return f"{self.item}: ok ({self.found})"
        return f"{self.item}: found {self.found}, expected {self.expected}"


def fact(item: str, found: object, expected: object) -> Check:
    """Compare a measured fact with the known one.

    >>> str(fact("rows", 3, 4))
    'rows: found 3, expected 4'
    """
    return Check(item, found == expected, str(found), str(expected))


@dataclass(frozen=True)
class Dataset:
    """A dataset by name: its files, how to load them, how to fetch them, and what must be true of the result.

    Args:
        name: Name of the dataset.
        description: One line about it.
        event_shape: Shape of one row, if known.
        load: Loads the data from the folder of the files; from ``None`` if there are no files.
        files: The files; empty for data that is generated or comes with a dependency.
        fetch: Writes the files into the (temporary) folder it is given.
        facts: Checks the loaded data.
        image_shape: (channels, height, width), where events are images.
        draw_split: Loads the split of a seed, where training and test rows are drawn at random; ``load`` gives that of
            seed 0.
    """

    name: str
    description: str
    event_shape: tuple[int, ...] | None
    load: Callable[[Path | None], Splits]
    files: tuple[DataFile, ...] = ()
    fetch: Callable[[Path, Notify], None] | None = None
    facts: Callable[[Splits], Iterable[Check]] | None = None
    image_shape: tuple[int, int, int] | None = None
    draw_split: Callable[[Path | None, int], Splits] | None = None


@dataclass(frozen=True)
class Collection:
    """Several tables under one name: they are fetched, found and checked as a dataset is, and read one by one.

    Args:
        name: Name of the collection.
        description: One line about it.
        files: The files.
        fetch: Writes the files into the (temporary) folder it is given.
        facts: Checks the tables in the folder of the files.
    """

    name: str
    description: str
    files: tuple[DataFile, ...]
    fetch: Callable[[Path, Notify], None]
    facts: Callable[[Path], Iterable[Check]]


class Filed(Protocol):
    """Anything that has files: a :class:`Dataset` or a :class:`Collection`."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> tuple[DataFile, ...]: ...

    @property
    def fetch(self) -> Callable[[Path, Notify], None] | None: ...


def given(folder: Path | None, name: str) -> Path:
    """Return ``folder``; a dataset made of files cannot be loaded without one."""
    if folder is None:
        raise DataError(f"{name} is read from files: give their folder, or call `nrf.data.resolve({name!r})`")
    return folder


def cache_dir() -> Path:
    """Return the folder in which fetched datasets are kept: ``$NRF_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("NRF_CACHE"):
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("nrf"))


def search(dataset: Filed, path: Path | str | None = None) -> Path | None:
    """Return the folder that holds all files of ``dataset``; only their presence is checked."""
    if path is not None:
        return _first_complete(dataset, Path(path), "the given folder")
    if named := os.environ.get("NRF_DATA"):
        root = Path(named).expanduser()
        if not root.is_dir():
            raise DataError(f"NRF_DATA={named} is not a folder; set NRF_DATA to one, or unset it")
        if folder := _first_complete(dataset, root, "NRF_DATA"):
            return folder
    cached = cache_dir() / dataset.name
    return cached if _missing(dataset, cached) == [] else None


def _first_complete(dataset: Filed, root: Path, called: str) -> Path | None:
    for folder in (root / dataset.name, root):
        missing = _missing(dataset, folder)
        if not missing:
            return folder
        if len(missing) < len(dataset.files):
            # Half of a dataset is a copy that went wrong; to search on would hide it.
            raise DataError(
                f"{folder} ({called}) holds only a part of {dataset.name}: {', '.join(missing)} missing; "
                "complete the copy or remove it"
            )
    return None


def _missing(dataset: Filed, folder: Path) -> list[str]:
    return [file.name for file in dataset.files if file.find(folder) is None]


def require(dataset: Filed, path: Path | str | None = None, *, fetch: bool = True) -> Path:
    """Return the folder with the files of ``dataset``, each checked by hash; fetch them if allowed."""
    folder = search(dataset, path)
    if folder is None:
        names = ", ".join(file.name for file in dataset.files)
        if path is not None:
            raise DataError(f"{path} does not hold {dataset.name}: put {names} there, or leave the path out")
        if not fetch or dataset.fetch is None:
            remedy = f"run `nrf data fetch {dataset.name}`, or set" if dataset.fetch is not None else "set"
            raise DataError(
                f"{dataset.name} not found in $NRF_DATA or {cache_dir() / dataset.name}: "
                f"{remedy} NRF_DATA to a folder with {names}"
            )
        return fetch_into_cache(dataset)
    for file in dataset.files:
        report = file.check(folder)
        if not report.ok:
            ours = folder.is_relative_to(cache_dir())
            remedy = (
                f"delete it and run `nrf data fetch {dataset.name}`" if ours else "replace it, or remove the whole copy"
            )
            raise DataError(f"{dataset.name}: {report}; the file is damaged or not the right one: {remedy}")
    return folder


def fetch_into_cache(dataset: Filed, notify: Notify | None = None) -> Path:
    """Fetch the files of ``dataset`` into the cache folder and return their folder.

    Everything is written to a temporary folder beside the final one, checked, and renamed: a fetch that is
    killed leaves nothing that could later be taken for the dataset.
    """
    say = notify or (lambda line: None)
    target = cache_dir() / dataset.name
    if dataset.fetch is None:
        names = ", ".join(file.name for file in dataset.files)
        raise DataError(f"{dataset.name} has no known source to fetch it from: set NRF_DATA to a folder with {names}")
    if _complete_and_right(dataset, target):
        say(f"{dataset.name} is already in {target}")
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        temporary = Path(tempfile.mkdtemp(prefix=f".{dataset.name}-", suffix=".part", dir=target.parent))
    except OSError as error:
        raise DataError(
            f"the cache folder {target.parent} cannot be written: {error}; set NRF_CACHE to one that can"
        ) from error
    try:
        with held(temporary):
            new = temporary / "new"
            new.mkdir()
            dataset.fetch(new, say)
            say(f"checking {len(dataset.files)} files of {dataset.name}")
            for file in dataset.files:
                report = file.check(new)
                if not report.ok:
                    raise DataError(f"{dataset.name}: fetched a wrong file: {report}; nothing was kept")
            # A fetch running beside this one may have finished first; its folder is as good and may be in use.
            if not _complete_and_right(dataset, target):
                if target.exists():
                    target.rename(temporary / "old")
                new.rename(target)
        say(f"{dataset.name} is in {target}")
        return target
    except OSError as error:
        raise DataError(f"{dataset.name} cannot be written to {target}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _complete_and_right(dataset: Filed, folder: Path) -> bool:
    return not _missing(dataset, folder) and all(file.check(folder).ok for file in dataset.files)


def _remove_stale(target: Path) -> None:
    # Only a fetch killed outright leaves its temporary folder.
    for folder in target.parent.glob(f".{target.name}-*.part"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_SECONDS and is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def as_rows(values: npt.NDArray[Any], scale: float, shift: float = 0.0) -> FloatArray:
    """Return ``values / scale + shift`` in float32 with one copy in memory.

    >>> as_rows(np.array([[0, 255]], dtype=np.uint8), 127.5, -1.0).tolist()
    [[-1.0, 1.0]]
    """
    rows = values.astype(np.float32)
    rows /= np.float32(scale)
    rows += np.float32(shift)
    return rows
