"""The experiment base: cells are kept, records have one form, quick runs stay out of the results."""

from __future__ import annotations

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
from nrf.reproduce.runner import run
from nrf.reproduce.runner.board import Board, Place
from nrf.reproduce.runner.cells import CellFile, Stored
from nrf.reproduce.runner.experiment import (
    NEVER,
    Cell,
    Deadline,
    Experiment,
    Outcome,
    OutOfTime,
    Section,
    with_paper,
)
from nrf.reproduce.runner.record import Record, Row, commit, kept_with_code, machine, parse, require_clean, spread
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.run import Options, picked, reproduce

RESULTS = Path(nrf.__file__).parent.parent.parent / "results"
FIXTURES = Path(__file__).parent.parent / "fixtures"

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


class Toy(Experiment[ToyConfig]):
    name, title, lead = "toy", "Toy", "A toy."
    whole, quick = ToyConfig(4), ToyConfig(2)

    def __init__(self, log: Path) -> None:
        self.log = str(log)

    def cells(self, config, shared):
        return [Cell(f"c{i}", square, {"i": i}, places={"log": self.log}) for i in range(config.n)]

    def summarise(self, config, results, runs):
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
    path = toy.folder / "runs" / "toy" / "cells.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"cell": "c2"' not in line))
    toy()
    assert toy.log() == ["0", "1", "2", "2", "3"]


def test_the_record_names_the_commit_of_the_cells(toy):
    toy()
    path = toy.folder / "runs" / "toy" / "cells.jsonl"
    cells = CellFile(path).read()[0]
    path.unlink()
    CellFile(path).add([replace(c, commit="older" if i else "oldest").as_line() for i, c in enumerate(cells)])
    assert toy()[0].commit == "older, oldest"


def test_jobs_must_be_positive():
    with pytest.raises(InputError, match="jobs"):
        Options(jobs=0)


def test_a_damaged_cell_is_named(toy):
    toy()
    path = toy.folder / "runs" / "toy" / "cells.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], "{", *lines[2:]]) + "\n")
    with pytest.raises(InputError, match=r"cells.jsonl, line 3: damaged .*; delete that line and run again"):
        toy()


def test_quick_runs_stay_out_of_the_results(toy):
    record, _ = toy(quick=True)
    assert record.command == "nrf reproduce toy --quick"
    assert record.rows[0].mean == 1
    assert not (toy.folder / "results").exists()
    assert (toy.folder / "runs" / "toy-quick" / "toy.json").is_file()


def test_two_cells_of_one_name_are_refused(toy, monkeypatch):
    monkeypatch.setattr(Toy, "cells", lambda self, config, shared: [Cell("same", dict), Cell("same", dict)])
    with pytest.raises(InputError, match="two cells alike"):
        toy()


def test_processes_in_parallel(toy, monkeypatch):
    monkeypatch.setattr(
        Toy, "cells", lambda self, config, shared: [Cell(f"c{i}", dict, {"value": i}) for i in range(5)]
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


def test_a_missing_field_has_its_default_and_one_without_is_named():
    content = asdict(RECORD)
    for name in ("sd", "n", "paper"):
        del content["rows"][0][name]
    del content["machine"]
    assert parse(content, "here") == replace(RECORD, machine={}, rows=[Row("a", "m", 1.0)])
    del content["rows"][0]["mean"]
    with pytest.raises(InputError, match=r"row 1: fields missing \['mean'\], unknown \[\]"):
        parse(content, "here")
    with pytest.raises(InputError, match=r"here: fields missing \['experiment'\]"):
        parse({"command": "x"}, "here")


def test_a_record_of_0_1_0_is_read():
    record = Record.read(FIXTURES / "record-0.1.0.json")
    assert (record.experiment, record.commit, record.seeds) == ("interpolation", "1c3c027aff02+", [0])
    assert record.rows[0] == Row("inclusive-NRF", "largest step over the mean", record.rows[0].mean)
    assert len(record.rows) == 5


def test_a_row_of_values():
    row = Row.of([1.0, 3.0], "a", "m", preset="p", case="c", column="last", paper=(2.5, None))
    assert row == Row("a", "m", 2.0, 2**0.5, 2, "p", "c", "last", 2.5)
    assert Row.of([4.0], "a", "m") == Row("a", "m", 4.0)
    assert row.text(".1f") == "2.0 ± 1.4"
    assert row.paper_text(".1f") == "2.5"
    assert spread(None, 1.0) == ""


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
    assert state("density", tmp_path) == "not run; nrf reproduce density"
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

    def cells(self, config, shared):
        return [
            Cell(
                f"c{label}{seed}",
                slow,
                {"label": label, "seed": seed},
                places={"log": self.log},
                trains=True,
                place=Place("runs", label, seed, 9),
            )
            for label in (3, 7)
            for seed in (0, 1)
        ]


def slow(log: str, label: int, seed: int, out: Path, deadline: Deadline) -> dict[str, float]:
    if (label, seed) == (7, 1) and deadline.at < math.inf:
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


class Kept(Matrix):
    """Its cells may be lost, its rows are not."""

    keeps_rows = True


def test_a_record_keeps_the_rows_of_methods_whose_cells_are_missing(tmp_path):
    """But not those of methods that it has itself; commits of both are named."""
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quiet=True, classes=(3,))
    mine = reproduce(Kept(tmp_path / "log"), options, lambda text: None).rows
    earlier = Row("lost", "AUROC", 0.5, preset="a"), Row(mine[0].method, "gone", 0.5, preset=mine[0].preset)
    path = tmp_path / "results" / "matrix.json"
    Record("matrix", "nrf reproduce matrix", "0123456789ab", rows=earlier).write(path)
    again = reproduce(Kept(tmp_path / "log"), options, lambda text: None)
    assert again.rows == [*mine, earlier[0]] == Record.read(path).rows
    assert "0123456789ab" in again.commit
    assert reproduce(Matrix(tmp_path / "log"), options, lambda text: None).rows == mine
    Record("matrix", "nrf reproduce matrix", rows=earlier).write(path)
    assert earlier[0] not in reproduce(Kept(tmp_path / "log"), replace(options, classes=()), lambda text: None).rows


def test_lines_are_picked_by_a_part_of_their_name(matrix, monkeypatch):
    named = [
        Cell(
            f"{line}{label}",
            square,
            {"i": i},
            places={"log": str(matrix.folder.parent / "log")},
            place=Place(line, label, 0),
        )
        for i, (line, label) in enumerate(
            (line, label) for line in ("slow net", "quick net", "other") for label in (3, 7)
        )
    ]
    monkeypatch.setattr(Matrix, "cells", lambda self, config, shared: named)
    matrix(lines=("quick", "slow"), classes=(7,))
    assert (matrix.folder.parent / "log").read_text().split() == ["3", "1"]  # in the order asked for
    with pytest.raises(InputError, match="--lines: no name has 'fast' in it; there is slow net; quick net; other"):
        matrix(lines=("fast",))


def test_another_machine_goes_on_with_the_cells_of_a_store(matrix, tmp_path):
    matrix(classes=(7,), store=tmp_path / "store")
    (path,) = (tmp_path / "store").iterdir()
    assert path.name == "matrix.jsonl"
    stored = CellFile(path)
    assert sorted(cell.name for cell in stored.read()[0]) == ["c70", "c71"]
    stored.add([{"wall_seconds": 1000.0}])
    total = matrix(out=tmp_path / "elsewhere", store=tmp_path / "store")
    assert total == 30**2 + 31**2 + 70**2 + 71**2
    assert matrix.log() == ["30", "31", "70", "71"]  # none was computed twice
    cells, seconds = stored.read()
    assert len(cells) == 4
    assert seconds >= 1000


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

def wait(i, folder):
    Path(folder, f"pid{{i}}").write_text(str(os.getpid()))
    time.sleep(600)

folder = Path({folder!r})
Matrix.cells = lambda self, config, shared: [
    Cell(f"c{{i}}", wait, {{"i": i}}, places={{"folder": str(folder)}}) for i in range(2)
]
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
    cells = Matrix(tmp_path / "log").cells(None, tmp_path)
    places = {cell.name: cell.place for cell in cells}
    runs = {cell.name: tmp_path / cell.key for cell in cells}
    runs["c71"].mkdir()
    (runs["c71"] / "curve.json").write_text("[1, 2]")
    done = set()
    board = Board("matrix", places, runs, done)
    assert board.state("c70") == "waiting"
    done.add("c70")
    assert [board.state(key) for key in places] == ["waiting", "waiting", "done", "2/9"]
    console = Console(file=io.StringIO(), width=80)
    console.print(board.table())
    assert "1 of 4" in console.file.getvalue()
    assert "1 of 2 2/9" in console.file.getvalue()


def test_the_board_of_runs_without_classes_has_one_column(tmp_path):
    (tmp_path / "b").mkdir(parents=True)
    (tmp_path / "b" / "curve.json").write_text("[1, 2]")
    board = Board("lines", {key: Place(key, None, 0) for key in "ab"}, {key: tmp_path / key for key in "ab"}, set())
    assert [board.state(key) for key in "ab"] == ["waiting", "2"]
    console = Console(file=io.StringIO(), width=80)
    console.print(board.table())
    assert "None" not in console.file.getvalue()


def test_lines_can_be_picked_where_there_are_no_classes():
    cells = [Cell(name, dict, place=Place(name, None, 0)) for name in ("first", "second")]
    assert [cell.name for cell in picked(cells, Options(Path(), Path(), lines=("sec",)))] == ["second"]
    with pytest.raises(InputError, match="no such thing in this experiment"):
        picked(cells, Options(Path(), Path(), classes=(0,)))


# --------------------------------------------------------------------------------------------- cells, their settings


@dataclass(frozen=True)
class Shape:
    width: int
    depth: int = 2


def test_a_cell_is_known_by_its_own_settings_and_its_revision():
    cell = Cell("a", dict, {"shape": Shape(3), "seed": 1}, {"defaults": {"rate": (0.1, 0.2)}})
    stored = cell.described()
    assert stored == {
        "shape": {"type": "Shape", "width": 3, "depth": 2},
        "seed": 1,
        "defaults": {"rate": [0.1, 0.2]},
    }
    assert cell.has(1, stored)
    older = {**stored, "shape": {"type": "Shape", "width": 3}}  # than the field `depth`
    assert cell.has(1, older)
    for other in (
        replace(cell, revision=2),
        replace(cell, settings={"shape": Shape(4), "seed": 1}),
        replace(cell, settings={"shape": Shape(3, 1), "seed": 1}),
        replace(cell, settings={"shape": Shape(3)}),
        replace(cell, depends_on={"defaults": {"rate": (0.1, 0.3)}}),
    ):
        assert not other.has(1, stored)
        assert other.key != cell.key
    assert not cell.has(1, None)
    elsewhere = replace(cell, places={"kept": Path("x")}, place=Place("line", 3, 0))
    assert elsewhere.key == cell.key  # where it works is no setting
    assert elsewhere.has(1, stored)


def test_other_settings_are_other_cells_of_the_same_file(toy, monkeypatch):
    toy()
    monkeypatch.setattr(Toy, "whole", ToyConfig(5))
    toy()
    assert toy.log() == ["0", "1", "2", "3", "4"]  # what did not change was not computed again
    monkeypatch.setattr(
        Toy,
        "cells",
        lambda self, config, shared: [Cell("c0", square, {"i": 0}, places={"log": self.log}, revision=2)],
    )
    toy()
    assert toy.log() == ["0", "0", "1", "2", "3", "4"]
    cells = CellFile(toy.folder / "runs" / "toy" / "cells.jsonl").read()[0]
    assert [(cell.name, cell.revision) for cell in cells if cell.name == "c0"] == [("c0", 1), ("c0", 2)]


LINE = Stored("a", 1, {"n": 1}, "abc", {"value": 1})


def test_a_line_that_a_kill_has_torn_is_dropped_and_the_next_one_is_whole(tmp_path, caplog):
    file = CellFile(tmp_path / "cells.jsonl")
    file.add([LINE.as_line(1.0), replace(LINE, name="b").as_line(2.0)])
    whole = file.path.read_bytes()
    for cut in (1, 20, len(whole) // 2 - 5):
        file.path.write_bytes(whole[:-cut])
        kept = [cell.name for cell in file.read()[0]]
        assert kept == (["a", "b"] if cut == 1 else ["a"])  # only the end of the line is missing: it is whole
        file.add([replace(LINE, name="c").as_line()])
        assert [cell.name for cell in file.read()[0]] == [*kept, "c"]
    assert "not whole, as after a kill" in caplog.text


def test_processes_that_add_lines_at_once_do_not_mix_them(tmp_path):
    program = (
        "import sys; from pathlib import Path; from nrf.reproduce.runner.cells import CellFile, Stored\n"
        "for i in range(20): CellFile(Path(sys.argv[1])).add("
        "[Stored(f'{sys.argv[2]}-{i}', 1, {}, None, {'x': 'y' * 50_000}).as_line()])"
    )
    path = tmp_path / "cells.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert sorted(cell.name for cell in CellFile(path).read()[0]) == sorted(
        f"{n}-{i}" for n in range(3) for i in range(20)
    )


def test_cells_without_settings_are_nobodys(tmp_path):
    file = CellFile(tmp_path / "cells.jsonl")
    file.add([replace(LINE, settings=None, configuration="b097002b").as_line()])
    assert file.find([Cell("a", dict, {"n": 1})]) == {}
    assert file.read()[0][0].configuration == "b097002b"


STORED = {"gmm": 3, "mnist-one-class": 76, "cifar10-one-class": 48, "interpolation": 1, "detectors": 2117, "drift": 19}
"""Cells at least; more are welcome."""


@pytest.mark.parametrize("name", STORED)
def test_the_cells_in_results_still_count(name):
    """A change of settings, or of their form, that loses hours of work is to be noticed."""
    experiment = EXPERIMENTS[name]
    found = CellFile(RESULTS / "cells" / f"{name}.jsonl").find(experiment.cells(experiment.whole, Path()))
    assert len(found) >= STORED[name]


# ------------------------------------------------------------------------------------------------- uncommitted code


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "checkout" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package.parent / ".gitignore").write_text("/runs/\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=package.parent, check=True)
    return package


def test_changed_code_is_noticed_wherever_it_is(checkout):
    clean = commit(checkout)
    assert len(clean) == 12
    (checkout.parent / "results.json").write_text("{}")  # no code
    assert commit(checkout) == clean
    (checkout / "new.py").write_text("")
    assert commit(checkout) == f"{clean}+"
    assert commit(checkout.parent.parent) is None


def test_a_changed_tree_writes_nothing_beside_the_code(checkout, tmp_path):
    results, elsewhere = checkout.parent / "results", [tmp_path / "results", checkout.parent / "runs" / "results"]
    require_clean(results, "--results", checkout)
    (checkout / "__init__.py").write_text("changed = True")
    with pytest.raises(InputError, match=r"changes that are not committed.*--results runs/results"):
        require_clean(results, "--results", checkout)
    for place in elsewhere:
        require_clean(place, "--results", checkout)
        assert not kept_with_code(place, checkout)


def test_a_record_that_would_lie_beside_the_code_is_refused_before_the_work(toy, monkeypatch):
    monkeypatch.setattr("nrf.reproduce.runner.record.commit", lambda package=None: "abc+")
    monkeypatch.setattr("nrf.reproduce.runner.record.kept_with_code", lambda place, package=None: True)
    with pytest.raises(InputError, match="not committed"):
        toy()
    assert not (toy.folder / "log").exists()
    toy(quick=True)


def test_cells_of_changed_code_go_into_no_record_beside_the_code(toy, monkeypatch):
    toy()
    path = toy.folder / "runs" / "toy" / "cells.jsonl"
    cells = CellFile(path).read()[0]
    path.unlink()
    CellFile(path).add([replace(cell, commit="abc+").as_line() for cell in cells])
    toy()
    monkeypatch.setattr(run, "kept_with_code", lambda place: True)
    monkeypatch.setattr(run, "require_clean", lambda place, option: None)
    with pytest.raises(
        InputError, match=r"4 cells in .*cells.jsonl were made by code that was not committed.*--results"
    ):
        toy()
    path.unlink()
    CellFile(path).add([replace(cell, commit="abc+", configuration="digest").as_line() for cell in cells])  # of 0.1.0
    assert toy()[0].commit == "abc+"


def test_deadlines():
    assert not NEVER.passed()
    with pytest.raises(OutOfTime):
        Deadline(0.0).end()
    with pytest.raises(KeyboardInterrupt):
        NEVER.end()


# ------------------------------------------------------------------------------------------------------------------ Ray


def test_engines_that_do_not_exist():
    with pytest.raises(InputError, match="engine must be 'local' or 'ray', got 'spark'"):
        Options(engine="spark")


@pytest.mark.slow
def test_ray_computes_the_cells_of_one_process(toy, monkeypatch):
    """Cells that die with their process are run again; what they raise comes out as it is."""
    ray = pytest.importorskip("ray", reason="the engine ray needs ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    died = str(toy.folder / "died")
    cells = [Cell(f"c{i}", dict, {"value": i}) for i in range(5)]
    killed = [*cells, Cell("killed", _dies_once, {"value": 5}, places={"mark": died})]
    failing = [*killed, Cell("failing", _raises, {"value": 6})]
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    try:
        monkeypatch.setattr(Toy, "cells", lambda self, config, shared: cells)
        by_ray = toy(jobs=2, engine="ray")[0]
        stored = (toy.folder / "runs" / "toy" / "cells.jsonl").read_text()
        assert all(f'"cell": "c{i}"' in stored for i in range(5))
        monkeypatch.setattr(Toy, "cells", lambda self, config, shared: killed)
        assert toy(jobs=2, engine="ray")[0].rows[0].mean == 15
        assert Path(died).exists(), "no process has died: the test has shown nothing"
        monkeypatch.setattr(Toy, "cells", lambda self, config, shared: failing)
        with pytest.raises(InputError, match="as it is"):
            toy(jobs=2, engine="ray")
    finally:
        ray.shutdown()
    monkeypatch.setattr(Toy, "cells", lambda self, config, shared: cells)
    local = toy(jobs=2, out=toy.folder / "local")[0]
    assert local.rows == by_ray.rows == [Row("sum", "total", 10, paper=14.0)]


def _dies_once(mark: str, value: int) -> dict[str, int]:
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": value}


def _raises(value: int) -> dict[str, int]:
    raise InputError("as it is")
