"""The detector with one of its defaults changed, on one table: how well it detects, and what no label would say."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nrf.detect import NRFDetector
from nrf.detect.fitting import split_rows
from nrf.detect.selection import synthetic_auroc
from nrf.detect.tables.columns import Scaling
from nrf.detect.tables.frame import taken
from nrf.fields import Detection
from nrf.metrics import auroc
from nrf.reproduce.baselines import find_baseline
from nrf.reproduce.detectors.blocks import REAL, real_task
from nrf.reproduce.detectors.cells import measure
from nrf.reproduce.detectors.sets import Task, load
from nrf.runs.spec import PairSpec

OWN = "own sets"
MOST_JUDGED = 500
"""Held-out rows that anomalies are made of."""


@dataclass(frozen=True)
class Variant:
    """What differs from the defaults; None stands for the default."""

    scaling: Scaling = "auto"
    """Of numbers."""
    k: int | None = None
    """Neighbours that count."""
    share: float | None = None
    """Of the neighbours' own distances."""
    weight: float | None = None
    """Of the density beside the neighbours."""
    pairs: bool = True
    """Whether tables with categories have the tree of pairs."""
    field: Literal["product", "density"] = "product"
    """Neighbours and density, or the density alone."""
    max_iter: int | None = None
    """Iterations of a network around the mixture."""

    def changed(self, spec: PairSpec) -> PairSpec:
        """The default spec with these changes."""
        field = spec.potential
        assert isinstance(field, Detection)
        neighbours = field.neighbours
        if neighbours is not None:
            given = {"k": self.k, "share": self.share}
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            neighbours = replace(neighbours, **changes)
        weight = field.weight if self.weight is None else self.weight
        pairs = field.pairs if self.pairs else None
        return replace(spec, potential=replace(field, neighbours=neighbours, weight=weight, pairs=pairs))


class VariedDetector(NRFDetector):
    """:class:`nrf.NRFDetector` with settings that are no parameters of it."""

    variant = Variant()

    def _changed_spec(self, spec: PairSpec) -> PairSpec:
        return self.variant.changed(spec)


def detector_of(variant: Variant, seed: int) -> VariedDetector:
    """Before it is fitted."""
    detector = VariedDetector(
        field=variant.field, scaling=variant.scaling, max_iter=variant.max_iter, random_state=seed, verbose=0
    )
    detector.variant = variant
    return detector


def task_of(block: str, dataset: str, seed: int, max_rows: int | None) -> Task:
    """A real table, or one of our own sets, as `nrf reproduce detectors` has them."""
    return (real_task(dataset, seed) if block == REAL else load(dataset, seed)).cut(max_rows)


class _AsGiven:
    """A detector of which only the scores are known, so that all variants are asked about the same made anomalies."""

    def __init__(self, detector: NRFDetector) -> None:
        self.detector = detector

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Those of the detector."""
        return self.detector.score_samples(X)


def variant_cell(variant: Variant, block: str, dataset: str, seed: int, max_rows: int | None) -> dict[str, Any]:
    """One variant on one table: AUROC, seconds of the processor, and AUROC against made anomalies, without labels."""
    task = task_of(block, dataset, seed, max_rows)
    detector = detector_of(variant, seed)
    start = time.process_time()
    detector.fit(task.train)
    fitted = time.process_time()
    scores = detector.score_samples(task.test)
    done = time.process_time()
    _, held = split_rows(task.train, detector.fitted_.provenance.split_seed, None, detector.threshold_rule_.rate)
    return {
        "auroc": auroc(scores, task.labels),
        "made_auroc": synthetic_auroc(_AsGiven(detector), taken(task.train, held[:MOST_JUDGED]), seed=seed),
        "fit_cpu_seconds": round(fitted - start, 4),
        "score_cpu_seconds": round(done - fitted, 5),
    }


def control_cell(method: str, block: str, dataset: str, seed: int, max_rows: int | None) -> dict[str, Any]:
    """Another system on the same split."""
    found = measure(find_baseline(method), task_of(block, dataset, seed, max_rows), seed)
    return {name: found[name] for name in ("auroc", "fit_cpu_seconds", "score_cpu_seconds")}
