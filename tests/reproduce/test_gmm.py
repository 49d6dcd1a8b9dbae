"""The mixture experiment: its methods, its measures, its summary."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf.cli import main
from nrf.data import gmm, resolve
from nrf.errors import InputError, NonFiniteError
from nrf.learners import LEARNERS, LevelsConfig
from nrf.metrics import mixture_log_density, mode_coverage
from nrf.networks import MLPGenerator, NoiseLevelPotential
from nrf.networks.levels import Reference
from nrf.reproduce.gmm import cells as gmm_cells
from nrf.reproduce.gmm import tuned
from nrf.reproduce.gmm.cells import (
    BESIDE,
    METROPOLIS,
    QUICK,
    RATES,
    SETTINGS,
    TUNED,
    WHOLE,
    GMMConfig,
    Method,
    field_numbers,
    methods,
    samples_of,
)
from nrf.reproduce.gmm.experiment import BETTER_BY_REVISION, Mixture, _rows, oracle_rows
from nrf.reproduce.runner.experiment import Deadline, OutOfTime, cell_name
from nrf.reproduce.runner.record import Record
from nrf.reproduce.runner.run import Options, reproduce
from nrf.runs.presets import find_preset
from nrf.runs.trained import TrainedModel
from nrf.samplers import MALA


def test_every_learner_is_in_both_settings():
    found = methods(GMMConfig())
    for setting in SETTINGS:
        learners = {type(m.preset.learner) for m in found if m.setting == setting}
        assert learners == set(LEARNERS.values()) - {LevelsConfig}  # noise levels have no setting of the paper's
    for setting in ("best", METROPOLIS, WHOLE):
        assert [m.name for m in found if m.setting == setting] == ["inclusive-NRF"]
    assert [m.name for m in found if m.setting == TUNED] == ["GAN", "WGAN-GP", "exclusive-NRF"]
    assert [(m.name, m.has_generator) for m in found if m.setting == "levels"] == [
        ("levels", False),
        ("levels and generator", True),
    ]
    assert len({m.cell for m in found}) == len(found)


def test_the_papers_own_methods_in_the_scripts_setting_have_the_papers_length():
    for method in methods(GMMConfig()):
        wanted = {"paper": 40_000, METROPOLIS: 40_000, WHOLE: 500_000}.get(method.setting, 160_000)
        wanted = 10_000 if method.name == "CoopNet" else 20_000 if method.name in BESIDE else wanted
        wanted = 3000 if method.setting == "levels" else wanted
        wanted = 32_000 if (method.name, method.setting) == ("WGAN-GP", TUNED) else wanted  # five updates of its critic
        assert method.preset.train.iterations == wanted
        assert method.preset.replicas == {WHOLE: 3, TUNED: 5}.get(method.setting, 10)


def test_the_tuned_wgan_gp_has_the_critic_of_its_paper():
    """Gulrajani et al.: five critic steps, λ = 10, Adam with betas (0, 0.9); its rate, 1e-4, is the first tried."""
    wgan = next(m for m in methods(GMMConfig()) if (m.name, m.setting) == ("WGAN-GP", TUNED))
    learner = wgan.preset.learner
    assert (learner.n_critic, learner.penalty_weight, learner.betas) == (5, 10.0, (0.0, 0.9))
    assert wgan.search.rates[0] == learner.potential_lr == learner.generator_lr == 1e-4
    released = next(m for m in methods(GMMConfig()) if (m.name, m.setting) == ("WGAN-GP", "released"))
    assert released.preset.learner.n_critic == 1
    assert wgan.preset.potential == released.preset.potential


def test_with_metropolis_the_text_has_its_own_settings_but_for_the_sampler():
    text, adjusted = find_preset("gmm-paper"), next(m for m in methods(GMMConfig()) if m.setting == METROPOLIS).preset
    assert adjusted.sampler == MALA(step_size=text.sampler.step_size, temperature=1.0)
    assert (adjusted.revision.n_steps, adjusted.revision.target) == (text.revision.n_steps, "x")
    same = ("data", "potential", "generator", "learner")
    assert all(getattr(adjusted, name) == getattr(text, name) for name in same)


def test_cheap_methods_come_first(tmp_path):
    keys = [cell.name for cell in Mixture().cells(GMMConfig(), tmp_path)]
    assert keys.index("released-gan") < keys.index("released-inclusive-nrf")
    assert keys.index("paper-gan") < keys.index("paper-inclusive-nrf")
    assert keys.index("levels-levels") < keys.index("levels-levels-and-generator") < keys.index("released-gan")


def test_the_oracle_is_the_papers():
    found = oracle_rows(replace(QUICK, draws=100, grid_side=600))
    rows = {row.metric: row for row in found if row.case in ("training data", "the mixture itself")}
    assert rows["covered modes"].mean == pytest.approx(30.70, abs=0.2)
    assert rows["realistic ratio"].mean == pytest.approx(0.99, abs=0.005)
    assert rows["log-likelihood"].mean == pytest.approx(-1.70, abs=0.08)


class Truth(torch.nn.Module):
    """The mixture's own log density, at a temperature."""

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        return self.temperature * mixture_log_density(x, torch.from_numpy(gmm.means()), gmm.SIGMA) + 3


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_a_field_of_the_right_shape_is_seen_as_such(temperature):
    preset = find_preset("gmm-short")
    trained = TrainedModel(preset, Truth(temperature), MLPGenerator(latent_dim=2).build((2,)), (2,), 0)
    found = field_numbers(trained, 400)
    assert found["fitted temperature"] == pytest.approx(temperature, rel=0.05)
    assert found["KL from the mixture, temperature fitted"] == pytest.approx(0.0, abs=0.01)
    if temperature < 1:
        assert found["KL from the mixture"] > 0.3
        assert found["log-likelihood"] < found["log-likelihood, temperature fitted"] - 0.3


def test_reported_likelihoods_are_of_points_that_chose_nothing():
    splits, reported = resolve("gmm"), gmm.reported()
    assert not np.isin(reported[:, 0], np.concatenate([splits.train, splits.test])[:, 0]).any()
    density = [
        mixture_log_density(torch.from_numpy(x), torch.from_numpy(gmm.means()), gmm.SIGMA).mean().item()
        for x in (reported, splits.test)
    ]
    assert abs(density[0] - density[1]) > 0.005  # so that the two can be told apart below
    generator = MLPGenerator(latent_dim=2).build((2,))
    trained = TrainedModel(find_preset("gmm-short"), Truth(1.0), generator, (2,), 0)
    assert field_numbers(trained, 600)["log-likelihood"] == pytest.approx(density[0], abs=0.002)
    oracle = {row.metric: row.mean for row in oracle_rows(replace(QUICK, grid_side=600))}
    assert oracle["log-likelihood"] == pytest.approx(density[0], abs=0.002)


def test_kernel_likelihoods_are_of_the_same_points(monkeypatch):
    seen = []
    monkeypatch.setattr(gmm_cells, "kernel_log_likelihood", lambda samples, points: seen.append(points) or 0.0)
    method = next(m for m in methods(QUICK) if m.name == "GAN" and m.setting == "released")
    generator = method.preset.generator.build((2,))
    trained = TrainedModel(method.preset, Truth(1.0), generator, (2,), 0)
    gmm_cells._numbers(method, trained, seed=0, draws=QUICK.draws, grid_side=QUICK.grid_side)
    (points,) = seen
    np.testing.assert_array_equal(points, gmm.reported())


def test_a_field_without_a_generator_is_sampled_by_long_chains():
    cd = next(m for m in methods(QUICK) if m.name == "CD" and m.setting == "released")
    preset = replace(cd.preset, sampler=replace(cd.preset.sampler, step_size=0.002, temperature=1.0))
    trained = TrainedModel(preset, Truth(1.0), MLPGenerator(latent_dim=2).build((2,)), (2,), 0)
    samples = samples_of(Method("CD", "released", preset), trained, 500, seed=0)
    assert set(samples) == {"long chains"}
    _, realistic = mode_coverage(samples["long chains"], torch.from_numpy(gmm.means()).float(), gmm.SIGMA)
    assert realistic > 0.9


class TrueLevels(NoiseLevelPotential):
    """The mixture's own log-density at every level, and a constant too much."""

    def __init__(self, excess):
        super().__init__(torch.nn.Identity(), (0.02, 4.0), Reference(2, "full"))
        self.excess = excess
        self.start_from(torch.from_numpy(resolve("gmm").train))

    def levels(self, x):
        means = torch.from_numpy(gmm.means()).float()
        exact = [mixture_log_density(x, means, float(np.hypot(gmm.SIGMA, sigma))) for sigma in self.sigmas]
        return torch.stack(exact, 1) + self.excess


@pytest.mark.parametrize("excess", [0.0, 0.3])
def test_a_density_in_nats_is_judged_as_it_is(excess):
    """A constant too much goes into the integral and the likelihood, and nothing hides it."""
    generator = MLPGenerator(latent_dim=2).build((2,))
    trained = TrainedModel(find_preset("gmm-levels"), TrueLevels(excess), generator, (2,), 0)
    found = field_numbers(trained, 600)
    assert found["integral"] == pytest.approx(np.exp(excess), rel=0.005)
    assert found["log-likelihood, as it is"] == pytest.approx(found["log-likelihood"] + excess, abs=0.005)
    assert found["slope"] == pytest.approx(1.0, abs=0.05)
    assert "integral" not in field_numbers(replace(trained, preset=find_preset("gmm-short")), 60)


def test_a_field_with_noise_levels_is_sampled_by_annealing():
    alone, both = (m for m in methods(QUICK) if m.setting == "levels")
    for method, kinds in ((alone, {"revision"}), (both, {"generation", "revision"})):
        preset = replace(method.preset, revision=replace(method.preset.revision, n_steps=1, sample_steps=None))
        generator = MLPGenerator(latent_dim=2).build((2,))
        trained = TrainedModel(preset, preset.potential.build((2,)), generator, (2,), 0)
        assert set(samples_of(method, trained, 100, seed=0)) == kinds


def test_rows_and_picture_of_noise_levels(tmp_path):
    options = Options(tmp_path, tmp_path, jobs=1, quick=True, quiet=True, lines=("levels, levels",))
    record = reproduce(Mixture(), options, lambda text: None)
    mine = {(row.metric, row.case) for row in record.rows if row.method == "levels"}
    for weights in ("last weights", "averaged weights"):
        for metric in ("log-likelihood, as it is", "integral", "slope"):
            assert (metric, weights) in mine
        assert ("covered modes", f"revision, {weights}") in mine
    assert list(tmp_path.rglob("panels-levels.png"))


def test_some_lines_alone_make_a_record_of_their_own(tmp_path):
    options = Options(tmp_path, tmp_path, jobs=1, quick=True, quiet=True, lines=("inclusive-NRF, best",))
    record = reproduce(Mixture(), options, lambda text: None)
    assert {(row.method, row.preset) for row in record.rows} == {("inclusive-NRF", "best"), ("oracle", None)}
    rows = {(row.metric, row.case): row.mean for row in record.rows if row.preset == "best"}
    for metric, gain in BETTER_BY_REVISION.items():
        kinds = [rows[metric, f"{kind}, last weights"] for kind in ("revision", "generation")]
        assert rows[gain, "last weights"] == pytest.approx(kinds[0] - kinds[1])
    options = replace(options, lines=("GAN, released",))  # WGAN-GP is no such line; what is there stays
    record = reproduce(Mixture(), options, lambda text: None)
    assert {row.method for row in record.rows} == {"inclusive-NRF", "GAN", "SNGAN", "oracle"}


def test_a_run_stops_when_the_time_is_over_and_goes_on(tmp_path):
    options = Options(tmp_path, tmp_path, jobs=1, quick=True, quiet=True, lines=("GAN, paper",), max_hours=0.0)
    with pytest.raises(InputError, match="cells are missing"):
        reproduce(Mixture(), options, lambda text: None)
    method = next(m for m in methods(QUICK) if m.cell == "paper-gan")
    method = replace(method, preset=replace(method.preset, train=replace(method.preset.train, log_every=2)))
    run = tmp_path / "run"
    with pytest.raises(OutOfTime):
        gmm_cells.train_and_measure(method, QUICK.draws, QUICK.grid_side, run, Deadline(0.0))
    assert TrainedModel.load(run).step == 2
    assert gmm_cells.train_and_measure(method, QUICK.draws, QUICK.grid_side, run)["iterations"] == 20


def test_rates_are_chosen_by_held_out_points_and_the_search_is_in_the_record(tmp_path, monkeypatch):
    """By the test points, not by those that are reported; the models of the chosen rate are the ones measured."""
    seen, asked = [], []
    liked = {1e-4: -5.0, 3e-4: -3.0, 1e-3: -4.0, 3e-3: -6.0}

    def criterion(samples, points):
        asked.append(samples)
        seen.append(points)
        return liked[RATES[(len(seen) - 1) // 2]]

    monkeypatch.setattr(tuned, "kernel_log_likelihood", criterion)
    method = next(m for m in methods(QUICK) if (m.name, m.setting) == ("GAN", TUNED))
    found = gmm_cells.train_and_measure(method, QUICK.draws, QUICK.grid_side, tmp_path / "run")
    assert len(seen) == 2 * len(RATES)
    replicas = [TrainedModel.load(tmp_path / "run" / f"rate-{RATES[0]:g}", replica=i) for i in range(2)]
    for model, seed, samples in zip(replicas, (tuned.SEED, tuned.SEED + 1), asked, strict=False):
        np.testing.assert_array_equal(model.sample(tuned.N_SAMPLES, seed=seed)[0], samples)
    for points in seen:
        np.testing.assert_array_equal(points, resolve("gmm").test)
    assert found["rate"] == 3e-4
    assert [tried[tuned.CRITERION] for tried in found["search"]] == [[liked[rate]] * 2 for rate in RATES]
    trained = TrainedModel.load(tmp_path / "run" / "chosen")
    assert trained.preset.learner.generator_lr == trained.preset.learner.potential_lr == 3e-4
    searched = TrainedModel.load(tmp_path / "run" / "rate-0.001").preset
    assert not set(searched.seeds) & set(method.preset.seeds)
    assert searched.train.iterations == QUICK.search_iterations != trained.preset.train.iterations
    rows = {(r.metric, r.case): r for r in _rows(method, found)}
    assert {r.preset for r in rows.values()} == {TUNED}
    assert rows["rate", None].mean == 3e-4
    assert rows[tuned.CRITERION, "rate 0.001"].mean == -4.0
    assert {case for metric, case in rows if metric == tuned.CRITERION} == {f"rate {rate:g}" for rate in RATES}
    assert ("covered modes", "generation, last weights") in rows


def test_a_rate_that_does_not_stay_finite_is_out_of_the_search(tmp_path, monkeypatch, caplog):
    search = tuned.Search((1e-3, 1e30), replicas=1, iterations=30)
    preset = next(m for m in methods(QUICK) if (m.name, m.setting) == ("GAN", TUNED)).preset
    found = tuned.search_rates("gan", preset, search, tmp_path)
    assert tuned.chosen(found) == 1e-3
    assert found[1].values == ()
    assert "at a rate of 1e+30 is out of the search" in caplog.text
    with pytest.raises(NonFiniteError, match="no rate of the search"):
        tuned.chosen(found[1:])


@pytest.mark.slow
def test_reproduce_quick_writes_every_row(tmp_path, capsys):
    assert main(["reproduce", "gmm", "--quick", "--quiet", "--out", str(tmp_path), "--jobs", "1"]) == 0
    (folder,) = tmp_path.iterdir()
    record = Record.read(folder / "gmm.json")
    assert json.loads((folder / "gmm.json").read_text())["rows"]
    assert {(r.method, r.preset) for r in record.rows if r.preset} == {(m.name, m.setting) for m in methods(QUICK)}
    paper = [r for r in record.rows if r.paper is not None]
    assert {r.paper for r in paper if r.method == "inclusive-NRF" and r.metric == "covered modes"} == {27.46, 30.65}
    fields = {r.method for r in record.rows if r.metric == "log-likelihood"}
    assert "GAN" not in fields
    assert {"CD", "inclusive-NRF", "oracle"} <= fields
    for setting in (*SETTINGS, TUNED, METROPOLIS, WHOLE, "best", "levels"):
        assert (folder / "gmm" / f"panels-{cell_name(setting)}.png").is_file()
    assert "Likelihood" in capsys.readouterr().out
