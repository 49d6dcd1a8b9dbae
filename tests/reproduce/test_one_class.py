"""One-class images: the paper's table, the matrix of runs, and the whole experiment on invented images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from nrf.config import from_json, to_json
from nrf.data import Splits
from nrf.reproduce.baselines import has_epochs
from nrf.reproduce.baselines.from_scikit import kernel_log_density
from nrf.reproduce.one_class import best as one_class_best
from nrf.reproduce.one_class import cells
from nrf.reproduce.one_class.best import CLASSIFIER_ALONE, CONTROLS, FeatureConfig, detect_on, packed, unpacked
from nrf.reproduce.one_class.cells import COMPARED, TRAINED, systems
from nrf.reproduce.one_class.experiment import SYSTEMS, OneClass
from nrf.reproduce.one_class.matrix import CONFIGS, sized
from nrf.reproduce.one_class.paper import METHODS
from nrf.reproduce.runner.record import Record
from nrf.reproduce.runner.run import Options, reproduce
from nrf.reproduce.runner.watch import values_of


def _images(name, n, seed):
    """A bright square whose place tells the class; small noise."""
    shape = (1, 28, 28) if name == "mnist" else (3, 32, 32)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    x = 0.1 * rng.random((n, *shape))
    for image, label in zip(x, labels, strict=True):
        image[:, 3 + 7 * label : 10 + 7 * label, 8:20] += 0.8
    return (x.reshape(n, -1) if name == "mnist" else 2 * x - 1).astype(np.float32), labels


@pytest.fixture
def invented(monkeypatch):
    def resolve(name):
        train, test = _images(name, 480, 0), _images(name, 200, 1)
        return Splits(name, *train, *test, bounds=(0.0, 1.0) if name == "mnist" else (-1.0, 1.0))

    monkeypatch.setattr(cells, "resolve", resolve)
    cells._dataset.cache_clear()
    yield
    cells._dataset.cache_clear()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_line_has_its_preset_and_every_cell_its_place(name, tmp_path):
    experiment = OneClass(name)
    config = experiment.whole
    assert [line.setting for line in config.detectors] == ["best", "components"]
    assert len(config.detectors) + len(config.pairs) == len(config.lines)
    for line in config.pairs:
        preset = sized(config, line, 3, 1)
        assert (preset.seed, preset.data.normal, preset.train.epochs) == (1, 3, line.epochs)
        assert sized(replace(config, epochs=7), line, 3, 1).train.epochs == 7
        assert preset.data.name == config.dataset
        assert line.sampler in METHODS
    found = experiment.cells(config, tmp_path)
    assert len({cell.name for cell in found}) == len(found)
    assert all(cell.place is not None for cell in found)
    assert {cell.place.label for cell in found} == set(range(10))


def test_what_is_run_of_the_long_table_is_said():
    mnist, cifar10 = (OneClass(name).whole for name in ("mnist-one-class", "cifar10-one-class"))
    assert {line.name: line.seeds for line in mnist.pairs if line.seeds > 1} == {"released: inclusive-NRF, SGHMC": 3}
    half = [line for line in cifar10.pairs if line.setting == "released, half width"]
    assert {line.sampler for line in half} == {"SGLD", "SGHMC"}
    whole = {line.method: sized(cifar10, line, 0, 0) for line in cifar10.pairs if line.setting == "released"}
    for line in half:
        mine, theirs = sized(cifar10, line, 0, 0), whole[line.method]
        assert (2 * mine.potential.width, 2 * mine.generator.width) == (theirs.potential.width, theirs.generator.width)
        assert (mine.train.precision, theirs.train.precision) == ("bfloat16", "float32")
        assert (mine.sampler, mine.learner, mine.revision) == (theirs.sampler, theirs.learner, theirs.revision)
    short = {line.sampler: sized(mnist, line, 0, 0) for line in mnist.pairs if line.setting == "released, short"}
    assert {name: preset.train.epochs for name, preset in short.items()} == {"SGLD": 5, "SGHMC": 5}
    assert list(cifar10.untrained) == ["untrained potential", "untrained potential, half width"]
    found = OneClass("cifar10-one-class").cells(cifar10, Path())
    full = {cell.place.label for cell in found if "full width" in cell.place.line}
    assert full == {0, 1}
    searched = [cell for cell in OneClass("mnist-one-class").cells(mnist, Path()) if cell.place.line == "AnoGAN"]
    assert {(cell.place.label, cell.settings["max_test"]) for cell in searched} == {(2, 1000), (5, 1000), (8, 1000)}


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "AnoGAN"])  # which is slow, and tested alone
def test_compared_systems_beat_chance(invented, name, tmp_path):
    config = OneClass("mnist-one-class").quick
    found = systems(sized(config, config.pairs[0], 0, 0), epochs=8)
    assert tuple(found) == COMPARED
    assert {name for name in found if has_epochs(found[name])} == set(TRAINED)
    numbers = cells.compare(found[name], cells.load("mnist", 0), 0, tmp_path)
    assert 0 <= numbers["average precision"] <= 100
    if name not in ("untrained potential", "Deep SVDD"):  # a few seconds of training do not bring it there
        assert numbers["AUROC"] > 90


def test_a_pair_is_trained_on_its_class_and_looked_at_after_every_epoch(invented, tmp_path):
    config = replace(OneClass("mnist-one-class").whole, epochs=3, n_steps=2)
    preset = sized(config, config.pairs[0], 1, 0)
    preset = replace(
        preset,
        potential=replace(preset.potential, widths=(32, 16)),
        generator=replace(preset.generator, widths=(32,)),
        train=replace(preset.train, batch_size=20),
    )
    curve = cells.train_on(preset, cells.load("mnist", 1), tmp_path)
    assert len(curve) == 3
    assert all(0 <= point["last weights: AUROC"] <= 100 for point in curve)
    assert 0 < curve[-1]["last weights: synthetic AUROC"] <= 1


@pytest.mark.filterwarnings("ignore:training made this detector no better")  # so short a training
@pytest.mark.parametrize("turn_epochs", [0, 3])
def test_best_learns_its_class_from_normal_images(invented, turn_epochs):
    best = FeatureConfig(components=5, members=2, iterations=150, turn_epochs=turn_epochs, width=4)
    task = cells.load("mnist", 1)
    found = detect_on(best, task, 0)
    assert values_of(found["curve"], "AUROC")[-1] > 90
    assert set(found["controls"]) == {*CONTROLS, *([CLASSIFIER_ALONE] if turn_epochs else [])}
    assert (task.test_labels[found["typical"] + found["untypical"]] == 0).all()
    assert ("turns told" in found) == (turn_epochs > 0)
    assert ("pulled" in found) == (turn_epochs == 0)


@pytest.mark.filterwarnings("ignore:training made this detector no better")  # so short a training
def test_the_product_has_one_line_and_a_share_of_the_sum_among_those_allowed(invented):
    best = FeatureConfig(field="product", components=5, turn_epochs=2, width=4, sum_shares=(0.0, 0.5))
    found = detect_on(best, cells.load("mnist", 1), 0)
    assert len(found["curve"]) == 1
    assert values_of(found["curve"], "AUROC")[-1] > 90
    assert found["share of the sum"] in best.sum_shares


class _Says:
    """A detector that says what the first column has."""

    def score_samples(self, rows):
        return rows[:, 0]


@pytest.mark.parametrize(("useful", "share"), [("field", 0.0), ("sum", 1.0)])
def test_the_share_is_that_which_separates_synthetic_images(useful, share):
    rng = np.random.default_rng(0)

    def look(shift):
        good, noise = rng.normal(size=200) - shift, rng.normal(size=200)
        field, summed = (good, noise) if useful == "field" else (noise, good)
        return one_class_best.ImageFeatures(field[:, None], summed)

    held, synthetic = look(0), [look(2), look(1)]
    best = FeatureConfig(sum_shares=(0.0, 0.5, 1.0))
    found, value = one_class_best._chosen_share(best, _Says(), held, synthetic)
    assert found == share
    assert value == one_class_best._synthetic_auroc(_Says(), held, synthetic, share)[0] > 0.75


def test_a_gain_within_its_error_leaves_the_field_alone():
    rng = np.random.default_rng(1)
    good = [rng.normal(size=200) - shift for shift in (0, 2)]
    held, made = (one_class_best.ImageFeatures((x + 0.2 * rng.normal(size=200))[:, None], x) for x in good)
    values = {share: one_class_best._synthetic_auroc(_Says(), held, [made], share) for share in (0.0, 0.5, 1.0)}
    assert max(values, key=lambda share: values[share][0]) != 0
    assert one_class_best._chosen_share(FeatureConfig(sum_shares=(0.0, 0.5, 1.0)), _Says(), held, [made])[0] == 0


def test_the_error_of_a_mean_auroc_is_that_over_draws():
    rng = np.random.default_rng(2)

    def draw():
        held, made = (one_class_best.ImageFeatures(rng.normal(size=(100, 1)) - shift, None) for shift in (0, 1))
        return one_class_best._synthetic_auroc(_Says(), held, [made], 0.0)

    values, errors = zip(*(draw() for _ in range(400)), strict=True)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


@pytest.mark.filterwarnings("ignore:training made this detector no better")  # so short a training
def test_anomalies_are_pulled_into_the_class(invented):
    task = cells.load("mnist", 1)
    found = detect_on(FeatureConfig(components=3, members=1, iterations=400), task, 0)
    assert (task.test_labels[found["anomalies"]] == 1).all()
    before, *_, after = (unpacked(text) for text in found["pulled"].values())
    normal = task.train.mean(0)
    far = [np.linalg.norm((images - normal).reshape(len(images), -1), axis=1).mean() for images in (before, after)]
    assert far[1] < 0.5 * far[0]
    np.testing.assert_allclose(before, unpacked(packed(before, (0.0, 1.0))))


@pytest.mark.filterwarnings("ignore:training made this detector no better")  # so short a training
@pytest.mark.filterwarnings("ignore:columns left out")  # invented images leave little doubt
def test_networks_are_learned_once_and_their_answers_are_a_control(invented, tmp_path, monkeypatch):
    best = FeatureConfig(members=1, iterations=20, turn_epochs=2, width=4, answers=True)
    task = cells.load("mnist", 1)
    first = detect_on(best, task, 0, kept=tmp_path)
    assert set(first["controls"]) == {*CONTROLS, CLASSIFIER_ALONE}
    monkeypatch.setattr("nrf.detect.RotationFeatures.fit", None)  # not needed again
    again = detect_on(replace(best, iterations=10), task, 0, kept=tmp_path)
    assert again["controls"][CLASSIFIER_ALONE] == first["controls"][CLASSIFIER_ALONE]
    with pytest.raises(TypeError):
        detect_on(best, task, 1, kept=tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_experiment_makes_its_tables_and_pictures(invented, tmp_path, monkeypatch, name):
    monkeypatch.setattr(one_class_best, "PULLED_STEPS", (0, 2))
    options = Options(tmp_path / "runs", tmp_path / "results", jobs=1, quick=True, quiet=True)
    said = []
    if name == "mnist-one-class":  # a part first
        part = reproduce(OneClass(name), replace(options, classes=(0,), lines=("NRFDetector",)), said.append)
        assert {row.case for row in part.rows if not row.quoted} == {"0"}
        missing = {*SYSTEMS, "inclusive-NRF, SGHMC"}
        assert {row.method for row in part.rows if row.quoted} == missing
    else:
        options = replace(options, classes=(1,))
    record = reproduce(OneClass(name), options, said.append)
    assert Record.read(next((tmp_path / "runs").glob(f"{name}-quick/{name}.json"))).rows == record.rows
    columns = {row.column for row in record.rows if row.preset == "best" and row.metric == "AUROC"}
    assert columns == {"last", "selected", "oracle"}
    assert not any(row.quoted for row in record.rows)
    whole = [row for row in record.rows if row.case is None and not row.quoted]
    assert bool(whole) == (name == "mnist-one-class")
    assert all(row.paper is None for row in whole)  # two classes have no mean to compare
    pictures = {path.stem for path in tmp_path.glob("runs/*/*/*.png")}
    assert pictures == {"epochs", "typical", "pulled"}


def test_what_two_systems_have_in_common_is_learned_once(invented, tmp_path, monkeypatch):
    config = OneClass("mnist-one-class").quick
    task, found = cells.load("mnist", 0), systems(sized(config, config.pairs[0], 0, 0), epochs=2)
    alone = cells.compare(found["Deep SVDD"], task, 0)
    first = cells.compare(found["DCAE"], task, 0, tmp_path)
    monkeypatch.setattr("nrf.reproduce.baselines.DCAE.build", None)  # not needed again
    assert cells.compare(found["DCAE"], task, 0, tmp_path)["AUROC"] == first["AUROC"]
    assert cells.compare(found["Deep SVDD"], task, 0, tmp_path)["AUROC"] == alone["AUROC"]


def test_kernel_density_where_dimensions_are_many():
    rng = np.random.default_rng(0)
    train, rows = rng.normal(size=(30, 120)), rng.normal(size=(7, 120))
    each = [[multivariate_normal(mean, 0.25).logpdf(row) for mean in train] for row in rows]
    want = [np.logaddexp.reduce(of_row) - np.log(30) for of_row in each]
    np.testing.assert_allclose(kernel_log_density(train, rows, 0.5), want, rtol=1e-8)


def test_stored_cells_have_the_former_name_of_the_settings():
    config = FeatureConfig(members=1)
    stored = to_json(config)
    assert stored["type"] == "Best"
    assert from_json(FeatureConfig, stored) == config
