"""One-class images: which runs there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nrf.reproduce.one_class.best import Best
from nrf.reproduce.one_class.cells import WATCHED
from nrf.reproduce.runner.experiment import Results, cell_name
from nrf.reproduce.runner.watch import Curve
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset

SAMPLERS = {"SGHMC": "sghmc", "SGLD": "sgld"}
"""Names in presets, by those in tables."""
UNTRAINED = "untrained potential"


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
    epochs: int = 50
    """Of a pair."""
    width: int | None = None
    """Of a pair of convolutions: channels of the potential's first layer, in place of the preset's 96. The generator is
    as much narrower."""
    classes: tuple[int, ...] | None = None
    """The classes it is run on; all if not given."""

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
    epochs: int | None = None
    """Of every pair, in place of the line's own number."""
    compared_epochs: int = 30
    searched: tuple[int, ...] = ()
    """Classes that AnoGAN is run on, which searches a code for each test image."""
    max_searched: int = 1000
    """Test images of a class that it is asked for, drawn at random."""
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

    @property
    def untrained(self) -> dict[str, Line]:
        """Controls by name: potentials as they are initialised, of the first pair and of the first narrower one."""
        narrow = {f"{UNTRAINED}, {line.setting.split(', ')[-1]}": line for line in self.pairs if line.width is not None}
        return {UNTRAINED: self.pairs[0], **dict(list(narrow.items())[:1])}

    def labels(self, line: Line) -> tuple[int, ...]:
        """The classes that a line is run on."""
        return tuple(label for label in line.classes or range(self.classes) if label < self.classes)

    def length(self, line: Line) -> int:
        """Epochs of a pair."""
        return line.epochs if self.epochs is None else self.epochs


def _lines(prefix: str, best: Best, epochs: int, sghmc_seeds: int = 1) -> tuple[Line, ...]:
    """`best`, the scripts' and the text's settings, and the detector on what pixels have in common.

    Settings of the rotation networks were chosen by anomalies made of held-out normal images (`nrf reproduce
    mnist-ablation`, …).
    """
    others = [
        Line(
            setting,
            f"inclusive-NRF, {sampler}",
            f"{prefix}-{name}-{setting}",
            seeds=sghmc_seeds if (setting, sampler) == ("released", "SGHMC") else 1,
            epochs=epochs,
        )
        for setting in ("released", "paper")
        for sampler, name in SAMPLERS.items()
    ]
    plain = Line("components", "NRFDetector", detector=Best(members=1))
    return (Line("best", "NRFDetector", detector=best), plain, *others)


BEST = Best(field="product", components=80, turn_epochs=10, members=1, sum_shares=(0.0, 0.33, 0.5, 0.67, 0.8, 1.0))
"""Of both datasets. Components and shares were looked at on a few classes of each, by synthetic images and, beside
them, by test images; which share a class takes is chosen by synthetic images alone."""
SHORT_PAIRS = (
    *(
        Line(
            "released, half width",
            f"inclusive-NRF, {sampler}",
            f"cifar10-one-class-{name}-released",
            epochs=3,
            width=48,
        )
        for sampler, name in SAMPLERS.items()
    ),
    Line(
        "released, full width",
        "inclusive-NRF, SGHMC",
        "cifar10-one-class-sghmc-released",
        epochs=3,
        width=96,
        classes=(0, 1),
    ),
)
"""Pairs on the pixels of CIFAR-10 that fit into a quarter of an hour of a core each: the scripts' settings at half the
width, a quarter of the arithmetic, for 3 of 100 epochs; and what the width does, on two classes. An iteration of the
first takes 2.5 s of a core, most of it in the ten steps of the revision."""
CONFIGS = {
    "mnist-one-class": OneClassConfig("mnist", _lines("mnist", BEST, 50, sghmc_seeds=3), searched=(2, 5, 8)),
    "cifar10-one-class": OneClassConfig(
        "cifar10", (*_lines("cifar10-one-class", BEST, 5), *SHORT_PAIRS), compared_epochs=10
    ),
}


def sized(config: OneClassConfig, line: Line, label: int, seed: int) -> Preset:
    """The preset of a run, with its class, its seed, its length and images to watch."""
    assert line.preset is not None
    preset = find_preset(line.preset)
    if config.n_steps is not None:
        preset = replace(preset, revision=replace(preset.revision, n_steps=config.n_steps))
    if line.width is not None:
        potential: Any = preset.potential
        generator: Any = preset.generator
        narrow = generator.width * line.width // potential.width
        preset = replace(
            preset, potential=replace(potential, width=line.width), generator=replace(generator, width=narrow)
        )
    length = replace(preset.train, iterations=None, epochs=config.length(line), watch_share=WATCHED, threads=1)
    return replace(preset, seed=seed, data=replace(preset.data, normal=label), train=length)


def curves_of(config: OneClassConfig, results: Results, line: Line) -> dict[int, list[Curve]]:
    """The runs of a line that are there: by class, then by seed."""
    found: dict[int, list[Curve]] = {}
    for label in config.labels(line):
        names = [line.cell(label, seed) for seed in range(line.seeds)]
        there = [results[name]["curve"] for name in names if name in results]
        if there:
            found[label] = there
    return found
