"""A small sampler study: the order of the paper, the floor, and the measures against simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nrf.cli import main
from nrf.metrics import perfect_kl
from nrf.reproduce.samplers.cells import (
    EXACT,
    STOCHASTIC,
    RunConfig,
    effective_samples,
    gradient_bias,
    kl_curve,
    linear_map,
    make_problem,
    sweep_cell,
)
from nrf.samplers import BAOAB, SGHMC, SGLD, run
from nrf.targets import JointTarget

SMALL = RunConfig(dim_x=5, dim_h=5, chains=400, steps=800, every=100)
# 10-D p, 20-D q; the wider scale keeps the density as slow for LD as that of the full study is.
ORDER = RunConfig(dim_x=10, dim_h=10, chains=300, steps=800, every=200)
RUNS, DRAW, SCALE = 4, 1, 3.0
LENGTH = (800, 300)


@pytest.fixture(scope="module")
def finals():
    names = ("HMC", "SGHMC", "LD", "SGLD", "CoopNet", "BAOAB, long h-steps")
    return {n: [kl_curve(ORDER, n, DRAW, r, SCALE)["kl"][-1] for r in range(RUNS)] for n in names}


def test_the_order_is_the_papers_with_gaps_beyond_one_sd(finals):
    for better, worse in (("HMC", "SGHMC"), ("SGHMC", "LD"), ("LD", "SGLD"), ("LD", "CoopNet")):
        gap = np.mean(finals[worse]) - np.mean(finals[better])
        assert gap > max(np.std(finals[worse], ddof=1), np.std(finals[better], ddof=1)), (better, worse)


def test_nobody_is_below_the_floor_and_long_latent_steps_come_near_it(finals):
    floor = perfect_kl(ORDER.chains, 20)
    for name, values in finals.items():
        assert np.mean(values) > 0.8 * floor, name
    assert np.mean(finals["BAOAB, long h-steps"]) < np.mean(finals["SGHMC"]) - np.std(finals["SGHMC"], ddof=1)


def test_curves_count_coopnets_steps_as_many():
    curve = kl_curve(SMALL, "CoopNet", 0, 0)
    assert curve["iterations"] == list(range(100, 801, 100)) == kl_curve(SMALL, "SGHMC", 0, 0)["iterations"]


def test_problem_is_that_of_its_draw():
    one, same, other = (make_problem(SMALL, d).truth.precision for d in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_bias_falls_with_inner_moves_and_with_their_size():
    many = [gradient_bias(SMALL, 0, n, 0.2) for n in (1, 5, 100, 2000)]
    assert many == sorted(many, reverse=True)
    assert many[-1] < 0.05 * many[0]
    assert gradient_bias(SMALL, 0, 1, 0.5) < gradient_bias(SMALL, 0, 1, 0.01)


@pytest.mark.parametrize("sampler", [SGLD(0.2), SGHMC(0.2, friction=0.3), BAOAB(0.2, friction=0.3)])
def test_linear_map_is_the_samplers_mean_step(sampler):
    problem = make_problem(SMALL, 0, dtype=torch.float64)
    target = JointTarget(problem.potential, problem.generator, 0.05, torch.Generator(), inner_temperature=0.0)
    B = linear_map(sampler, target, (5, 5))
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(1, len(B), generator=draw, dtype=torch.float64)
    chain = sampler.init((z[:, :5], z[:, 5:10]))
    if len(B) > 10:
        chain = chain._replace(state=type(chain.state)((z[:, 10:15], z[:, 15:])))
    mean = torch.zeros(len(B), dtype=torch.float64)
    n = 20_000
    many = torch.utils._pytree.tree_map(lambda t: None if t is None else t.expand(n, 5), chain)
    after = sampler.step(many, target, 1, draw)
    blocks = torch.cat([t for t in torch.utils._pytree.tree_leaves(after) if t is not None], dim=1)
    mean, error = blocks.mean(0), blocks.std(0) / n**0.5
    assert ((mean - (B @ z[0])).abs() / error.clamp_min(1e-9)).max() < 4.5


def test_effective_samples_against_simulation():
    """The variance of a long chain's mean is that of so many independent draws."""
    problem = make_problem(SMALL, 0, dtype=torch.float64)
    sampler = BAOAB(0.5, friction=0.3)
    direction = torch.linalg.eigh(problem.truth.precision).eigenvectors[:, 0]
    rate = effective_samples(linear_map(sampler, problem.truth, (5, 5)), direction)
    draw, steps, chains = torch.Generator().manual_seed(0), 3000, 2000
    z = problem.truth.draw(chains, draw)
    sums = torch.zeros(chains, dtype=torch.float64)

    def add(l, chain):
        sums.add_(torch.cat(chain.position, dim=1) @ direction)

    run(sampler, (z[:, :5], z[:, 5:]), problem.truth, steps, draw, trace=add)
    variance = (direction @ torch.linalg.solve(problem.truth.precision, direction)).item()
    measured = variance / ((sums / steps).var().item() * steps)
    assert measured == pytest.approx(rate, rel=0.12)


def test_langevin_effective_samples_are_the_textbooks():
    """An autoregression with factor 1 − δλ has (δλ/2)/(1 − δλ/2) effective samples a step."""
    problem = make_problem(SMALL, 0, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(problem.truth.precision)
    got = effective_samples(linear_map(SGLD(0.3), problem.truth, (5, 5)), vectors[:, 0])
    half = 0.3 * values[0].item() / 2
    assert got == pytest.approx(half / (1 - half))


def test_sweep_tells_unstable_settings_and_cold_laws():
    assert sweep_cell(SMALL, "SGHMC", EXACT, 50.0, 0.1, 1.0, 0, *LENGTH) == {"stable": False}
    warm, cold = (sweep_cell(SMALL, "BAOAB", EXACT, 0.3, 0.3, t, 0, *LENGTH)["excess"] for t in (1.0, 0.25))
    assert abs(warm) < 0.1
    assert cold > 1
    assert sweep_cell(SMALL, "SGHMC", STOCHASTIC, 0.1, 0.3, 1.0, 0, *LENGTH)["ess"] > 0


def test_quick_study_from_the_command_line(tmp_path, capsys):
    out = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--jobs", "1", "--quiet"]
    assert main(["reproduce", "sampler-study", "--quick", *out]) == 0
    printed = capsys.readouterr().out
    for words in ("KL at the end", "relative bias in x", "effective samples / 1,000 gradients"):
        assert words in printed
    (report,) = (tmp_path / "runs").glob("*/report.html")
    assert report.read_text().count("data:image/png;base64,") == 2
    assert not (tmp_path / "results").exists()
