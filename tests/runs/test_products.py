"""Products of the fields of runs: scored, revised, explained, normalised, and stored as the runs they are made of."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import nrf
from nrf.data import Splits
from nrf.errors import CheckpointError, InputError
from nrf.fields import GaussianReference, Referenced, quadrature
from nrf.networks import LevelsMLPPotential, MLPPotential
from nrf.runs.presets import find_preset
from nrf.runs.products import Expert, TrainedProduct, product_of
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.samplers import SGLD

BOX = torch.full((2,), -9.0), torch.full((2,), 9.0)
LEVELS = LevelsMLPPotential(widths=(8,), n_levels=3, sigma_min=0.3, sigma_max=2.0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of a few steps on rows around a circle: levels, a plain network around a Gaussian, one alone."""
    rng = np.random.default_rng(0)
    turn = 2 * np.pi * rng.random(200)
    rows = (2 * np.stack([np.cos(turn), np.sin(turn)], 1) + 0.3 * rng.normal(size=(200, 2))).astype(np.float32)
    splits = Splits("gmm", rows, None, rows[:4], np.zeros(4, np.int64), bounds=None, columns=None)
    folder = tmp_path_factory.mktemp("runs")
    base, plain = find_preset("gmm-levels"), find_preset("gmm-short")
    short = replace(base.train, iterations=20, batch_size=50)
    presets = {
        "levels": replace(base, potential=LEVELS, train=short),
        "around": replace(
            plain,
            potential=Referenced(MLPPotential(widths=(8,)), GaussianReference()),
            sampler=replace(plain.sampler, step_size=0.01),
            train=replace(short, watch_share=0.1),
        ),
        "plain": replace(plain, train=replace(short, iterations=2)),
    }
    for name, preset in presets.items():
        train(name, preset, folder / name, quiet=True, splits=splits)
    return folder, rows


@pytest.mark.parametrize("order", [("levels", "around"), ("around", "levels"), ("levels", "levels")])
def test_a_product_of_two_runs_is_a_density(order, runs):
    folder, rows = runs
    product = product_of([folder / name for name in order], [0.5, 0.5])
    models = [TrainedModel.load(folder / name) for name in order]
    each = [model.score_samples(rows[:9]) for model in models]
    want = 0.5 * each[0] + 0.5 * each[1] - product.integral.log_value
    np.testing.assert_allclose(product.log_density(rows[:9]), want, atol=1e-4)
    np.testing.assert_array_equal(product.score_samples(rows[:9]), product.log_density(rows[:9]))
    assert 0 < product.integral.standard_error < 0.05
    found = quadrature(lambda x: torch.from_numpy(product.log_density(x)), BOX, 40_000)
    assert abs(found.log_value) < 4 * product.integral.standard_error + 2e-3


def test_revised_rows_are_likelier_and_say_why(runs):
    folder, _ = runs
    product = product_of([folder / "levels", folder / "around"], [0.5, 0.5], averaged=True)
    far = np.array([[6.0, 0.0], [0.0, -6.0]], np.float32)
    revised = product.revise(far, SGLD(0.02, temperature=0.0), 100, seed=1)
    parts = product.contributions(far, revised)
    assert (product.log_density(revised) > product.log_density(far) + 1).all()
    np.testing.assert_allclose(parts.sum(1), product.log_density(far) - product.log_density(revised), atol=0.1)
    assert parts[0, 0] < parts[0, 1]
    assert parts[1, 1] < parts[1, 0]


def test_a_product_is_stored_and_moved_with_its_runs(runs, tmp_path):
    folder, rows = runs
    for name in ("levels", "around"):
        shutil.copytree(folder / name, tmp_path / "here" / name)
    experts = [Expert(tmp_path / "here" / "levels", 0.7, averaged=True), Expert(tmp_path / "here" / "around", 0.6)]
    product = TrainedProduct.of(experts, n_draws=2000)
    product.save(tmp_path / "here" / "product")
    (tmp_path / "here").rename(tmp_path / "there")
    again = TrainedProduct.load(tmp_path / "there" / "product")
    np.testing.assert_array_equal(again.log_density(rows), product.log_density(rows))
    assert again.integral == product.integral
    assert [one.step for one in again.experts] == [20, 20]
    shutil.rmtree(tmp_path / "there" / "around")
    with pytest.raises(CheckpointError):
        TrainedProduct.load(tmp_path / "there" / "product")


def test_the_example_of_the_page_about_fields(runs, tmp_path):
    folder, rows = runs
    page = (Path(nrf.__file__).parents[2] / "docs" / "fields.md").read_text()
    *_, block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    product = names["half_and_half"](folder / "levels", folder / "around", tmp_path)
    assert np.isfinite(product.log_density(rows)).all()


def test_what_is_no_product_is_said(runs, tmp_path):
    folder, rows = runs
    unknown = product_of([folder / "plain", folder / "plain"], [0.5, 0.5])
    assert unknown.integral is None
    unknown.save(tmp_path)
    np.testing.assert_array_equal(TrainedProduct.load(tmp_path).score_samples(rows), unknown.score_samples(rows))
    with pytest.raises(InputError, match="not known yet"):
        TrainedProduct.load(tmp_path).log_density(rows)
    with pytest.raises(InputError, match="a weight for each run"):
        product_of([folder / "plain"], [0.5, 0.5])
    with pytest.raises(CheckpointError, match="holds no product"):
        TrainedProduct.load(folder / "plain")
    model = TrainedModel.load(folder / "levels")
    wide = replace(
        model.preset, potential=replace(LEVELS, widths=(4,)), train=replace(model.preset.train, iterations=1)
    )
    rng = np.random.default_rng(0)
    images = rng.random((20, 1, 2, 2), np.float32)
    splits = Splits("gmm", images, None, images[:4], np.zeros(4, np.int64), bounds=None, columns=None)
    train("wide", wide, tmp_path / "wide", quiet=True, splits=splits)
    with pytest.raises(InputError, match="rows of one shape"):
        product_of([folder / "levels", tmp_path / "wide"], [0.5, 0.5])
    alone = product_of([tmp_path / "wide"], [1.0])
    assert np.isfinite(alone.log_density(images)).all()
    record = json.loads((tmp_path / "product.json").read_text())
    for damage in ({"format": "other"}, {"version": 2}, {"experts": [{"type": "Expert"}]}):
        (tmp_path / "product.json").write_text(json.dumps(record | damage))
        with pytest.raises(CheckpointError, match="holds no product"):
            TrainedProduct.load(tmp_path)
