"""The experiment base: cells are kept, records have one form, quick runs stay out of the results."""

from __future__ import annotations

import functools
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

import nrf
from nrf.cli import main
from nrf.errors import InputError
from nrf.reproduce.registry import EXPERIMENTS, OURS, PAPER, find_experiment, state
from nrf.reproduce.runner.board import Board, Place
from nrf.reproduce.runner.cells import (
    STOP_AT,
    Cell,
    Options,
    Outcome,
    OutOfTime,
    Section,
    picked,
    reproduce,
    with_paper,
)
from nrf.reproduce.runner.record import Record, Row, commit, machine, parse
from nrf.reproduce.runner.report import Table

RESULTS = Path(nrf.__file__).parent.parent.parent / "results"

RECORD = Record(
    "toy", "nrf reproduce toy", "abc", {"nrf": "0"}, {"cores": 2}, [0, 1], 1.5, [Row("a", "m", 1.0, 0.1, 3, paper=2.0)]
)


@dataclass(frozen=True)
class ToyConfig:
    n: int


def square(log: str, i: int) -> dict[str, float]:
    with Path(log).open("a") as file:
        file.write(f"{i}\n")
    return {"value": i * i}


class Toy:
    name, title, lead, partial = "toy", "Toy", "A toy.", False

    def __init__(self, log: Path) -> None:
        self.log = str(log)

    def config(self, *, quick: bool) -> ToyConfig:
        return ToyConfig(2 if quick else 4)

    def seeds(self, config):
        return [0]

    def cells(self, config, folder):
        return [Cell(f"c{i}", functools.partial(square, self.log, i)) for i in range(config.n)]

    def summarise(self, config, results, folder):
        total = sum(r["value"] for r in results.values())
        row = Row("sum", "total", total, paper=14.0)
        return Outcome([row], [Section("Sum", "The sum.", [with_paper([row])])])


@pytest.fixture
def toy(tmp_path):
    experiment = Toy(tmp_path / "log")
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quiet=True)

    def run(**changes):
        said = []
        record = reproduce(experiment, replace(options, **changes), said.append)
        return record, "\n".join(said)

    run.log = lambda: sorted(Path(experiment.log).read_text().split())
    run.folder = tmp_path
    return run


def test_cells_are_computed_once(toy):
    first, said = toy()
    again, _ = toy()
    assert first.rows == again.rows == [Row("sum", "total", 14, paper=14.0)]
    assert toy.log() == ["0", "1", "2", "3"]
    assert "sum" in said
    assert again.wall_seconds >= first.wall_seconds
    stored = Record.read(toy.folder / "results" / "toy.json")
    assert stored.rows == first.rows
    assert stored.command == "nrf reproduce toy"


def test_a_stopped_experiment_goes_on(toy):
    toy()
    (cell,) = (toy.folder / "runs").glob("toy-*/cells/c2.json")
    cell.unlink()
    toy()
    assert toy.log() == ["0", "1", "2", "2", "3"]


def test_the_record_names_the_commit_of_the_cells(toy):
    toy()
    for i, cell in enumerate(sorted((toy.folder / "runs").glob("toy-*/cells/*.json"))):
        content = json.loads(cell.read_text())
        cell.write_text(json.dumps({**content, "commit": "older" if i else "oldest"}))
    assert toy()[0].commit == "older, oldest"


def test_jobs_must_be_positive():
    with pytest.raises(InputError, match="jobs"):
        Options(jobs=0)


def test_a_damaged_cell_is_named(toy):
    toy()
    (cell,) = (toy.folder / "runs").glob("toy-*/cells/c2.json")
    cell.write_text("{")
    with pytest.raises(InputError, match=r"c2.json: damaged"):
        toy()


def test_quick_runs_stay_out_of_the_results(toy):
    record, _ = toy(quick=True)
    assert record.command == "nrf reproduce toy --quick"
    assert record.rows[0].mean == 1
    assert not (toy.folder / "results").exists()
    assert len(list((toy.folder / "runs").glob("toy-*/toy.json"))) == 1


def test_two_cells_of_one_name_are_refused(toy, monkeypatch):
    monkeypatch.setattr(Toy, "cells", lambda self, config, folder: [Cell("same", dict), Cell("same", dict)])
    with pytest.raises(InputError, match="two cells alike"):
        toy()


def test_processes_in_parallel(toy, monkeypatch):
    monkeypatch.setattr(
        Toy, "cells", lambda self, config, folder: [Cell(f"c{i}", functools.partial(dict, value=i)) for i in range(5)]
    )
    assert toy(jobs=2)[0].rows[0].mean == 10


# -------------------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.name)
def test_stored_records_have_the_form(path):
    record = Record.read(path)
    assert record.experiment == path.stem
    assert record.rows
    assert record.seeds
    assert record.commit


def test_a_record_goes_through_json(tmp_path):
    RECORD.write(tmp_path / "r.json")
    assert Record.read(tmp_path / "r.json") == RECORD
    stored = json.loads((tmp_path / "r.json").read_text())
    assert set(stored) == {"experiment", "command", "commit", "versions", "machine", "seeds", "wall_seconds", "rows"}
    names = {"method", "preset", "case", "column", "metric", "mean", "sd", "n", "paper", "paper_sd", "quoted"}
    assert set(stored["rows"][0]) == names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": None}, "rows is None"),
        ({"wall_seconds": "long"}, "wall_seconds"),
        ({"extra": 1}, r"unknown \['extra'\]"),
    ],
)
def test_a_wrong_record_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        parse({**asdict(RECORD), **change}, "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"column": "best"}, "not one of last, selected, oracle"),
        ({"mean": "high"}, "row 1: mean is 'high'"),
        ({"mean": True}, "row 1: mean is True"),
        ({"quoted": 1}, "row 1: quoted is 1"),
        ({"n": 0}, "n = 0"),
    ],
)
def test_a_wrong_row_is_refused(change, message):
    content = asdict(RECORD)
    content["rows"] = [{**content["rows"][0], **change}]
    with pytest.raises(InputError, match=message):
        parse(content, "here")


def test_missing_fields_are_named():
    content = asdict(RECORD)
    del content["rows"][0]["sd"]
    with pytest.raises(InputError, match=r"row 1: fields missing \['sd'\]"):
        parse(content, "here")


def test_distance_in_standard_deviations():
    assert Row("a", "m", 1.0, 0.3, 10, paper=2.0, paper_sd=0.4).distance() == pytest.approx(-2.0)
    assert Row("a", "m", 1.0, paper=2.0).distance() is None
    assert Row("a", "m", 1.0, 0.1, quoted=True, paper=2.0).distance() is None


def test_paper_beside_ours():
    rows = [Row("a", "m", 1.0, 0.3, 10, paper=2.0, paper_sd=0.4), Row("b", "m", 5.0, quoted=True)]
    table = with_paper(rows)
    assert table.rows[0][3:] == ["1 ± 0.3", "10", "2 ± 0.4", "-2.0"]
    assert table.rows[1][3:] == ["", "1", "5", ""]
    assert len(with_paper([Row("a", "m", 1.0)]).header) == 5
    assert "a" in Table(("x",), [("a",)]).as_text()


def test_machine_and_commit():
    assert machine()["cores"] >= 1
    assert commit() is None or len(commit().rstrip("+")) == 12


# ------------------------------------------------------------------------------------------------------------- registry


def test_every_built_experiment_is_in_the_list():
    assert set(EXPERIMENTS) == set(PAPER) | set(OURS)
    assert all(EXPERIMENTS[name].name == name for name in EXPERIMENTS)


def test_states(tmp_path):
    assert state("sampler-study", tmp_path).startswith("not run")
    assert state("ablation", tmp_path) == "not run; nrf reproduce ablation"
    replace(RECORD, experiment="sampler-study").write(tmp_path / "sampler-study.json")
    assert state("sampler-study", tmp_path) == "1 rows, commit abc, 2 s"


def test_names_that_do_not_exist(capsys):
    with pytest.raises(InputError, match="did you mean sampler-study"):
        find_experiment("sampler-studi")
    with pytest.raises(InputError, match="shows them"):
        find_experiment("zzzz")
    assert main(["reproduce"]) == 2
    assert "which experiment?" in capsys.readouterr().err
    assert main(["reproduce", "--list"]) == 0
    assert "interpolation" in capsys.readouterr().out


class Matrix(Toy):
    """Two classes, two seeds; the last cell never gets to its end in time."""

    name, partial = "matrix", True

    def cells(self, config, folder):
        placed = [(label, seed) for label in (3, 7) for seed in (0, 1)]
        return [
            Cell(f"c{label}{seed}", functools.partial(slow, self.log, label, seed), Place("runs", label, seed, 9))
            for label, seed in placed
        ]


def slow(log: str, label: int, seed: int) -> dict[str, float]:
    if (label, seed) == (7, 1) and STOP_AT.get() < math.inf:
        raise OutOfTime
    return square(log, 10 * label + seed)


@pytest.fixture
def matrix(tmp_path):
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quiet=True)

    def run(**changes):
        return reproduce(Matrix(tmp_path / "log"), replace(options, **changes), lambda text: None).rows[0].mean

    run.log = lambda: sorted((tmp_path / "log").read_text().split())
    run.folder = tmp_path / "runs"
    return run


def test_part_of_a_matrix_is_run_and_summarised(matrix):
    assert matrix(classes=(7,), seeds=(0,)) == 70**2
    assert matrix(seeds=(0,)) == 70**2 + 30**2
    assert matrix.log() == ["30", "70"]
    with pytest.raises(InputError, match="--classes: 4 is not there; there is 3, 7"):
        matrix(classes=(4,))
    matrix()
    assert matrix.log() == ["30", "31", "70", "71"]


def test_lines_are_picked_by_a_part_of_their_name(matrix, monkeypatch):
    named = [
        Cell(f"{line}{label}", functools.partial(square, str(matrix.folder.parent / "log"), i), Place(line, label, 0))
        for i, (line, label) in enumerate(
            (line, label) for line in ("slow net", "quick net", "other") for label in (3, 7)
        )
    ]
    monkeypatch.setattr(Matrix, "cells", lambda self, config, folder: named)
    matrix(lines=("quick", "slow"), classes=(7,))
    assert (matrix.folder.parent / "log").read_text().split() == ["3", "1"]  # in the order asked for
    with pytest.raises(InputError, match="--lines: no name has 'fast' in it; there is slow net; quick net; other"):
        matrix(lines=("fast",))


def test_another_machine_goes_on_with_the_cells_of_a_store(matrix, tmp_path):
    matrix(classes=(7,), store=tmp_path / "store")
    (stored,) = (tmp_path / "store").glob("matrix-*")
    assert sorted(path.name for path in stored.rglob("*.json")) == ["c70.json", "c71.json", "wall.json"]
    (stored / "wall.json").write_text("1000.0")
    total = matrix(out=tmp_path / "elsewhere", store=tmp_path / "store")
    assert total == 30**2 + 31**2 + 70**2 + 71**2
    assert matrix.log() == ["30", "31", "70", "71"]  # none was computed twice
    assert len(list(stored.glob("cells/*.json"))) == 4
    assert json.loads((stored / "wall.json").read_text()) >= 1000


def test_time_that_is_over_ends_a_sitting(matrix):
    matrix(max_hours=1)
    assert matrix.log() == ["30", "31", "70"]  # the cell that ran out of time left nothing
    matrix(max_hours=0, classes=(7,))
    assert matrix.log() == ["30", "31", "70"]
    matrix()
    assert matrix.log() == ["30", "31", "70", "71"]


def test_without_part_summaries_missing_cells_are_an_error(toy):
    with pytest.raises(InputError, match=r"4 of 4 cells are missing.*the same command goes on"):
        toy(max_hours=1e-9)
    with pytest.raises(InputError, match="no such thing in this experiment"):
        toy(classes=(1,))
    with pytest.raises(InputError, match="has no epochs to set"):
        toy(epochs=3)


STOPPED = """
import functools, os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_runner import Matrix, Cell, Options, reproduce

def wait(folder, i):
    Path(folder, f"pid{{i}}").write_text(str(os.getpid()))
    time.sleep(600)

folder = Path({folder!r})
Matrix.cells = lambda self, config, out: [Cell(f"c{{i}}", functools.partial(wait, str(folder), i)) for i in range(2)]
reproduce(Matrix(folder / "log"), Options(folder / "runs", folder / "results", jobs=2, quiet=True), print)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="processes are looked up in /proc")
def test_a_polite_kill_ends_the_workers_too(tmp_path):
    script = STOPPED.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    with (tmp_path / "stderr").open("w") as said:
        process = subprocess.Popen([sys.executable, "-c", script], stderr=said)
    pids = [tmp_path / f"pid{i}" for i in range(2)]
    try:
        _wait_for(lambda: all(path.is_file() and path.read_text() for path in pids))
        workers = [int(path.read_text()) for path in pids]
        assert process.pid not in workers
        process.terminate()
        assert process.wait(30) != 0
        assert "KeyboardInterrupt" in (tmp_path / "stderr").read_text()
        _wait_for(lambda: not any(map(_runs, workers)), 20)
    finally:
        process.kill()
        for path in pids:
            if path.is_file() and path.read_text() and _runs(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


def _wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def _runs(pid):
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_board_tells_what_is_done_and_how_far_the_rest_is(matrix, tmp_path):
    matrix(classes=(7,), seeds=(0,))
    (folder,) = matrix.folder.glob("matrix-*")
    places = {cell.key: cell.place for cell in Matrix(tmp_path / "log").cells(None, folder)}
    (folder / "runs" / "c71").mkdir(parents=True)
    (folder / "runs" / "c71" / "curve.json").write_text("[1, 2]")
    board = Board("matrix", places, folder)
    assert [board.state(key) for key in places] == ["waiting", "waiting", "done", "2/9"]
    console = Console(file=io.StringIO(), width=80)
    console.print(board.table())
    assert "1 of 4" in console.file.getvalue()
    assert "1 of 2 2/9" in console.file.getvalue()


def test_the_board_of_runs_without_classes_has_one_column(tmp_path):
    (tmp_path / "runs" / "b").mkdir(parents=True)
    (tmp_path / "runs" / "b" / "curve.json").write_text("[1, 2]")
    board = Board("lines", {key: Place(key, None, 0) for key in "ab"}, tmp_path)
    assert [board.state(key) for key in "ab"] == ["waiting", "2"]
    console = Console(file=io.StringIO(), width=80)
    console.print(board.table())
    assert "None" not in console.file.getvalue()


def test_lines_can_be_picked_where_there_are_no_classes():
    cells = [Cell(key, dict, Place(key, None, 0)) for key in ("first", "second")]
    assert [cell.key for cell in picked(cells, Options(Path(), Path(), lines=("sec",)))] == ["second"]
    with pytest.raises(InputError, match="no such thing in this experiment"):
        picked(cells, Options(Path(), Path(), classes=(0,)))
