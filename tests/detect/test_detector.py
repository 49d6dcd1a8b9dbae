"""NRFDetector: scikit-learn's contract, thresholds, ensembles, explanation, keeping, export."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from nrf.detect import NRFDetector, RotationFeatures, Training, defaults, parallel
from nrf.detect.explain import _Field, counterfactual_images, revised_rows
from nrf.detect.selection import labelled_auroc, synthetic_anomalies, synthetic_auroc, synthetic_images
from nrf.detect.storage import _digest
from nrf.errors import CheckpointError, InputError
from nrf.models import LatentGenerator

FAST = {"max_iter": 40, "random_state": 0}


@parametrize_with_checks([NRFDetector(max_iter=60)])  # the contract hangs on no length; defaults are tested below
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def ring():
    """Normal rows on a ring, anomalies in its middle and far outside; the third column is twice the first."""
    rng = np.random.default_rng(0)

    def draw(n, radius):
        angle = rng.uniform(0, 2 * np.pi, n)
        plane = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        return np.column_stack([plane, 2 * plane[:, 0] + 0.05 * rng.normal(size=n)])

    normal = draw(900, 1 + 0.1 * rng.normal(size=900))
    anomalies = np.concatenate([draw(100, np.full(100, 0.1)), draw(100, np.full(100, 3.0))])
    return normal[:600], normal[600:], anomalies


def _encoded(detector, X):
    return detector.fitted_.reader.read(X)


@pytest.fixture(scope="module")
def fitted(ring):
    return NRFDetector(random_state=0).fit(ring[0])


def test_the_defaults_find_anomalies(fitted, ring):
    _, normal, anomalies = ring
    scores = fitted.score_samples(np.concatenate([normal, anomalies]))
    assert roc_auc_score(np.r_[np.ones(300), np.zeros(200)], scores) > 0.9
    with pytest.warns(RuntimeWarning, match="training made this detector no better"):
        untrained = NRFDetector(
            random_state=0, max_iter=1, field="inclusive", training=Training(learning_rate=1e-9)
        ).fit(ring[0])
    chance = roc_auc_score(
        np.r_[np.ones(300), np.zeros(200)], untrained.score_samples(np.concatenate([normal, anomalies]))
    )
    assert chance < 0.9


def test_scores_thresholds_and_labels_fit_together(fitted, ring):
    _, normal, anomalies = ring
    X = np.concatenate([normal, anomalies])
    scores = fitted.score_samples(X)
    np.testing.assert_allclose(fitted.decision_function(X), scores - fitted.offset_)
    assert set(fitted.predict(X)) == {1, -1}
    assert ((fitted.predict(X) == -1) == (scores < fitted.offset_)).all()
    assert ((fitted.p_values(X) <= fitted.threshold_rule_.rate) == (fitted.predict(X) == -1)).all()
    assert fitted.calibrated_on_ == "held-out rows"


def test_another_threshold_needs_no_fit(fitted, ring):
    detector, (_, normal, anomalies) = copy.deepcopy(fitted), ring
    loose = (detector.set_threshold(false_alarm_rate=0.3).predict(normal) == -1).mean()
    tight = (detector.set_threshold(false_alarm_rate=0.01).predict(normal) == -1).mean()
    assert tight < 0.05 < 0.2 < loose < 0.4
    X = np.concatenate([normal, anomalies])
    assert (detector.set_threshold(contamination=0.25, X=X).predict(X) == -1).mean() == pytest.approx(0.25, abs=0.01)
    for wrong in ({}, {"false_alarm_rate": 0.1, "contamination": 0.1}, {"contamination": 0.1}, {"false_alarm_rate": 0}):
        with pytest.raises(InputError):
            detector.set_threshold(**wrong)


def test_false_alarm_rate_of_a_fit(ring):
    strict = NRFDetector(**FAST).fit(ring[0], false_alarm_rate=0.01)
    assert strict.offset_ == strict.calibration_.threshold(0.01)


def test_discoveries_keep_the_false_ones_few(fitted, ring):
    _, normal, anomalies = ring
    X = np.concatenate([normal, anomalies])
    flagged = fitted.predict_fdr(X, rate=0.1)
    assert flagged[300:].sum() > 100
    assert flagged[:300].sum() <= 0.2 * flagged.sum()
    assert not fitted.predict_fdr(normal[:5], rate=0.001).any()


def test_the_same_seed_gives_the_same_scores(ring):
    a, b, c = (NRFDetector(max_iter=30, random_state=s).fit(ring[0]).score_samples(ring[1]) for s in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_the_global_random_state_is_left_alone(ring):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    NRFDetector(**FAST).fit(ring[0])
    assert torch.equal(before, torch.random.get_rng_state())


def test_members_are_trained_together_and_tell_their_spread(ring):
    train, normal, anomalies = ring
    for combine in ("potential", "rank"):
        many = NRFDetector(n_estimators=3, combine=combine, max_iter=150, random_state=0).fit(train)
        assert many.members_.count == 3
        spread = many.score_spread(anomalies)
        assert spread.shape == (200,)
        assert (spread > 0).all()
        X = np.concatenate([normal, anomalies])
        assert labelled_auroc(many.score_samples(X), np.r_[np.zeros(300), np.ones(200)]) > 0.8
    with pytest.raises(InputError, match="one model has no spread"):
        NRFDetector(**FAST).fit(train).score_spread(normal)


def test_callbacks_see_each_epoch_and_can_end_training(ring):
    seen = []
    settings = FAST | {"field": "inclusive", "callbacks": [lambda d, numbers: seen.append(numbers["step"])]}
    NRFDetector(**settings, training=Training(batch_size=40)).fit(ring[0])
    assert seen == [12, 24, 36, 40]
    seen.clear()
    NRFDetector(**settings, training=Training(batch_size=60)).fit(ring[0])
    assert seen == [10, 20, 30, 40], "an epoch of eight iterations"
    seen.clear()
    settings |= {"callbacks": [lambda d, n: bool(seen.append(n["step"]) or True)]}
    NRFDetector(**settings, training=Training(batch_size=40)).fit(ring[0])
    assert seen == [12]


def test_callbacks_of_a_network_around_a_mixture(ring):
    seen = []
    settings = {"max_iter": 120, "random_state": 0, "callbacks": [lambda d, numbers: seen.append(numbers)]}
    detector = NRFDetector(**settings).fit(ring[0])
    assert [numbers["step"] for numbers in seen] == [50, 100, 120]
    assert all({"held_out_gain", "strength"} <= set(numbers) for numbers in seen)
    assert detector.history_ == seen
    seen.clear()
    settings |= {"callbacks": [lambda d, numbers: bool(seen.append(numbers) or True)]}
    assert NRFDetector(**settings).fit(ring[0]).n_iter_ == 50
    assert len(seen) == 1
    seen.clear()
    NRFDetector(**settings | {"max_iter": None}).fit(ring[0])
    assert not seen, "no network is trained"


@pytest.mark.parametrize("combine", ["potential", "rank"])
def test_callbacks_can_score_with_the_model_as_it_is(ring, combine):
    scores, p_values = [], []

    def look(detector, numbers):
        scores.append(detector.score_samples(ring[1]))
        p_values.append(detector.p_values(ring[1]))

    settings = FAST | {"field": "inclusive", "combine": combine, "training": Training(batch_size=60)}
    detector = NRFDetector(**settings, callbacks=[look]).fit(ring[0])
    assert len(scores) >= 3
    assert all((a != b).any() for a, b in itertools.pairwise(scores))
    np.testing.assert_array_equal(scores[-1], detector.score_samples(ring[1]))
    np.testing.assert_array_equal(p_values[-1], detector.p_values(ring[1]))
    silent = NRFDetector(**settings).fit(ring[0])
    np.testing.assert_array_equal(scores[-1], silent.score_samples(ring[1]))


def test_of_many_rows_the_averaged_weights_are_used(ring, monkeypatch, tmp_path):
    monkeypatch.setattr(defaults, "MANY_ROWS", 50)
    seen = []
    settings = FAST | {"max_iter": 30, "training": Training(batch_size=60), "field": "inclusive"}
    detector = NRFDetector(**settings, callbacks=[lambda d, n: seen.append(d.score_samples(ring[0]))]).fit(ring[0])
    scores = detector.score_samples(ring[0])
    assert len(seen) > 1
    np.testing.assert_array_equal(seen[-1], scores)
    detector.save(tmp_path / "kept")
    np.testing.assert_array_equal(NRFDetector.load(tmp_path / "kept").score_samples(ring[0]), scores)
    detector.members_.averaged = {}
    assert np.abs(detector.score_samples(ring[0]) - scores).max() > 1e-4


@pytest.mark.parametrize("n_threads", [1, 2])
def test_parts_of_a_large_array_are_scored_as_the_whole(fitted, ring, monkeypatch, n_threads):
    rows = np.concatenate([ring[0], ring[1], 100 * ring[1]])
    whole = fitted.score_samples(rows)
    monkeypatch.setattr(parallel, "PART", 300)
    assert len(parallel.parts_of(rows)) > 2
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        found = fitted.score_samples(rows)
        assert torch.get_num_threads() == n_threads
        with pytest.raises(ValueError, match="expecting 3 features"):
            fitted.score_samples(rows[:, :1])
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, whole, rtol=1e-6)


@pytest.mark.parametrize("field", ["inclusive", "product", "density"])
def test_warm_start_and_partial_fit_go_on(ring, field):
    """Of a network around a mixture the weights go on; the mixture is that of the rows."""
    train, normal, _ = ring
    part = "" if field == "inclusive" else "density.body."

    def weights(detector):
        state = detector.members_.learner.modules["potential"].state_dict()
        return {name: value.clone() for name, value in state.items() if name.startswith(part)}

    detector = NRFDetector(**FAST, field=field, warm_start=True).fit(train)
    first = weights(detector)
    detector.set_params(max_iter=1, training__learning_rate=1e-9).fit(train)
    second = weights(detector)
    assert first
    assert all(torch.allclose(first[k], second[k], atol=1e-6) for k in first)
    anew = weights(clone(detector).fit(train))
    assert not all(torch.allclose(first[k], anew[k], atol=1e-6) for k in first)
    part_by_part = NRFDetector(**FAST, field=field)
    part_by_part.partial_fit(train[:300])
    n = len(part_by_part.calibration_.scores)
    part_by_part.partial_fit(train[300:])
    assert len(part_by_part.calibration_.scores) == 2 * n
    assert np.isfinite(part_by_part.score_samples(normal)).all()
    with pytest.raises(InputError, match="a warm start keeps it"):
        detector.set_params(n_estimators=2).fit(train)


def test_a_warm_start_keeps_the_field(ring):
    detector = NRFDetector(**FAST, warm_start=True).fit(ring[0])
    before = detector.fitted_
    with pytest.raises(InputError, match="the fit before had another field; a warm start keeps it"):
        detector.set_params(field="inclusive").fit(ring[0])
    assert detector.fitted_ is before


@pytest.fixture(scope="module")
def inclusive(ring):
    return NRFDetector(random_state=0, max_iter=150, field="inclusive").fit(ring[0])


@pytest.mark.parametrize("of", ["inclusive", "fitted"])
def test_beyond_the_training_range_scores_fall_on_and_on(of, ring, request):
    detector, deviations = request.getfixturevalue(of), ring[0].std(0)
    for column in range(3):
        for side in (1, -1):
            rows = ring[0].mean(0)[None].repeat(8, axis=0)
            rows[:, column] += side * deviations[column] * np.array([3.0, 4.0, 6.0, 12.0, 28.0, 31.0, 1e4, 1e30])
            assert (np.diff(detector.score_samples(rows)) < 0).all()


@pytest.mark.parametrize("of", ["inclusive", "fitted"])
def test_the_slope_beyond_the_range_is_that_of_the_score(of, ring, request):
    fitted = request.getfixturevalue(of)
    rows = _encoded(fitted, ring[1][:5]).double()
    rows[0, 0], rows[1, 2] = 9.0, -9.0
    members = fitted.members_
    field = members.module("potential")
    field.double()
    try:
        step = 1e-5 * torch.eye(4, dtype=torch.float64)
        numeric = [
            (members.potentials(rows + e) - members.potentials(rows - e)).mean(0) / 2e-5 for e in step
        ]  # the fourth is the count of novelties
        found = members.gradient(field, rows)
    finally:
        field.float()
    torch.testing.assert_close(found, torch.stack(numeric, 1), rtol=1e-4, atol=1e-4)


def test_ranges_grow_with_more_rows(ring):
    detector = NRFDetector(**FAST).partial_fit(ring[0][:300])
    narrow = detector.members_.bounds.clone()
    detector.partial_fit(0.5 * ring[0][300:])
    assert torch.equal(detector.members_.bounds, narrow)
    detector.partial_fit(2 * ring[0][300:])
    assert (detector.members_.bounds.abs() > 1.2 * narrow.abs()).all()


def test_in_a_pipeline_a_search_and_a_clone(ring):
    train, normal, _ = ring
    pipeline = make_pipeline(StandardScaler(), NRFDetector(**FAST)).set_output(transform="pandas")
    frame = pd.DataFrame(train, columns=["a", "b", "c"])
    assert set(pipeline.fit(frame).predict(pd.DataFrame(normal, columns=["a", "b", "c"]))) <= {1, -1}
    search = GridSearchCV(NRFDetector(**FAST), {"training__sigma": [0.5, 1.0]}, scoring=synthetic_auroc, cv=2).fit(
        train
    )
    assert 0.4 < search.best_score_ <= 1
    assert search.best_estimator_.training.sigma == search.best_params_["training__sigma"]
    assert clone(NRFDetector(training=Training(sigma=0.7))).training.sigma == 0.7


def test_a_search_over_a_pipeline_picks_the_better_candidate(ring):
    rows = ring[0][:300]
    for first, grid, settings in (
        (StandardScaler(), {"detector__max_iter": [1, 200]}, {"field": "inclusive"}),
        (PCA(whiten=True), {"first__n_components": [1, 3]}, {}),
    ):
        pipeline = Pipeline([("first", first), ("detector", NRFDetector(random_state=0, **settings))])
        search = GridSearchCV(pipeline, grid, scoring=synthetic_auroc, cv=2, error_score="raise").fit(rows)
        worse, better = search.cv_results_["mean_test_score"]
        assert worse < better - 0.05
        assert search.best_index_ == 1


def test_synthetic_auroc_of_a_pipeline_is_that_of_its_detector(ring):
    """Where the steps before it do nothing."""
    detector = NRFDetector(**FAST).fit(ring[0])
    through = Pipeline([("same", FunctionTransformer()), ("detector", detector)])
    want = synthetic_auroc(detector, ring[1])
    assert synthetic_auroc(through, ring[1]) == pytest.approx(want, abs=0.01)
    assert synthetic_auroc(through, ring[1], seed=1) != synthetic_auroc(through, ring[1])
    assert 0.5 < synthetic_auroc(IsolationForest(random_state=0).fit(ring[0]), ring[1]) < 1  # whoever has scores


@pytest.mark.parametrize(("field", "near"), [("inclusive", 0.05), ("product", 0.1)])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_synthetic_auroc_of_a_pipeline_of_tables(library, field, near):
    """The detector's own anomalies lie between levels, too, where the product has no neighbours, and no table can."""
    rng, n = np.random.default_rng(0), 240
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "size": np.where(np.arange(n) % 9 == 0, np.nan, z),
            "count": rng.integers(0, 9, n),
            "city": pd.Categorical(np.where(z > 0, "Oslo", "Rome")),
            "grade": np.where(np.arange(n) % 11 == 0, None, np.where(z > 1, "a", "b")),
            "member": z > 0.5,
            "since": pd.Timestamp("2024-03-01", tz="Europe/Oslo")
            + pd.to_timedelta(3601 * rng.integers(0, n // 2 + 1, n), unit="s"),
            "same": 1,
        },
        index=rng.permutation(n) + 1000,
    )
    if library == "pandas":
        frame["span"] = pd.to_timedelta(rng.integers(0, 10**6, n), unit="s")
    native = {
        "pandas": lambda: frame,
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "pyarrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False),
    }[library]()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="columns left out")
        detector = NRFDetector(**FAST, field=field).fit(native)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = synthetic_auroc(Pipeline([("same", FunctionTransformer()), ("detector", detector)]), native)
    assert found == pytest.approx(synthetic_auroc(detector, native), abs=near)
    if library == "pandas":
        chosen = make_column_transformer((OneHotEncoder(), ["city", "member"]), (StandardScaler(), ["count"]))
        assert 0.4 < synthetic_auroc(make_pipeline(chosen, NRFDetector(**FAST)).fit(frame), frame) < 1


def test_synthetic_auroc_of_a_pipeline_of_images():
    images = np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32)
    pipeline = make_pipeline(FunctionTransformer(_flat), NRFDetector(**FAST)).fit(images)
    assert 0 < synthetic_auroc(pipeline, images) < 1


def _flat(images):
    return images.reshape(len(images), -1)


def test_synthetic_auroc_is_a_number_or_an_error(ring, fitted):
    no_detector = make_pipeline(StandardScaler(), LinearRegression()).fit(ring[0], ring[0][:, 0])
    with pytest.raises(InputError, match="needs score_samples, which LinearRegression does not have"):
        synthetic_auroc(no_detector, ring[1])
    pipeline = make_pipeline(FunctionTransformer(), fitted)
    for detector in (fitted, pipeline):
        with pytest.raises(InputError, match="at least two normal rows, got 1"):
            synthetic_auroc(detector, ring[1][:1])
    with pytest.raises(InputError, match="no column distinguishes rows"):
        synthetic_auroc(pipeline, np.ones((9, 3)))
    with pytest.raises(InputError, match="not finite"):
        synthetic_auroc(_NoScore(), ring[1])


class _NoScore:
    def score_samples(self, X):
        return np.full(len(X), np.nan)


def test_made_anomalies_are_what_they_say():
    rows = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    rows[:, 1] = rows[:, 0]
    made = synthetic_anomalies(rows)
    assert torch.equal(made["shuffled"].sort(0).values, rows.sort(0).values)
    assert torch.corrcoef(made["shuffled"].T)[0, 1].abs() < 0.2
    together = synthetic_anomalies(rows, groups=[slice(0, 2), slice(2, 3), slice(3, 4)])["shuffled"]
    assert torch.equal(together[:, 0], together[:, 1])
    assert torch.corrcoef(together.T)[0, 2].abs() < 0.2
    assert (made["uniform"] >= rows.amin(0)).all()
    changed = (made["noised"] != rows).float().mean()
    assert changed.item() == pytest.approx(1 / 3, abs=0.03)
    middle = rows.median(0).values
    torch.testing.assert_close(made["outward"] - middle, 2 * (rows - middle))
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    torch.testing.assert_close((made["apart"] - rows).norm(dim=1), 0.7 * distances.amin(1), rtol=1e-3, atol=1e-4)


def test_made_images_are_what_they_say():
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(40, 2, 8, 8, generator=rng)
    made = synthetic_images(images)
    assert all(x.shape == images.shape and x.isfinite().all() for x in made.values())
    torch.testing.assert_close(made["turned"].rot90(-1, (2, 3)), images)
    assert made["noised"].min() >= images.min()
    assert made["noised"].max() <= images.max()
    kept = (made["pasted"] == images).flatten(1).float().mean(1)
    assert ((kept >= 0.75) & (kept < 1)).all()  # a quarter is another's
    assert (made["quartered"][:, :, :4, :4] == images[:, :, 4:, 4:]).all()
    doubled = 2 * made["blended"] - images
    nearest = torch.cdist(doubled.flatten(1), images.flatten(1)).argmin(1)
    torch.testing.assert_close(doubled, images[nearest], atol=1e-6, rtol=0)
    assert (nearest != torch.arange(40)).all()
    assert (synthetic_images(images, 1)["pasted"] != made["pasted"]).any()


@pytest.mark.parametrize("labels", [[1, 1, -1], [0, 0, 1]])
def test_labels_in_either_way(labels):
    assert labelled_auroc(np.array([3.0, 2.0, 1.0]), labels) == 1.0
    for wrong in ([1, 2, 3], [1, 1, 1], [0, 1]):
        with pytest.raises(InputError):
            labelled_auroc(np.array([3.0, 2.0, 1.0]), wrong)


# ---------------------------------------------------------------------------------------------------------- conformal


def test_the_false_alarm_rate_is_kept_over_many_splits():
    """200 splits of fresh normal rows: the share flagged lies in the binomial band around the asked one."""
    rng = np.random.default_rng(1)
    detector = NRFDetector(**FAST).fit(rng.normal(size=(200, 3)))
    rows = rng.normal(size=(200 * 400, 3))
    scores = detector.score_samples(rows).reshape(200, 400)
    from nrf.detect import Calibration

    for rate in (0.05, 0.01):
        flagged = []
        for split in scores:
            calibration = Calibration.of(split[:199])
            flagged.append((split[199:] < calibration.threshold(rate)).mean())
        # Given n = 199 calibration rows, the rate of a split is Beta(k, n + 1 − k) with mean k / (n + 1).
        mean, band = np.mean(flagged), 4 * np.std(flagged) / np.sqrt(200)
        assert abs(mean - rate) < band
        assert band < 0.6 * rate


def test_the_whole_detector_keeps_its_false_alarm_rate():
    """Fit and calibrate anew on each split; with few calibration rows the promise holds on average."""
    flagged = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        detector = NRFDetector(max_iter=10, random_state=seed, false_alarm_rate=0.05).fit(rng.normal(size=(500, 2)))
        flagged.append((detector.predict(rng.normal(size=(500, 2))) == -1).mean())
    assert abs(np.mean(flagged) - 0.05) < 4 * np.std(flagged) / np.sqrt(20)


# ------------------------------------------------------------------------------------------------------ mixed tables


def _frame(n, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(["small", "large"], n)
    size = np.where(kind == "small", 1.0, 10.0) + 0.2 * rng.normal(size=n)
    return pd.DataFrame(
        {
            "kind": kind,
            "size": np.where(rng.random(n) < 0.05, np.nan, size),
            "count": rng.poisson(4, n),
            "ok": rng.random(n) < 0.9,
            "noise": rng.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def table():
    return NRFDetector(random_state=0, max_iter=400).fit(_frame(800))


def test_tables_are_scored_by_what_ties_their_columns(table):
    rows = _frame(200, seed=1).fillna({"size": 1.0})
    odd = rows.assign(kind=np.where(rows["size"] > 5, "small", "large"))
    assert (
        labelled_auroc(np.concatenate([table.score_samples(rows), table.score_samples(odd)]), np.repeat([0, 1], 200))
        > 0.9
    )
    unseen = rows.assign(kind="huge")
    assert table.score_samples(unseen).mean() < table.score_samples(rows).mean()


def test_an_explanation_names_what_has_to_change(table):
    row = pd.DataFrame({"kind": ["small"], "size": [25.0], "count": [4], "ok": [True], "noise": [0.1]})
    (found,) = table.explain(row)
    assert found.is_anomaly
    assert found.reached
    assert found.revised_score >= found.threshold
    names = [change.feature for change in found.changes]
    assert names[0] in ("size", "kind")
    assert len(names) <= 2
    assert sum(found.contributions.values()) == pytest.approx(found.score - found.revised_score, abs=1e-3)
    change = next(c for c in found.changes if c.feature == names[0])
    assert change.value in (25.0, "small", 25)
    assert change.value != change.typical


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        ("size", -1e6),
        ("size", 400.0),
        ("count", -1e6),
        ("count", 400.0),
        ("noise", -1e6),
        ("noise", 400.0),
    ],
)
def test_one_wild_value_is_what_has_to_change(table, feature, value):
    row = _frame(50, seed=3).dropna().iloc[[0]].astype({"count": float}).assign(**{feature: value})
    (found,) = table.explain(row)
    assert found.is_anomaly
    assert found.reached
    assert [change.feature for change in found.changes] == [feature]


def test_a_level_that_was_not_there_is_what_has_to_change(table):
    row = _frame(50, seed=3).dropna().iloc[[0]].assign(kind="huge")
    (found,) = table.explain(row)
    assert found.is_anomaly
    assert found.reached
    assert [change.feature for change in found.changes] == ["kind"]
    assert found.changes[0].typical in ("small", "large")


def test_a_normal_row_has_nothing_to_change(table):
    row = pd.DataFrame({"kind": ["small"], "size": [1.0], "count": [4], "ok": [True], "noise": [0.0]})
    (found,) = table.explain(row)
    assert not found.is_anomaly
    assert found.changes == ()
    assert found.p_value > 0.05


def test_a_climb_moves_rows_and_not_their_surprise_below_none(fitted, ring):
    field, outside = _Field(fitted.fitted_), _encoded(fitted, ring[2][100:])
    there = field.climb(outside, float(np.median(fitted.calibration_.scores)), 500)
    assert (there[:, fitted.members_.novelty_columns] >= 0).all()
    assert (field.values(there) > field.values(outside)).all()
    on_the_ring = _encoded(fitted, ring[0])[:, :2].norm(dim=1).mean()
    assert ((there[:, :2].norm(dim=1) / on_the_ring - 1).abs() < 0.3).float().mean() > 0.9


def test_revised_rows_end_on_the_ring(fitted, ring):
    middle = ring[2][:100]
    rows = np.array([list(row.values()) for row in revised_rows(fitted, middle, n_steps=1000)])
    radius = np.hypot(rows[:, 0], rows[:, 1])
    assert (np.abs(radius - 1) < 0.35).mean() > 0.9
    assert np.abs(rows[:, 2] - 2 * rows[:, 0]).mean() < 0.3
    repeated = revised_rows(fitted, middle[:3], n_steps=5)
    assert repeated == revised_rows(fitted, middle[:3], n_steps=5)
    assert repeated != revised_rows(fitted, middle[:3], n_steps=5, random_state=1)
    still = revised_rows(fitted, middle[:3], n_steps=5, temperature=0.0, step_size=1e-9)
    np.testing.assert_allclose([list(row.values()) for row in still], middle[:3], rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="n_steps must be at least 1"):
        revised_rows(fitted, middle, n_steps=0)


def test_revised_rows_of_a_table_have_levels_of_training(table):
    row = _frame(50, seed=3).dropna().iloc[[0]].assign(kind="huge")
    (found,) = revised_rows(table, row, n_steps=50)
    assert found["kind"] in ("small", "large")


def test_what_cannot_be_explained_says_so(ring):
    ranks = NRFDetector(**FAST, combine="rank").fit(ring[0])
    with pytest.raises(InputError, match="ranks have no gradient"):
        ranks.explain(ring[1][:1])


# ------------------------------------------------------------------------------------------------------------- images


def test_images_get_a_convolutional_pair():
    rng = np.random.default_rng(0)
    images = (rng.random((40, 1, 16, 16)) * 255).astype(np.uint8)
    detector = NRFDetector(features=None, max_iter=3, training=Training(batch_size=8), random_state=0).fit(images)
    assert any(isinstance(m, nn.Conv2d) for m in detector.members_.module("potential").modules())
    assert detector.score_samples(images).shape == (40,)
    revised = counterfactual_images(detector, images[:2], max_steps=5)
    assert revised.shape == (2, 1, 16, 16)
    assert 0 <= revised.min() <= revised.max() <= 255
    with pytest.raises(InputError, match="no columns to explain"):
        detector.explain(images[:1])
    with pytest.raises(InputError, match="images have no columns"):
        revised_rows(detector, images[:1])
    flat = NRFDetector(features=None, max_iter=3, random_state=0).fit(rng.random((30, 1, 5, 7)))
    assert flat.score_samples(rng.random((4, 1, 5, 7))).shape == (4,)


# ---------------------------------------------------------------------------------------------------- modules of users


class Quadratic(nn.Module):
    """A potential of a user's own."""

    def __init__(self, d):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return -(self.scale * x.square()).sum(1)


def test_modules_of_a_users_own(ring, tmp_path):
    potential = Quadratic(3)
    generator = LatentGenerator(nn.Linear(2, 3), latent_dim=2, sigma=0.5)
    detector = NRFDetector(**FAST, potential=potential, generator=generator, n_estimators=2).fit(ring[0])
    assert torch.equal(potential.scale, torch.ones(3)), "the module given is left as it was"
    detector.save(tmp_path / "model")
    with pytest.raises(InputError, match="potential, generator of your own"):
        NRFDetector.load(tmp_path / "model")
    again = NRFDetector.load(tmp_path / "model", potential=potential, generator=generator)
    np.testing.assert_allclose(again.score_samples(ring[1]), detector.score_samples(ring[1]), rtol=1e-6)


def test_modules_that_do_not_fit_are_refused(ring):
    with pytest.raises(InputError, match="one number per row"):
        NRFDetector(**FAST, potential=nn.Linear(3, 1)).fit(ring[0])
    with pytest.raises(InputError, match="does not take rows"):
        NRFDetector(**FAST, potential=nn.Linear(7, 1)).fit(ring[0])
    with pytest.raises(InputError, match="wrap your network"):
        NRFDetector(**FAST, generator=nn.Linear(2, 3)).fit(ring[0])
    with pytest.raises(InputError, match="makes events of shape"):
        NRFDetector(**FAST, generator=LatentGenerator(nn.Linear(2, 9), 2, 0.1)).fit(ring[0])


# ----------------------------------------------------------------------------------------------------- keeping, export


@pytest.mark.parametrize("members", [1, 3])
def test_a_saved_detector_is_the_same(tmp_path, members):
    frame = _frame(200)
    detector = NRFDetector(**FAST, n_estimators=members, combine="rank").fit(frame)
    detector.save(tmp_path / "model")
    description, weights = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert (description, weights[:8], weights[-12:]) == ("detector.json", "weights-", ".safetensors")
    again = NRFDetector.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(frame), detector.score_samples(frame))
    np.testing.assert_array_equal(again.predict(frame), detector.predict(frame))
    np.testing.assert_array_equal(again.p_values(frame), detector.p_values(frame))
    assert again.get_params()["n_estimators"] == members
    again.partial_fit(frame)


def test_a_detector_goes_through_pickle(fitted, ring):
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - its own bytes
    np.testing.assert_array_equal(again.score_samples(ring[1]), fitted.score_samples(ring[1]))


def test_what_is_not_known_is_refused(tmp_path, fitted):
    fitted.save(tmp_path / "model")
    path = tmp_path / "model" / "detector.json"
    whole = json.loads(path.read_text())
    for change, message in (
        ({"version": 1}, "version 1"),
        ({"format": "x"}, "not the description of a detector"),
        ({"surprise": 1}, "unknown: surprise"),
        ({"weights_digest": "0"}, "does not match"),
        ({"recipe": {"type": "Recipe"}}, "recipe|fields"),
    ):
        changed = whole | change
        path.write_text(json.dumps(changed | {"digest": _digest(changed)}))
        with pytest.raises((CheckpointError, InputError), match=message):
            NRFDetector.load(tmp_path / "model")


@pytest.mark.parametrize("members", [1, 3])
def test_onnx_gives_the_same_scores(tmp_path, members):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * [1, 10, 0.1, 5, 1, 1]
    X[rng.random(X.shape) < 0.03] = np.nan
    detector = NRFDetector(**FAST, n_estimators=members).fit(X)
    detector.export(tmp_path / "d.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "d.onnx")
    edge = np.array([[1e6, -1e6, 0, 0, 0, 0], [np.nan] * 6, [0] * 6, [1e-30] * 6])
    for rows in (rng.normal(size=(500, 6)) * 20, X, edge):
        rows = rows.astype(np.float32)
        (scores,) = session.run(["score"], {"input": rows})
        np.testing.assert_allclose(scores, detector.score_samples(rows), rtol=1e-5, atol=1e-5)
    properties = session.get_modelmeta().custom_metadata_map
    assert float(properties["threshold"]) == detector.offset_


def test_onnx_of_a_mixed_table(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    frame = _frame(200)
    detector = NRFDetector(**FAST).fit(frame)
    detector.export(tmp_path / "d.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "d.onnx")
    rows = pd.concat([_frame(50, seed=3), _frame(2, seed=4).assign(kind="huge")], ignore_index=True)
    feed = {
        i.name: (
            rows[i.name].to_numpy(dtype=object)[:, None]
            if "string" in i.type
            else rows[i.name].to_numpy(dtype=np.float32)[:, None]
        )
        for i in session.get_inputs()
    }
    (scores,) = session.run(["score"], feed)
    np.testing.assert_allclose(scores, detector.score_samples(rows), rtol=1e-5, atol=1e-5)


def _hard_tables(n: int = 200) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(50_001 * rng.integers(0, n // 2 + 1, n), unit="s")
    return {
        "many columns": pd.DataFrame(rng.normal(size=(n, 300))),
        "large offsets": pd.DataFrame([1e6, 1e5, 1.7e9, -3e12] + rng.normal(size=(n, 4)) * [1, 0.01, 1e4, 1]),
        "whole numbers": pd.DataFrame(rng.integers(0, 10**8, size=(n, 3))),
        "long tails": pd.DataFrame(rng.standard_t(1, size=(n, 4))) * 1e6,
        "skewed": pd.DataFrame(np.exp(4 * rng.normal(size=(n, 4)))),
        "nearly dependent": pd.DataFrame(
            rng.normal(size=(n, 2)) @ rng.normal(size=(2, 9)) + 1e-3 * rng.normal(size=(n, 9))
        ),
        "mixed": pd.DataFrame(
            {"when": days, "total": 1e7 + rng.normal(size=n).round(2), "city": rng.choice(list("abcdefgh"), n)}
        ),
    }


@pytest.mark.parametrize("name", list(_hard_tables(2)))
def test_onnx_keeps_its_promise_on_hard_tables(tmp_path, name):
    """Relative to the score: both sum in single precision, in another order."""
    onnxruntime = pytest.importorskip("onnxruntime")
    table = _hard_tables()[name].rename(columns=str)
    detector = NRFDetector(max_iter=60, random_state=0).fit(table)
    detector.export(tmp_path / "d.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "d.onnx")
    numbers = [c for c in table if table[c].dtype.kind in "if"]
    middle = table[numbers].median()
    for factor in (1, 1000):
        rows = table.assign(**(middle + (table[numbers] - middle) * factor))
        feed = {}
        for item in session.get_inputs():
            wide = item.type == "tensor(double)"
            if item.name == "input":
                feed["input"] = rows.to_numpy(np.float64 if wide else np.float32)
            elif rows[item.name].dtype.kind == "M":
                feed[item.name] = ((rows[item.name] - pd.Timestamp(0)) / pd.Timedelta(seconds=1)).to_numpy()[:, None]
            else:
                kind = object if item.type == "tensor(string)" else np.float64 if wide else np.float32
                feed[item.name] = rows[item.name].to_numpy(kind)[:, None]
        (scores,) = session.run(["score"], feed)
        want = detector.score_samples(rows)
        assert np.abs(scores - want).max() <= 1e-5 * max(1, np.abs(want).max())


def test_a_hashed_column_is_named_with_the_way_out(tmp_path):
    pytest.importorskip("onnx")
    frame = pd.DataFrame({"user": [f"u{i % 80}" for i in range(240)], "x": np.random.default_rng(0).normal(size=240)})
    hashed = NRFDetector(max_iter=5, random_state=0).fit(frame)
    with pytest.raises(InputError, match=r"hashed cannot be exported: 'user' \(\d+ levels\); raise max_levels"):
        hashed.export(tmp_path / "h.onnx")
    NRFDetector(max_iter=5, random_state=0, max_levels=80).fit(frame).export(tmp_path / "h.onnx")


def test_onnx_of_images_and_what_cannot_be_exported(tmp_path, ring):
    onnxruntime = pytest.importorskip("onnxruntime")
    images = np.random.default_rng(0).random((24, 3, 32, 32), dtype=np.float32)
    for step in (None, "auto"):
        detector = NRFDetector(features=step, max_iter=1, training=Training(batch_size=4), random_state=0).fit(images)
        detector.export(tmp_path / "d.onnx")
        (scores,) = onnxruntime.InferenceSession(tmp_path / "d.onnx").run(["score"], {"input": images})
        np.testing.assert_allclose(scores, detector.score_samples(images), rtol=1e-5, atol=1e-5)
    turned = NRFDetector(features=RotationFeatures(width=2, epochs=1), max_iter=1, random_state=0).fit(images)
    with pytest.raises(InputError, match="RotationFeatures has no ONNX form"):
        turned.export(tmp_path / "t.onnx")
    own = NRFDetector(**FAST, potential=Quadratic(3), generator=LatentGenerator(nn.Linear(2, 3), 2, 0.5)).fit(ring[0])
    with pytest.raises(InputError, match="Quadratic has no ONNX form"):
        own.export(tmp_path / "q.onnx")
    with pytest.raises(InputError, match="only combine"):
        NRFDetector(**FAST, combine="rank").fit(ring[0]).export(tmp_path / "r.onnx")


def test_wide_proposals_and_steps_that_fall_steady_training_on_long_tails():
    """Columns that rise and fall together, with long tails; anomalies lie where these end, beyond most proposals."""
    rng = np.random.default_rng(0)

    def draw(size):
        return size[:, None] * np.exp(0.4 * rng.normal(size=(len(size), 4)))

    train = draw(rng.exponential(size=1500) ** 2)
    test = np.concatenate([draw(rng.exponential(size=500) ** 2), draw(rng.uniform(8, 40, 500))])
    labels = np.repeat([1, 0], 500)

    def worst(**changes):
        """Of the second half of training."""
        found = []
        watch = [lambda d, row: found.append(roc_auc_score(labels, d.score_samples(test)))]
        NRFDetector(
            max_iter=200, scaling="deviation", random_state=0, callbacks=watch, training=Training(**changes)
        ).fit(train)
        return min(found[len(found) // 2 :])

    steady = worst(sigma=3.0, first_step_size=0.05)
    assert steady > 0.98
    assert worst(first_step_size=0.05) < steady - 0.02  # each of the two needs the other
    assert worst() < steady - 0.002
