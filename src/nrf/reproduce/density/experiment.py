"""Fields beside densities that are known: is what was learned right as a density, and what did it cost?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nrf import figures
from nrf.data import gmm
from nrf.metrics import most_covered
from nrf.reproduce.density.cells import (
    COVERED,
    DIVIDED,
    DRAW_SIZE,
    ENERGY,
    INTEGRAL,
    INTEGRAL_ERROR,
    KL,
    KL_ERROR,
    LIKELIHOOD,
    MOST_ERROR,
    NORMALISER_ERROR,
    REALISTIC,
    SECONDS,
    SLOPE,
    TRUTH,
    DensityConfig,
    learn_and_measure,
    map_points,
    quick,
)
from nrf.reproduce.density.known import MODES, known, names
from nrf.reproduce.density.methods import MOST_FOR_QUADRATURE, Method, has_flows
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

_OF_DENSITIES = (LIKELIHOOD, DIVIDED, KL, KL_ERROR, SLOPE, INTEGRAL, INTEGRAL_ERROR, NORMALISER_ERROR)
METRICS = (*_OF_DENSITIES, ENERGY, COVERED, REALISTIC, SECONDS)
THE_TRUTH = "the truth"
FAILED = "trainings that failed"
NOT_KNOWN = "not known"


class Densities(Experiment[DensityConfig]):
    """The experiment behind `nrf reproduce density`."""

    name = "density"
    partial = True
    title = "Densities that are known"
    lead = (
        "What is learned from 2,000 rows, against the density that they were drawn from: likelihood, divergence, "
        "whether log p is right up to a constant, whether it integrates to 1, samples, and CPU time."
    )

    whole = DensityConfig()
    quick = quick()

    def seeds(self, config: DensityConfig) -> Sequence[int]:
        return range(max(config.seeds, config.slow_seeds))

    def cells(self, config: DensityConfig, shared: Path) -> list[Cell]:
        return [
            Cell(
                _cell(density, method, seeds),
                learn_and_measure,
                {"method": method, "density": density, "seeds": seeds, "size": config.size},
                place=Place(f"{method.name}, {density}", None, seeds[0]),
            )
            for density, method in _lines(config)
            for seeds in _seeds(config, density, method)
        ]

    def summarise(self, config: DensityConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows = [row for density, method in _lines(config) for row in _rows(config, density, method, results)]
        rows += [row for density in names() for row in _truth(config, density, results)]
        sections = [_overview(config, rows)]
        sections += [_section(config, density, rows, results) for density in names()]
        calibrated = _calibration(config, results)
        return Outcome(rows, [section for section in (*sections, *calibrated) if section.tables or section.figures])


def _lines(config: DensityConfig) -> list[tuple[str, Method]]:
    """Every method on every density that it is meant for."""
    return [(density, method) for density in names() for method in config.methods(density)]


def _seeds(config: DensityConfig, density: str, method: Method) -> list[tuple[int, ...]]:
    """Those of each cell. The rows of the 32 modes are always the same, so fields are learned side by side there."""
    seeds = range(config.slow_seeds if method.slow else config.seeds)
    if density == MODES and not method.by_chance:
        return [(0,)]
    if density == MODES and method.together:
        return [tuple(seeds)]
    return [(seed,) for seed in seeds]


def _cell(density: str, method: Method, seeds: tuple[int, ...]) -> str:
    return cell_name(density, method.name, *seeds[:1], *(["to", seeds[-1]] if len(seeds) > 1 else []))


def _models(config: DensityConfig, density: str, method: Method, results: Results) -> list[dict[str, float | None]]:
    keys = [_cell(density, method, seeds) for seeds in _seeds(config, density, method)]
    return [model for key in keys if key in results for model in results[key]["models"]]


def _rows(config: DensityConfig, density: str, method: Method, results: Results) -> list[Row]:
    models = _models(config, density, method, results)
    rows = []
    for metric in METRICS:
        values = [value for model in models if (value := model.get(metric)) is not None]
        if values and np.isfinite(values).all():
            rows.append(Row.of(values, method.name, metric, case=density))
    keys = [(_cell(density, method, seeds), len(seeds)) for seeds in _seeds(config, density, method)]
    failed = sum(n for key, n in keys if key in results and "failed" in results[key])
    return rows + ([Row(method.name, FAILED, failed, case=density)] if failed else [])


def _truth(config: DensityConfig, density: str, results: Results) -> list[Row]:
    """The true density's likelihood of the same rows."""
    found = [_models(config, density, method, results) for method in config.methods(density)]
    values = [value for model in max(found, key=len) if (value := model.get(TRUTH)) is not None]
    return [Row.of(values, THE_TRUTH, LIKELIHOOD, case=density)] if values else []


def _overview(config: DensityConfig, rows: Sequence[Row]) -> Section:
    lines = [line for name in _names(config) if any((line := likelihoods(name, rows))[1:])]
    text = (
        "Mean log-likelihood in nats of rows by which nothing was chosen, mean ± SD over the seeds: of the training "
        f"rows, at most {config.seeds} of them ({config.slow_seeds} for PCD, replay and inclusive learning), or, for "
        "the 32 modes, whose rows are always the same, of as many models. Every method has one choice of settings "
        "for two columns and one for more, made on other seeds (levels have their preset on the 32 modes). Bandwidth, "
        "the flow's last epoch and the strength of a network beside a reference are chosen by training rows that are "
        "left out. Potentials without a normaliser (inclusive, PCD, replay) are normalised by quadrature or annealed "
        "importance sampling first, and have no likelihood where its standard error is above "
        f"{MOST_ERROR}; levels are taken as they are."
    )
    if not has_flows():
        text += ' The flow is missing, for zuko is not installed: pip install "nrf[density]".'
    return Section("Log-likelihood", text, [Table(["method", *names()], lines)] if lines else [])


def likelihoods(name: str, rows: Sequence[Row]) -> list[str]:
    """A method and its likelihood of every density; what could not be normalised is "not known"."""
    by = {(row.case, row.metric): row for row in rows if row.method == name}
    line = [name]
    for density in names():
        row = by.get((density, LIKELIHOOD))
        if row is not None:
            line.append(row.text(".3f", ".2g"))
        else:
            line.append(NOT_KNOWN if (density, NORMALISER_ERROR) in by else "")
    return line


def _names(config: DensityConfig) -> list[str]:
    return [THE_TRUTH, *(method.name for method in config.methods(MODES))]


def _section(config: DensityConfig, density: str, rows: Sequence[Row], results: Results) -> Section:
    mine = {(row.method, row.metric): row for row in rows if row.case == density}
    exact = known(density).d <= MOST_FOR_QUADRATURE
    hidden = (KL_ERROR, INTEGRAL_ERROR, NORMALISER_ERROR) if exact else (KL_ERROR,)
    shown = [m for m in METRICS if m not in hidden and any(m == metric for _, metric in mine)]
    lines = []
    for method in config.methods(density):
        if any(name == method.name for name, _ in mine):
            found = (mine.get((method.name, metric)) for metric in shown)
            lines.append([method.name, *("" if row is None else row.text(".3f", ".2g") for row in found)])
    how = "by quadrature" if exact else "by annealed importance sampling"
    text = (
        "KL: true less learned log-density of fresh draws of the truth. Slope: of learned against true log-density "
        f"there; 1 is right. Integral {how}, nothing fitted. Energy distance of samples to draws of the truth, in "
        "standard deviations; it is unbiased, so about 0 is perfect. CPU-seconds of a model's training, one thread."
    )
    if density == MODES:
        text += f" Independent draws cover at most {most_covered(len(gmm.means()), DRAW_SIZE):.2f} modes."
    pictures = {}
    maps = _maps(config, density, results)
    if len(maps) > 1:
        caption = "True and learned log-density; all maps have the colours of the true one."
        pictures[f"map-{cell_name(density)}"] = (figures.log_density_maps(maps, THE_TRUTH), caption)
    return Section(density, text, [Table(["method", *shown], lines)] if lines else [], pictures)


def _first(config: DensityConfig, density: str, results: Results, part: str) -> dict[str, list[float]]:
    """What the first cell of each method holds for a picture."""
    found = {}
    for method in config.methods(density):
        stored = results.get(_cell(density, method, _seeds(config, density, method)[0]), {})
        if part in stored:
            found[method.name] = stored[part]
    return found


def _maps(config: DensityConfig, density: str, results: Results) -> dict[str, figures.Array]:
    truth, side = known(density), config.size.side
    if truth.d != 2:
        return {}
    maps = {THE_TRUTH: truth.log_density(map_points(truth, side)).numpy()}
    maps |= {name: np.array(values) for name, values in _first(config, density, results, "map").items()}
    return {name: values.reshape(side, side) for name, values in maps.items()}


def _calibration(config: DensityConfig, results: Results) -> list[Section]:
    pairs = {}
    for density in names():
        found = _first(config, density, results, "pairs")
        if found:
            pairs[density] = {name: (np.array(x), np.array(y)) for name, (x, y) in found.items()}
    if not pairs:
        return []
    text = "Learned against true log-density of draws of the truth, of the first model; on the line it is right."
    picture = (figures.calibration(pairs), "A parallel line is a wrong constant, a flatter one a blurred density.")
    return [Section("Calibration", text, (), {"calibration": picture})]
