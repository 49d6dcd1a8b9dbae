"""`best` on one-class images: the detector behind features of images, both learned from normal images alone."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Memory
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline, make_pipeline

from nrf.data import Splits
from nrf.detect import ClipBenignTail, NRFDetector, PrincipalComponents, RotationFeatures, Training
from nrf.detect.explain import revised_rows
from nrf.detect.selection import made_images
from nrf.metrics import auroc, nearest_neighbour_score
from nrf.reproduce.one_class.cells import WATCHED, load, measured
from nrf.reproduce.runner.watch import LAST, Curve

Images = NDArray[np.float32]

SHOWN = 10
"""Images of each kind that are kept for the pictures."""
PULLED_STEPS = (0, 300, 3000)
"""Steps after which a revised anomaly is shown."""
KEPT = "features"
"""Folder, beside those of the experiments, for networks that are learned before the detector."""
CONTROLS = ("1-NN on the features of `best`", "untrained potential on the features of `best`")
ANSWERS_ALONE = "sum of the answers of `best`"
"""A control where the detector sees answers of a network: what they say without a field, log p added up."""


@dataclass(frozen=True)
class Best:
    """Settings of `best`."""

    components: int = 40
    """Principal components that the detector sees, beside the length of the rest."""
    turn_epochs: int = 0
    """Epochs of a network that learns to tell turned images; its features take the place of pixels. Pixels if 0."""
    answers: bool = False
    """Whether the detector sees how sure that network is in each of the four positions, and no principal components."""
    one_sided: bool = False
    """Whether answers that are surer than usual are as good as usual ones to the detector."""
    width: int = 16
    """Of that network."""
    members: int = 3
    """Fields whose mean is the score."""
    iterations: int | None = None
    """Of the detector; its default if not given."""
    sigma: float | None = None
    n_steps: int | None = None
    first_step_size: float | None = None
    learning_rate: float | None = None

    def features(self, images: Images, seed: int, kept: Path | None = None) -> Pipeline:
        """What is learned of images before the detector; networks are read from the folder where they are kept."""
        components = PrincipalComponents(self.components, random_state=seed)
        if self.turn_epochs == 0:
            return make_pipeline(components.fit(images))
        turns = Memory(kept, verbose=0).cache(learned_turns)(self.width, self.turn_epochs, seed, images)
        if self.answers:
            turns.set_params(output="answers")
            sides = [ClipBenignTail("low").fit(turns.transform(images))] if self.one_sided else []
            return make_pipeline(turns, *sides)
        return make_pipeline(turns, components.fit(turns.transform(images)))

    def detector(self, seed: int, **more: Any) -> NRFDetector:
        """The detector."""
        names = ("sigma", "n_steps", "first_step_size", "learning_rate")
        training = Training(**{name: getattr(self, name) for name in names})
        more |= {"scaling": "deviation" if self.answers else "quartiles"}
        return NRFDetector(
            field="inclusive",
            n_estimators=self.members,
            max_iter=self.iterations,
            training=training,
            random_state=seed,
            **more,
        )


def learned_turns(width: int, epochs: int, seed: int, images: Images) -> RotationFeatures:
    """A network that tells turned images: most of the work, and the same for many settings of the detector."""
    return RotationFeatures(width, epochs=epochs, random_state=seed).fit(images)


def detector_cell(
    best: Best,
    dataset: str,
    label: int,
    seed: int,
    max_train: int | None,
    max_test: int | None,
    kept: Path | None = None,
) -> dict[str, Any]:
    """Our detector on one class: its numbers after every epoch, controls, and what pictures need."""
    return detect_on(best, load(dataset, label, max_train, max_test), seed, kept)


def detect_on(best: Best, task: Splits, seed: int, kept: Path | None = None) -> dict[str, Any]:
    """Learn features and fields of a class; numbers after every epoch, controls, and what pictures need.

    Args:
        best: Settings.
        task: Normal images, and test images of all classes.
        seed: Of everything.
        kept: Folder in which networks that were learned before the detector are kept and found again.
    """
    assert task.test is not None
    assert task.test_labels is not None
    order = np.random.default_rng(seed).permutation(len(task.train))
    n_watched = max(2, round(WATCHED * len(order)))
    watched, learned = task.train[order[:n_watched]], task.train[order[n_watched:]]
    features = best.features(learned, seed, kept)
    train, test, held = (features.transform(images) for images in (learned, task.test, watched))
    made = [features.transform(images) for images in _made(watched)]
    curve: Curve = []

    def look(detector: NRFDetector, row: Mapping[str, float]) -> None:
        numbers = measured(detector.score_samples(test), task)
        numbers["synthetic AUROC"] = _told(detector, held, made)
        kept = {name: float(value) for name, value in row.items() if name != "seconds"}
        curve.append(kept | {f"{LAST}: {name}": value for name, value in numbers.items()})

    detector = best.detector(seed, callbacks=[look]).fit(train)
    scores = detector.score_samples(test)
    normal = np.flatnonzero(task.test_labels == 0)
    by_score = normal[np.argsort(-scores[normal])]
    spread = train.std(0)
    scaled = [(rows / np.where(spread > 0, spread, 1)).astype(np.float32) for rows in (train, test)]
    controls = (
        nearest_neighbour_score(*scaled),
        best.detector(seed).set_params(max_iter=1, training__learning_rate=1e-12).fit(train).score_samples(test),
    )
    found: dict[str, Any] = {
        "curve": curve,
        "typical": by_score[:SHOWN].tolist(),
        "untypical": by_score[-SHOWN:].tolist(),
        "controls": {name: measured(values, task) for name, values in zip(CONTROLS, controls, strict=True)},
    }
    if best.turn_epochs and best.answers:
        found["controls"][ANSWERS_ALONE] = measured(-np.square(features[0].transform(task.test)).sum(1), task)
    if best.turn_epochs:
        found["turns told"] = features[0].told(watched)
    else:  # components can be turned back into images
        odd = np.flatnonzero(task.test_labels == 1)
        spread_out = np.linspace(0, len(odd) - 1, SHOWN + 2).astype(int)[1:-1]
        found["anomalies"] = odd[np.argsort(scores[odd])[spread_out]].tolist()
        found["pulled"] = _pulled(features, detector, task.test[found["anomalies"]], task.bounds or (0.0, 1.0))
    return found


def _made(images: Images) -> list[Images]:
    import torch

    return [x.numpy() for x in made_images(torch.from_numpy(images)).values()]


def _told(detector: NRFDetector, normal: Images, made: list[Images]) -> float:
    """Mean AUROC of normal images against those made of them."""
    ours, truth = detector.score_samples(normal), np.repeat([0, 1], len(normal))
    return float(np.mean([auroc(np.concatenate([ours, detector.score_samples(x)]), truth) for x in made]))


def _pulled(features: Pipeline, detector: NRFDetector, images: Images, bounds: tuple[float, float]) -> dict[str, str]:
    """What components show of images after steps towards the class, packed; by the number of steps."""
    found, rows = {}, features.transform(images)
    for steps in PULLED_STEPS:
        revised = [list(row.values()) for row in revised_rows(detector, rows, n_steps=steps)] if steps else rows
        found[str(steps)] = packed(features.inverse_transform(np.array(revised, dtype=np.float32)), bounds)
    return found


def packed(images: Images, bounds: tuple[float, float]) -> str:
    """Images in 8 bits as text, for a cell."""
    low, high = bounds
    grey = np.round(255 * np.clip((images - low) / (high - low), 0, 1)).astype(np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, images=grey)
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> Images:
    """The images, in [0, 1].

    Example:
        >>> round(float(unpacked(packed(np.array([[0.4]]), (-1.0, 1.0)))[0, 0]), 2)
        0.7
    """
    with np.load(io.BytesIO(base64.b64decode(text))) as arrays:
        images: Images = arrays["images"].astype(np.float32) / 255
    return images
