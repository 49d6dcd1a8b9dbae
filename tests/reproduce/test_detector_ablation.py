"""What was tried for the detector's defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nrf import NRFDetector
from nrf.fields import Detection
from nrf.fields.detection import DetectionField
from nrf.reproduce.detectors.ablation import (
    BY_MADE,
    DEFAULT,
    GAIN,
    QUICK,
    VARIANTS,
    WORST,
    DetectorAblation,
    DetectorAblationConfig,
    halves,
)
from nrf.reproduce.detectors.sets import load
from nrf.reproduce.detectors.tried import OWN, Variant, detector_of, variant_cell
from nrf.reproduce.runner.experiment import cell_name

TASK = load("mixed, with holes", 0, 80)


def test_the_default_variant_scores_as_the_detector_does() -> None:
    ours = NRFDetector(random_state=3).fit(TASK.train).score_samples(TASK.test)
    assert np.array_equal(detector_of(VARIANTS[DEFAULT], 3).fit(TASK.train).score_samples(TASK.test), ours)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != DEFAULT and VARIANTS[name].max_iter is None])
def test_every_other_variant_scores_otherwise(name: str) -> None:
    ours = NRFDetector(random_state=3).fit(TASK.train).score_samples(TASK.test)
    scores = detector_of(VARIANTS[name], 3).fit(TASK.train).score_samples(TASK.test)
    assert not np.allclose(scores, ours, atol=1e-4)


def test_a_variant_is_what_its_field_is_built_by() -> None:
    detector = detector_of(Variant(k=2, share=0.7, weight=0.25, pairs=False), 0).fit(TASK.train)
    spec, field = detector.fitted_.spec.potential, detector.fitted_.replicas.module("potential")
    assert isinstance(spec, Detection)
    assert isinstance(field, DetectionField)
    assert spec.neighbours is not None
    assert (spec.neighbours.k, spec.neighbours.share) == (2, 0.7)
    assert (spec.weight, spec.pairs, field.pairs, field.weight) == (0.25, None, None, 0.25)
    assert field.neighbours is not None
    assert field.neighbours.k == 2


def test_made_anomalies_hang_on_the_split_and_not_on_labels() -> None:
    found = [variant_cell(VARIANTS[DEFAULT], OWN, "iris", seed, 60) for seed in (0, 0, 1)]
    assert found[0]["made_auroc"] == found[1]["made_auroc"] != found[2]["made_auroc"]
    assert all(0.5 < one["made_auroc"] <= 1 for one in found)


def test_a_choice_on_half_of_the_tables_is_measured_on_the_other() -> None:
    """A variant that wins on one table alone is chosen where that table is seen, and then gains nothing."""
    gained = np.zeros((2, 8))
    gained[1] = -0.01
    gained[1, 0] = 0.5
    drawn, chosen = halves(gained, np.full(8, 0.1), 200)
    assert {0, 1} == set(chosen)
    assert np.allclose(drawn[np.array(chosen) == 1], [-0.01, 0.09])
    assert np.allclose(drawn[np.array(chosen) == 0], [0.0, 0.1])


def test_the_summary_counts_what_differs_on_the_same_splits() -> None:
    config = DetectorAblationConfig((DEFAULT, "network, 600 iterations"), (), ("iris", "wine"), seeds=2, long_seeds=1)
    results = {}
    for table, base in (("iris", 0.6), ("wine", 0.8)):
        for seed in (0, 1):
            times = {"fit_cpu_seconds": 1.0, "score_cpu_seconds": 0.5}
            level = base + 0.1 * seed
            for method, value in ((DEFAULT, level), ("1-NN", level - 0.05), ("5-NN", level + 0.02)):
                results[cell_name(OWN, method, table, seed)] = {"auroc": value, "made_auroc": 0.7, **times}
        trained = {"auroc": base + 0.01, "made_auroc": 0.75, **times}
        results[cell_name(OWN, "network, 600 iterations", table, 0)] = trained
    rows = DetectorAblation().summarise(config, results, {}).rows
    by = {(row.method, row.metric): row.mean for row in rows if row.case is None}
    assert by["network, 600 iterations", GAIN] == pytest.approx(0.01)
    assert by[DEFAULT, WORST] == pytest.approx(-0.02)
    (choice,) = (row for row in rows if row.method == BY_MADE and row.metric == GAIN)
    assert choice.case == "network, 600 iterations"
    assert choice.mean == pytest.approx(0.01)


def test_cells_are_named_once_and_long_ones_have_fewer_seeds(tmp_path: Path) -> None:
    cells = DetectorAblation().cells(DetectorAblationConfig(), tmp_path)
    assert len({cell.name for cell in cells}) == len(cells) == 32 * (3 * (len(VARIANTS) - 1 + 2) + 1)
    assert QUICK.blocks().keys() == {OWN}
