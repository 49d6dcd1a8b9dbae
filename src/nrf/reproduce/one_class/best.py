"""`best` on one-class images: the detector behind features of images, both learned from normal images alone."""

from __future__ import annotations

import base64
import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from joblib import Memory
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline, make_pipeline

from nrf.data import Splits
from nrf.detect import ClipBenignTail, NRFDetector, PrincipalComponents, RotationFeatures, Training
from nrf.detect.explain import revised_rows
from nrf.detect.selection import synthetic_images
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
"""A control where there is a network of rotations: what its answers say without a field, log p added up."""


@dataclass(frozen=True)
class Best:
    """Settings of `best`."""

    field: Literal["inclusive", "product"] = "inclusive"
    """Which field the detector has; all settings below ``members`` are those of an inclusive one."""
    sum_shares: tuple[float, ...] = (0.0,)
    """Shares of the score that the sum of the rotation network's answers may have beside the field, from the smallest
    on. That is taken which tells held-out training images from synthetic anomalies made of them within one standard
    error as well as the best one does."""
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
        if self.field == "product":
            return NRFDetector(random_state=seed, **more)
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
    train = features.transform(learned)
    test, held, *made = (seen(features, images) for images in (task.test, watched, *_made(watched)))
    curve: Curve = []
    shares: list[float] = []

    def look(detector: NRFDetector, row: Mapping[str, float]) -> None:
        share, told = _chosen_share(best, detector, held, made)
        shares.append(share)
        numbers = measured(_scores(detector, test, held, share), task) | {"synthetic AUROC": told}
        kept = {name: float(value) for name, value in row.items() if name != "seconds"}
        curve.append(kept | {f"{LAST}: {name}": value for name, value in numbers.items()})

    detector = best.detector(seed, callbacks=[look]).fit(train)
    if not curve:  # no network is trained in this field, so there are no epochs
        look(detector, {})
    scores = _scores(detector, test, held, shares[-1])
    normal = np.flatnonzero(task.test_labels == 0)
    by_score = normal[np.argsort(-scores[normal])]
    spread = train.std(0)
    scaled = [(rows / np.where(spread > 0, spread, 1)).astype(np.float32) for rows in (train, test.rows)]
    untrained = replace(best, field="inclusive").detector(seed)
    controls = (
        nearest_neighbour_score(*scaled),
        untrained.set_params(max_iter=1, training__learning_rate=1e-12).fit(train).score_samples(test.rows),
    )
    found: dict[str, Any] = {
        "curve": curve,
        "typical": by_score[:SHOWN].tolist(),
        "untypical": by_score[-SHOWN:].tolist(),
        "controls": {name: measured(values, task) for name, values in zip(CONTROLS, controls, strict=True)},
    }
    if test.sums is not None:
        found["controls"][ANSWERS_ALONE] = measured(test.sums, task)
        found["share of the sum"] = shares[-1]
        found["turns told"] = features[0].accuracy(watched)
    else:  # components can be turned back into images
        odd = np.flatnonzero(task.test_labels == 1)
        spread_out = np.linspace(0, len(odd) - 1, SHOWN + 2).astype(int)[1:-1]
        found["anomalies"] = odd[np.argsort(scores[odd])[spread_out]].tolist()
        found["pulled"] = _pulled(features, detector, task.test[found["anomalies"]], task.bounds or (0.0, 1.0))
    return found


@dataclass(frozen=True)
class Seen:
    """What is seen of images: columns for the detector, and the sum of the answers of a network of rotations."""

    rows: Images
    sums: NDArray[np.floating] | None


def seen(features: Pipeline, images: Images) -> Seen:
    """Columns, and the sum of log p over the four positions where there is a network of rotations."""
    rotations = features[0]
    if not isinstance(rotations, RotationFeatures):
        return Seen(features.transform(images), None)
    answers = copy.copy(rotations).set_params(output="answers").transform(images)
    return Seen(features.transform(images), -np.square(answers).sum(1))


def _scores(detector: NRFDetector, images: Seen, held: Seen, share: float) -> NDArray[np.floating]:
    """The field's score, and the sum of answers with its share; both in standard deviations of held-out images."""
    scores = detector.score_samples(images.rows)
    if share == 0 or images.sums is None or held.sums is None:
        return scores
    ours = detector.score_samples(held.rows)
    field, summed = (scores - ours.mean()) / ours.std(), (images.sums - held.sums.mean()) / held.sums.std()
    return np.asarray((1 - share) * field + share * summed)


def _chosen_share(best: Best, detector: NRFDetector, held: Seen, made: Sequence[Seen]) -> tuple[float, float]:
    """The smallest share of the sum that is as good as the best one within its standard error, and its mean AUROC."""
    told = {share: _told(detector, held, made, share) for share in best.sum_shares}
    highest, error = max(told.values())
    return next((share, value) for share, (value, _) in told.items() if value >= highest - error)


def _told(detector: NRFDetector, held: Seen, made: Sequence[Seen], share: float) -> tuple[float, float]:
    """Mean AUROC of held-out images against those made of them, and its standard error over images (DeLong's)."""
    ours = _scores(detector, held, held, share)
    truth, found, placed = np.repeat([0, 1], len(ours)), [], np.zeros(len(ours))
    for kind in made:
        theirs = _scores(detector, kind, held, share)
        found.append(auroc(np.concatenate([ours, theirs]), truth))
        higher = np.sign(ours[:, None] - theirs) / 2 + 0.5
        placed += (higher.mean(0) + higher.mean(1)) / len(made)
    return float(np.mean(found)), float(placed.std(ddof=1) / np.sqrt(len(ours)))


def _made(images: Images) -> list[Images]:
    import torch

    return [x.numpy() for x in synthetic_images(torch.from_numpy(images)).values()]


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
