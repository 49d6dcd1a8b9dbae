"""One-class images: one model, or one of the compared systems, on one class."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Memory
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from nrf.data import DATASETS, Splits, one_class, resolve
from nrf.learners.base import PairLearner
from nrf.metrics import auroc, nearest_neighbour_score
from nrf.reproduce.baselines import DCAE, DeepSVDD
from nrf.reproduce.runner.watch import Curve, potential_of, synthetic, train_and_watch
from nrf.runs.spec import Preset

Images = NDArray[np.float32]
Scores = NDArray[np.floating]


@dataclass(frozen=True)
class Means:
    """What the compared systems may need beside a task."""

    preset: Preset
    """What the untrained control is built from; its seed is everyone's."""
    epochs: int
    kept: Path | None = None
    """Folder for what two systems have in common."""


Fit = Callable[[Splits, Means], Scores]
"""To scores of the test images."""

WATCHED = 0.05
"""Share of the training images that is kept out of training, to tell how it goes."""
SCORED = 50
"""Images of a batch that is scored; more of CIFAR-10's leave the processor's cache and take 1.4 times as long."""
KEPT_VARIANCE = 0.95
"""Of the principal components that kernel methods work on, as in the paper they are quoted from."""
BANDWIDTHS = tuple(2.0 ** (i / 2) for i in range(-2, 7))
BANDWIDTH_ROWS = 1500


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


def train_on(preset: Preset, task: Splits, out: Path) -> Curve:
    """Train on a class, or go on with it, looking at it after every epoch."""
    assert task.test is not None
    test = task.test

    def numbers(potential: nn.Module, watched: Tensor) -> dict[str, float]:
        found = measured(potential_of(potential, test, SCORED), task)
        return found | {"synthetic AUROC": synthetic(potential, watched, SCORED)}

    return train_and_watch("one-class", preset, task, out, numbers)


# ------------------------------------------------------------------------------------------------------- other systems


def _components(task: Splits) -> tuple[Images, Images]:
    from sklearn.decomposition import PCA

    assert task.test is not None
    train, test = (rows.reshape(len(rows), -1) for rows in (task.train, task.test))
    pca = PCA(KEPT_VARIANCE, random_state=0).fit(train)
    return pca.transform(train), pca.transform(test)


def _one_class_svm(task: Splits, means: Means) -> Scores:
    from sklearn.svm import OneClassSVM

    train, test = _components(task)
    return np.asarray(OneClassSVM(gamma="scale", nu=0.1).fit(train).score_samples(test))


def kernel_log_density(train: Images, rows: Images, width: float) -> Scores:
    """Log-density of rows under Gaussians of that width on the training rows, as it is written.

    scikit-learn's ``KernelDensity`` adds up by differences of bounds, which cancel where dimensions are many: on 116
    components of MNIST it is off by 35 nats, and so is the order of its scores.
    """
    from scipy.special import logsumexp
    from sklearn.metrics import euclidean_distances

    parts = [
        logsumexp(-euclidean_distances(part, train, squared=True) / (2 * width**2), axis=1)
        for part in np.array_split(rows.astype(np.float64), -(-len(rows) // SCORED))
    ]
    d = train.shape[1]
    return np.asarray(np.concatenate(parts) - np.log(len(train)) - d / 2 * np.log(2 * np.pi * width**2))


def _kernel_density(task: Splits, means: Means) -> Scores:
    from sklearn.model_selection import KFold

    train, test = _components(task)
    scale = float(train.std())
    some = train[:BANDWIDTH_ROWS]

    def held_out(width: float) -> float:
        folds = KFold(3).split(some)
        return float(np.mean([kernel_log_density(some[a], some[b], width * scale).mean() for a, b in folds]))

    return kernel_log_density(train, test, scale * max(BANDWIDTHS, key=held_out))


def _isolation_forest(task: Splits, means: Means) -> Scores:
    from sklearn.ensemble import IsolationForest

    assert task.test is not None
    train, test = (rows.reshape(len(rows), -1) for rows in (task.train, task.test))
    return np.asarray(IsolationForest(n_estimators=1000, random_state=means.preset.seed).fit(train).score_samples(test))


def learned_autoencoder(epochs: int, seed: int, images: Images) -> DCAE:
    """One system, and where another begins."""
    found = DCAE(epochs=epochs, seed=seed).fit(images)
    assert isinstance(found, DCAE)
    return found


def _autoencoder(task: Splits, means: Means) -> DCAE:
    found = Memory(means.kept, verbose=0).cache(learned_autoencoder)(means.epochs, means.preset.seed, task.train)
    assert isinstance(found, DCAE)
    return found


def _dcae(task: Splits, means: Means) -> Scores:
    assert task.test is not None
    return _autoencoder(task, means).score_samples(task.test)


def _deep_svdd(task: Splits, means: Means) -> Scores:
    assert task.test is not None
    model = DeepSVDD(epochs=means.epochs, seed=means.preset.seed, start=_autoencoder(task, means))
    return model.fit(task.train).score_samples(task.test)


def _nearest(task: Splits, means: Means) -> Scores:
    assert task.test is not None
    return nearest_neighbour_score(task.train, task.test)


def _untrained(task: Splits, means: Means) -> Scores:
    import torch

    assert task.test is not None
    learner = means.preset.build(torch.from_numpy(task.train), means.preset.seeds)
    assert isinstance(learner, PairLearner)
    return potential_of(learner.potential, task.test, SCORED)


COMPARED: dict[str, Fit] = {
    "OC-SVM": _one_class_svm,
    "KDE": _kernel_density,
    "isolation forest": _isolation_forest,
    "DCAE": _dcae,
    "Deep SVDD": _deep_svdd,
    "1-NN": _nearest,
    "untrained potential": _untrained,
}
TRAINED = ("DCAE", "Deep SVDD")
"""What has epochs, the last of which is reported."""


def compare(name: str, task: Splits, means: Means) -> dict[str, Any]:
    """One system on one class."""
    started = time.perf_counter()
    scores = COMPARED[name](task, means)
    return measured(scores, task) | {"seconds": round(time.perf_counter() - started, 1)}
