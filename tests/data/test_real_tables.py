"""The sixteen tables: found, checked by their numbers, fetched from a served folder; facts of the real ones."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nrf import data
from nrf.cli import main
from nrf.data import real_tables
from nrf.data.real_tables import ArraysFile, Source, pick, read, row_hashes
from nrf.errors import DataError, InputError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(50, 3)).astype(np.float32)
LABELS = (RNG.random(50) < 0.3).astype(np.int8)
KEPT = np.sort(RNG.permutation(50)[:20])


def _found() -> bool:
    try:
        return data.locate("tables") is not None
    except DataError:
        return False


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A served folder that plays the public home, and two tables: one whole, one of which some rows are kept."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("1_whole.npz", "2_cut.npz"):
        np.savez(folder / name, X=ROWS.astype(np.float64), y=LABELS.astype(np.int64))
    np.savez(tmp_path / real_tables.KEPT_ROWS, cut=row_hashes(ROWS[KEPT], LABELS[KEPT]))
    known = {
        "whole": Source(1, real_tables._digest(ROWS, LABELS), ROWS.shape, int(LABELS.sum())),
        "cut": Source(
            2, real_tables._digest(ROWS[KEPT], LABELS[KEPT]), ROWS[KEPT].shape, int(LABELS[KEPT].sum()), True
        ),
    }
    files = tuple(ArraysFile(f"{name}.npz", source.sha256, source.size) for name, source in known.items())
    monkeypatch.setattr(real_tables, "TABLES", known)
    monkeypatch.setattr(real_tables, "files", lambda package: tmp_path)
    monkeypatch.setitem(data.COLLECTIONS, "tables", replace(real_tables.COLLECTION, files=files))
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("NRF_DATA", raising=False)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(real_tables, "HOME", f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()
        thread.join()


def test_a_fetch_makes_the_files_of_the_collection(home: Path) -> None:
    folder = data.fetch("tables")
    assert sorted(os.listdir(folder)) == ["cut.npz", "whole.npz"]
    assert data.folder_of("tables", fetch=False) == folder
    whole, cut = read(folder, "whole"), read(folder, "cut")
    np.testing.assert_array_equal(whole.rows, ROWS)
    np.testing.assert_array_equal(whole.labels, LABELS)
    np.testing.assert_array_equal(cut.rows, ROWS[KEPT])
    np.testing.assert_array_equal(cut.labels, LABELS[KEPT])
    assert (cut.rows.dtype, cut.labels.dtype) == (np.float32, np.int8)
    checks = data.verify("tables")
    assert all(check.ok for check in checks)
    assert len(checks) == 2 + 6


@pytest.mark.parametrize("name", ["1_whole.npz", "2_cut.npz"])
def test_other_numbers_at_home_are_refused(home: Path, tmp_path: Path, name: str) -> None:
    other = ROWS.copy()
    other[KEPT[3], 1] += 1
    np.savez(home / name, X=other, y=LABELS)
    with pytest.raises(DataError, match=r"fetched a wrong file|cut: 17 of 20 rows are not there"):
        data.fetch("tables")
    assert os.listdir(tmp_path / "cache") == []


def test_how_a_file_is_compressed_does_not_matter_but_its_numbers_do(tmp_path: Path) -> None:
    file = ArraysFile("t.npz", real_tables._digest(ROWS, LABELS), ROWS.nbytes + LABELS.nbytes)
    assert file.check(tmp_path).found == "missing"
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "t.npz", X=ROWS, y=LABELS)
        assert file.check(tmp_path).ok
    np.savez(tmp_path / "t.npz", X=ROWS, y=1 - LABELS)
    assert not file.check(tmp_path).ok
    np.savez(tmp_path / "t.npz", X=np.zeros((100_000, 3), dtype=np.float32), y=np.zeros(100_000, dtype=np.int8))
    assert "holds more than" in file.check(tmp_path).found
    np.savez(tmp_path / "t.npz", X=ROWS)
    assert "unreadable" in file.check(tmp_path).found
    (tmp_path / "t.npz").write_bytes(b"no archive")
    assert "unreadable" in file.check(tmp_path).found


def test_rows_that_repeat_are_told_apart_by_their_order() -> None:
    hashes = np.array([3, 4, 3, 5, 3], dtype=np.uint32)
    assert pick(hashes, np.array([4, 3, 3], dtype=np.uint32)).tolist() == [1, 2, 4]
    with pytest.raises(DataError, match="1 of 2 rows are not there"):
        pick(hashes, np.array([5, 4], dtype=np.uint32))


def test_a_collection_is_no_dataset() -> None:
    with pytest.raises(InputError, match="'tables' is a collection of tables"):
        data.resolve("tables")
    with pytest.raises(InputError, match="'gmm' is not a collection of tables; there is tables"):
        data.folder_of("gmm")
    with pytest.raises(InputError, match=r"unknown table 'iris'.*Wilt"):
        read(Path("x"), "iris")
    with pytest.raises(InputError, match="unknown dataset 'table': did you mean tables"):
        data.locate("table")


def test_the_rows_kept_of_large_tables_come_with_the_package() -> None:
    with np.load(Path(real_tables.__file__).parent / real_tables.KEPT_ROWS) as kept:
        sizes = {name: len(kept[name]) for name in kept}
    assert sizes == {name: source.shape[0] for name, source in real_tables.TABLES.items() if source.cut}


@pytest.mark.data
@pytest.mark.skipif(not _found(), reason="tables not found: set NRF_DATA or run `nrf data fetch tables`")
def test_facts_of_the_real_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", "tables"]) == 0
    assert "tables: 64 of 64 checks passed" in capsys.readouterr().out
    folder = data.folder_of("tables", fetch=False)
    with np.load(Path(real_tables.__file__).parent / real_tables.KEPT_ROWS) as kept:
        for name in kept:
            table = read(folder, name)
            np.testing.assert_array_equal(row_hashes(table.rows, table.labels), kept[name])


@pytest.mark.network
@pytest.mark.skipif(os.environ.get("NRF_TEST_NETWORK") != "1", reason="only with NRF_TEST_NETWORK=1")
def test_fetch_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    monkeypatch.delenv("NRF_DATA", raising=False)
    data.fetch("tables")
    assert all(check.ok for check in data.verify("tables"))
