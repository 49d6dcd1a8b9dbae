"""What makes the last model the good model on KDDCUP: one change of the released settings at a time, then several.

Run on development splits, whose seeds are not among those that ``kddcup`` reports. Settings may be chosen here by
labels; a number chosen so is never one of the reported ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nrf.learners import Revision
from nrf.networks import MLPPotential
from nrf.reproduce.baselines.ours import detector_defaults
from nrf.reproduce.kddcup.cells import WATCHED, detector_cell, run_cell
from nrf.reproduce.runner.experiment import Cell, Experiment, Outcome, Results, Section, cell_name
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table
from nrf.reproduce.runner.watch import values_of
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.samplers import SGHMC, SGLD

Change = Callable[[Preset], Preset]

DEFAULTS = {"defaults": detector_defaults(200_000, 121)}
FIRST_DEVELOPMENT_SPLIT = 100
LATE = 10
"""Epochs at the end over which steadiness is measured."""


@dataclass(frozen=True)
class AblationConfig:
    """Size of the experiment."""

    splits: int = 2
    epochs: int = 16
    detector_epochs: int | None = None
    """Its default length if not given."""
    max_rows: int | None = None


QUICK = AblationConfig(splits=1, epochs=2, detector_epochs=2, max_rows=6000)


def _noise(sigma: float) -> Change:
    return lambda p: replace(p, generator=replace(p.generator, sigma=sigma))


def _learner(**values: Any) -> Change:
    return lambda p: replace(p, learner=replace(p.learner, **values))


def _train(**values: Any) -> Change:
    return lambda p: replace(p, train=replace(p.train, **values))


def _sampler(sampler: SGLD | SGHMC) -> Change:
    return lambda p: replace(p, sampler=sampler)


def _joint(p: Preset) -> Preset:
    return replace(p, sampler=SGLD(step_size=0.003, latent_step_size=1e-4), revision=Revision(10, "joint"))


def _wide(p: Preset) -> Preset:
    return replace(p, potential=MLPPotential(widths=(256, 128), data_init=True))


CHANGES: dict[str, Sequence[Change]] = {
    "released": (),
    "σ 0.05": (_noise(0.05),),
    "σ 0.1": (_noise(0.1),),
    "σ 0.2": (_noise(0.2),),
    "temperature 1": (_sampler(SGLD(step_size=0.003)),),
    "σ 0.1, joint revision, temperature 1": (_noise(0.1), _joint),
    "SGHMC": (_sampler(SGHMC(step_size=0.03, friction=0.7, temperature=0.0)),),
    "SGHMC, σ 0.1": (_noise(0.1), _sampler(SGHMC(step_size=0.03, friction=0.7, temperature=0.0))),
    "SGHMC, σ 0.1, a tenth of the step": (_noise(0.1), _sampler(SGHMC(0.003, friction=0.7, temperature=0.0))),
    "falling rates": (_train(lr_final=0.05),),
    "averaged weights": (_train(ema_decay=0.999),),
    "data noise 0.05": (_learner(data_noise=0.05),),
    "control weight 1": (_learner(control_weight=1.0),),
    "256-128, leaky ReLU": (_wide,),
    "σ 0.1, falling rates": (_noise(0.1), _train(lr_final=0.05)),
    "σ 0.1, falling rates, averaged weights": (_noise(0.1), _train(lr_final=0.05, ema_decay=0.999)),
    "σ 0.1, falling rates, 256-128": (_noise(0.1), _train(lr_final=0.05), _wide),
}
"""Changes of `kddcup-sgld-released`, by name."""
INCLUSIVE: dict[str, Any] = {"field": "inclusive", "scaling": "quartiles"}
"""The detector of version 0.1.0, which these settings are of."""
DETECTORS: dict[str, dict[str, Any]] = {
    "NRFDetector": INCLUSIVE,
    "NRFDetector, the 121 encoded columns": INCLUSIVE | {"encoded": True},
    "NRFDetector, σ 0.3": INCLUSIVE | {"training__sigma": 0.3},
    "NRFDetector, 256-128": INCLUSIVE | {"training__widths": (256, 128)},
    "NRFDetector, learning rates 5e-3": INCLUSIVE | {"training__learning_rate": 5e-3},
}
"""Settings of the detector with an inclusive field, by name."""


class KDDAblation(Experiment[AblationConfig]):
    """The experiment behind `nrf reproduce kddcup-ablation`."""

    name = "kddcup-ablation"
    title = "KDDCUP: what steadies training"
    lead = "One change of the released settings at a time, then several, on splits that no other table uses."

    whole = AblationConfig()
    quick = QUICK

    def seeds(self, config: AblationConfig) -> Sequence[int]:
        return range(FIRST_DEVELOPMENT_SPLIT, FIRST_DEVELOPMENT_SPLIT + config.splits)

    def cells(self, config: AblationConfig, shared: Path) -> list[Cell]:
        found = []
        for seed in self.seeds(config):
            where: dict[str, Any] = {"split": seed, "max_rows": config.max_rows}
            for name in CHANGES:
                settings = {"preset": sized(config, name, seed), **where}
                found.append(Cell(cell_name(seed, name), run_cell, settings, trains=True))
            for name, changes in DETECTORS.items():
                settings = {"epochs": config.detector_epochs, "settings": changes, **where}
                found.append(Cell(cell_name(seed, name), detector_cell, settings, depends_on=DEFAULTS))
        return found

    def summarise(self, config: AblationConfig, results: Results, runs: Mapping[str, Path]) -> Outcome:
        rows, lines = [], []
        for name in (*CHANGES, *DETECTORS):
            curves = [results[cell_name(seed, name)]["curve"] for seed in self.seeds(config)]
            numbers = _numbers(curves)
            found = [Row.of(v, name, metric, case="development splits") for metric, v in numbers.items()]
            rows += found
            lines.append([name, *(f"{row.mean:.4f}" for row in found)])
        header = ["settings", *_numbers([results[cell_name(self.seeds(config)[0], "released")]["curve"]])]
        length = f"{config.detector_epochs} epochs" if config.detector_epochs else "its default length"
        text = (
            f"Mean over {config.splits} development splits, {config.epochs} epochs, the detector {length}. F1 is that "
            "of all test rows with a fifth of them flagged. The label-free number is the mean AUROC of watched rows "
            "against anomalies made of them, at the last epoch."
        )
        last = {row.method: row.mean for row in rows if row.metric == "F1, last epoch"}
        best = max(last, key=lambda name: last[name])
        headline = [(f"{last['released']:.3f}", "F1 of the last epoch, released"), (f"{last[best]:.3f}", best)]
        return Outcome(rows, [Section("What was tried", text, [Table(header, lines)])], headline)


def changed(name: str) -> Preset:
    """The released settings with the changes of that name."""
    preset = find_preset("kddcup-sgld-released")
    for change in CHANGES[name]:
        preset = change(preset)
    return preset


def sized(config: AblationConfig, name: str, seed: int) -> Preset:
    """The same for one split, at the experiment's length, with rows to watch."""
    preset = changed(name)
    length = replace(preset.train, epochs=config.epochs, watch_share=WATCHED, threads=1)
    return replace(preset, seed=seed, data=replace(preset.data, split=seed), train=length)


def _numbers(curves: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for curve in curves:
        f1 = values_of(curve, "F1")
        for name, value in {
            "F1, last epoch": f1[-1],
            "F1, mean of the last ten": float(np.mean(f1[-LATE:])),
            "F1, worst of the last ten": min(f1[-LATE:]),
            "F1, best epoch (oracle)": max(f1),
            "AUROC, last epoch": values_of(curve, "AUROC")[-1],
            "F1, unseen rows": values_of(curve, "unseen F1")[-1],
            "AUROC against made anomalies": values_of(curve, "synthetic AUROC")[-1],
        }.items():
            found.setdefault(name, []).append(value)
    return found
