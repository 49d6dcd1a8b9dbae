"""`nrf detect watch` on files and standard input: what is said and kept, and the exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from nrf.cli import main
from nrf.detect.tables import arriving

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")


def table(n: int, seed: int, shift: float = 0.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return pa.table(
        {
            "order": [f"o-{seed}-{i}" for i in range(n)],
            "amount": (z + shift).round(3),
            "city": np.where(rng.random(n) < 0.3, 'Oslo, "N"', "Rome"),
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, a stream that does not change, and one that does after 1,000 rows."""
    folder = tmp_path_factory.mktemp("watch")
    csv.write_csv(table(400, 0), folder / "train.csv")
    arguments = ["--id", "order", "--field", "density", "--quiet"]
    assert main(["detect", "fit", str(folder / "train.csv"), "--out", str(folder / "model"), *arguments]) == 0
    csv.write_csv(table(1000, 1), folder / "calm.csv")
    moved = pa.concat_tables([table(1000, 1), table(300, 2, shift=1.5)])
    csv.write_csv(moved, folder / "moved.csv")
    parquet.write_table(moved, folder / "moved.parquet")
    return folder


@pytest.fixture
def run(place, capsys):
    """Run the command; returns exit code, what is printed, and what is said of errors."""

    def call(stream, *arguments):
        capsys.readouterr()
        code = main(["detect", "watch", str(place / "model"), str(stream), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def feed(monkeypatch, content: bytes, size: int = 1 << 20) -> None:
    """Bytes on standard input that arrive in pieces."""
    stream = io.BytesIO(content)
    source = SimpleNamespace(read1=lambda n: stream.read(min(n, size)), read=stream.read)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))


def test_a_stream_that_does_not_change(run, place):
    code, out, err = run(place / "calm.csv", "--fail", "--every", 500)
    assert (code, err) == (0, "")
    assert "drift in" not in out
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["rows 500", "rows 1000"]
    assert "an alarm is raised at 100" in out
    assert {"watched", "score", "amount", "city", "(unexpected)"} <= set(out.split())


@pytest.mark.parametrize("name", ["moved.csv", "moved.parquet"])
def test_a_change_is_said_with_row_time_and_column(run, place, name):
    code, out, _ = run(place / name)
    assert code == 0
    said = [line for line in out.splitlines() if "drift in column amount" in line]
    assert len(said) == 1
    row = int(said[0].split()[1].strip(","))
    assert 1000 < row < 1150
    assert "+00:00: drift in column amount, evidence above 100" in said[0]
    assert "column city" not in out
    assert run(place / name, "--fail")[0] == 3


def test_standard_input_is_a_file_that_arrives(run, place, monkeypatch, tmp_path):
    """In pieces of any length the state is that of the file, bit by bit."""
    assert run(place / "moved.csv", "--out", tmp_path / "file.json")[0] == 0
    for size in (1 << 20, 3001):
        out = tmp_path / f"{size}.json"
        feed(monkeypatch, (place / "moved.csv").read_bytes(), size)
        code, printed, _ = run("-", "--out", out)
        assert code == 0
        assert "drift in column amount" in printed
        found, whole = (json.loads(path.read_text()) for path in (out, tmp_path / "file.json"))
        for state in (found, whole):
            state.pop("report")
            state["alarms"] = [alarm[:2] for alarm in state["alarms"]]
        assert found == whole


@pytest.mark.slow
def test_lines_are_looked_at_as_they_come(place):
    """A process that is fed row by row says so before the stream ends."""
    command = [sys.executable, "-m", "nrf", "detect", "watch", str(place / "model"), "-", "--every", "5"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"amount,city\n" + b"0.5,Rome\n" * 5)
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"rows 5: evidence")
        process.stdin.close()
        assert process.wait(60) == 0


def test_resume_goes_on(run, place, tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    rows = csv.read_csv(place / "moved.csv")
    csv.write_csv(rows.slice(0, 700), first)
    csv.write_csv(rows.slice(700), second)
    state, whole = tmp_path / "state.json", tmp_path / "whole.json"
    assert run(first, "--out", state, "--resume", "--level", 0.05)[0] == 0, "there is nothing to go on from yet"
    code, out, err = run(second, "--out", state)
    assert (code, out) == (2, "")
    assert "go on from it with --resume" in err
    code, out, err = run(second, "--out", state, "--resume", "--level", 0.01)
    assert code == 2
    assert "--level is not that of the state" in err
    assert (
        run(second, "--out", state, "--resume", "--score-only")[2].count("--score-only is not that of the state") == 1
    )
    code, out, _ = run(second, "--out", state, "--resume", "--fail")
    assert code == 3
    assert "rows 1300: " in out
    assert run(place / "moved.csv", "--out", whole, "--level", 0.05)[0] == 0
    found, straight = (json.loads(path.read_text()) for path in (state, whole))
    assert found["watches"] == straight["watches"]
    assert found["report"]["columns"][0]["alarm_row"] == straight["report"]["columns"][0]["alarm_row"]
    code, out, _ = run(place / "calm.csv", "--out", state, "--resume", "--fail")
    assert (code, "drift in" in out) == (3, False), "an alarm of before stays, and is not said again"


def test_a_figure_and_chosen_columns(run, place, tmp_path):
    path = tmp_path / "new" / "drift.png"
    code, out, _ = run(place / "moved.csv", "--figure", path, "--columns", "city", "--reference", "stream")
    assert code == 0
    assert f"figure: {path}" in out
    assert "amount" not in out
    with Image.open(path) as image:
        assert min(image.size) > 300
    assert "city" not in run(place / "moved.csv", "--score-only")[1]


def test_mistakes_are_one_line(run, place, tmp_path, monkeypatch):
    for arguments, message in (
        (("--resume",), "--resume needs --out"),
        (("--every", 0), "--every must be at least 1"),
        (("--level", 2), "level must lie between 0 and 1"),
        (("--score-only", "--columns", "city"), "exclude each other"),
        (("--columns", "town"), "'town' cannot be watched"),
        (("--out", tmp_path / "state.txt"), "must end in .json"),
        (("--figure", tmp_path / "state.txt"), "must end in .png"),
    ):
        code, out, err = run(place / "calm.csv", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert message in err
    for content, message in (
        (b"", "standard input: is empty"),
        (b"amount,city\n1,a\n1,a,2\n", "row 2 has 3 values, the header has 2"),
        (b"amount,amount\n1,2\n", "used more than once: 'amount'"),
        (b"amount\n1\n", "columns missing: 'city'"),
        (b"amount,city\nmuch,Rome\n", "column 'amount', row 1: 'much' is no number"),
        (b'amount,city\n1,"Rome\n2,Rome\n', "a quote is opened and never closed"),
        (b"amount,city\n1,\xff\n", "is not UTF-8"),
    ):
        feed(monkeypatch, content)
        code, _, err = run("-")
        assert (code, err.count("\n")) == (2, 1), content
        assert message in err
    monkeypatch.setattr(arriving, "LONGEST", 10)
    feed(monkeypatch, b'amount,city\n1,"' + b"x" * 100, 20)
    assert "a row is longer than any should be" in run("-")[2]


def test_a_stop_keeps_the_state(run, place, tmp_path, monkeypatch):
    content = (place / "calm.csv").read_bytes()
    stream = io.BytesIO(content[:20_000])

    def read(n):
        piece = stream.read(n)
        if not piece:
            raise KeyboardInterrupt
        return piece

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read1=read, read=read)))
    code, _, err = run("-", "--out", tmp_path / "state.json")
    assert code == 130
    n = json.loads((tmp_path / "state.json").read_text())["n"]
    assert f"stopped; {n} rows are in {tmp_path / 'state.json'}: --resume goes on" in err
    assert n == content[:20_000].count(b"\n") - 1
