"""The sampler study: how near do the samplers come to ``p(x) q(h | x)`` where it is known? The paper's sampler figure.

Besides the figure: whether its order depends on the draw or on the scale of the covariances, what the bias of Alg. 2's
gradient is made of, and how many effective samples a gradient buys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nrf import figures
from nrf.metrics import perfect_kl
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name, with_paper
from nrf.reproduce.runner.record import Row
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

Part = tuple[list[Row], Section]
Setting = tuple[float, float, float]
"""Step size, friction and temperature."""

FINAL = "KL at the end"
KINDS = ("Langevin", "SGHMC", "BAOAB")


class SamplerStudy(Experiment[StudyConfig]):
    """The experiment behind `nrf reproduce sampler-study`."""

    name = "sampler-study"
    title = "The sampler study"
    lead = (
        "Five samplers of the paper and two settings of ours on Gaussians, where p(x)q(h|x) is known. The measure is "
        "the KL divergence from the Gaussian fitted to the chains to the truth; perfect draws reach a floor, not 0."
    )

    whole = StudyConfig()
    quick = QUICK

    def seeds(self, config: StudyConfig) -> Sequence[int]:
        return range(config.runs)

    def cells(self, config: StudyConfig, shared: Path) -> list[Cell]:
        size = {"config": config.run}
        found = [
            Cell(_main(draw, r, name), kl_curve, {**size, "name": name, "draw": draw, "run_index": r})
            for draw in config.draws
            for r in range(config.runs)
            for name in (*PAPER_ORDER, *OURS)
        ]
        for scale in config.scales:
            for r in range(config.side_runs):
                for name in PAPER_ORDER:
                    settings = {**size, "name": name, "draw": config.draws[0], "run_index": r, "scale": scale}
                    found.append(Cell(_scale(scale, r, name), kl_curve, settings))
        for n in config.n_inner:
            for r in range(config.side_runs):
                settings = {**size, "draw": config.draws[0], "n_inner": n, "run_index": r}
                found.append(Cell(_inner_moves(n, r), inner_curve, settings))
        names = ("kind", "gradients", "step_size", "friction", "temperature", "draw")
        length = {"chains": config.sweep_chains, "length": config.sweep_length}
        for setting in sweep_settings(config):
            settings = {**size, **dict(zip(names, setting, strict=True)), **length}
            found.append(Cell(_swept(*setting), sweep_cell, settings))
        return found

    def summarise(self, config: StudyConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
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
            finals = [results[_main(draw, r, name)]["kl"][-1] for r in range(config.runs)]
            whose = "ours" if name in OURS else "paper"
            rows.append(Row.of(finals, name, FINAL, preset=whose, case=f"draw {draw}"))
    floor = perfect_kl(config.run.chains, config.run.dim_x + config.run.dim_h)
    rows.append(Row("perfect draws", FINAL, floor, case="all draws"))
    curves = {}
    for name in methods:
        runs = [results[_main(config.draws[0], r, name)] for r in range(config.runs)]
        curves[name] = (runs[0]["iterations"], np.array([run["kl"] for run in runs]))
    conditions = ", ".join(f"{_condition(config, draw):.0f}" for draw in config.draws)
    text = (
        f"Covariances of p and q are A Aᵀ + I with standard normal A, {len(config.draws)} draws (condition numbers of "
        f"the truth: {conditions}). Mean ± SD over {config.runs} runs of {config.run.chains} chains; one CoopNet "
        f"iteration counts as {config.run.coopnet_steps}. The paper prints no numbers; its order: HMC, SGHMC, LD, SGLD "
        "and CoopNet."
    )
    picture = (
        figures.bands(curves, floor, "KL of the fitted Gaussian to the truth"),
        f"Draw {config.draws[0]}; bands are ± one SD over the runs.",
    )
    return rows, Section("KL to p(x)q(h|x) over the iterations", text, [with_paper(rows)], {"kl": picture})


def _scales(config: StudyConfig, results: Results) -> Part:
    """The same on narrower densities."""
    rows = []
    for scale in config.scales:
        for name in PAPER_ORDER:
            finals = [results[_scale(scale, r, name)]["kl"][-1] for r in range(config.side_runs)]
            rows.append(Row.of(finals, name, FINAL, preset="paper", case=f"scale {scale:g}"))
    text = (
        "The same with covariances s·A Aᵀ + I. Where the density is narrow enough for LD to arrive within the run, LD "
        "is ahead of SGHMC: what stays between SGHMC and the floor is the bias of its gradient."
    )
    return rows, Section("What decides the order", text, [with_paper(rows)])


def _inner(config: StudyConfig, results: Results) -> Part:
    """Bias of Alg. 2 against the inner moves of h*."""
    rows = []
    for n in config.n_inner:
        finals = [results[_inner_moves(n, r)]["kl"][-1] for r in range(config.side_runs)]
        case = f"{n} inner moves of size {config.run.inner_step_size:g}"
        rows.append(Row.of(finals, "SGHMC", FINAL, preset="paper", case=case))
    for step in (config.run.inner_step_size, config.long_inner_step):
        for n in config.n_inner:
            bias = gradient_bias(config.run, config.draws[0], n, step)
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
                rows.append(Row.of(values, label, "effective samples / 1,000 gradients", preset="ours", case=case))
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
    picture = (figures.trade_off(points, config.excess_limit), caption)
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
            table.setdefault((setting[2], setting[3], setting[4]), []).append(results[_swept(*setting)])
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
            rows.append(Row.of(values, label, "excess KL", preset="ours", case=case))
    return rows


def _words(kind: str, setting: Setting) -> str:
    return f"step {setting[0]:g}" + ("" if kind == "Langevin" else f", friction {setting[1]:g}")


def _mean(results: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([result[name] for result in results]))


def _condition(config: StudyConfig, draw: int) -> float:
    values = torch.linalg.eigvalsh(make_problem(config.run, draw).truth.precision)
    return float(values[-1] / values[0])


def _main(draw: int, run_index: int, name: str) -> str:
    return f"main-draw{draw}-run{run_index}-{cell_name(name)}"


def _scale(scale: float, run_index: int, name: str) -> str:
    return f"scale{scale:g}-run{run_index}-{cell_name(name)}"


def _inner_moves(n_inner: int, run_index: int) -> str:
    return f"inner{n_inner}-run{run_index}"


def _swept(kind: str, gradients: str, step: float, friction: float, temperature: float, draw: int) -> str:
    return f"sweep-{cell_name(kind)}-{cell_name(gradients)}-{step:g}-{friction:g}-{temperature:g}-draw{draw}"
