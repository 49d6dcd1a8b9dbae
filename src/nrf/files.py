"""Write files completely or not at all, lock a folder for one process, and check places to write to."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nrf.errors import InputError

log = logging.getLogger(__name__)

PARTIAL = ".partial-nrf-"
"""Prefix of the name of a file that is being written."""
STALE_SECONDS = 60.0
"""Younger files may belong to a process that has not locked them yet."""
LOCK = ".lock"
PATIENCE = 3.0
"""Seconds to wait for a process that is ending."""


@contextmanager
def replaced(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a new file beside ``path``, with an unpredictable name and the same suffix; it replaces ``path`` if all
    went well, and is deleted otherwise.

    At any moment ``path`` is either absent, the old file or the whole new one. Files that a killed process left in the
    folder are deleted first.

    Args:
        path: The target.
        private: Only its owner may read it (mode 0600), at every moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    partial = path.parent / f"{PARTIAL}{secrets.token_hex(8)}{path.suffix}"
    handle = -1
    try:  # begins before the file exists: Ctrl-C may come at any moment
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with suppress(OSError):  # some network file systems have no locks
            _lock(handle)  # held until this process ends
        yield partial
        with partial.open("rb") as written:  # may be another file of that name by now, which does as well
            os.fsync(written.fileno())
        os.chmod(partial, 0o600 if private else 0o666 & ~_umask())  # until here only its owner could read it
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if handle >= 0:
            os.close(handle)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write beside the target, flush to disk, rename over it; ``private`` as for :func:`replaced`."""
    with replaced(path, private=private) as partial:
        partial.write_bytes(content)


def sweep(folder: Path, *, alone: bool = False) -> None:
    """Delete the partial files that killed processes left in a folder.

    Args:
        folder: Where to look.
        alone: Nobody else writes there now, so all partial files are leftovers, also those of earlier versions.
    """
    try:
        entries = [e for e in os.scandir(folder) if e.is_file(follow_symlinks=False)]
    except OSError:  # no such folder, or one that cannot be listed
        return
    for entry in entries:
        if entry.name.startswith(".partial-" if alone else PARTIAL):
            with suppress(OSError):  # gone already, or of another user
                old = time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS
                if alone or (old and is_abandoned(Path(entry.path))):
                    os.unlink(entry.path)


def is_abandoned(path: Path) -> bool:
    """Whether no living process holds the lock of a file or folder; raises an OSError where there are no locks."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return _lock(handle)
    finally:
        os.close(handle)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock that :func:`is_abandoned` looks for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        with suppress(OSError):
            _lock(handle)
        yield
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, patience: float | None = None) -> Iterator[None]:
    """Work in a folder alone: a second process gets an error that names the folder.

    The system releases the lock when the process ends, however it ends. The folder is created if it does not exist, and
    removed again if nothing was put into it.

    Args:
        folder: Where the work is.
        patience: Seconds to wait for the other process, which may be ending; a few seconds if not given.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    handle = _own_lock(path, folder, PATIENCE if patience is None else patience)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        sweep(folder, alone=True)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
        if made:
            with suppress(OSError):
                folder.rmdir()


def _own_lock(path: Path, folder: Path, patience: float) -> int:
    end = time.monotonic() + patience
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            mine = _lock(handle)
        except OSError as error:
            log.warning("%s: no locks on this file system (%s); do not start two runs in one folder", folder, error)
            return handle
        if mine and _is(handle, path):
            return handle
        owner = os.read(handle, 20).decode(errors="replace").strip()
        os.close(handle)
        if mine:  # its last owner deleted it on leaving: lock the next file of that name
            continue
        if time.monotonic() > end:
            by = f"process {owner}" if owner.isdigit() else "another process"
            raise InputError(f"{folder} is in use by {by}; wait until it has ended, stop it, or choose another folder")
        time.sleep(0.1)


def _lock(handle: int) -> bool:
    """Whether the lock could be taken; the system releases it when the process ends."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def require_output(path: Path, *suffixes: str) -> None:
    """Check, before the work and not after it, that a file can be written there and has one of the suffixes."""
    if path.suffix not in suffixes:
        raise InputError(f"{path}: the name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    _require_writable(path.parent, path)


def require_folder(path: Path) -> None:
    """Check the same for a folder, which may not exist yet."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; choose a folder")
    _require_writable(path, path)


def _require_writable(folder: Path, wanted: Path) -> None:
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists() or p.is_symlink())
    if not there.is_dir():
        raise InputError(f"{wanted} cannot be written: {there} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=there, prefix=PARTIAL):
            pass
    except OSError as error:
        raise InputError(f"{wanted} cannot be written ({error.strerror} in {there}); choose another place") from error


def read_json(path: Path, remedy: str) -> Any:
    """The content of a JSON file that nrf wrote; if it is damaged, the error names it and the remedy."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())[:200]}); {remedy}") from error
