"""The public homes, played by a server on this host: what is downloaded ends up as the dataset's files."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nrf import data
from nrf.data import cifar10, kddcup99, mnist, sources
from nrf.data.base import DataFile
from nrf.errors import DataError

CONTENT = b"tiny"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A served folder and its address; no npm, an empty cache."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("NRF_DATA", raising=False)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def _tiny(file: DataFile) -> DataFile:
    return replace(file, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_mnist_from_its_home(home: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = home
    files = tuple(_tiny(file) for file in mnist.FILES)
    for file in files:
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(CONTENT))
    hashes = {file.name: _md5(folder / f"{file.name}.gz") for file in files}
    monkeypatch.setattr(mnist, "HOME", address)
    monkeypatch.setattr(mnist, "_MD5_OF_GZ", hashes)
    monkeypatch.setitem(data.DATASETS, "mnist", replace(mnist.DATASET, files=files))
    assert sorted(os.listdir(data.fetch("mnist"))) == sorted(f"{file.name}.gz" for file in files)


def test_a_download_without_end_is_given_up(home: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = home
    (folder / "large.gz").write_bytes(bytes(5000))
    monkeypatch.setattr(sources, "MOST_BYTES", 4999)
    (folder / "into").mkdir()
    with pytest.raises(DataError, match=r"large.gz: it has more than 4999 bytes"):
        sources.download(f"{address}large.gz", f"md5:{_md5(folder / 'large.gz')}", folder / "into")
    assert os.listdir(folder / "into") == []
    monkeypatch.setattr(sources, "MOST_BYTES", 5000)
    assert sources.download(f"{address}large.gz", f"md5:{_md5(folder / 'large.gz')}", folder / "into").is_file()


def test_cifar10_from_its_home(home: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = home
    files = tuple(_tiny(file) for file in cifar10.FILES)
    inside = folder / "cifar-10-batches-bin"
    inside.mkdir()
    for file in files:
        (inside / file.name).write_bytes(CONTENT)
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as tar:
        tar.add(inside, inside.name)
    monkeypatch.setattr(cifar10, "HOME", f"{address}cifar.tar.gz")
    monkeypatch.setattr(cifar10, "_MD5_OF_TAR", _md5(folder / "cifar.tar.gz"))
    monkeypatch.setitem(data.DATASETS, "cifar10", replace(cifar10.DATASET, files=files))
    assert sorted(os.listdir(data.fetch("cifar10"))) == sorted(file.name for file in files)


def test_kddcup99_from_its_home(home: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = home
    (folder / "5976042").write_bytes(CONTENT)
    monkeypatch.setattr(kddcup99, "HOME", f"{address}5976042")
    monkeypatch.setattr(kddcup99, "FILE", _tiny(kddcup99.FILE))
    monkeypatch.setitem(data.DATASETS, "kddcup99", replace(kddcup99.DATASET, files=(kddcup99.FILE,)))
    assert os.listdir(data.fetch("kddcup99")) == [kddcup99.FILE.name]


def test_a_home_with_other_content_is_refused(
    home: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = home
    (folder / "5976042").write_bytes(b"moved")
    monkeypatch.setattr(kddcup99, "HOME", f"{address}5976042")
    with pytest.raises(DataError, match=r"kddcup99 could not be fetched.*does not match the known hash"):
        data.fetch("kddcup99")
    monkeypatch.setattr(kddcup99, "HOME", f"{address}gone")
    with pytest.raises(DataError, match=r"kddcup99 could not be fetched.*404"):
        data.fetch("kddcup99")
    assert os.listdir(tmp_path / "cache") == []
