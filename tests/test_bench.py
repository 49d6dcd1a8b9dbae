"""What is timed is what it says: the same results, the right count of operations, a record of the known form."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nrf.cli.main import main
from nrf.errors import InputError
from nrf.reproduce.pages import Records
from nrf.reproduce.pages.benchmarks import TABLES
from nrf.reproduce.runner.record import Record, Row
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.seeds import stream
from speed import bench, training
from speed.detection import _fitted, _streamed, rows_of, shuffled
from speed.machine import bare_gradient, operations
from speed.record import make_record, require_committed, write_beside
from speed.reference import plain_iteration, plain_revision
from speed.timing import QUICK, Effort, Times, in_turn, threads
from speed.training import CASES


def small(case):
    """A case's preset with networks and batches that are quick, and rows."""
    name, shape, _ = CASES[case]
    preset = find_preset(name)
    if case == "CIFAR-10":
        potential, generator = replace(preset.potential, width=4), replace(preset.generator, width=4)
        preset = replace(preset, potential=potential, generator=generator)
    preset = replace(preset, train=replace(preset.train, batch_size=6))
    return preset, torch.rand((40, *shape), generator=stream(0, "rows"))


@pytest.mark.parametrize("case", CASES)
def test_our_revision_ends_where_the_plain_one_does(case):
    preset, data = small(case)
    preset = replace(preset, sampler=replace(preset.sampler, temperature=0.0))
    learner = preset.build(data, preset.seeds)
    x, h = learner.generator.propose(6, stream(0, "x"))
    ours, _ = learner.revise(x, h, stream(0, "steps"))
    plain = plain_revision(learner.potential, preset.sampler, x, preset.revision.n_steps)
    assert (x - plain).abs().max() > 1e-4
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_the_plain_loop_trains_both_networks(case, monkeypatch):
    preset, data = small(case)
    learner = preset.build(data, preset.seeds)
    monkeypatch.setattr(Preset, "build", lambda *_: learner)
    before = {name: [p.clone() for p in m.parameters() if p.requires_grad] for name, m in learner.modules.items()}
    iterate = plain_iteration(preset, data)
    iterate()
    for name, module in learner.modules.items():
        after = [p for p in module.parameters() if p.requires_grad]
        assert any(not torch.equal(a, b) for a, b in zip(before[name], after, strict=True)), name


def test_the_plain_loop_refuses_what_it_is_not_written_for():
    preset, data = small("KDDCUP")
    joint = replace(preset, revision=replace(preset.revision, target="joint"))
    with pytest.raises(InputError, match="plain loop"):
        plain_iteration(joint, data)


def test_bare_arithmetic_counts_products():
    net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 1))
    found = bare_gradient(net, torch.randn(3, 7))
    assert found.operations == 2 * 2 * 3 * (7 * 5 + 5 * 1)
    assert len(found.calls) == 4
    found()


def test_bare_arithmetic_counts_convolutions():
    net = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(4 * 9, 1))
    found = bare_gradient(net, torch.randn(3, 2, 6, 6))
    assert found.operations == 2 * 2 * 3 * (9 * 4 * 2 * 9 + 36)
    found()


def test_ratios_are_of_rounds_not_of_medians():
    times = Times({"a": [1.0, 10.0, 4.0], "b": [1.0, 5.0, 1.0]})
    assert times.ratio("a", "b") == 2.0
    assert times.seconds("a") == 4.0
    assert times.spread("a", "b") == pytest.approx(np.std([1, 2, 4], ddof=1))


def test_blocks_are_called_in_turn():
    calls = []
    in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, replace(QUICK, least=0.0))
    assert "".join(calls) == "aabb" + "abab"


def test_slow_blocks_are_measured_fewer_times():
    effort = Effort(rounds=9, most=60.0)
    assert [effort.rounds_of(seconds) for seconds in (0.1, 12.0, 500.0)] == [9, 5, 3]
    assert in_turn({"a": lambda: None}, QUICK).n == QUICK.rounds


def test_operations_of_products_are_counted_forward_and_back():
    layer, x = nn.Linear(7, 5), torch.randn(3, 7, requires_grad=True)
    assert operations(lambda: layer(x).sum().backward()) == 3 * 2 * 3 * 7 * 5


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_the_peak_of_streaming_is_that_of_its_process(tmp_path):
    held = np.ones(400_000_000 // 8)  # in this process, and none of the other's business
    rows = rows_of(500, 4)
    _fitted(4).save(tmp_path / "model")
    assert 50 < _streamed(tmp_path, rows, 500) < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - 200
    assert held[0] == 1


def test_anomalies_keep_each_column_and_break_rows():
    rows = rows_of(200, 20)
    odd = shuffled(rows)
    assert (np.sort(odd, 0) == np.sort(rows, 0)).all()
    assert ((odd != rows).any(0)).sum() == 5


def test_a_section_by_name_and_its_record(tmp_path):
    told = []
    record = bench(["machine"], tmp_path, lambda section, row: told.append((section, row)), quick=True)
    assert Record.read(tmp_path / "bench.json").rows == list(record.rows)
    assert [row for _, row in told] == list(record.rows)
    assert all(row.mean > 0 for row in record.rows)
    with pytest.raises(InputError, match="unknown section 'speed'"):
        bench(["speed"], None, lambda *_: None)


@pytest.mark.slow
def test_every_section_runs(capsys):
    assert main(["bench", "--quick", "generation", "samplers", "scoring", "growth"]) == 0
    said = capsys.readouterr().out
    for words in (
        "GFLOP an image",
        "times SNGAN's iteration",
        "times faster than a bare loop",
        "million rows a second",
        "power of time in rows",
    ):
        assert words in said, words


def test_the_parts_of_an_iteration_are_timed(monkeypatch):
    monkeypatch.setattr(training, "CASES", {"GMM": training.CASES["GMM"]})
    rows = {row.method: row.mean for row in training.parts(QUICK)}
    assert set(rows) >= {"whole iteration", "proposal", "revision", "step of the potential", "step of the generator"}
    assert all(value > 0 for value in rows.values())


def test_a_partial_run_overwrites_no_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    kept = tmp_path / "results" / "bench.json"
    kept.write_text(json.dumps({"kept": True}))
    assert main(["bench", "--quick", "machine"]) == 0
    assert json.loads(kept.read_text()) == {"kept": True}


@pytest.mark.slow
def test_the_speed_of_the_detector_is_measured(tmp_path):
    script = Path(__file__).parents[1] / "benchmarks" / "detector_speed.py"
    command = [sys.executable, str(script), "--quick", "--results", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.rsplit(maxsplit=1)[0].split("  ")[0] for line in said.splitlines()] == ["NRFDetector"] * 7 + [
        "nrf detect score"
    ]
    assert all(float(line.rsplit(maxsplit=1)[1].replace(",", "")) > 0 for line in said.splitlines())
    assert not list(tmp_path.iterdir()), "a quick run leaves no record"
    alone = subprocess.run([*command, "--streaming"], capture_output=True, text=True, check=True).stdout
    assert [line.split("  ")[0] for line in alone.splitlines()] == ["nrf detect score"]


def test_a_record_keeps_what_other_parts_have_measured(tmp_path):
    def write(command, *rows):
        write_beside(tmp_path, make_record("toy", command, rows, 0.0))
        return Record.read(tmp_path / "toy.json")

    write("x one", Row("one", "m", 1.0), Row("one", "old", 2.0))
    assert write("x two", Row("two", "m", 3.0)).command == "x one; x two"
    record = write("x one", Row("one", "m", 4.0))
    assert record.command == "x two; x one"
    assert [(row.method, row.metric, row.mean) for row in record.rows] == [("one", "m", 4.0), ("two", "m", 3.0)]
    assert record.machine["cores"]
    assert record.versions["torch"]
    assert write("x all", Row("one", "m", 5.0), Row("two", "m", 6.0)).command == "x all"


def test_benchmarks_that_are_not_committed_write_no_record_beside_the_code(tmp_path, monkeypatch):
    scripts = tmp_path / "benchmarks"
    scripts.mkdir()
    (scripts / "some.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr("speed.record.BENCHMARKS", scripts)
    record = make_record("toy", "x", [Row("one", "m", 1.0)], 0.0)
    write_beside(tmp_path / "results", record)
    (scripts / "some.py").write_text("changed = True")
    for write in (require_committed, lambda results: write_beside(results, record)):
        with pytest.raises(InputError, match="not committed"):
            write(tmp_path / "results")
    require_committed(None)


def _script(name, *arguments):
    script = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    found = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr  # 1: a goal was missed, as it may be in a moment
    return found.stdout


@pytest.mark.slow
def test_the_service_is_measured(tmp_path):
    pytest.importorskip("uvicorn")
    short = ("--seconds", "1", "--minutes", "0.05", "--kills", "1", "--rows", "300", "--clients", "4")
    said = _script("serving", "one-row", "batches", *short, "--results", str(tmp_path))
    said += _script("serving", "memory", "kill", *short, "--results", str(tmp_path))
    assert [line.split()[1] for line in said.splitlines()] == ["one-row:", *["batches:"] * 3, "memory:", "kill:"]
    rows = Record.read(tmp_path / "serving.json").rows
    assert [row.mean for row in rows if row.metric in ("errors", "wrong answers")] == [0.0] * 7
    table = TABLES["serving"](Records(tmp_path))
    assert len(table.rows) == 4
    assert "python benchmarks/serving.py one-row --clients 4 --seconds 1 --rows 300" in table.rows[0][1]
    assert str(tmp_path) not in (tmp_path / "serving.json").read_text()


@pytest.mark.slow
def test_a_directory_is_measured(tmp_path):
    for field in ("density", "product"):
        arguments = ("--files", "2", "--rows", "3000", "--train", "500", "--field", field)
        assert "6000 scored" in _script("directory", *arguments, "--results", str(tmp_path))
    records = Records(tmp_path)
    for line, field in zip(TABLES["directory"](records).rows, ("density", "product"), strict=True):
        assert line[:5] == [f"`nrf detect score`, `{field}`", "500", "2", "6,000", "8"]
    cpu = next(
        row.mean for row in records.rows("directory").all if row.metric == "CPU-seconds" and row.preset == "density"
    )
    line = TABLES["directory, a billion rows"](records).rows[0]
    assert line[2] == f"{1e9 / 6000 * cpu:,.0f}"
    assert line[3] == f"{1e9 / 6000 * cpu / 60:,.0f}"


@pytest.mark.slow
def test_windows_are_measured(tmp_path):
    pytest.importorskip("statsmodels")
    said = _script("windows", "sunspots", "--results", str(tmp_path)).splitlines()[1:]
    table = TABLES["windows"](Records(tmp_path)).rows
    assert [line[1] for line in table] == ["1", "6", "6", "11", "11"]
    for printed, line in zip(said, table, strict=True):
        assert all(number in printed for number in line[3:])
