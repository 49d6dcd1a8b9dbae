"""Every table and figure of the paper by name, and what is ours, with its state in a results folder."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from nrf.errors import InputError
from nrf.reproduce.density.experiment import Densities
from nrf.reproduce.detectors.ablation import DetectorAblation
from nrf.reproduce.detectors.experiment import Detectors
from nrf.reproduce.generation.experiment import Generation
from nrf.reproduce.generation.interpolation import Interpolation
from nrf.reproduce.generation.mnist import MnistGeneration
from nrf.reproduce.gmm.experiment import Mixture
from nrf.reproduce.kddcup.ablation import KDDAblation
from nrf.reproduce.kddcup.experiment import KDDCup
from nrf.reproduce.monitoring.experiment import Drift
from nrf.reproduce.one_class.experiment import OneClass
from nrf.reproduce.runner.experiment import Experiment
from nrf.reproduce.runner.record import Record
from nrf.reproduce.samplers.experiment import SamplerStudy

EXPERIMENTS: dict[str, Experiment[Any]] = {
    "sampler-study": SamplerStudy(),
    "gmm": Mixture(),
    "kddcup": KDDCup(),
    "kddcup-ablation": KDDAblation(),
    "mnist-one-class": OneClass("mnist-one-class"),
    "cifar10-one-class": OneClass("cifar10-one-class"),
    "cifar10-generation": Generation("cifar10-generation"),
    "generation-rates": Generation("generation-rates"),
    "interpolation": Interpolation(),
    "mnist-generation": MnistGeneration(),
    "density": Densities(),
    "detectors": Detectors(),
    "detector-ablation": DetectorAblation(),
    "drift": Drift(),
}

PAPER: dict[str, str] = {
    "sampler-study": "figure: sampler's performance",
    "gmm": "table and figure: the 32-mode mixture",
    "cifar10-generation": "table: inception score and FID on CIFAR-10",
    "mnist-generation": "table: revision steps and samplers, on MNIST with five seeds; and noise levels as generators",
    "kddcup": "table: anomaly detection on KDDCUP",
    "mnist-one-class": "table: one-class MNIST",
    "cifar10-one-class": "table: one-class CIFAR-10",
    "interpolation": "figure: latent interpolation",
}


OURS: dict[str, str] = {
    "kddcup-ablation": "what steadies training on KDDCUP",
    "generation-rates": "learning rates of inclusive-NRF and SNGAN for a short run on CIFAR-10",
    "density": "what is learned of densities that are known",
    "detectors": "NRFDetector beside other detectors, four blocks",
    "detector-ablation": "what was tried for NRFDetector's defaults",
    "drift": "false alarms and delays of drift monitors",
}
"""What the paper does not have."""


def find_experiment(name: str) -> Experiment[Any]:
    """The experiment of that name, or an error that says what there is."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`nrf reproduce --list` shows them"
    raise InputError(f"unknown experiment {name!r}; {hint}")


def state(name: str, results: Path) -> str:
    """What a results folder holds of an experiment, in a few words."""
    path = results / f"{name}.json"
    if not path.is_file():
        return f"not run; nrf reproduce {name}"
    record = Record.read(path)
    return f"{len(record.rows)} rows, commit {record.commit or 'unknown'}, {record.wall_seconds:.0f} s"
