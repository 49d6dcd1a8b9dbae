"""Reading a user's own rows for scoring, with errors that say which cell is wrong."""

from __future__ import annotations

import csv
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nrf.data.base import FloatArray
from nrf.errors import InputError

SUFFIXES = (".npz", ".npy", ".csv", ".txt")


def read_array(path: Path | str, event_shape: tuple[int, ...]) -> FloatArray:
    """Read rows of ``event_shape`` from a file and return them as float32, shape (n, \\*event_shape).

    - ``.npz``: the array ``x``, or the only one; ``.npy``. Pickled content is refused.
    - ``.csv``, ``.txt``: one row per line, cells separated by commas or blanks. A first line without any
      number is taken as a header; blank lines and lines that start with ``#`` are skipped.

    Events with several axes (images) may come as flat rows. Values are taken as they are, never rescaled.

    Args:
        path: The file.
        event_shape: Shape of one row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("a,b\\n1,2\\n3,4\\n")
    ...     read_array(file, (2,)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path} has the suffix {suffix or '(none)'!r}; files can be {', '.join(SUFFIXES)}: "
            "convert it to one of these"
        )
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}; give the path of a {', '.join(SUFFIXES)} file")
    try:
        raw = _read_text(path) if suffix in (".csv", ".txt") else _read_numpy(path, suffix)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return _as_events(raw, path, event_shape)


def _read_numpy(path: Path, suffix: str) -> npt.NDArray[Any]:
    try:
        _require_size(path)
        content = np.load(path, allow_pickle=False)
        if suffix == ".npz" and isinstance(content, np.ndarray):
            raise InputError(f"{path} is a single array, not an .npz archive; rename it to .npy")
        if isinstance(content, np.ndarray):
            return content
        with content:
            if suffix == ".npy":
                raise InputError(f"{path} is an .npz archive, not a single array; rename it to .npz")
            keys = list(content.files)
            if "x" not in keys and len(keys) != 1:
                raise InputError(
                    f"{path} holds {', '.join(keys) or 'no arrays'}; name the array to be read `x`, or save it alone"
                )
            array: npt.NDArray[Any] = content["x" if "x" in keys else keys[0]]
            return array
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory ({error}); give fewer rows at a time") from error
    except _UNREADABLE as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise InputError(
                f"{path} is not a NumPy file or holds pickled Python objects, which are never loaded; "
                "save a plain numeric array"
            ) from error
        raise InputError(
            f"{path} is not a readable {suffix} file: {str(error)[:200]}; save it again with numpy"
        ) from error


_UNREADABLE = (
    *(ValueError, TypeError, LookupError, OverflowError, RecursionError, NotImplementedError, SyntaxError, EOFError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors that NumPy and zipfile raise for files that are damaged or malicious."""


def _require_size(path: Path) -> None:
    """Refuse a zip archive that would not fit into memory: even a small one can hold more than that."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        size = max((info.file_size for info in archive.infolist()), default=0)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:
        raise MemoryError(f"unpacked it has {size} bytes, this machine {memory}")


def _read_text(path: Path) -> npt.NDArray[np.float64]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8: {error}") from error
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    try:
        table = list(csv.reader(lines)) if lines and "," in lines[0] else [line.split() for line in lines]
    except csv.Error as error:
        raise InputError(f"{path} is not a readable table: {error}") from error
    if table and not any(_is_number(cell) for cell in table[0]):
        del table[0]
    rows = []
    for r, cells in enumerate(table, start=1):
        if len(cells) != len(table[0]):
            raise InputError(
                f"{path}: row {r} has {len(cells)} columns, row 1 has {len(table[0])} "
                "(rows counted from 1, header not counted)"
            )
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            c = next(c for c, cell in enumerate(cells) if not _is_number(cell))
            what = repr(cells[c]) if cells[c].strip() else "an empty cell"
            raise InputError(
                f"{path}: row {r}, column {c + 1} is {what}, not a number (counted from 1, header not counted)"
            ) from None
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _as_events(raw: npt.NDArray[Any], path: Path, event_shape: tuple[int, ...]) -> FloatArray:
    if raw.dtype.kind not in "biuf":
        raise InputError(f"{path} holds values of type {raw.dtype}, not real numbers; save a plain numeric array")
    if raw.size == 0:
        raise InputError(f"{path} is empty: it has no rows to read")
    width = math.prod(event_shape)
    if raw.shape[1:] != event_shape and raw.shape[1:] != (width,) and not (raw.ndim == 1 and width == 1):
        if raw.ndim == 2:
            raise InputError(f"{path} has {raw.shape[1]} columns, the model expects {width}")
        wanted = f"(n, {', '.join(map(str, event_shape))})"
        flat = f" or (n, {width})" if len(event_shape) > 1 else ""
        raise InputError(f"{path} has the shape {raw.shape}, the model expects {wanted}{flat}")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(raw.reshape(len(raw), width), dtype=np.float32)
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        r, c = bad[0]
        value = raw.reshape(len(raw), width)[r, c]
        raise InputError(
            f"{path}: row {r + 1}, column {c + 1} is {value}, not a finite 32-bit number "
            f"(counted from 1, header not counted; {len(bad)} such cells in all): fill or drop such rows"
        )
    return rows.reshape(len(rows), *event_shape)
