"""Known densities: they are what they say, the measures see what is wrong, and every method learns something."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf import figures
from nrf.cli import main
from nrf.data import gmm
from nrf.errors import InputError, MissingPackageError
from nrf.fields import Integral, annealed_integral, quadrature
from nrf.metrics import energy_distance, mixture_log_density
from nrf.reproduce.density import cells, methods
from nrf.reproduce.density.by_fields import Bridge, InclusiveMethod, levels_of_the_preset
from nrf.reproduce.density.cells import DensityConfig, Size, Units, learn_and_measure, measured, quick
from nrf.reproduce.density.experiment import FAILED, Densities
from nrf.reproduce.density.known import MODES, MOONS, RINGS, known, mixture_name, names, reported_rows, training_rows
from nrf.reproduce.density.methods import FittedMixture, Flow, Gaussian, Kernel, Learned, has_flows, split
from nrf.reproduce.runner.record import Record
from nrf.runs.presets import find_preset

SMALL = Size(training=500, reported=500, fresh=2000, samples=500, mode_draws=5, grid=40_000, pairs=20, side=10)
FIVE = mixture_name(5)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


# -------------------------------------------------------------------------------------------------------- the densities


@pytest.mark.parametrize("name", [n for n in names() if known(n).d == 2])
def test_a_known_density_integrates_to_one(name):
    truth = known(name)
    assert quadrature(truth.log_density, truth.box(), 160_000).value == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", names())
def test_draws_are_of_the_density(name):
    """Mean of the log-density over draws and their covariance; of two halves the energy distance is about 0."""
    truth = known(name)
    x = truth.draw(20_000, rng()).double()
    assert float(x.var(0).mean()) == pytest.approx(truth.spread**2, rel=0.05)
    if truth.d == 2:
        low, high = truth.box()
        axes = [torch.linspace(float(low[i]), float(high[i]), 400, dtype=torch.float64) for i in range(2)]
        points = torch.cartesian_prod(*axes)
        log_p = truth.log_density(points)
        entropy = float((log_p.exp() * log_p).sum() / log_p.exp().sum())
        assert float(truth.log_density(x).mean()) == pytest.approx(entropy, abs=0.05)
    assert abs(energy_distance(x[:2000], x[2000:4000])) < 0.02 * truth.spread


def test_the_32_modes_are_the_data_sets():
    x = torch.from_numpy(gmm.reported())
    mine = known(MODES).log_density(x)
    assert torch.allclose(mine, mixture_log_density(x, torch.from_numpy(gmm.means()), gmm.SIGMA))
    assert torch.equal(training_rows(MODES, 7, 0), training_rows(MODES, 7, 1))
    assert len(training_rows(MODES, 7, 0)) == 1600
    assert torch.equal(reported_rows(MODES, 7, 0), x)


def test_rows_are_those_of_their_seed_and_the_reported_ones_are_others():
    one, same, other = (training_rows(RINGS, 50, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, reported_rows(RINGS, 50, 0))


def test_an_unknown_density_is_named():
    with pytest.raises(InputError, match="two moons"):
        known("three moons")


# --------------------------------------------------------------------------------------------------------- the measures


class Perfect(Learned):
    """The truth in the method's units: with a constant, at a temperature, with a normaliser of that kind."""

    def __init__(self, name, units, constant=0.0, temperature=1.0, normaliser="exact"):
        self.truth, self.units, self.constant, self.temperature = known(name), units, constant, temperature
        self.normaliser = normaliser

    def log_density(self, x):
        found = self.truth.log_density(self.units.of_rows(x)) + self.truth.d * math.log(self.units.scale)
        return self.temperature * found + self.constant

    def draw(self, n, seed):
        return self.units.of_method(self.truth.draw(n, rng(seed)))


def numbers(name, size=SMALL, **wrong):
    units = Units.of(training_rows(name, 500, 0), 1.7)
    model = Perfect(name, units, **wrong)
    return measured(model, units, cells.integral_of(model, units, name, 0, size), name, 0, size)


def test_the_truth_has_no_divergence_and_a_slope_of_one():
    found = numbers(MODES)
    assert found["log-likelihood"] == pytest.approx(found["truth"], abs=1e-3)
    assert found["KL from the truth"] == pytest.approx(0, abs=1e-3)
    assert found["slope"] == pytest.approx(1, abs=1e-3)
    assert found["integral"] == pytest.approx(1, abs=1e-2)
    assert abs(found["energy distance"]) < 0.02
    assert found["covered modes"] > 28
    assert found["realistic ratio"] > 0.97


def test_a_wrong_constant_and_a_wrong_scale_are_seen():
    high = numbers(MOONS, constant=0.5, normaliser="learned")
    assert high["KL from the truth"] == pytest.approx(-0.5, abs=1e-3)
    assert high["integral"] == pytest.approx(math.exp(0.5), rel=1e-2)
    flat = numbers(MOONS, temperature=0.5, normaliser="unknown")
    assert flat["slope"] == pytest.approx(0.5, abs=1e-3)
    assert flat["KL from the truth"] > 0.05
    assert flat["integral"] is None


def test_an_unknown_normaliser_is_divided_by():
    found = numbers(MOONS, constant=7.0, normaliser="unknown")
    assert found["KL from the truth"] == pytest.approx(0, abs=1e-2)


def test_in_many_columns_only_what_can_be_estimated_has_an_integral():
    assert numbers(FIVE)["integral"] is None
    assert numbers(FIVE)["slope"] == pytest.approx(1, abs=1e-3)
    assert "covered modes" not in numbers(FIVE)


def test_units_are_undone():
    rows = 5 + 3 * torch.randn(1000, 2, generator=rng())
    units = Units.of(rows, 2.6)
    inside = units.of_method(rows)
    assert float(inside.square().mean().sqrt()) == pytest.approx(2.6)
    assert torch.allclose(units.of_rows(inside), rows, atol=1e-5)


def test_a_bridge_has_the_integral_of_its_potential():
    """Annealed importance sampling of a Gaussian that is not the rows' own, known up to its constant."""

    class Quadratic(torch.nn.Module):
        def forward(self, x):
            return -x.square().sum(1) / (2 * 0.5**2) + 3.0

    rows = torch.randn(1000, 4, generator=rng())
    found = annealed_integral(Bridge(Quadratic(), rows), rows, rng(1), n_chains=300, n_between=50)
    wanted = 3.0 + 4 / 2 * math.log(2 * math.pi * 0.5**2)
    assert isinstance(found, Integral)
    assert found.log_value == pytest.approx(wanted, abs=max(3 * found.standard_error, 0.02))


# ---------------------------------------------------------------------------------------------------------- the methods


def test_held_out_rows_are_not_among_the_others():
    rows = torch.arange(100.0)[:, None]
    held, kept = split(rows, 0.2, 0)
    assert len(held) == 20
    assert sorted(torch.cat([held, kept])[:, 0].tolist()) == rows[:, 0].tolist()


def test_the_gaussian_the_kernel_and_the_mixture_learn_a_mixture():
    found = {
        method.name: learn_and_measure(method, FIVE, (0,), SMALL)["models"][0]
        for method in (Gaussian(), Kernel(), FittedMixture(components=(1, 8)))
    }
    kl = [found[name]["KL from the truth"] for name in ("mixture by BIC", "kernel estimate", "Gaussian")]
    assert kl == sorted(kl)
    assert 0 < kl[0] < 0.5 < 3 < kl[-1]
    assert abs(found["kernel estimate"]["energy distance"]) < 0.05


def test_the_kernels_bandwidth_is_not_the_least_or_the_largest():
    (kernel,) = Kernel().fit(training_rows(MOONS, 500, 0), [0])
    assert 0.03 < kernel.width < 0.5


def test_draws_of_a_mixture_are_in_no_order():
    (model,) = FittedMixture(components=(2,)).fit(torch.cat([torch.zeros(100, 1), torch.ones(100, 1)]), [0])
    drawn = model.draw(200, 0)[:, 0]
    assert abs(float(drawn[:100].mean() - drawn[100:].mean())) < 0.3


def test_levels_learn_the_moons():
    config = DensityConfig()
    levels = config.plane_levels
    short = replace(levels, train=replace(levels.train, iterations=400), sample_steps=5)
    found = learn_and_measure(short, MOONS, (0,), replace(SMALL, training=1000))["models"][0]
    gaussian = learn_and_measure(Gaussian(), MOONS, (0,), SMALL)["models"][0]
    assert found["KL from the truth"] < 0.5 * gaussian["KL from the truth"]
    assert found["integral"] == pytest.approx(1, abs=0.25)
    assert 0.6 < found["slope"] < 1.3
    assert found["energy distance"] < 0.05


def test_replicas_are_the_models_of_their_seeds():
    method = quick().mode_levels
    both = learn_and_measure(method, MODES, (3, 4), SMALL)["models"]
    alone = learn_and_measure(method, MODES, (4,), SMALL)["models"]
    assert both[1]["log-likelihood"] == pytest.approx(alone[0]["log-likelihood"], abs=1e-3)
    assert both[0]["log-likelihood"] != both[1]["log-likelihood"]


def test_levels_of_the_32_modes_are_those_of_their_preset():
    preset, method = find_preset("gmm-levels"), levels_of_the_preset()
    units = Units.of(training_rows(MODES, 1, 0), method.spread)
    given = [sigma * units.scale for sigma in method.potential.sigmas]
    assert given == pytest.approx(preset.potential.sigmas, rel=0.02)
    assert method.potential.n_waves == preset.potential.n_waves > 0 == DensityConfig().levels.potential.n_waves
    assert replace(method.train, log_every=preset.train.log_every) == preset.train


def test_a_network_around_a_mixture_is_no_worse_than_the_mixture_on_held_out_rows():
    method = quick().referenced
    rows = Units.of(training_rows(FIVE, 1000, 0), 1.0).of_method(training_rows(FIVE, 1000, 0))
    (model,) = method.fit(rows, [0])
    held, _ = split(rows, method.held_out, 0)
    noise = method.levels.potential.sigma_min * torch.randn(held.shape, generator=rng())
    alone = model.potential.measure.log_density(held + noise, method.levels.potential.sigma_min)
    assert float(model.log_density(held + noise).mean()) > float(alone.mean()) - 0.05
    assert bool(model.potential.tilt.known)
    assert model.rows.shape == (900, 5)


def test_without_a_good_normaliser_there_is_no_likelihood():
    units = Units.of(training_rows(FIVE, 500, 0), 1.7)
    model = Perfect(FIVE, units, constant=7.0, normaliser="unknown")
    for integral in (None, Integral(7.0, 0.6)):
        found = measured(model, units, integral, FIVE, 0, SMALL)
        assert "log-likelihood" not in found
        assert "KL from the truth" not in found
        assert found["slope"] == pytest.approx(1, abs=1e-3)
    found = measured(model, units, Integral(7.0, 0.4), FIVE, 0, SMALL)
    assert found["KL from the truth"] == pytest.approx(0, abs=1e-3)
    assert found["log-normaliser, standard error"] == 0.4
    config = quick()
    cell = {"models": [measured(model, units, Integral(7.0, 0.6), FIVE, 0, SMALL)], "pairs": [[0.0], [0.0]]}
    outcome = Densities().summarise(config, {"mixture--5-columns-pcd-0": cell}, {})
    (table,) = outcome.sections[0].tables
    assert ["PCD", "not known"] in [[line[0], *filter(None, line[1:])] for line in table.rows]


def test_a_training_that_fails_is_a_result():
    config = quick()
    wild = replace(config.pcd, sampler=replace(config.pcd.sampler, step_size=1e30))
    found = learn_and_measure(wild, MOONS, (0,), config.size)
    assert found["models"] == []
    assert found["failed"]


@pytest.mark.skipif(not has_flows(), reason="zuko is not installed")
def test_the_flow_learns_the_moons_and_is_normalised():
    found = learn_and_measure(Flow(most_epochs=30), MOONS, (0,), SMALL)["models"][0]
    assert found["integral"] == pytest.approx(1, abs=0.02)
    assert found["KL from the truth"] < 0.5


@pytest.mark.skipif(has_flows(), reason="zuko is installed")
def test_without_its_package_a_flow_names_the_extra():
    with pytest.raises(MissingPackageError, match="density"):
        Flow().fit(torch.zeros(10, 2), [0])


def test_without_its_package_there_is_no_flow(monkeypatch):
    monkeypatch.setattr(cells, "has_flows", lambda: False)
    assert "flow" not in {method.name for method in DensityConfig().methods(MODES)}
    monkeypatch.setattr(cells, "has_flows", lambda: True)
    assert "flow" in {method.name for method in DensityConfig().methods(MODES)}


# ------------------------------------------------------------------------------------------------------- the experiment


def test_cells_and_their_seeds(tmp_path):
    config = DensityConfig()
    found = {cell.name: cell for cell in Densities().cells(config, tmp_path)}
    seeds = {name: cell.settings["seeds"] for name, cell in found.items()}
    assert seeds["32-modes-levels-0-to-2"] == (0, 1, 2)
    assert seeds["32-modes-mixture-by-bic-2"] == (2,)
    assert "32-modes-gaussian-1" not in seeds
    assert [sum(name.startswith(f"rings-{kind}") for name in found) for kind in ("kernel", "pcd")] == [3, 1]
    plane_only = [cell for cell in found.values() if isinstance(cell.settings["method"], InclusiveMethod)]
    assert {cell.settings["density"] for cell in plane_only} == {n for n in names() if known(n).d == 2}
    for cell in found.values():
        assert cell.has(1, cell.described())
        assert not cell.has(1, {**cell.described(), "seeds": [77]})


def test_failed_trainings_are_counted_and_leave_the_others(tmp_path):
    config = replace(quick(), seeds=2)
    good = learn_and_measure(config.gaussian, MOONS, (0,), config.size)
    results = {"two-moons-gaussian-0": good, "two-moons-gaussian-1": {"failed": "NaN", "models": []}}
    outcome = Densities().summarise(config, results, {})
    rows = {(row.metric, row.n): row.mean for row in outcome.rows if row.method == "Gaussian"}
    assert rows[FAILED, 1] == 1
    assert rows["log-likelihood", 1] == good["models"][0]["log-likelihood"]


def test_the_quick_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "density", "--quick", "--jobs", "1"]) == 0
    folder = tmp_path / "runs" / "reproduce" / "density-quick"
    record = Record.read(folder / "density.json")
    cases = {(row.method, row.case) for row in record.rows if row.metric == "log-likelihood"}
    assert {case for _, case in cases} == set(names())
    assert ("the truth", MODES) in cases
    assert ("inclusive, best", RINGS) in cases
    assert ("inclusive, best", FIVE) not in cases
    assert all(math.isfinite(row.mean) for row in record.rows)
    pictures = {path.name for path in (folder / "density").glob("*.png")}
    assert {"calibration.png", "map-32-modes.png", "map-two-moons.png"} <= pictures
    report = (folder / "report.html").read_text()
    assert "Calibration" in report
    assert ("The flow is missing" in report) == (not methods.has_flows())
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    maps = [np.array(line["result"]["map"]) for line in lines if "map" in (line.get("result") or {})]
    assert maps
    assert all(values.shape == (quick().size.side ** 2,) for values in maps)


def test_a_method_has_one_colour_in_all_plots_and_none_is_left_out():
    line = (np.linspace(-3, 0, 5), np.linspace(-3, 0, 5))
    many = {str(i): line for i in range(10)}
    figure = figures.calibration({"plane": many, "columns": {name: line for name in ("8", "0", "3")}})
    plane, columns = (axis.collections for axis in figure.axes)
    colours = [tuple(dots.get_facecolor()[0]) for dots in plane]
    assert len(set(colours)) == len(DensityConfig().methods(MODES)) + (not has_flows()) == 10
    assert [tuple(dots.get_facecolor()[0]) for dots in columns] == [colours[8], colours[0], colours[3]]
    assert len(figure.legends[0].get_texts()) == 10
