"""One-class images: which runs there are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nrf.reproduce.one_class.best import Best
from nrf.reproduce.one_class.cells import WATCHED
from nrf.reproduce.runner.experiment import Results, cell_name
from nrf.reproduce.runner.watch import Curve
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset


@dataclass(frozen=True)
class Line:
    """A kind of run: settings and sampler, on every class."""

    setting: str
    method: str
    preset: str | None = None
    """Of a pair on pixels."""
    detector: Best | None = None
    """In its place: NRFDetector with these settings."""
    seeds: int = 1

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"{self.setting}: {self.method}"

    @property
    def sampler(self) -> str:
        """The sampler's name in the paper's table."""
        return self.method.rsplit(" ", 1)[-1]

    def cell(self, label: int, seed: int) -> str:
        """Name of its cell."""
        return cell_name(self.setting, self.method, label, seed)


@dataclass(frozen=True)
class OneClassConfig:
    """Size of the experiment."""

    dataset: str
    lines: tuple[Line, ...]
    """Kinds of runs, the most wanted first."""
    epochs: int
    compared_epochs: int = 30
    classes: int = 10
    max_train: int | None = None
    max_test: int | None = None
    n_steps: int | None = None
    """Of a revision, in place of the preset's."""

    @property
    def pairs(self) -> tuple[Line, ...]:
        """The lines that train a pair on pixels."""
        return tuple(line for line in self.lines if line.preset is not None)

    @property
    def detectors(self) -> tuple[Line, ...]:
        """The others; `best` is the first of them."""
        return tuple(line for line in self.lines if line.detector is not None)


def _lines(prefix: str, best: Best, seeds: int) -> tuple[Line, ...]:
    """`best`, the scripts' and the text's settings, and the detector on what pixels have in common.

    Settings of `best` were chosen by anomalies made of held-out normal images (`nrf reproduce mnist-ablation`, …).
    """
    names = {"SGHMC": "sghmc", "SGLD": "sgld"}
    others = [
        Line(setting, f"inclusive-NRF, {sampler}", f"{prefix}-{name}-{setting}")
        for setting in ("released", "paper")
        for sampler, name in names.items()
    ]
    plain = Line("components", "NRFDetector", detector=Best(members=1))
    return (Line("best", "NRFDetector", detector=best, seeds=seeds), plain, *others)


CONFIGS = {
    "mnist-one-class": OneClassConfig("mnist", _lines("mnist", Best(turn_epochs=10), seeds=2), epochs=50),
    "cifar10-one-class": OneClassConfig(
        "cifar10",
        _lines(
            "cifar10-one-class",
            Best(turn_epochs=10, answers=True, one_sided=True, sigma=3.0, first_step_size=0.05),
            seeds=1,
        ),
        epochs=5,
        compared_epochs=10,
    ),
}


def sized(config: OneClassConfig, line: Line, label: int, seed: int) -> Preset:
    """The preset of a run, with its class, its seed, its length and images to watch."""
    assert line.preset is not None
    preset = find_preset(line.preset)
    if config.n_steps is not None:
        preset = replace(preset, revision=replace(preset.revision, n_steps=config.n_steps))
    length = replace(preset.train, iterations=None, epochs=config.epochs, watch_share=WATCHED, threads=1)
    return replace(preset, seed=seed, data=replace(preset.data, normal=label), train=length)


def curves_of(config: OneClassConfig, results: Results, line: Line) -> dict[int, list[Curve]]:
    """The runs of a line that are there: by class, then by seed."""
    found: dict[int, list[Curve]] = {}
    for label in range(config.classes):
        names = [line.cell(label, seed) for seed in range(line.seeds)]
        there = [results[name]["curve"] for name in names if name in results]
        if there:
            found[label] = there
    return found
