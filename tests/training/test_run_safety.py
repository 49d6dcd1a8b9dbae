"""Two writers, kills, places that cannot be written, output that hides things: what runs and commands do about them."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nrf import files
from nrf.cli import main
from nrf.errors import InputError, printable
from nrf.files import locked, read_json, replaced, require_folder, require_output, sweep, write_atomically
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.run import Options, reproduce
from nrf.runs.presets import PRESETS
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.seeds import MOST
from nrf.training import RunFolder, TrainConfig

BASE = replace(
    PRESETS["gmm-released"],
    train=TrainConfig(iterations=6, log_every=1, checkpoint_every=3, threads=1),
)
LENGTH = ["--train.log-every", "1", "--train.checkpoint-every", "10", "--train.threads", "1", "--quiet"]
LENGTH += ["--train.compile", "never", "--train.lr-final", "1.0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("safety") / "run"
    train("t", BASE, folder, quiet=True)
    return folder


@pytest.fixture
def started():
    """Start processes that are gone at the end of the test, whatever happens."""
    processes = []

    def start(*command, **options):
        # The signal of Ctrl-C is ignored by what a shell started in its background.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        command = [sys.executable, *map(str, command)]
        processes.append(subprocess.Popen(command, text=True, preexec_fn=heed, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def _until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


# -------------------------------------------------------------------------------------------------------- two writers


def test_a_folder_is_one_process_s_at_a_time(tmp_path):
    with (
        locked(tmp_path / "x"),
        pytest.raises(InputError, match=rf"{tmp_path / 'x'} is in use by process {os.getpid()}; wait"),
        locked(tmp_path / "x", patience=0),
    ):
        pass
    with locked(tmp_path / "x", patience=0):
        pass
    assert not (tmp_path / "x").exists()


def test_a_lock_leaves_a_folder_as_it_was(tmp_path):
    (tmp_path / "file").write_text("")
    with locked(tmp_path):
        assert (tmp_path / ".lock").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_on_a_file_that_was_deleted_meanwhile_is_none(tmp_path, monkeypatch):
    """The process before deletes its lock file on leaving, just after this one has opened it."""
    lock, raced = files._lock, []

    def late(handle):
        if not raced:
            raced.append(handle)
            (tmp_path / ".lock").unlink()
        return lock(handle)

    monkeypatch.setattr(files, "_lock", late)
    with locked(tmp_path):
        assert (tmp_path / ".lock").is_file()


def test_a_lock_is_not_put_where_a_link_points_to(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError), locked(tmp_path / "x"):  # noqa: PT011
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_second_of_two_runs_in_one_folder_is_refused(tmp_path, started, monkeypatch, capsys):
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    out = tmp_path / "run"
    command = ["train", "gmm-short", "--out", str(out), "--resume", "--train.iterations", "100000", *LENGTH]
    first = started("-m", "nrf", *command, stdout=subprocess.DEVNULL)
    _until(lambda: RunFolder(out).latest() is not None)
    assert main(command) == 2
    assert f"{out} is in use by process {first.pid}; wait until it has ended" in capsys.readouterr().err
    first.kill()  # the system gives the lock up
    first.wait()
    assert main(["train", "gmm-short", "--out", str(out), "--resume", "--train.iterations", "1", *LENGTH]) == 0
    steps = [row["step"] for row in RunFolder(out).metrics()]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.slow
def test_ranks_do_not_lock_each_other_out(tmp_path):
    settings = ["--generator.norm", "none", "--train.iterations", "2", "--quiet", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "nrf", "train", "digits", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / ".lock").exists()


# ---------------------------------------------------------------------------------------------------------- reproduce


def slow(i: int, folder: str) -> dict[str, int]:
    (Path(folder) / f"pid-{i}").write_text(str(os.getpid()))
    time.sleep(60)
    return {}


def quick(i: int) -> dict[str, int]:
    return {"value": i}


def one_of_two(i: int, folder: str) -> dict[str, int]:
    return slow(i, folder) if i else {"value": 10}


class Toy(Experiment):
    name, title, lead, partial = "toy", "Toy", "A toy.", True
    whole = quick = BASE.train

    def __init__(self, work, **places) -> None:
        self.work, self.places = work, places

    def cells(self, config, shared):
        return [Cell(f"c{i}", self.work, {"i": i}, places=self.places) for i in range(2)]

    def summarise(self, config, results, runs):
        return Outcome([Row("sum", "total", sum(r["value"] for r in results.values()))], [])


PROGRAM = """
import sys
from pathlib import Path

sys.path.insert(0, {tests!r})
from test_run_safety import Toy, slow
from nrf.reproduce.runner.run import Options, reproduce

folder = Path({folder!r})
reproduce(Toy(slow, folder=str(folder)), Options(folder / "runs", folder, jobs=2, quiet=True), print)
"""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_end_with_a_parent_that_was_killed(tmp_path, started, monkeypatch):
    program = textwrap.dedent(PROGRAM).format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    parent = started("-c", program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    notes = [tmp_path / f"pid-{i}" for i in range(2)]
    _until(lambda: all(note.exists() and note.read_text() for note in notes))
    pids = [int(note.read_text()) for note in notes]
    assert all(map(_alive, pids))
    assert parent.pid not in pids

    monkeypatch.setattr(files, "PATIENCE", 0.0)
    options = Options(tmp_path / "runs", tmp_path, jobs=1, quiet=True)
    with pytest.raises(InputError, match=rf"runs/toy is in use by process {parent.pid}"):
        reproduce(Toy(quick), options, print)

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        _until(lambda: not any(map(_alive, pids)), seconds=5)
    finally:
        for pid in filter(_alive, pids):
            os.kill(pid, signal.SIGKILL)
    assert reproduce(Toy(quick), options, print).rows[0].mean == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0])
def test_workers_that_have_no_cell_yet_end_with_their_parent_too(tmp_path, started, delay):
    program = textwrap.dedent(PROGRAM).format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    parent = started("-c", program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    _until(lambda: len(listed.read_text().split()) >= 2)
    time.sleep(delay)
    children = [int(pid) for pid in listed.read_text().split()]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        _until(lambda: not any(map(_alive, children)), seconds=10)  # they may have to load their modules first
    finally:
        for pid in filter(_alive, children):
            os.kill(pid, signal.SIGKILL)


DAMAGED_CELLS = {
    "cut": "{",
    "bytes": b"\xff\xfe",
    "nested": "[" * 100_000,
    "a list": "[]",
    "no result": '{"commit": null}',
    "a result of another type": '{"commit": null, "result": 3}',
    "another checksum": (
        '{"cell": "c1", "revision": 1, "settings": {"i": 1}, "configuration": null, "commit": null, '
        '"result": {"value": 7}, "digest": "00"}'
    ),
}


@pytest.mark.parametrize("kind", DAMAGED_CELLS)
def test_damaged_cells_are_named(tmp_path, kind):
    options = Options(tmp_path / "runs", tmp_path, jobs=1, quiet=True)
    reproduce(Toy(quick), options, print)
    path = tmp_path / "runs" / "toy" / "cells.jsonl"
    first, *others = path.read_bytes().splitlines()
    content = DAMAGED_CELLS[kind]
    damaged = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(b"\n".join([first, damaged, *others[1:], b""]))
    with pytest.raises(InputError, match=r"cells.jsonl, line 2: damaged .*; delete that line and run again"):
        reproduce(Toy(quick), options, print)
    path.write_bytes(b"\n".join([first, *others[1:], b""]))
    assert reproduce(Toy(quick), options, print).rows[0].mean == 1


def test_one_changed_digit_of_a_cell_is_noticed(tmp_path):
    options = Options(tmp_path / "runs", tmp_path, jobs=1, quiet=True)
    reproduce(Toy(quick), options, print)
    path = tmp_path / "runs" / "toy" / "cells.jsonl"
    text = path.read_text()
    for old, new in (('"value": 1', '"value": 9'), ('"i": 1', '"i": 3'), ('"revision": 1', '"revision": 3')):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(InputError, match="does not match its checksum"):
            reproduce(Toy(quick), options, print)
    path.write_text(text)
    assert reproduce(Toy(quick), options, print).rows[0].mean == 1


@pytest.mark.parametrize("content", ['"x"', "-3", "NaN", "Infinity", "true", "null"])
def test_a_damaged_time_is_named(tmp_path, content):
    options = Options(tmp_path / "runs", tmp_path, jobs=1, quiet=True)
    reproduce(Toy(quick), options, print)
    with (tmp_path / "runs" / "toy" / "cells.jsonl").open("a") as file:
        file.write(f'{{"wall_seconds": {content}}}\n')
    with pytest.raises(InputError, match=r"cells.jsonl, line 4: damaged .*no number of seconds.*delete that line"):
        reproduce(Toy(quick), options, print)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_finished_cell_outlives_the_kill_of_everything(tmp_path, started):
    """One worker has finished its cell, the other is at work, when the process that started them is killed."""
    program = textwrap.dedent(PROGRAM).format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    program = program.replace("import Toy, slow", "import Toy, one_of_two").replace("Toy(slow", "Toy(one_of_two")
    parent = started("-c", program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file = CellFile(tmp_path / "runs" / "toy" / "cells.jsonl")
    _until(lambda: (tmp_path / "pid-1").exists() and file.path.exists() and b"\n" in file.path.read_bytes())
    worker = int((tmp_path / "pid-1").read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _until(lambda: not _alive(worker), seconds=5)
    assert [(cell.name, cell.result) for cell in file.read()[0]] == [("c0", {"value": 10})]
    options = Options(tmp_path / "runs", tmp_path, jobs=1, quiet=True)
    assert reproduce(Toy(quick), options, print).rows[0].mean == 11  # 10 of the kept cell, 1 of the new one


@pytest.mark.parametrize("content", ["{", "3", '{"a": 1}', "[3]"])
def test_a_damaged_curve_is_named(tmp_path, content):
    from nrf.reproduce.runner.watch import read_curve

    (tmp_path / "curve.json").write_text(content)
    with pytest.raises(InputError, match=r"curve.json: damaged .*delete the folder"):
        read_curve(tmp_path / "curve.json")


# ------------------------------------------------------------------------------------------------------ partial files


def test_partial_files_have_names_that_nobody_foresees(tmp_path):
    names = []
    for _ in range(2):
        with replaced(tmp_path / "x.npz") as partial:
            names.append(partial.name)
            assert partial.suffix == ".npz"
            partial.write_text("new")
    assert names[0] != names[1]
    assert not any(str(os.getpid()) in name for name in names)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x.npz").unlink()
    (tmp_path / "x.npz").symlink_to(tmp_path / "victim")
    write_atomically(tmp_path / "x.npz", b"new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "x.npz").is_symlink()


def test_partial_files_of_the_dead_are_swept_and_those_of_the_living_stay(tmp_path, started):
    program = """
        import sys, time
        from pathlib import Path
        from nrf.files import replaced
        with replaced(Path(sys.argv[1])) as partial:
            partial.write_text("half")
            print(partial, flush=True)
            time.sleep(60)
    """
    processes = [started("-c", textwrap.dedent(program), tmp_path / f"x{i}", stdout=subprocess.PIPE) for i in range(2)]
    partials = [Path(process.stdout.readline().strip()) for process in processes]
    processes[0].send_signal(signal.SIGKILL)
    processes[0].wait()
    (tmp_path / ".partial-of-another-program").write_text("")
    (tmp_path / f"{files.PARTIAL}link").symlink_to(tmp_path / ".partial-of-another-program")
    write_atomically(tmp_path / "y", b"")
    assert partials[0].exists(), "too young: its lock may not have been taken yet"
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    write_atomically(tmp_path / "y", b"")
    assert not partials[0].exists()
    assert partials[1].exists()
    assert (tmp_path / ".partial-of-another-program").exists()
    sweep(tmp_path, alone=True)
    assert not (tmp_path / ".partial-of-another-program").exists()


def test_a_new_start_sweeps_what_a_kill_left(run):
    for folder in (run, run / "checkpoints"):
        (folder / ".partial-abc").write_text("half")
    train("t", BASE, run, resume=True, quiet=True)
    assert not list(run.rglob(".partial-*"))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_leaves_no_partial_file(run, tmp_path, started, how):
    program = """
        import sys, time
        import numpy as np
        def stuck(path, **arrays):
            open(path, "wb").write(b"half")
            print("writing", flush=True)
            time.sleep(60)
        np.savez_compressed = stuck
        from nrf.cli import main
        sys.exit(main(sys.argv[1:]))
    """
    arguments = ["sample", run, "--n", "10", "--out", tmp_path / "s.npz"]
    process = started("-c", textwrap.dedent(program), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 1
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "nrf: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------- the words on Ctrl-C


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_ctrl_c_says_what_is_kept(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(TrainedModel, "load", _interrupt)
    assert main(["sample", str(run), "--out", str(tmp_path / "s.npz")]) == 130
    assert capsys.readouterr().err == "nrf: stopped; nothing was written\n"

    for name in ("runs.train.load_splits", "reproduce.runner.watch.train"):
        monkeypatch.setattr(f"nrf.{name}", _interrupt)
    assert main(["train", "gmm-short", "--out", str(tmp_path / "new"), "--quiet"]) == 130
    assert capsys.readouterr().err == "nrf: stopped before the first checkpoint: no training is kept\n"
    assert main(["demo", "--quick", "--quiet", "--out", str(tmp_path / "demo")]) == 130
    assert capsys.readouterr().err.endswith("nrf: stopped before anything was finished: no work is kept\n")


def test_ctrl_c_in_a_run_with_a_checkpoint_names_it(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    assert main(["train", "gmm-short", "--out", str(out), "--train.iterations", "3", "--quiet"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("nrf.runs.train.load_splits", _interrupt)
    assert main(["train", "gmm-short", "--out", str(out), "--resume", "--quiet"]) == 130
    said = capsys.readouterr().err
    assert f"stopped; {RunFolder(out).latest()} is kept" in said
    assert f"nrf train gmm-short --out {out} --resume" in said


def test_ctrl_c_in_reproduce_says_what_is_kept(tmp_path, monkeypatch, capsys):
    options = ["reproduce", "gmm", "--quick", "--quiet", "--jobs", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("nrf.reproduce.runner.watch.train", _interrupt)
    assert main(options) == 130
    assert capsys.readouterr().err == "nrf: stopped before anything was finished: no work is kept\n"
    (tmp_path / "out" / "gmm-quick").mkdir(parents=True)
    (tmp_path / "out" / "gmm-quick" / "cells.jsonl").write_text("")
    assert main(options) == 130
    assert "what is finished is kept in" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- places, seeds


@pytest.fixture
def refused(capsys):
    def run(*arguments) -> str:
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        return said

    return run


@pytest.fixture
def no_work(monkeypatch):
    """Whatever begins to work has not checked its arguments first."""

    def begun(*_, **__):
        raise AssertionError("began to work")

    for name in ("nrf.runs.trained.TrainedModel.load", "nrf.runs.train.load_splits"):
        monkeypatch.setattr(name, begun)
    monkeypatch.setattr("nrf.reproduce.demo.resolve", begun)
    monkeypatch.setattr("nrf.reproduce.runner.run._run_missing", begun)


def _commands(out):
    return {
        "sample": (["sample", "run", "--out", out], ".npz"),
        "revise": (["revise", "run", "rows.csv", "--out", out], ".npz"),
        "score": (["score", "run", "rows.csv", "--out", out], ".csv"),
        "interpolate": (["interpolate", "run", "--out", out], ".png"),
        "quality": (["quality", "run", "--out", out], ".json"),
        "train": (["train", "gmm-short", "--out", out], ""),
        "reproduce": (["reproduce", "gmm", "--quick", "--out", out], ""),
        "demo": (["demo", "--quick", "--out", out], ""),
    }


@pytest.mark.parametrize("command", _commands(None))
def test_places_are_checked_before_the_work(refused, no_work, tmp_path, command):
    (tmp_path / "file").write_text("precious")
    suffix = _commands(None)[command][1]

    def of(place):
        return refused(*_commands(place)[command][0])

    assert f"{tmp_path / 'file'} is not a folder" in of(tmp_path / "file" / "deeper" / f"x{suffix}")
    assert "cannot be written" in of(Path("/proc") / f"x{suffix}")
    if suffix:
        (tmp_path / f"folder{suffix}").mkdir()
        assert "is a folder; give the name of a file" in of(tmp_path / f"folder{suffix}")
        assert f"must end in {'' if command != 'sample' else '.npz or .png'}" in of(tmp_path / "x.exe")
    else:
        assert f"{tmp_path / 'file'} is a file; choose a folder" in of(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"file"} | ({f"folder{suffix}"} if suffix else set())


def test_places_in_the_library(tmp_path):
    require_output(tmp_path / "a" / "b" / "x.csv", ".csv")
    require_folder(tmp_path / "a" / "b")
    require_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="dangling is not a folder"):
        require_folder(tmp_path / "dangling" / "x")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"x.json: damaged \(.*\); try again"):
        read_json(tmp_path / "x.json", "try again")


@pytest.mark.parametrize("seed", [-1, MOST + 1, 10**30])
def test_seeds_out_of_range_are_refused(refused, run, tmp_path, seed):
    out = tmp_path / "x"
    words = f"must be from 0 to {MOST}, got {seed}"
    assert words in refused("train", "gmm-short", "--out", out, "--seed", seed, "--quiet")
    assert words in refused("sample", run, "--out", out.with_suffix(".npz"), "--seed", seed)
    assert words in refused("interpolate", run, "--out", out.with_suffix(".png"), "--seed", seed)
    np.save(tmp_path / "rows.npy", np.zeros((2, 2)))
    arguments = ["revise", run, tmp_path / "rows.npy", "--out", out.with_suffix(".npz"), "--seed", seed]
    assert words in refused(*arguments)
    assert words in refused("quality", run, "--seed", seed)
    assert f"split {words}" in refused("train", "kddcup-sgld-paper", "--out", out, "--data.split", seed, "--quiet")
    assert not out.exists()


def test_the_seeds_of_all_replicas_are_looked_at(refused, tmp_path):
    said = refused("train", "gmm-short", "--out", tmp_path / "x", "--seed", MOST, "--replicas", 2, "--quiet")
    assert f"the seed of the last replica must be from 0 to {MOST}, got {MOST + 1}" in said


# ------------------------------------------------------------------------------------------------- errors and printing


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "nrf: not enough memory; take fewer rows at a time\n"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
            "nrf: not enough memory (can't allocate memory: you tried to allocate 8 bytes.); take fewer",
        ),
        (ZeroDivisionError("x"), "nrf: internal error: ZeroDivisionError: x (--debug shows where)\n"),
    ],
)
def test_errors_nobody_foresaw(run, tmp_path, monkeypatch, capsys, error, words):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(TrainedModel, "load", fail)
    assert main(["sample", str(run), "--out", str(tmp_path / "s.npz")]) == 1
    assert words in capsys.readouterr().err


def test_too_many_samples_are_refused_before_the_first_is_drawn(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(TrainedModel, "_propose", _interrupt)
    assert main(["sample", str(run), "--n", str(10**15), "--out", str(tmp_path / "s.npz")]) == 1
    assert "not enough memory (can't allocate memory: you tried to allocate 8000000000000000 bytes" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("library", [torch, np])
def test_the_errors_of_torch_and_numpy_are_understood(run, tmp_path, monkeypatch, capsys, library):
    monkeypatch.setattr(TrainedModel, "load", lambda *_, **__: library.empty(2**57))
    assert main(["sample", str(run), "--out", str(tmp_path / "s.npz")]) == 1
    assert re.search(r"nrf: not enough memory \(.*llocate", capsys.readouterr().err)


def test_control_characters_are_written_out(tmp_path, capsys):
    assert printable("a\tb\nδ é 中 ✓") == "a\tb\nδ é 中 ✓"
    assert printable("\x1b[31m\x07\x7f\x9b\r\u202e\udcff") == r"\x1b[31m\x07\x7f\x9b\r\u202e\udcff"
    odd = tmp_path / "\x1b[2J\udcff"
    assert main(["sample", str(odd), "--out", str(tmp_path / "s.npz")]) == 2
    said = capsys.readouterr().err
    assert r"\x1b[2J\udcff is not a run folder" in said
    assert "\x1b" not in said


def test_control_characters_in_what_commands_print(run, tmp_path, capsys):
    odd = tmp_path / "\x1b[2J.npz"
    assert main(["sample", str(run), "--n", "2", "--out", str(odd)]) == 0
    said = capsys.readouterr().out
    assert r"\x1b[2J.npz" in said
    assert "\x1b" not in said
    assert odd.is_file()


def test_tensors_that_require_a_gradient_can_be_scored(run):
    trained = TrainedModel.load(run)
    rows = torch.randn(5, 2)
    wanted = trained.score_samples(rows.numpy())
    assert (trained.score_samples(rows.clone().requires_grad_(True)) == wanted).all()
    assert trained.revise(rows.clone().requires_grad_(True)).shape == (5, 2)
