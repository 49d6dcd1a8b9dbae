"""The line `best` for one-class images: a detector on features of images, both learned from normal images only."""

from __future__ import annotations

import base64
import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

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
"""Images of each kind that are stored for the pictures."""
PULLED_STEPS = (0, 300, 3000)
"""Numbers of steps after which a revised anomaly is shown."""
KEPT = "features"
"""Folder, next to those of the experiments, that caches networks trained before the detector."""
CONTROLS = ("1-NN on the features of `best`", "untrained potential on the features of `best`")
CLASSIFIER_ALONE = "sum of the answers of `best`"
"""A control if there is a rotation classifier: the sum of its log-probabilities, without a field."""


@dataclass(frozen=True)
class FeatureConfig:
    """Settings of a detector on features of images.

    A rotation classifier, if there is one, is a network trained to recognise images rotated by 0°, 90°, 180° or 270°.
    Stored cells have the names of these fields.
    """

    STORED_NAME: ClassVar[str] = "Best"
    """The name of this class in stored cells, which are older than its present one."""

    field: Literal["inclusive", "product"] = "inclusive"
    """The detector's field. All settings below ``members`` apply to the inclusive one only."""
    sum_shares: tuple[float, ...] = (0.0,)
    """Candidate weights, in increasing order, of the rotation classifier's summed log-probabilities in the score; the
    field has the rest. The smallest one is chosen whose AUROC, of held-out training images against synthetic anomalies
    made from them, is within one standard error of the highest."""
    components: int = 40
    """Number of principal components that are the detector's columns; one more is the norm of the residual."""
    turn_epochs: int = 0
    """Epochs of the rotation classifier, whose features replace the pixels; with 0 there is none."""
    answers: bool = False
    """Whether the detector's columns are the classifier's probabilities of the four rotations instead of components."""
    one_sided: bool = False
    """Whether probabilities that are higher than usual are clipped, so that only lower ones count as anomalous."""
    width: int = 16
    """Channels of the rotation classifier's first layer."""
    members: int = 3
    """Number of fields; the score is their mean."""
    iterations: int | None = None
    """Training iterations of the detector; its default if not given."""
    sigma: float | None = None
    n_steps: int | None = None
    first_step_size: float | None = None
    learning_rate: float | None = None

    def features(self, images: Images, seed: int, kept: Path | None = None) -> Pipeline:
        """The transformation of images before the detector, fitted; networks are cached in the folder ``kept``."""
        components = PrincipalComponents(self.components, random_state=seed)
        if self.turn_epochs == 0:
            return make_pipeline(components.fit(images))
        rotations = Memory(kept, verbose=0).cache(learned_rotations)(self.width, self.turn_epochs, seed, images)
        if self.answers:
            rotations.set_params(output="answers")
            sides = [ClipBenignTail("low").fit(rotations.transform(images))] if self.one_sided else []
            return make_pipeline(rotations, *sides)
        return make_pipeline(rotations, components.fit(rotations.transform(images)))

    def detector(self, seed: int, **more: Any) -> NRFDetector:
        """The detector with these settings, not yet fitted."""
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


def learned_rotations(width: int, epochs: int, seed: int, images: Images) -> RotationFeatures:
    """A rotation classifier: most of the computation, and the same for many settings of the detector."""
    return RotationFeatures(width, epochs=epochs, random_state=seed).fit(images)


def detector_cell(
    best: FeatureConfig,
    dataset: str,
    label: int,
    seed: int,
    max_train: int | None,
    max_test: int | None,
    kept: Path | None = None,
) -> dict[str, Any]:
    """The detector on one class: its metrics after every epoch, the controls, and the data of the pictures."""
    return detect_on(best, load(dataset, label, max_train, max_test), seed, kept)


def detect_on(best: FeatureConfig, task: Splits, seed: int, kept: Path | None = None) -> dict[str, Any]:
    """Fit features and detector to a class: metrics after every epoch, the controls, and the data of the pictures.

    Args:
        best: Settings of features and detector.
        task: Normal images, and test images of all classes.
        seed: Seed of everything that is random.
        kept: Folder that caches networks trained before the detector.
    """
    assert task.test is not None
    assert task.test_labels is not None
    order = np.random.default_rng(seed).permutation(len(task.train))
    n_watched = max(2, round(WATCHED * len(order)))
    watched, learned = task.train[order[:n_watched]], task.train[order[n_watched:]]
    features = best.features(learned, seed, kept)
    train = features.transform(learned)
    test, held, *synthetic = (
        image_features(features, images) for images in (task.test, watched, *_synthetic_anomalies(watched))
    )
    curve: Curve = []
    shares: list[float] = []

    def look(detector: NRFDetector, row: Mapping[str, float]) -> None:
        share, synthetic_auroc = _chosen_share(best, detector, held, synthetic)
        shares.append(share)
        numbers = measured(_scores(detector, test, held, share), task) | {"synthetic AUROC": synthetic_auroc}
        kept = {name: float(value) for name, value in row.items() if name != "seconds"}
        curve.append(kept | {f"{LAST}: {name}": value for name, value in numbers.items()})

    detector = best.detector(seed, callbacks=[look]).fit(train)
    if not curve:  # this field trains no network, so it has no epochs
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
        found["controls"][CLASSIFIER_ALONE] = measured(test.sums, task)
        found["share of the sum"] = shares[-1]
        found["turns told"] = features[0].accuracy(watched)
    else:  # components can be mapped back to images
        odd = np.flatnonzero(task.test_labels == 1)
        spread_out = np.linspace(0, len(odd) - 1, SHOWN + 2).astype(int)[1:-1]
        found["anomalies"] = odd[np.argsort(scores[odd])[spread_out]].tolist()
        found["pulled"] = _pulled(features, detector, task.test[found["anomalies"]], task.bounds or (0.0, 1.0))
    return found


@dataclass(frozen=True)
class ImageFeatures:
    """Columns for the detector, and the summed log-probabilities of a rotation classifier if there is one."""

    rows: Images
    sums: NDArray[np.floating] | None


def image_features(features: Pipeline, images: Images) -> ImageFeatures:
    """The columns of images, and the sum of log p over the four rotations if there is a rotation classifier."""
    rotations = features[0]
    if not isinstance(rotations, RotationFeatures):
        return ImageFeatures(features.transform(images), None)
    answers = copy.copy(rotations).set_params(output="answers").transform(images)
    return ImageFeatures(features.transform(images), -np.square(answers).sum(1))


def _scores(detector: NRFDetector, images: ImageFeatures, held: ImageFeatures, share: float) -> NDArray[np.floating]:
    """The field's score plus the classifier's sum with its share, both in standard deviations of held-out images."""
    scores = detector.score_samples(images.rows)
    if share == 0 or images.sums is None or held.sums is None:
        return scores
    ours = detector.score_samples(held.rows)
    field, summed = (scores - ours.mean()) / ours.std(), (images.sums - held.sums.mean()) / held.sums.std()
    return np.asarray((1 - share) * field + share * summed)


def _chosen_share(
    best: FeatureConfig, detector: NRFDetector, held: ImageFeatures, synthetic: Sequence[ImageFeatures]
) -> tuple[float, float]:
    """The smallest share of the sum that is within one standard error of the best one, and its mean AUROC."""
    found = {share: _synthetic_auroc(detector, held, synthetic, share) for share in best.sum_shares}
    highest, error = max(found.values())
    return next((share, value) for share, (value, _) in found.items() if value >= highest - error)


def _synthetic_auroc(
    detector: NRFDetector, held: ImageFeatures, synthetic: Sequence[ImageFeatures], share: float
) -> tuple[float, float]:
    """Mean AUROC of held-out images against synthetic anomalies made from them, and its standard error (DeLong's)."""
    ours = _scores(detector, held, held, share)
    truth, found, placed = np.repeat([0, 1], len(ours)), [], np.zeros(len(ours))
    for kind in synthetic:
        theirs = _scores(detector, kind, held, share)
        found.append(auroc(np.concatenate([ours, theirs]), truth))
        higher = np.sign(ours[:, None] - theirs) / 2 + 0.5
        placed += (higher.mean(0) + higher.mean(1)) / len(synthetic)
    return float(np.mean(found)), float(placed.std(ddof=1) / np.sqrt(len(ours)))


def _synthetic_anomalies(images: Images) -> list[Images]:
    import torch

    return [x.numpy() for x in synthetic_images(torch.from_numpy(images)).values()]


def _pulled(features: Pipeline, detector: NRFDetector, images: Images, bounds: tuple[float, float]) -> dict[str, str]:
    """Images mapped back from components that were revised towards the class, packed; by the number of steps."""
    found, rows = {}, features.transform(images)
    for steps in PULLED_STEPS:
        revised = [list(row.values()) for row in revised_rows(detector, rows, n_steps=steps)] if steps else rows
        found[str(steps)] = packed(features.inverse_transform(np.array(revised, dtype=np.float32)), bounds)
    return found


def packed(images: Images, bounds: tuple[float, float]) -> str:
    """Images in 8 bits, encoded as text for a cell."""
    low, high = bounds
    grey = np.round(255 * np.clip((images - low) / (high - low), 0, 1)).astype(np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, images=grey)
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> Images:
    """The images that :func:`packed` encoded, in [0, 1].

    Example:
        >>> round(float(unpacked(packed(np.array([[0.4]]), (-1.0, 1.0)))[0, 0]), 2)
        0.7
    """
    with np.load(io.BytesIO(base64.b64decode(text))) as arrays:
        images: Images = arrays["images"].astype(np.float32) / 255
    return images
