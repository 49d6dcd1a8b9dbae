"""Where files are looked for, what happens to wrong ones, and what a fetch leaves behind."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nrf import data
from nrf.data.base import DataFile, Dataset, Notify, Splits
from nrf.errors import DataError, InputError

CONTENT = {"one.bin": b"first file", "two.bin": b"second file"}


def _file(name: str, *, or_gz: bool = False) -> DataFile:
    content = CONTENT[name]
    return DataFile(name, hashlib.sha256(content).hexdigest(), len(content), or_gz)


def _write(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


def _load(folder: Path | None) -> Splits:
    assert folder is not None
    return Splits(str(folder), np.zeros((1, 1), dtype=np.float32))


def _fetch(folder: Path, notify: Notify) -> None:
    notify("writing")
    _write(folder)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NRF_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    dataset = Dataset("toy", "two files", (1,), _load, (_file("one.bin"), _file("two.bin")), _fetch)
    monkeypatch.setitem(data.DATASETS, "toy", dataset)
    return dataset


def test_the_argument_comes_first_then_nrf_data_then_the_cache(toy: Dataset, tmp_path: Path) -> None:
    given, named, cached = (_write(tmp_path / p) for p in ("given", "data/toy", "cache/toy"))
    assert data.resolve("toy", given).name == str(given)
    assert data.resolve("toy").name == str(named)
    for name in CONTENT:
        (named / name).unlink()
    assert data.resolve("toy").name == str(cached)
    assert data.locate("toy") == cached


def test_nrf_data_may_hold_the_files_directly(toy: Dataset, tmp_path: Path) -> None:
    _write(tmp_path / "data")
    assert data.locate("toy") == tmp_path / "data"


def test_the_argument_may_hold_a_folder_named_after_the_dataset(toy: Dataset, tmp_path: Path) -> None:
    _write(tmp_path / "given" / "toy")
    assert data.locate("toy", tmp_path / "given") == tmp_path / "given" / "toy"


def test_found_nowhere_it_is_fetched_into_the_cache(toy: Dataset, tmp_path: Path) -> None:
    assert data.locate("toy") is None
    assert data.resolve("toy").name == str(tmp_path / "cache" / "toy")


def test_an_argument_without_the_files_is_an_error_though_the_cache_has_them(toy: Dataset, tmp_path: Path) -> None:
    _write(tmp_path / "cache" / "toy")
    (tmp_path / "given").mkdir()
    with pytest.raises(DataError, match=r"given does not hold toy: put one\.bin, two\.bin there"):
        data.resolve("toy", tmp_path / "given")


def test_without_fetching_the_error_says_how_to_get_the_files(toy: Dataset) -> None:
    with pytest.raises(DataError, match="run `nrf data fetch toy`, or set NRF_DATA"):
        data.resolve("toy", fetch=False)
    with pytest.raises(DataError, match="run `nrf data fetch toy`"):
        data.verify("toy")


def test_nrf_data_that_is_no_folder_is_named(toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match="typo is not a folder"):
        data.resolve("toy")


def test_half_a_dataset_is_an_error(toy: Dataset, tmp_path: Path) -> None:
    _write(tmp_path / "data")
    (tmp_path / "data" / "two.bin").unlink()
    with pytest.raises(DataError, match=r"holds only a part of toy: two\.bin missing"):
        data.resolve("toy")


@pytest.mark.parametrize("where", ["given", "data", "cache/toy"])
@pytest.mark.parametrize("wrong", [b"second", b"sEcond file"], ids=["truncated", "changed"])
def test_a_wrong_file_is_named_and_never_passed_over(toy: Dataset, tmp_path: Path, where: str, wrong: bytes) -> None:
    _write(tmp_path / "cache" / "toy")
    folder = _write(tmp_path / where)
    (folder / "two.bin").write_bytes(wrong)
    with pytest.raises(DataError) as caught:
        data.resolve("toy", folder if where == "given" else None)
    expected = toy.files[1]
    for part in (
        str(folder / "two.bin"),
        f"found {len(wrong)} bytes",
        hashlib.sha256(wrong).hexdigest(),
        f"expected {expected.size} bytes, sha256 {expected.sha256}",
        "nrf data fetch toy" if where == "cache/toy" else "replace it, or remove the whole copy",
    ):
        assert part in str(caught.value)


def test_verify_reports_each_file_and_loads_only_right_ones(toy: Dataset, tmp_path: Path) -> None:
    folder = _write(tmp_path / "data")
    assert [check.ok for check in data.verify("toy")] == [True, True]
    (folder / "one.bin").write_bytes(b"")
    report = data.verify("toy")
    assert [check.ok for check in report] == [False, True]
    assert "one.bin: found 0 bytes" in str(report[0])


def test_a_compressed_file_counts_by_its_content(toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file("one.bin", or_gz=True)
    monkeypatch.setitem(data.DATASETS, "toy", replace(toy, files=(file,)))
    packed = gzip.compress(CONTENT["one.bin"])
    (tmp_path / "data" / "one.bin.gz").write_bytes(packed)
    assert data.verify("toy")[0].ok
    assert file.read(tmp_path / "data") == CONTENT["one.bin"]
    (tmp_path / "data" / "one.bin.gz").write_bytes(gzip.compress(CONTENT["one.bin"] + bytes(2**22)))
    with pytest.raises(DataError, match=rf"one\.bin\.gz: found more than {file.size} bytes"):
        data.resolve("toy")
    with pytest.raises(DataError, match=rf"one\.bin\.gz cannot be read: it has more than {file.size} bytes"):
        file.read(tmp_path / "data")
    (tmp_path / "data" / "one.bin.gz").write_bytes(packed[:-9])
    with pytest.raises(DataError, match=r"one\.bin\.gz: found unreadable"):
        data.resolve("toy")
    with pytest.raises(DataError, match=r"one\.bin\.gz cannot be read"):
        file.read(tmp_path / "data")


def test_fetch_tells_what_it_does_and_keeps_what_is_right(toy: Dataset, tmp_path: Path) -> None:
    lines: list[str] = []
    assert data.fetch("toy", lines.append) == tmp_path / "cache" / "toy"
    assert lines[0] == "writing"
    assert lines[-1].startswith("toy is in ")
    stamp = (tmp_path / "cache" / "toy" / "one.bin").stat().st_mtime_ns
    data.fetch("toy", lines.append)
    assert "already" in lines[-1]
    assert (tmp_path / "cache" / "toy" / "one.bin").stat().st_mtime_ns == stamp


def test_fetch_replaces_a_wrong_file_in_the_cache(toy: Dataset, tmp_path: Path) -> None:
    (_write(tmp_path / "cache" / "toy") / "one.bin").write_bytes(b"half")
    data.fetch("toy")
    assert all(check.ok for check in data.verify("toy"))
    assert os.listdir(tmp_path / "cache") == ["toy"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError, OSError])
def test_an_interrupted_fetch_leaves_nothing(
    toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def broken(folder: Path, notify: Notify) -> None:
        (folder / "one.bin").write_bytes(CONTENT["one.bin"])
        raise error

    monkeypatch.setitem(data.DATASETS, "toy", replace(toy, fetch=broken))
    with pytest.raises(DataError if error is OSError else error):
        data.fetch("toy")
    assert os.listdir(tmp_path / "cache") == []


def test_a_killed_fetch_is_not_taken_for_the_dataset(toy: Dataset, tmp_path: Path) -> None:
    left = _write(tmp_path / "cache" / ".toy-abc.part" / "new").parent
    assert data.locate("toy") is None
    os.utime(left, (0, 0))
    data.fetch("toy")
    assert not left.exists()


def test_a_running_fetch_is_not_swept_by_another(toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def fetch(folder: Path, notify: Notify) -> None:
        assert toy.fetch is not None
        toy.fetch(folder, notify)
        folders.append(folder.parent)
        if len(folders) == 1:
            os.utime(folder.parent, (0, 0))
            data.fetch("toy")

    monkeypatch.setitem(data.DATASETS, "toy", replace(toy, fetch=fetch))
    data.fetch("toy")
    assert len(folders) == 2
    assert os.listdir(tmp_path / "cache") == ["toy"]


def test_a_fetch_of_wrong_content_keeps_nothing(toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(folder: Path, notify: Notify) -> None:
        (_write(folder) / "two.bin").write_bytes(b"an error page")

    monkeypatch.setitem(data.DATASETS, "toy", replace(toy, fetch=wrong))
    with pytest.raises(DataError, match=r"fetched a wrong file.*two\.bin: found more than 11 bytes"):
        data.fetch("toy")
    assert os.listdir(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_named(toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set NRF_CACHE"):
        data.fetch("toy")


def test_unknown_names_get_the_nearest_ones() -> None:
    with pytest.raises(InputError, match=r"'minst': did you mean mnist"):
        data.resolve("minst")
    with pytest.raises(InputError, match="known are gmm, digits"):
        data.resolve("zzz")


def test_data_without_files_has_no_path_and_no_fetch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave the path"):
        data.resolve("gmm", tmp_path)
    with pytest.raises(DataError, match="nothing to fetch"):
        data.fetch("gmm")


def test_the_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NRF_CACHE")
    assert "nrf" in data.cache_dir().parts


def test_one_class_keeps_one_label_and_marks_the_others() -> None:
    splits = data.resolve("digits")
    task = data.one_class(splits, 3)
    assert splits.train_labels is not None
    assert splits.test_labels is not None
    assert task.train_labels is None
    assert len(task.train) == (splits.train_labels == 3).sum()
    assert task.test is splits.test
    assert task.test_labels is not None
    np.testing.assert_array_equal(task.test_labels == 0, splits.test_labels == 3)


def test_one_class_needs_a_class_that_exists() -> None:
    with pytest.raises(InputError, match="digits has no class 10; choose one of 0, 1"):
        data.one_class(data.resolve("digits"), 10)
    with pytest.raises(InputError, match="no training labels"):
        data.one_class(data.one_class(data.resolve("digits"), 1), 1)


def test_splits_need_a_label_a_row() -> None:
    rows = np.zeros((2, 1), dtype=np.float32)
    with pytest.raises(InputError, match="2 train rows but 3 labels"):
        Splits("toy", rows, np.zeros(3, dtype=np.int64))
