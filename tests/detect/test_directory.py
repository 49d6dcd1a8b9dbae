"""A directory of Parquet files: the scores of one process, whatever the engine and whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nrf import NRFDetector
from nrf.cli import main
from nrf.detect.directory import MANIFEST, score_directory
from nrf.errors import InputError

pa = pytest.importorskip("pyarrow", reason="files need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FILES = 6


def _table(seed: int, n: int):
    rows = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return pa.table({"key": np.arange(n) + 1000 * seed, **{name: rows[:, i] for i, name in enumerate("abc")}})


def _directory(folder: Path, n: int) -> Path:
    folder.mkdir()
    for i in range(FILES):
        parquet.write_table(_table(i, n + i), folder / f"part-{i}.parquet")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("directory") / "model"
    NRFDetector(random_state=0).fit(_table(99, 400).drop_columns("key")).save(folder)
    return folder


def _holds_those_of_one_process(out: Path, source: Path, model: Path) -> None:
    detector = NRFDetector.load(model)
    names = sorted(path.name for path in source.iterdir())
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", *names, "request.json"]
    for name in names:
        given, found = parquet.read_table(source / name), parquet.read_table(out / name)
        assert found["key"].equals(given["key"])
        np.testing.assert_array_equal(found["row"], np.arange(1, given.num_rows + 1))
        scores = detector.score_samples(given.drop_columns("key"))
        np.testing.assert_allclose(found["score"].to_numpy(), scores, rtol=1e-6)
        count = json.loads((out / MANIFEST).read_text())["files"][name]
        assert count == {"rows": given.num_rows, "anomalies": int((scores < detector.offset_).sum())}


def test_a_directory_in_one_process_and_again(model, tmp_path):
    source, out = _directory(tmp_path / "in", 50), tmp_path / "out"
    found = score_directory(model, source, out, ids=["key"])
    assert (found.files, found.scored, found.rows) == (FILES, FILES, 50 * FILES + 15)
    _holds_those_of_one_process(out, source, model)
    (out / "part-2.parquet").unlink()
    (out / ".partial-nrf-left.parquet").write_bytes(b"of a killed process")
    again = score_directory(model, source, out, ids=["key"])
    assert (again.scored, again.rows, again.anomalies) == (1, found.rows, found.anomalies)
    _holds_those_of_one_process(out, source, model)


def test_what_is_refused(model, tmp_path, capsys):
    source, out = _directory(tmp_path / "in", 20), tmp_path / "out"
    with pytest.raises(InputError, match="'key'; leave them out with --drop"):
        score_directory(model, source, out)
    assert score_directory(model, source, out, drop=["key"]).scored == FILES  # nothing was scored, so nothing is mixed
    with pytest.raises(InputError, match="scores of another detector, other files or columns"):
        score_directory(model, source, out, ids=["key"])
    with pytest.raises(InputError, match="engine must be 'local' or 'ray', got 'spark'"):
        score_directory(model, source, tmp_path / "new", drop=["key"], engine="spark")
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="is the input"):
        score_directory(model, source, source, drop=["key"])
    with pytest.raises(InputError, match=r"holds no \.parquet file"):
        score_directory(model, model, out)
    file = str(source / "part-0.parquet")
    assert main(["detect", "score", str(model), file, "--out", str(tmp_path / "s.csv"), "--engine", "ray"]) == 2
    assert "--engine ray scores a directory" in capsys.readouterr().err
    assert main(["detect", "score", str(model), str(source), "--out", str(out), "--top", "3"]) == 2
    assert "not with a directory" in capsys.readouterr().err


def test_the_command(model, tmp_path, capsys):
    source, out = _directory(tmp_path / "in", 30), tmp_path / "out"
    assert main(["detect", "score", str(model), str(source), "--out", str(out), "--id", "key"]) == 0
    assert f"{30 * FILES + 15} rows in {FILES} files, {FILES} of them scored now" in capsys.readouterr().out
    _holds_those_of_one_process(out, source, model)


def _kill_a_writer(out: Path, killed: list[int], done: threading.Event) -> None:
    """End the first worker of Ray that is seen with a half-written file of scores."""
    while not killed and not done.is_set():
        for handle in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                target, pid = os.readlink(handle), int(handle.parts[2])
                if target.startswith(f"{out}/.partial-nrf-") and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            except OSError:
                continue
        time.sleep(0.01)


@pytest.mark.slow
def test_ray_with_a_worker_killed_while_it_writes(model, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="the engine ray needs ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    source, out, killed = _directory(tmp_path / "in", 60_000), (tmp_path / "out").resolve(), list[int]()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=500 * 2**20, log_to_driver=False)
    try:
        done = threading.Event()
        killer = threading.Thread(target=_kill_a_writer, args=(out, killed, done))
        killer.start()
        found = score_directory(model, source, out, ids=["key"], engine="ray")
        done.set()
        killer.join()
    finally:
        ray.shutdown()
    assert len(killed) == 1, "no worker was seen writing: the test has shown nothing"
    assert (found.scored, found.rows) == (FILES, 60_000 * FILES + 15)
    _holds_those_of_one_process(out, source, model)
