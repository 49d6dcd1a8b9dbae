"""Generation and interpolation on invented images; pictures of samples; arithmetic and order of memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nrf.cli.main import main
from nrf.data import Splits
from nrf.errors import InputError
from nrf.learners import InclusiveConfig, SNGANConfig, WGANGPConfig
from nrf.networks.classifier import Classifier
from nrf.reproduce.generation import cells as generation_runs
from nrf.reproduce.generation import interpolation
from nrf.reproduce.generation.cells import CONFIGS, KINDS, kinds_of, sized
from nrf.reproduce.generation.experiment import AGAINST_SNGAN, Generation
from nrf.reproduce.generation.interpolation import Interpolation
from nrf.reproduce.runner.run import Options, reproduce
from nrf.runs import image_scorer
from nrf.runs.presets import find_preset
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.seeds import stream
from nrf.training import TrainConfig, Trainer


def _cifar(n=120):
    rng = np.random.default_rng(0)
    images = np.tanh(rng.normal(size=(n, 3, 32, 32))).astype(np.float32)
    labels = rng.integers(0, 10, n)
    return Splits("cifar10", images, labels, images[: n // 2], labels[: n // 2], bounds=(-1.0, 1.0))


@pytest.fixture
def invented(monkeypatch):
    monkeypatch.setattr(generation_runs, "resolve", lambda name: _cifar())
    torch.manual_seed(0)
    network = Classifier(width=4).eval().requires_grad_(False)
    monkeypatch.setattr(image_scorer, "c10_classifier", lambda **_: network)
    generation_runs.dataset.cache_clear()
    yield
    generation_runs.dataset.cache_clear()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_experiment_makes_its_table_curves_and_grids(invented, tmp_path, name):
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quick=True, quiet=True)
    record = reproduce(Generation(name), options, lambda text: None)
    metrics = {row.metric for row in record.rows}
    assert {"IS-c10", "FID-c10", "precision-c10", "recall-c10", "iterations", "minutes"} <= metrics
    assert ("FID-c10, training images" in metrics) == (name == "cifar10-generation")
    assert all(row.paper is None for row in record.rows)  # nothing of the paper's beside scores with a mark
    assert all(np.isfinite(row.mean) for row in record.rows)
    if name == "cifar10-generation":  # two seeds each
        of = {(row.method, row.case): row for row in record.rows if row.metric == "FID-c10"}
        apart = of["inclusive-NRF", "generation"].mean - of["SNGAN", "generation"].mean
        assert (of[AGAINST_SNGAN, None].mean, of[AGAINST_SNGAN, None].n) == (pytest.approx(apart), 2)
        assert of["inclusive-NRF: revision − generation", None].n == 2
    kinds = {(row.method, row.case) for row in record.rows if row.metric == "FID-c10"}
    assert ("SNGAN", "revision") not in kinds
    pictures = {path.stem for path in tmp_path.glob("runs/*/*/*.png")}
    assert "curves" in pictures
    assert sum(picture.startswith("samples-") for picture in pictures) == 2


def test_inception_scores_at_the_end_are_over_ten_draws_of_5000():
    """The paper: "generate 5000 images 10 times and compute the average inception score and the standard deviation"."""
    size = CONFIGS["cifar10-generation"].size
    assert (size.draws, size.samples) == (10, 5000)


def test_methods_that_are_compared_at_equal_time_have_three_seeds():
    config = CONFIGS["cifar10-generation"]
    assert {line.name: line.seeds for line in config.lines if line.seeds > 1} == {
        "inclusive-NRF, best": 3,
        "SNGAN, best": 3,
    }
    cells = Generation("cifar10-generation").cells(config, Path())
    assert len({cell.name for cell in cells}) == len(cells) == 9
    assert {cell.settings["preset"].seed for cell in cells if cell.place.line == "SNGAN, best"} == {0, 1, 2}


def test_each_draw_of_a_score_is_of_as_many_images_as_one_has(invented, monkeypatch):
    seen = []
    real = image_scorer.inception_score
    monkeypatch.setattr(
        image_scorer, "inception_score", lambda logits, draws: seen.append((len(logits), draws)) or real(logits, draws)
    )
    distances = []
    monkeypatch.setattr(image_scorer, "frechet_distance", lambda real, fake: distances.append(len(fake)) or 0.0)
    quick = Generation("cifar10-generation").quick
    size, line = replace(quick.size, samples=30, draws=3, final_samples=60), quick.lines[1]  # generation alone
    preset = sized(size, line)
    model = TrainedModel(preset, *preset.networks((3, 32, 32), preset.seed), (3, 32, 32), 0)
    found = generation_runs._final(
        kinds_of(line), size, image_scorer.cifar10_scorer(generation_runs.dataset(None)), model
    )
    assert seen == [(90, 3)]
    assert distances == [30, 60]  # of one draw to the test images, of as many as are asked for to the training images
    assert found["generation: IS-c10 SD"] > 0


def test_quality_of_a_run_from_the_shell(invented, tmp_path, monkeypatch, capsys):
    import nrf.data

    monkeypatch.setattr(nrf.data, "resolve", lambda name: _cifar())
    train("x", _preset(ema_decay=0.5), tmp_path / "run", quiet=True, splits=_cifar())
    scores = tmp_path / "scores.json"
    command = ["quality", str(tmp_path / "run"), "--samples", "40", "--draws", "2", "--averaged", "--against-training"]
    assert main([*command, "--out", str(scores)]) == 0
    said = capsys.readouterr().out
    found = json.loads(scores.read_text())
    assert (found["samples"], found["draws"]) == (40, 2)
    for name in ("IS-c10", "IS-c10 SD", "FID-c10", "precision-c10", "recall-c10", "FID-c10, training images"):
        assert name in said
        assert np.isfinite(found[name])
    assert main([*command, "--revise"]) == 0
    capsys.readouterr()
    assert main(["quality", str(tmp_path / "run"), "--samples", "40", "--draws", "1"]) == 0
    assert "IS-c10 SD" not in capsys.readouterr().out  # one draw has no spread
    assert main(["quality", str(tmp_path / "run"), "--draws", "0"]) == 2
    assert "1 draw" in capsys.readouterr().err
    assert main(["quality", str(tmp_path / "run"), "--samples", "3"]) == 2
    assert "at least 20 samples" in capsys.readouterr().err
    weights = tmp_path / "none.pth"
    assert main([*command, "--inception-weights", str(weights)]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_run_ends_by_processor_time_and_scoring_is_not_counted(invented, tmp_path, monkeypatch):
    now = [0.0]
    real_scores, real_update = generation_runs._scores, Trainer._update

    def scores(*args):
        now[0] += 1000
        return real_scores(*args)

    def update(*args, **kwargs):
        now[0] += 7
        return real_update(*args, **kwargs)

    monkeypatch.setattr(generation_runs.time, "process_time", lambda: now[0])
    monkeypatch.setattr(generation_runs, "_scores", scores)
    monkeypatch.setattr(Trainer, "_update", update)
    quick = Generation("cifar10-generation").quick
    size, line = replace(quick.size, iterations=9, every=2, minutes=20 / 60), quick.lines[1]
    found = generation_runs.run_cell(sized(size, line), kinds_of(line), size, None, tmp_path / "run")
    assert [(point["step"], point["seconds"]) for point in found["curve"]] == [(2, 14), (3, 21)]


def test_what_is_no_experiment_of_images_takes_no_weights(tmp_path):
    options = Options(tmp_path, tmp_path, quick=True, quiet=True, inception_weights=tmp_path / "w.pth")
    with pytest.raises(InputError, match="has no inception weights to set"):
        reproduce(Interpolation(), options, lambda text: None)


def test_with_inceptions_weights_the_papers_numbers_stand_beside():
    result = {"final": {"generation: IS": 5.0, "generation: IS SD": 0.1, "generation: FID": 60.0}}
    result["curve"] = [{"step": 10, "seconds": 60.0}]
    from nrf.reproduce.generation.experiment import _rows

    line = next(line for line in CONFIGS["cifar10-generation"].lines if line.paper[0] == 7.58)
    rows = {row.metric: row for row in _rows(line, [result])}
    assert (rows["IS"].paper, rows["IS"].sd, rows["FID"].paper) == (7.58, 0.1, 25.5)


def test_a_run_ends_when_its_time_is_over(invented, tmp_path):
    quick = Generation("cifar10-generation").quick
    size = replace(quick.size, iterations=1000, minutes=1e-9)
    cell = sized(size, quick.lines[0]), KINDS, size, None, tmp_path
    found = generation_runs.run_cell(*cell)
    assert [point["step"] for point in found["curve"]] == [1]  # not at the next measurement only, which would be 2
    again = generation_runs.run_cell(*cell)  # as after a kill
    assert again == found


def test_a_run_is_measured_every_so_often_and_at_its_end(invented, tmp_path):
    quick = Generation("generation-rates").quick
    size = replace(quick.size, iterations=5)
    found = generation_runs.run_cell(sized(size, quick.lines[0]), KINDS, size, None, tmp_path)
    assert [point["step"] for point in found["curve"]] == [2, 4, 5]


@pytest.mark.parametrize("name", CONFIGS)
def test_lines_share_networks_and_differ_in_the_method(name):
    config = CONFIGS[name]
    presets = {line.cell(): sized(config.size, line) for line in config.lines}
    assert len(presets) == len(config.lines)
    widths = {(preset.potential.width, preset.generator.width) for preset in presets.values()}
    assert widths == {(config.size.width, config.size.width)}
    learners = {type(preset.learner) for preset in presets.values()}
    wanted = {
        "cifar10-generation": {InclusiveConfig, SNGANConfig, WGANGPConfig},
        "generation-rates": {InclusiveConfig, SNGANConfig},
    }
    assert learners == wanted[name]
    for line in config.lines:
        assert (kinds_of(line) == KINDS) == isinstance(presets[line.cell()].learner, InclusiveConfig)


def test_rates_are_those_of_the_line_and_chosen_without_the_test_images(invented):
    config = CONFIGS["generation-rates"]
    for line in config.lines:
        learner = sized(config.size, line).learner
        assert (learner.potential_lr, learner.generator_lr) == line.rates
    whole, splits = _cifar(), generation_runs.dataset(None, 40)
    assert np.array_equal(splits.train, whole.train[:80])
    assert np.array_equal(splits.test, whole.train[80:])
    assert np.array_equal(splits.test_labels, whole.train_labels[80:])


@pytest.mark.parametrize("half", [False, True])
def test_precision_is_of_the_size(half):
    config = CONFIGS["generation-rates"]
    train = sized(replace(config.size, bfloat16=half), config.lines[0]).train
    assert (train.precision, train.channels_last) == (("bfloat16", True) if half else ("float32", False))


@pytest.mark.parametrize(("sampler", "n"), [("sgld", 2), ("sgld", 5), ("sgld", 10), ("sghmc", 10)])
def test_the_released_ablation_is_without_noise(sampler, n):
    for noisy in (False, True):
        preset = find_preset(f"cifar10-ablation-{sampler}-{n}{'' if noisy else '-released'}")
        assert (preset.generator.sigma > 0, preset.sampler.temperature > 0) == (noisy, noisy)
        assert preset.revision.target == ("joint" if noisy else "x")
        assert preset.revision.n_steps == n


def test_interpolation_is_trained_measured_and_drawn(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.random((300, 784)).astype(np.float32)
    monkeypatch.setattr(interpolation, "resolve", lambda name: Splits("mnist", images, test=images[:50]))
    small = find_preset("mnist-interpolation")
    small = replace(
        small,
        potential=replace(small.potential, widths=(16,)),
        generator=replace(small.generator, widths=(16,)),
        revision=replace(small.revision, n_steps=2),
    )
    monkeypatch.setattr(interpolation, "find_preset", lambda name: small)
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quick=True, quiet=True)
    record = reproduce(Interpolation(), options, lambda text: None)
    numbers = {row.metric: row.mean for row in record.rows}
    assert numbers["largest step over the mean"] >= 1
    assert numbers["way over the straight distance"] >= 1
    assert numbers["nearest training image, of test images"] == pytest.approx(0, abs=1e-3)  # they are among them
    assert list(tmp_path.glob("runs/*/*/lines.png"))


# ---------------------------------------------------------------------------------------------- pictures while training


def _preset(name="cifar10-cnn", **changes):
    preset = find_preset(name)
    return replace(
        preset,
        potential=replace(preset.potential, width=4),
        generator=replace(preset.generator, width=4),
        train=TrainConfig(batch_size=8, iterations=4, log_every=1, checkpoint_every=2, threads=1, **changes),
    )


def test_samples_are_drawn_while_a_run_goes_on_and_change_nothing_of_it(tmp_path):
    ends = []
    for name, every in (("with", 2), ("without", None)):
        trainer = train("x", _preset(sample_every=every), tmp_path / name, quiet=True, splits=_cifar())
        ends.append({k: v.clone() for k, v in trainer.learner.modules["potential"].state_dict().items()})
    assert [path.stem for path in sorted((tmp_path / "with" / "samples").glob("*.png"))] == [
        "step-000000002",
        "step-000000004",
    ]
    assert not (tmp_path / "without" / "samples").exists()
    assert all(torch.equal(ends[0][k], ends[1][k]) for k in ends[0])


def test_samples_that_cannot_be_looked_at_are_refused_before_training(tmp_path):
    preset = find_preset("kddcup-sgld-released")
    preset = replace(preset, train=replace(preset.train, sample_every=10))
    rows = Splits("kddcup99", np.random.default_rng(0).random((2000, 121)).astype(np.float32))
    with pytest.raises(InputError, match="not images"):
        train("x", preset, tmp_path / "run", quiet=True, splits=rows)
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------ arithmetic and memory order


def test_channels_last_is_the_same_run_in_another_order_of_memory():
    rows, orders = [], []
    for last in (False, True):
        preset = _preset(channels_last=last)
        data = torch.from_numpy(_cifar().train)
        learner = preset.build(data, preset.seeds)
        found = []
        trainer = Trainer(learner, data, preset.train, [0])
        trainer.fit(quiet=True, on_log=lambda trainer, row, found=found: found.append(row) or False)
        rows.append(found[0])
        weights = [p for p in learner.modules["generator"].parameters() if p.ndim == 4]
        orders.append(all(p.is_contiguous(memory_format=torch.channels_last) for p in weights))
    assert orders == [False, True]
    for key in ("u_data", "u_revised", "potential_loss", "generator_loss", "revision_distance"):
        assert rows[0][key] == pytest.approx(rows[1][key], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["cifar10-cnn", "cifar10-resnet"])
def test_bfloat16_keeps_weights_in_32_bits_and_comes_near(name):
    preset = _preset(name)
    batch = torch.from_numpy(_cifar().train[:8])
    found = []
    for half in (False, True):
        learner = preset.build(batch, preset.seeds)
        with torch.autocast("cpu", torch.bfloat16, enabled=half, cache_enabled=False):
            found.append(learner.update(batch, stream(0, "test")))
        assert {p.dtype for p in learner.modules["potential"].parameters()} == {torch.float32}
    assert all(value.dtype == torch.float32 for value in found[1].values())
    assert any(a != b for a, b in zip(found[0].values(), found[1].values(), strict=True))
    for key in ("u_data", "generator_loss"):
        torch.testing.assert_close(found[0][key], found[1][key], rtol=0.1, atol=0.1)


def test_the_option_reaches_the_networks(monkeypatch):
    seen = []
    preset = _preset(precision="bfloat16")
    data = torch.from_numpy(_cifar().train)
    learner = preset.build(data, preset.seeds)
    update = learner.update
    monkeypatch.setattr(learner, "update", lambda *a: seen.append(torch.is_autocast_enabled("cpu")) or update(*a))
    Trainer(learner, data, preset.train, [0]).fit(quiet=True)
    assert seen == [True] * 4


def test_sizes_are_checked():
    with pytest.raises(InputError, match="sample_every"):
        TrainConfig(iterations=1, sample_every=0)
