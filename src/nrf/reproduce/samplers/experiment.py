"""The sampler study: how near do the samplers come to ``p(x) q(h | x)`` where it is known? The paper's sampler figure.

Besides the figure: whether its order hangs on the draw or on the scale of the covariances, what the bias of Alg. 2's
gradient is made of, and how many effective samples a gradient buys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nrf.metrics import perfect_kl
from nrf.reproduce.runner.cells import Cell, Outcome, Section, with_paper
from nrf.reproduce.runner.record import Row
from nrf.reproduce.samplers import drawing as draw_figures
from nrf.reproduce.samplers.cells import (
    EXACT,
    OURS,
    PAPER_ORDER,
    QUICK,
    STOCHASTIC,
    StudyConfig,
    gradient_bias,
    inner_curve,
    kl_curve,
    make_problem,
    sweep_cell,
)

Results = Mapping[str, dict[str, Any]]
Part = tuple[list[Row], Section]
Setting = tuple[float, float, float]
"""Step size, friction and temperature."""

FINAL = "KL at the end"
KINDS = ("Langevin", "SGHMC", "BAOAB")


class SamplerStudy:
    """The experiment behind `nrf reproduce sampler-study`."""

    name = "sampler-study"
    partial = False
    title = "The sampler study"
    lead = (
        "Five samplers of the paper and two settings of ours on Gaussians, where p(x)q(h|x) is known. The measure is "
        "the KL divergence from the Gaussian fitted to the chains to the truth; perfect draws reach a floor, not 0."
    )

    def config(self, *, quick: bool) -> StudyConfig:
        return QUICK if quick else StudyConfig()

    def seeds(self, config: StudyConfig) -> Sequence[int]:
        return range(config.runs)

    def cells(self, config: StudyConfig, folder: Path) -> list[Cell]:
        cells = [
            Cell(_main_key(draw, r, name), partial(kl_curve, config, name, draw, r))
            for draw in config.draws
            for r in range(config.runs)
            for name in (*PAPER_ORDER, *OURS)
        ]
        cells += [
            Cell(_scale_key(scale, r, name), partial(kl_curve, config, name, config.draws[0], r, scale))
            for scale in config.scales
            for r in range(config.side_runs)
            for name in PAPER_ORDER
        ]
        cells += [
            Cell(_inner_key(n, r), partial(inner_curve, config, n, r))
            for n in config.n_inner
            for r in range(config.side_runs)
        ]
        return cells + [Cell(_sweep_key(*s), partial(sweep_cell, config, *s)) for s in sweep_settings(config)]

    def summarise(self, config: StudyConfig, results: Results, folder: Path) -> Outcome:
        parts = [part(config, results) for part in (_figure, _scales, _inner, _sweep)]
        final = {row.method: row for row in parts[0][0] if row.case in (f"draw {config.draws[0]}", "all draws")}
        headline = [
            (f"{final['SGHMC'].mean:.1f}", "KL of the paper's SGHMC at the end"),
            (f"{final[OURS[1]].mean:.1f}", "KL of BAOAB with long steps of h, at the same cost"),
            (f"{final['perfect draws'].mean:.1f}", "KL of perfect draws"),
        ]
        return Outcome([row for rows, _ in parts for row in rows], [section for _, section in parts], headline)


def _figure(config: StudyConfig, results: Results) -> Part:
    """The paper's figure, on every draw of the covariances."""
    methods = (*PAPER_ORDER, *OURS)
    rows = []
    for draw in config.draws:
        for name in methods:
            finals = [results[_main_key(draw, r, name)]["kl"][-1] for r in range(config.runs)]
            rows.append(_row(name, FINAL, finals, f"draw {draw}", "ours" if name in OURS else "paper"))
    floor = perfect_kl(config.chains, config.dim_x + config.dim_h)
    rows.append(Row("perfect draws", FINAL, floor, case="all draws"))
    curves = {}
    for name in methods:
        runs = [results[_main_key(config.draws[0], r, name)] for r in range(config.runs)]
        curves[name] = (runs[0]["iterations"], np.array([run["kl"] for run in runs]))
    conditions = ", ".join(f"{_condition(config, draw):.0f}" for draw in config.draws)
    text = (
        f"Covariances of p and q are A Aᵀ + I with standard normal A, {len(config.draws)} draws (condition numbers of "
        f"the truth: {conditions}). Mean ± SD over {config.runs} runs of {config.chains} chains; one CoopNet iteration "
        f"counts as {config.coopnet_steps}. The paper prints no numbers; its order: HMC, SGHMC, LD, SGLD and CoopNet."
    )
    picture = (draw_figures.bands(curves, floor), f"Draw {config.draws[0]}; bands are ± one SD over the runs.")
    return rows, Section("KL to p(x)q(h|x) over the iterations", text, [with_paper(rows)], {"kl": picture})


def _scales(config: StudyConfig, results: Results) -> Part:
    """The same on narrower densities."""
    rows = []
    for scale in config.scales:
        for name in PAPER_ORDER:
            finals = [results[_scale_key(scale, r, name)]["kl"][-1] for r in range(config.side_runs)]
            rows.append(_row(name, FINAL, finals, f"scale {scale:g}"))
    text = (
        "The same with covariances s·A Aᵀ + I. Where the density is narrow enough for LD to arrive within the run, LD "
        "is ahead of SGHMC: what stays between SGHMC and the floor is the bias of its gradient."
    )
    return rows, Section("What decides the order", text, [with_paper(rows)])


def _inner(config: StudyConfig, results: Results) -> Part:
    """Bias of Alg. 2 against the inner moves of h*."""
    rows = []
    for n in config.n_inner:
        finals = [results[_inner_key(n, r)]["kl"][-1] for r in range(config.side_runs)]
        rows.append(_row("SGHMC", FINAL, finals, f"{n} inner moves of size {config.inner_step_size:g}"))
    for step in (config.inner_step_size, config.long_inner_step):
        for n in config.n_inner:
            bias = gradient_bias(config, n, step)
            rows.append(Row("Alg. 2", "relative bias in x", bias, case=f"{n} inner moves of size {step:g}"))
    text = (
        "Alg. 2 replaces ∇ log q(x) by a gradient at h*, a few Langevin moves away from h. With short moves h* stays "
        "beside h and ∂ log q(h|x)/∂x is nearly lost. More or longer moves bring it back; for the law of the chain, so "
        "does a longer step of h itself (the first figure). The bias is that at draws from the truth."
    )
    return rows, Section("Bias of the stochastic gradient", text, [with_paper(rows)])


def _sweep(config: StudyConfig, results: Results) -> Part:
    """Effective samples per gradient, for each sampler at its best faithful setting."""
    rows: list[Row] = []
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    warmest = config.sweep_temperatures[0]
    for gradients in (EXACT, STOCHASTIC):
        for kind in KINDS:
            label = f"{kind}, {gradients} gradients"
            table = _sweep_table(config, results, kind, gradients)
            warm = {setting: found for setting, found in table.items() if setting[2] == warmest}
            points[kind, gradients] = [(_mean(found, "ess"), _mean(found, "excess")) for found in warm.values()]
            faithful = {s: found for s, found in warm.items() if _mean(found, "excess") <= config.excess_limit}
            if faithful:
                best, found = max(faithful.items(), key=lambda item: _mean(item[1], "ess"))
                values = [1000 * result["ess"] for result in found]
                case = f"faithful, {_words(kind, best)}"
                rows.append(_row(label, "effective samples / 1,000 gradients", values, case, "ours"))
            rows += _temperature_rows(config, table, kind, label)
    text = (
        "Effective samples of the slowest direction, from the autocorrelation of the linear chain from rest, against "
        "how far the law drifts from the truth when started in it. A setting is faithful if that excess KL is at most "
        f"{config.excess_limit:g}; for each sampler the fastest faithful one is shown. Temperature does not change the "
        "speed here, it changes the law: keep 1 to sample, go lower only to climb. SD over the draws."
    )
    caption = (
        "Each point is a step size and a friction, at temperature 1. Right and below is better; 0.02 stands for less."
    )
    picture = (draw_figures.trade_off(points, config.excess_limit), caption)
    return rows, Section("Effective samples per gradient", text, [with_paper(rows)], {"ess": picture})


def sweep_settings(config: StudyConfig) -> list[tuple[str, str, float, float, float, int]]:
    """All settings of the sweep; colder ones on the first draw only."""
    settings = []
    for gradients in (EXACT, STOCHASTIC):
        for kind in KINDS:
            for step in config.sweep_steps:
                for friction in config.sweep_frictions if kind != "Langevin" else (1.0,):
                    for i, temperature in enumerate(config.sweep_temperatures):
                        draws = config.draws if i == 0 else config.draws[:1]
                        settings += [(kind, gradients, step, friction, temperature, draw) for draw in draws]
    return settings


def _sweep_table(
    config: StudyConfig, results: Results, kind: str, gradients: str
) -> dict[Setting, list[dict[str, Any]]]:
    """Results over the draws by setting, where all of them are stable."""
    table: dict[Setting, list[dict[str, Any]]] = {}
    for setting in sweep_settings(config):
        if setting[:2] == (kind, gradients):
            table.setdefault((setting[2], setting[3], setting[4]), []).append(results[_sweep_key(*setting)])
    return {k: v for k, v in table.items() if all(result["stable"] for result in v)}


def _temperature_rows(
    config: StudyConfig, table: Mapping[Setting, list[dict[str, Any]]], kind: str, label: str
) -> list[Row]:
    """The law at each temperature, for one step and friction."""
    friction = 1.0 if kind == "Langevin" else config.sweep_frictions[-1]
    rows = []
    for temperature in config.sweep_temperatures:
        setting = (config.sweep_steps[0], friction, temperature)
        if setting in table:
            values = [result["excess"] for result in table[setting]]
            case = f"temperature {temperature:g}, {_words(kind, setting)}"
            rows.append(_row(label, "excess KL", values, case, "ours"))
    return rows


def _words(kind: str, setting: Setting) -> str:
    return f"step {setting[0]:g}" + ("" if kind == "Langevin" else f", friction {setting[1]:g}")


def _row(method: str, metric: str, values: Sequence[float], case: str, preset: str = "paper") -> Row:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(method, metric, float(np.mean(values)), sd, len(values), preset, case)


def _mean(results: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([result[name] for result in results]))


def _condition(config: StudyConfig, draw: int) -> float:
    values = torch.linalg.eigvalsh(make_problem(config, draw).truth.precision)
    return float(values[-1] / values[0])


def _main_key(draw: int, run_index: int, name: str) -> str:
    return f"main-draw{draw}-run{run_index}-{_slug(name)}"


def _scale_key(scale: float, run_index: int, name: str) -> str:
    return f"scale{scale:g}-run{run_index}-{_slug(name)}"


def _inner_key(n_inner: int, run_index: int) -> str:
    return f"inner{n_inner}-run{run_index}"


def _sweep_key(kind: str, gradients: str, step: float, friction: float, temperature: float, draw: int) -> str:
    return f"sweep-{_slug(kind)}-{_slug(gradients)}-{step:g}-{friction:g}-{temperature:g}-draw{draw}"


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower())
