"""Rounding decides nothing: single precision, other instructions and the ONNX graph flag the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from nrf.detect import Calibration, NRFDetector, Training

SMALL = Training(widths=(8, 8), latent_dim=2, n_steps=2, batch_size=32)
TINY = {"training": SMALL, "max_iter": 30, "verbose": 0}
N_MODELS = 12
OTHER_INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
SCORE_ALL = """
import sys
import numpy as np
from nrf.detect import NRFDetector
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).glob("model-*")):
    rows, found = np.load(folder / "rows.npy"), NRFDetector.load(folder)
    np.save(folder / "other.npy", np.stack([found.predict(rows), found.p_values(rows)]))
"""


def rows_of(kind: str, seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "discrete":
        return rng.choice([0.1, 0.2, 0.3], size=(n, 1 + seed % 3), p=[0.2, 0.3, 0.5])
    return rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1] + [0.0, 100.0, 5.0]


def fitted(kind: str, seed: int, **settings: object) -> NRFDetector:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(**TINY, random_state=seed, **settings).fit(rows_of(kind, seed, 300))


def graph_scores(detector: NRFDetector, rows: np.ndarray, path: Path) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    detector.export(path)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    kind = np.float32 if given.type == "tensor(float)" else np.float64
    threshold = float(session.get_modelmeta().custom_metadata_map["threshold"])
    return session.run(None, {given.name: rows.astype(kind)})[0] < threshold


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_every_way_to_score_flags_the_same_rows(kind: str, tmp_path: Path) -> None:
    flags = []
    for seed in range(N_MODELS):
        detector = fitted(kind, seed, n_estimators=1 + seed % 2)
        rows = rows_of(kind, seed + 300, 500)  # of as many columns
        folder = tmp_path / f"model-{seed:02d}"
        detector.save(folder)
        np.save(folder / "rows.npy", rows)
        flagged = detector.predict(rows) == -1
        assert (flagged == (detector.p_values(rows) <= detector.threshold_rule_.rate)).all()
        assert (flagged == (detector.predict(rows.astype(np.float32)) == -1)).all(), f"model {seed}, single precision"
        assert (flagged == graph_scores(detector, rows, tmp_path / "graph.onnx")).all(), f"model {seed}, ONNX"
        if kind == "discrete":  # p-values of rows with gaps between them agree, too
            assert (detector.p_values(rows) == detector.p_values(rows.astype(np.float32))).all()
        flags.append(flagged)
    subprocess.run(
        [sys.executable, "-c", SCORE_ALL, str(tmp_path)], check=True, env=os.environ | OTHER_INSTRUCTIONS, timeout=300
    )
    for seed, flagged in enumerate(flags):
        other, _ = np.load(tmp_path / f"model-{seed:02d}" / "other.npy")
        assert (flagged == (other == -1)).all(), f"model {seed}, other instructions"
    assert np.mean(flags) < 0.08


def test_equal_rows_in_single_precision_are_equal() -> None:
    for seed in (1, 2):
        detector, rows = fitted("discrete", seed), rows_of("discrete", seed + 300, 400)
        single = rows.astype(np.float32)
        assert (detector.predict(rows) == detector.predict(single)).all()
        assert (detector.p_values(rows) == detector.p_values(single)).all()
        assert (detector.predict_fdr(rows, 0.2) == detector.predict_fdr(single, 0.2)).all()


def test_ranks_of_equal_rows_in_single_precision() -> None:
    detector, rows = fitted("discrete", 2, n_estimators=2, combine="rank"), rows_of("discrete", 302, 400)
    single = rows.astype(np.float32)
    np.testing.assert_allclose(detector.score_samples(rows), detector.score_samples(single), atol=1e-4)
    assert (detector.p_values(rows) == detector.p_values(single)).all()


def test_the_tolerance_is_stored_and_the_threshold_has_it(tmp_path: Path) -> None:
    detector = fitted("discrete", 2)
    tolerance = detector.calibration_.tolerance
    assert 1e-5 <= tolerance < 1e-3
    assert detector.offset_ == detector.threshold_rule_.threshold
    assert detector.offset_ + tolerance == pytest.approx(Calibration.of(detector.calibration_.scores).threshold(0.05))
    detector.save(tmp_path / "saved")
    loaded = NRFDetector.load(tmp_path / "saved")
    assert loaded.threshold_rule_ == detector.threshold_rule_
    assert loaded.calibration_.tolerance == tolerance
    assert [c.tolerance for c in loaded.fitted_.calibrated.each] == [tolerance]


def test_one_wild_calibration_row_does_not_widen_the_tolerance() -> None:
    rows = rows_of("continuous", 3, 300)
    rows[:5] = 1e12
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = NRFDetector(**TINY, random_state=0).fit(rows)
    spread = np.subtract(*np.percentile(detector.calibration_.scores, [75, 25]))
    assert detector.calibration_.tolerance < 0.01 * spread


def test_a_calibration_takes_close_scores_as_equal() -> None:
    exact, tolerant = Calibration.of(np.arange(99.0)), Calibration.of(np.arange(99.0), 0.1)
    near = np.array([3.95, 4.0, 4.05])
    assert exact.p_values(near).tolist() == [0.05, 0.06, 0.06]
    assert tolerant.p_values(near).tolist() == [0.06, 0.06, 0.06]
    assert tolerant.threshold(0.05) == 3.9
    scores = np.linspace(-1, 100, 4001)
    for rate in (0.01, 0.05, 0.3):
        assert ((scores < tolerant.threshold(rate)) == (tolerant.p_values(scores) <= rate + 1e-12)).all()
    tied = Calibration.of(np.repeat([0.0, 1.0, 2.0], 30), 1e-3)
    np.testing.assert_allclose(tied.ranks(np.array([1 - 1e-6, 1 + 1e-6])), 0.5, atol=1e-3)
