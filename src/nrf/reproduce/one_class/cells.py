"""One-class images: one model, or one of the compared systems, on one class."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Memory
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from nrf.data import DATASETS, Splits, one_class, resolve
from nrf.metrics import auroc
from nrf.reproduce.baselines import DCAE, Baseline, DeepSVDD, find_baseline, fit_and_score
from nrf.reproduce.runner.experiment import NEVER, Deadline
from nrf.reproduce.runner.watch import Curve, potential_of, synthetic, train_and_watch
from nrf.runs.spec import Preset

Images = NDArray[np.float32]
Scores = NDArray[np.floating]


WATCHED = 0.05
"""Share of the training images that is kept out of training, to tell how it goes."""
SCORED = 50
"""Images of a batch that is scored; more of CIFAR-10's leave the processor's cache and take 1.4 times as long."""
KEPT_VARIANCE = 0.95
"""Of the principal components that kernel methods work on, as in the paper they are quoted from."""


@lru_cache(maxsize=2)
def _dataset(name: str) -> Splits:
    """With images as images: MNIST's are kept as rows."""
    splits, shape = resolve(name), DATASETS[name].image_shape
    assert shape is not None
    assert splits.test is not None
    train, test = (images.reshape(len(images), *shape) for images in (splits.train, splits.test))
    return replace(splits, train=train, test=test)


def load(name: str, label: int, max_train: int | None = None, max_test: int | None = None) -> Splits:
    """Train on one class, test on all: label 1 for an image of another class."""
    task = one_class(_dataset(name), label)
    assert task.test is not None
    assert task.test_labels is not None
    test = np.arange(len(task.test))
    if max_test is not None:
        test = np.random.default_rng(0).permutation(test)[:max_test]
    return replace(task, train=task.train[:max_train], test=task.test[test], test_labels=task.test_labels[test])


def measured(scores: Scores, task: Splits) -> dict[str, float]:
    """AUROC and average precision of the test images, in percent."""
    assert task.test_labels is not None
    precision = average_precision_score(task.test_labels, -scores)
    return {"AUROC": 100 * auroc(scores, task.test_labels), "average precision": 100 * float(precision)}


def train_on(preset: Preset, task: Splits, out: Path, deadline: Deadline = NEVER) -> Curve:
    """Train on a class, or go on with it, looking at it after every epoch."""
    assert task.test is not None
    test = task.test

    def numbers(potential: nn.Module, watched: Tensor) -> dict[str, float]:
        found = measured(potential_of(potential, test, SCORED), task)
        return found | {"synthetic AUROC": synthetic(potential, watched, SCORED)}

    return train_and_watch("one-class", preset, task, out, numbers, deadline)


# ------------------------------------------------------------------------------------------------------- other systems


def systems(untrained: Preset, epochs: int) -> dict[str, Baseline]:
    """What is compared with, by name.

    Args:
        untrained: What the untrained control is built from.
        epochs: Of what has any, each of Deep SVDD's two parts included.
    """
    return {
        "OC-SVM": find_baseline("one-class SVM", nu=0.1, kept_variance=KEPT_VARIANCE),
        "KDE": find_baseline("likely kernel density", kept_variance=KEPT_VARIANCE),
        "isolation forest": find_baseline("isolation forest", n_estimators=1000),
        "DCAE": find_baseline("DCAE", epochs=epochs),
        "Deep SVDD": find_baseline("Deep SVDD of images", epochs=epochs, pretrain_epochs=epochs),
        "AnoGAN": find_baseline("AnoGAN", epochs=epochs),
        "1-NN": find_baseline("1-NN"),
        "untrained potential": find_baseline("untrained potential", preset=untrained, chunk=SCORED),
    }


COMPARED = ("OC-SVM", "KDE", "isolation forest", "DCAE", "Deep SVDD", "AnoGAN", "1-NN", "untrained potential")
TRAINED = ("DCAE", "Deep SVDD", "AnoGAN")
"""What has epochs, the last of which is reported."""


def learned_autoencoder(epochs: int, seed: int, images: Images) -> DCAE:
    """One system, and where another begins."""
    return DCAE(epochs=epochs, seed=seed).fit(images)


def compare(system: Baseline, task: Splits, seed: int, kept: Path | None = None) -> dict[str, Any]:
    """One system on one class; what two of them have in common is kept in a folder."""
    assert task.test is not None
    started = time.perf_counter()
    autoencoder = Memory(kept, verbose=0).cache(learned_autoencoder)
    scores: Scores
    if isinstance(system, DeepSVDD):
        system = replace(system, start=autoencoder(system.pretrain_epochs, seed, task.train))
        scores = fit_and_score(system, task.train, task.test, seed).scores
    elif isinstance(system, DCAE):
        scores = autoencoder(system.epochs, seed, task.train).score_samples(task.test)
    else:
        scores = fit_and_score(system, task.train, task.test, seed).scores
    return measured(scores, task) | {"seconds": round(time.perf_counter() - started, 1)}


# --------------------------------------------------------------------------------------------------------------- cells


def run_cell(
    preset: Preset, dataset: str, max_train: int | None, max_test: int | None, out: Path, deadline: Deadline = NEVER
) -> dict[str, Any]:
    """One model: its numbers after every epoch. The preset says which class is normal."""
    assert preset.data.normal is not None
    return {"curve": train_on(preset, load(dataset, preset.data.normal, max_train, max_test), out, deadline)}


def compared_cell(
    system: Baseline,
    dataset: str,
    label: int,
    max_train: int | None,
    max_test: int | None,
    seed: int,
    kept: Path | None = None,
) -> dict[str, Any]:
    """One of the other systems."""
    return compare(system, load(dataset, label, max_train, max_test), seed, kept)
