"""One-class images: the list of runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nrf.reproduce.one_class.best import FeatureConfig
from nrf.reproduce.one_class.cells import WATCHED
from nrf.reproduce.runner.experiment import Results, cell_name
from nrf.reproduce.runner.watch import Curve
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset

SAMPLERS = {"SGHMC": "sghmc", "SGLD": "sgld"}
"""Names of samplers in presets, by their names in tables."""
UNTRAINED = "untrained potential"


@dataclass(frozen=True)
class OneClassRunSpec:
    """The runs of one line of the table: settings and sampler, on every class."""

    setting: str
    method: str
    preset: str | None = None
    """Preset of a potential and generator trained on pixels."""
    detector: FeatureConfig | None = None
    """Instead of a preset: NRFDetector with these settings."""
    seeds: int = 1
    epochs: int = 50
    """Training epochs of a pair of networks."""
    width: int | None = None
    """Channels of the first layer of a convolutional potential, instead of the preset's 96. The generator is narrowed
    in proportion."""
    bfloat16: bool = False
    """Whether convolutions are computed in 16 bits, with channels last."""
    classes: tuple[int, ...] | None = None
    """Classes to run on; all if not given."""

    @property
    def name(self) -> str:
        """The line's name in tables."""
        return f"{self.setting}: {self.method}"

    @property
    def sampler(self) -> str:
        """The sampler's name in the paper's table."""
        return self.method.rsplit(" ", 1)[-1]

    def cell(self, label: int, seed: int) -> str:
        """Name of the cell of a class and seed."""
        return cell_name(self.setting, self.method, label, seed)


@dataclass(frozen=True)
class OneClassConfig:
    """Runs and size of the experiment."""

    dataset: str
    lines: tuple[OneClassRunSpec, ...]
    """Lines of the table, the most important first."""
    epochs: int | None = None
    """Training epochs of every pair, instead of the line's own number."""
    compared_epochs: int = 30
    searched: tuple[int, ...] = ()
    """Classes that AnoGAN is run on. It is slow: it searches for a code for each test image."""
    max_searched: int = 1000
    """Number of test images, drawn at random, that AnoGAN scores for each class."""
    classes: int = 10
    max_train: int | None = None
    max_test: int | None = None
    n_steps: int | None = None
    """Steps of a revision, instead of the preset's."""

    @property
    def pairs(self) -> tuple[OneClassRunSpec, ...]:
        """The lines that train a pair of networks on pixels."""
        return tuple(line for line in self.lines if line.preset is not None)

    @property
    def detectors(self) -> tuple[OneClassRunSpec, ...]:
        """The lines that fit an NRFDetector; `best` is the first."""
        return tuple(line for line in self.lines if line.detector is not None)

    @property
    def untrained(self) -> dict[str, OneClassRunSpec]:
        """Controls by name: untrained potentials of the first pair and of the first narrower one."""
        narrow = {f"{UNTRAINED}, {line.setting.split(', ')[-1]}": line for line in self.pairs if line.width is not None}
        return {UNTRAINED: self.pairs[0], **dict(list(narrow.items())[:1])}

    def labels(self, line: OneClassRunSpec) -> tuple[int, ...]:
        """Classes that a line is run on."""
        return tuple(label for label in line.classes or range(self.classes) if label < self.classes)

    def length(self, line: OneClassRunSpec) -> int:
        """Training epochs of a line's pairs."""
        return line.epochs if self.epochs is None else self.epochs


def _lines(prefix: str, best: FeatureConfig, epochs: int, sghmc_seeds: int = 1) -> tuple[OneClassRunSpec, ...]:
    """`best`, the detector on principal components of pixels, and the settings of the scripts and of the text.

    Settings of the rotation classifiers were chosen by synthetic anomalies made from held-out normal images, see
    notes/reproduction.md.
    """
    others = [
        OneClassRunSpec(
            setting,
            f"inclusive-NRF, {sampler}",
            f"{prefix}-{name}-{setting}",
            seeds=sghmc_seeds if (setting, sampler) == ("released", "SGHMC") else 1,
            epochs=epochs,
        )
        for setting in ("released", "paper")
        for sampler, name in SAMPLERS.items()
    ]
    plain = OneClassRunSpec("components", "NRFDetector", detector=FeatureConfig(members=1))
    return (OneClassRunSpec("best", "NRFDetector", detector=best), plain, *others)


BEST = FeatureConfig(
    field="product", components=80, turn_epochs=10, members=1, sum_shares=(0.0, 0.33, 0.5, 0.67, 0.8, 1.0)
)
"""Settings for both datasets. Components and candidate shares were compared on a few classes of each, by synthetic
anomalies and also by test images. The share of each class is chosen by synthetic anomalies only."""
SHORT_PAIRS = (
    *(
        OneClassRunSpec(
            "released, half width",
            f"inclusive-NRF, {sampler}",
            f"cifar10-one-class-{name}-released",
            epochs=3,
            width=48,
            bfloat16=True,
        )
        for sampler, name in SAMPLERS.items()
    ),
    OneClassRunSpec(
        "released, full width",
        "inclusive-NRF, SGHMC",
        "cifar10-one-class-sghmc-released",
        epochs=3,
        width=96,
        bfloat16=True,
        classes=(0, 1),
    ),
)
"""Pairs on the pixels of CIFAR-10 that take a few minutes each on one core: the scripts' settings at half the width (a
quarter of the computation) for 3 of 100 epochs; and, on two classes, the full width to see its effect. Most of an
iteration is the ten steps of the revision; in 16 bits they take a quarter of the time of 32, where the processor has
instructions for them."""
SHORT_DIGITS = tuple(
    OneClassRunSpec("released, short", f"inclusive-NRF, {sampler}", f"mnist-{name}-released", epochs=5)
    for sampler, name in SAMPLERS.items()
)
"""Both samplers on every digit, for 5 of the scripts' 50 epochs."""
CONFIGS = {
    "mnist-one-class": OneClassConfig(
        "mnist", (*_lines("mnist", BEST, 50, sghmc_seeds=3), *SHORT_DIGITS), searched=(2, 5, 8)
    ),
    "cifar10-one-class": OneClassConfig(
        "cifar10", (*_lines("cifar10-one-class", BEST, 5), *SHORT_PAIRS), compared_epochs=10
    ),
}


def sized(config: OneClassConfig, line: OneClassRunSpec, label: int, seed: int) -> Preset:
    """The preset of a run with its class, seed, length and held-out images to watch."""
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
    if line.bfloat16:
        length = replace(length, precision="bfloat16", channels_last=True)
    return replace(preset, seed=seed, data=replace(preset.data, normal=label), train=length)


def curves_of(config: OneClassConfig, results: Results, line: OneClassRunSpec) -> dict[int, list[Curve]]:
    """The runs of a line that are in the results: by class, then by seed."""
    found: dict[int, list[Curve]] = {}
    for label in config.labels(line):
        names = [line.cell(label, seed) for seed in range(line.seeds)]
        there = [results[name]["curve"] for name in names if name in results]
        if there:
            found[label] = there
    return found
