"""The false-alarm promise: of new normal rows no more are flagged than was asked for, whatever the model is worth."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from nrf.detect import Calibration, NRFDetector, PrincipalComponents, RotationFeatures, Training, fitting
from nrf.detect.calibration import ThresholdRule, rows_needed, rows_to_hold_out
from nrf.detect.explain import counterfactual_images
from nrf.errors import InputError

RATES = (0.01, 0.05, 0.10)
QUICK = {"training": Training(widths=(8,), latent_dim=2, n_steps=2, batch_size=32), "max_iter": 12}


def _gaussian(rng, n):
    return rng.normal(size=(n, 3))


def _zipf(rng, n):
    """A column of levels most of which are rare: new rows keep bringing new ones."""
    return pd.DataFrame({"x": rng.normal(size=n), "level": [f"l{i}" for i in rng.zipf(1.5, n)]})


def _gaps(rng, n):
    """Missing values so rare that a training part often has none."""
    x = rng.normal(size=(n, 4))
    x[rng.random((n, 4)) < 0.004] = np.nan
    return x


def _ties(rng, n):
    return rng.integers(0, 3, size=(n, 2)) / 10


def _ids(rng, n):
    return pd.DataFrame({"id": [f"r{i}" for i in rng.integers(0, 10**9, n)], "x": rng.normal(size=n)})


def _images(rng, n):
    return rng.random((n, 1, 8, 8)) * rng.random((n, 1, 1, 1))


CASES = {
    "Gaussian columns": (_gaussian, 500, {}),
    "a Zipf column with new levels": (_zipf, 500, {}),
    "missing values that are new": (_gaps, 500, {}),
    "heavy ties": (_ties, 500, {}),
    "60 rows": (_gaussian, 60, {}),
    "a column of ids": (_ids, 500, {}),
    "images, components": (_images, 500, {}),
    "images, learned features": (_images, 150, {"features": RotationFeatures(2, epochs=1, batch_size=64)}),
}


def _false_alarms(draw, n, settings, splits, rng):
    """Shares of 400 new normal rows flagged at each rate and with a p-value of at most it, for each split."""
    flagged, low = [], []
    for split in range(splits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rates that few rows cannot keep, columns left out
            detector = NRFDetector(**QUICK, **settings, random_state=split).fit(draw(rng, n))
            new = draw(rng, 400)
            p = detector.p_values(new)
            flagged.append([(detector.set_threshold(false_alarm_rate=r).predict(new) == -1).mean() for r in RATES])
        low.append([(p <= rate).mean() for rate in RATES])
    return np.array(flagged), np.array(low), len(detector.calibration_.scores)


def _in_band(shares, n_calibration, exact):
    """On average over the splits no rate is exceeded; where scores have no ties it is the one that can be kept."""
    for rate, values in zip(RATES, shares.T, strict=True):
        kept = np.floor(rate * (n_calibration + 1) + 1e-9) / (n_calibration + 1)
        # Given the calibration rows the rate of a split is Beta(k, n + 1 − k); on top, 400 rows are drawn by it.
        variance = kept * (1 - kept) * (1 / (n_calibration + 2) + 1 / 400)
        band = 3.5 * np.sqrt(variance / len(values))
        assert values.mean() <= kept + band, f"{values.mean():.4f} flagged at {rate}"
        if exact:
            assert values.mean() >= kept - band, f"{values.mean():.4f} flagged at {rate}"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_rate_is_kept_over_200_splits(case, capsys):
    draw, n, settings = CASES[case]
    flagged, low, n_calibration = _false_alarms(draw, n, settings, 200, np.random.default_rng(5))
    with capsys.disabled():
        print(f"\n{case}, {n_calibration} calibration rows: flagged", *(f"{100 * v:.2f} %" for v in flagged.mean(0)))
    np.testing.assert_allclose(flagged, low)
    _in_band(flagged, n_calibration, exact=case in ("Gaussian columns", "60 rows", "images, components"))


@pytest.mark.parametrize("case", ["a Zipf column with new levels", "missing values that are new"])
def test_the_rate_is_kept_where_new_rows_have_what_no_training_row_has(case):
    draw, n, settings = CASES[case]
    flagged, _, n_calibration = _false_alarms(draw, n, settings, 25, np.random.default_rng(6))
    _in_band(flagged, n_calibration, exact=False)


# ------------------------------------------------------------------------------------------------ who sees which rows


@pytest.fixture
def trained_on(monkeypatch):
    """Rows that the networks are given, in the order of the fits."""
    seen = []
    train = fitting.train_replicas

    def watched(spec, data, *rest, **options):
        seen.append(data.clone())
        return train(spec, data, *rest, **options)

    monkeypatch.setattr(fitting, "train_replicas", watched)
    return seen


def _keys(rows):
    return {tuple(row) for row in np.round(np.asarray(rows, dtype=np.float64), 5).tolist()}


def test_no_row_is_both_trained_and_calibrated_on(trained_on):
    X = np.random.default_rng(0).normal(size=(200, 3))
    detector = NRFDetector(**QUICK, random_state=0).fit(X)
    trained, calibrated = _keys(trained_on[0]), _keys(detector.fitted_.calibrated.rows[:, detector.encoder_.learned])
    every = _keys(detector.fitted_.reader.read(X)[:, detector.encoder_.learned])
    assert (len(trained), len(calibrated)) == (160, 40)
    assert not trained & calibrated
    assert trained | calibrated == every
    np.testing.assert_allclose(
        detector.calibration_.scores,
        np.sort(detector.members_.potentials(detector.fitted_.calibrated.rows)[0]),
        rtol=1e-6,
    )


def test_whatever_learns_from_rows_sees_the_training_part_alone():
    """A level, a gap and the widest value of one row: where that row calibrates, the encoder knows of none of them."""
    n = 100
    X = pd.DataFrame({"x": np.linspace(-1, 1, n), "y": np.arange(n) % 7 / 7, "level": ["a", "b"] * (n // 2)})
    X.loc[3, ["x", "level"]] = [99.0, "new"]
    X.loc[3, "y"] = np.nan
    sides = set()
    for seed in range(12):
        detector = NRFDetector(**QUICK, random_state=seed).fit(X)
        x, y, level = detector.encoder_.columns
        held = float(detector.fitted_.calibrated.rows[:, 0].max()) > 3
        assert (x.high == 99.0, y.has_missing, "new" in level.levels) == ((False,) * 3 if held else (True,) * 3)
        sides.add(held)
    assert sides == {True, False}


def test_a_feature_step_sees_the_training_part_alone():
    rows = np.random.default_rng(0).normal(size=(100, 6))
    detector = NRFDetector(features=PrincipalComponents(2), **QUICK, random_state=0).fit(rows)
    order = np.random.RandomState(detector.fitted_.provenance.split_seed).permutation(100)
    alone = PrincipalComponents(2).fit(rows[order[20:]])
    np.testing.assert_allclose(detector.features_.components_, alone.components_)
    assert detector.encoder_.n_outputs == 2 + 1 + 1  # components, the length of the rest, the count of novelties


def test_a_warm_start_keeps_the_rows_it_calibrates_on(trained_on):
    """Or rows that were trained on would calibrate; with a random state that is no number, too."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    detector = NRFDetector(**QUICK, warm_start=True).fit(X).fit(X)
    assert _keys(trained_on[0]) == _keys(trained_on[1])
    assert not _keys(trained_on[0]) & _keys(detector.fitted_.calibrated.rows[:, detector.encoder_.learned])


def test_partial_fit_of_few_rows_does_not_calibrate_on_them():
    rng = np.random.default_rng(0)
    detector = NRFDetector(**QUICK, random_state=0).fit(rng.normal(size=(200, 3)))
    detector.partial_fit(rng.normal(size=(10, 3)))
    assert (len(detector.calibration_.scores), detector.calibrated_on_) == (40, "held-out rows")
    detector.partial_fit(rng.normal(size=(100, 3)))
    assert len(detector.calibration_.scores) == 60
    with pytest.warns(RuntimeWarning, match="none is held out"):
        few = NRFDetector(**QUICK, false_alarm_rate=0.2, random_state=0).fit(rng.normal(size=(15, 3)))
    few.partial_fit(rng.normal(size=(100, 3)))
    assert (len(few.calibration_.scores), few.calibrated_on_) == (20, "held-out rows")


def test_calibrate_makes_the_promise_good_behind_a_step_that_saw_all_rows():
    """As many components as rows: those it was fitted on have no rest, and calibrated on them every new row is odd."""
    rng = np.random.default_rng(0)
    X, fresh, new = (rng.normal(size=(n, 200)) for n in (100, 200, 400))
    step = PrincipalComponents(100).fit(X)
    detector = NRFDetector(**QUICK, random_state=0).fit(step.transform(X))
    assert (detector.predict(step.transform(new)) == -1).mean() > 0.9
    detector.calibrate(step.transform(fresh))
    assert (detector.predict(step.transform(new)) == -1).mean() < 0.12
    assert (detector.calibrated_on_, detector.threshold_rule_.n_calibration) == ("given rows", 200)
    owned = NRFDetector(features=PrincipalComponents(60), **QUICK, random_state=0).fit(X)
    # By 20 held-out rows the rate is Beta(1, 20): above 0.2 in one fit of 87, above 0.3 in one of 1250.
    assert (owned.predict(new) == -1).mean() < 0.3


# ---------------------------------------------------------------------------------------------------- the rule in force


def test_the_rule_is_the_one_in_force(tmp_path):
    X = np.random.default_rng(0).normal(size=(500, 2))
    detector = NRFDetector(**QUICK, random_state=0).fit(X, false_alarm_rate=0.02)
    tolerance = detector.calibration_.tolerance
    rule = ThresholdRule("false_alarm_rate", 0.02, detector.offset_, 100, "held-out rows", tolerance)
    assert detector.threshold_rule_ == rule
    assert 0 < tolerance < 1e-3
    assert str(detector.threshold_rule_).endswith("flags at most 2 % of normal rows, by 100 held-out rows")
    detector.set_threshold(false_alarm_rate=0.1)
    assert (detector.threshold_rule_.rate, detector.threshold_rule_.threshold) == (0.1, detector.offset_)
    detector.partial_fit(X)
    assert detector.threshold_rule_.rate == 0.1
    detector.save(tmp_path / "d")
    assert NRFDetector.load(tmp_path / "d").threshold_rule_ == detector.threshold_rule_
    detector.set_threshold(contamination=0.3, X=X)
    assert detector.threshold_rule_.kind == "contamination"
    assert "flags 30 % of the rows that set it" in str(detector.threshold_rule_)


def test_few_rows_keep_what_they_can_and_what_they_cannot_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = NRFDetector(**QUICK, random_state=0).fit(X)  # 19 rows are held out, which keep 5 %
    assert detector.threshold_rule_.n_calibration == 19
    assert (detector.predict(100 + X) == -1).all()
    message = "12 calibration rows cannot keep a false-alarm rate of 0.05: nothing is flagged. They can keep 0.077"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        detector = NRFDetector(**QUICK, calibration_fraction=0.2, random_state=0).fit(X)
    assert caught[0].filename == __file__
    assert detector.threshold_rule_.flags_nothing
    assert str(detector.threshold_rule_).startswith(
        "no threshold: 12 held-out rows cannot keep a false-alarm rate of 5 %"
    )
    with pytest.warns(RuntimeWarning, match="80 calibration rows cannot keep a false-alarm rate of 0.001"):
        NRFDetector(**QUICK, random_state=0).fit(rng.normal(size=(400, 2)), false_alarm_rate=0.001)
    with pytest.warns(RuntimeWarning, match="12 calibration rows cannot keep a false discovery rate of 0.05"):
        assert not detector.predict_fdr(100 + X, rate=0.05).any()
    with pytest.warns(RuntimeWarning, match="none is held out"):
        NRFDetector(**QUICK, false_alarm_rate=0.2, random_state=0).fit(X[:15])


def test_rows_that_a_rate_needs():
    for rate in (0.3, 0.1, 0.05, 0.01, 0.003):
        n = rows_needed(rate)
        assert np.isfinite(Calibration.of(np.arange(float(n))).threshold(rate))
        assert n == 1 or not np.isfinite(Calibration.of(np.arange(n - 1.0)).threshold(rate))
    assert rows_to_hold_out(1000, 0.5, 0.05) == 500
    assert rows_to_hold_out(60, None, None) == 12
    assert rows_to_hold_out(60, None, 0.01) == 12  # 99 rows are not to be had


def test_a_rate_and_a_contamination_together_are_refused():
    X = np.random.default_rng(0).normal(size=(50, 2))
    for settings, options in (
        ({"false_alarm_rate": 0.05, "contamination": 0.1}, {}),
        ({"contamination": 0.1}, {"false_alarm_rate": 0.05}),
    ):
        with pytest.raises(InputError, match="either false_alarm_rate or contamination"):
            NRFDetector(**QUICK, **settings).fit(X, **options)


# ------------------------------------------------------------------------------------------------------- feature steps


def test_images_are_told_apart_by_default():
    """Bars across against bars down, in a fit of seconds."""
    rng = np.random.default_rng(0)

    def bars(n, *, down=False):
        images = 0.2 * rng.random((n, 1, 28, 28))
        for image, place in zip(images, rng.integers(0, 20, n), strict=True):
            image[0, place : place + 8] += 0.8
        return (255 * (images.swapaxes(2, 3) if down else images)).astype(np.uint8)

    detector = NRFDetector(max_iter=150, random_state=0).fit(bars(300))
    assert detector.features_.n_components == 40
    assert (detector.predict(bars(60, down=True)) == -1).mean() > 0.9
    assert (detector.predict(bars(200)) == -1).mean() < 0.15
    odd = bars(3, down=True)
    pulled = counterfactual_images(detector, odd)
    assert pulled.shape == (3, 1, 28, 28)
    assert (detector.score_samples(pulled) > detector.offset_).all()
    with pytest.raises(InputError, match="images have no columns"):
        detector.explain(bars(1))


@pytest.mark.parametrize("step", ["auto", "turns", "given"])
def test_a_detector_with_a_feature_step_is_kept(tmp_path, step):
    rng = np.random.default_rng(0)
    images = rng.random((60, 1, 8, 8))
    given = {"auto": "auto", "turns": RotationFeatures(2, epochs=1), "given": _Sums()}[step]
    detector = NRFDetector(features=given, **QUICK, random_state=0).fit(images)
    detector.save(tmp_path / "d")
    modules = {"features": detector.features_} if step == "given" else {}
    again = NRFDetector.load(tmp_path / "d", **modules)
    np.testing.assert_array_equal(again.score_samples(images), detector.score_samples(images))
    if step == "given":
        with pytest.raises(InputError, match="was fitted with features of your own"):
            NRFDetector.load(tmp_path / "d")


class _Sums:
    """A transformer of a user's own."""

    def get_params(self, deep=True):
        return {}

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.sum((1, 2))


def test_what_is_no_feature_step():
    with pytest.raises(InputError, match="features must be a transformer"):
        NRFDetector(features="pca").fit(np.zeros((10, 2)))


def test_a_table_before_a_feature_step_is_checked_by_its_own_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(100, 3)), columns=["x0", "x1", "x2"])
    detector = NRFDetector(features=PrincipalComponents(2), **QUICK, random_state=0).fit(table)
    assert detector.score_samples(table).shape == (100,)
    with pytest.raises(ValueError, match="yet now missing"):
        detector.score_samples(table[["x0", "x1"]])
