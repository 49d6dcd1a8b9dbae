"""MNIST generation on invented digits: the lines, the paired differences, the tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf.data import Splits
from nrf.networks.classifier import Classifier
from nrf.reproduce.generation import mnist, mnist_cells
from nrf.reproduce.generation.mnist import BY_STEP, PAIRS, REVISION, STUDIED, MnistGeneration
from nrf.reproduce.generation.mnist_cells import LINES, STEPS, MnistSize, by_step, moved, sized
from nrf.reproduce.generation.paired import between, interval
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.run import Options, reproduce
from nrf.runs import image_scorer
from nrf.runs.presets import PRESETS
from nrf.runs.trained import TrainedModel


@pytest.fixture
def invented(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.random((60, 784)).astype(np.float32)
    monkeypatch.setattr(mnist_cells, "resolve", lambda name: Splits("mnist", rows, None, rows[:40], None, (0.0, 1.0)))
    torch.manual_seed(0)
    network = Classifier(width=2, channels=1).eval().requires_grad_(False)
    monkeypatch.setattr(image_scorer, "mnist_classifier", lambda **_: network)
    mnist_cells.dataset.cache_clear()
    yield
    mnist_cells.dataset.cache_clear()


def test_the_papers_rows_have_five_seeds_and_steps_that_are_theirs_alone():
    inclusive = [line for line in LINES if line.kind == "inclusive"]
    assert [line.method for line in inclusive] == ["SGLD, L = 2", "SGLD, L = 5", "SGLD, L = 10", "SGHMC, L = 10"]
    assert all(line.seeds == 5 for line in inclusive)
    presets = [sized(MnistSize(), line, 3) for line in inclusive]
    assert [preset.revision.n_steps for preset in presets] == [2, 5, 10, 10]
    assert {preset.seed for preset in presets} == {3}
    same = [replace(p, sampler=presets[0].sampler, revision=presets[0].revision) for p in presets]
    assert all(preset == presets[0] for preset in same)  # nothing else is different
    assert {name for pair in PAIRS for name in pair[1:]} <= {line.method for line in inclusive}
    assert (MnistSize().draws, MnistSize().samples) == (10, 5000)  # the paper's protocol
    assert {preset.train.ema_decay for preset in presets} == {0.995}
    for name, first, second in PAIRS:  # SGHMC − SGLD, L = 10: the first less the second
        here, there = name.split(" − ")
        assert here.split(",")[0] in first
        assert there.split(",")[0] in second


def test_both_samplers_go_as_far_and_the_scripts_step_is_of_a_mean_over_its_batch():
    """Along a constant slope; a step of SGHMC goes on to 1/friction of its length."""
    slow, fast = (line.sampler for line in LINES[2:4])
    assert slow.step_size == pytest.approx(fast.step_size / fast.friction)
    assert slow.temperature == fast.temperature == 0
    assert PRESETS["mnist-interpolation"].sampler == fast
    script = PRESETS["cifar10-cnn-released"]
    assert STEPS[0] == pytest.approx(script.sampler.step_size)


def test_the_experiment_makes_its_tables_and_pictures(invented, tmp_path):
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quick=True, quiet=True)
    record = reproduce(MnistGeneration(), options, lambda text: None)
    assert all(np.isfinite(row.mean) for row in record.rows)
    kinds = {(row.method, row.case) for row in record.rows if row.metric == "IS-mnist" and row.method in _names()}
    want = {(line.method, kind) for line in LINES for kind in line.kinds}
    assert kinds == want
    differences = {row.method for row in record.rows if row.n == 2 and row.method not in _names()}
    assert differences == {REVISION, *(name for name, _, _ in PAIRS)}
    of = {(row.method, row.case, row.metric): row.mean for row in record.rows}
    for line in LINES[:4]:
        apart = of[line.method, "revision", "FID-mnist"] - of[line.method, "generation", "FID-mnist"]
        assert of[REVISION, line.method, "FID-mnist"] == pytest.approx(apart)
    spread = next(row for row in record.rows if (row.method, row.case, row.metric) == (STUDIED, "revision", "IS-mnist"))
    stored = CellFile(tmp_path / "runs" / "mnist-generation-quick" / "cells.jsonl").read()[0]
    cells = {cell.name: cell.result["final"] for cell in stored}
    values = [cells[LINES[2].cell(seed)]["revision: IS-mnist"] for seed in range(2)]
    assert spread.sd == pytest.approx(np.std(values, ddof=1))  # over seeds, not over draws
    assert len({row.case for row in record.rows if row.method == BY_STEP} - {None}) == 2
    table = mnist.difference_table(record.rows)
    assert len(table.rows) == len(LINES[:4]) + 2 * len(PAIRS)
    assert {path.stem for path in tmp_path.glob("runs/*/*/*.png")} == {"steps", "samples"}


def _names():
    return {line.method for line in LINES}


def test_longer_steps_move_farther_and_the_scripts_step_moves_nothing(invented):
    preset = sized(MnistSize(batch_size=8), LINES[2], 0)
    model = TrainedModel(preset, *preset.networks((784,), 0), (784,), 0)
    scorer = image_scorer.mnist_scorer(mnist_cells.dataset(None))
    found = by_step(model, scorer, MnistSize(samples=20), (STEPS[0], 1e-2, 1e-1))
    distances = [point["distance"] for point in found]
    assert distances == sorted(distances)
    assert distances[0] < 1e-3 < distances[2]


def test_lines_are_compared_seed_by_seed_the_first_less_the_second():
    """Of seeds that both have; what is not there is in no difference."""

    def scores(level, seeds):
        names = [f"{kind}: {metric}" for kind in ("generation", "revision") for metric in mnist.SCORES]
        return {seed: dict.fromkeys(names, level + seed) for seed in seeds}

    found = {"SGLD, L = 10": scores(5.0, range(5)), "SGLD, L = 2": scores(2.0, range(1, 4))}
    rows = {(r.method, r.case, r.metric): r for r in mnist._difference_rows(found)}
    for kind in ("generation", "revision"):
        row = rows["L = 10 − L = 2, SGLD", kind, "IS-mnist"]
        assert (row.mean, row.sd, row.n) == (3.0, 0.0, 3)
    assert {method for method, _, _ in rows} == {"L = 10 − L = 2, SGLD", REVISION}


def test_scores_are_of_averaged_weights(invented, tmp_path, monkeypatch):
    asked, load = [], TrainedModel.load
    monkeypatch.setattr(TrainedModel, "load", lambda out, **how: asked.append(how) or load(out, **how))
    size = MnistSize(iterations=2, batch_size=8, samples=20, draws=1, max_rows=40)
    mnist_cells.run_cell(sized(size, LINES[0], 0), LINES[0].kinds, size, (), tmp_path)
    assert asked == [{"averaged": True}]


def test_a_distance_is_of_images_of_the_same_code():
    """With noise a revision takes from the stream of the codes: those that come after have other ones."""
    codes, others = np.arange(8.0).reshape(4, 2), np.arange(8.0).reshape(4, 2)
    others[2:] += 1
    before, after = np.zeros((4, 9)), np.ones((4, 9))
    after[2:] = 100
    assert moved((before, codes), (after, others)) == 3.0


def test_an_interval_is_students():
    row = Row.of([0.5, 1.5, 1.0, 1.2, 0.8], "a − b", "score")
    low, high = interval(row)
    assert (high - low) / 2 == pytest.approx(2.776445 * row.sd / 5**0.5, rel=1e-5)
    assert between(Row("a − b", "score", 1.0)) == "+1.00 [−inf, +inf]"
