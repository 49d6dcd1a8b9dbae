"""The detector's own field: its floor, what it remembers, ensembles, densities in nats, what a file may not hold."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save

from nrf.detect import NRFDetector, Training, storage
from nrf.detect.settling import FEWEST_HELD, MOST_REMEMBERED, Parts, pooled
from nrf.errors import CheckpointError, InputError
from nrf.fields import DetectionField
from nrf.seeds import stream

COLUMN_FIELDS = ["product", "density"]


def _normal(n=300, d=2, seed=0, middle=0.0):
    return middle + np.random.default_rng(seed).normal(size=(n, d))


def _wave(n=600, seed=0):
    """A narrow curve, of which a mixture of few Gaussians knows little."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, n)
    return np.column_stack([x, np.sin(2 * x) + 0.05 * rng.normal(size=n)])


def _field(detector) -> DetectionField:
    return detector.members_.module("potential")


# ------------------------------------------------------------------------------------------------------------ the floor


@pytest.mark.parametrize("field", COLUMN_FIELDS)
@pytest.mark.parametrize("n_estimators", [1, 2])
def test_a_network_that_learned_nothing_has_no_say(field, n_estimators):
    X, new = _normal(), np.concatenate([_normal(seed=1), 4 * _normal(seed=2)])
    settings = {"field": field, "n_estimators": n_estimators, "random_state": 0}
    without = NRFDetector(**settings).fit(X)
    slow = NRFDetector(**settings, max_iter=60, training=Training(learning_rate=1e-9)).fit(X)
    assert without.n_iter_ == 0
    assert slow.n_iter_ == 60
    assert (slow.health_["strength"], slow.health_["held_out_gain"]) == (0.0, 0.0)
    np.testing.assert_array_equal(slow.score_samples(new), without.score_samples(new))
    np.testing.assert_array_equal(slow.log_density(new), without.log_density(new))
    assert slow.offset_ == without.offset_


def test_a_network_that_learned_something_has_and_callbacks_see_it():
    X, new = _wave(), _wave(400, seed=1)
    lines, scores = [], []

    def look(detector, numbers):
        lines.append(numbers)
        scores.append(detector.score_samples(new))

    settings = {"random_state": 0, "max_iter": 400}
    trained = NRFDetector(**settings, callbacks=[look]).fit(X)
    assert trained.health_["strength"] > 0
    assert trained.health_["held_out_gain"] > trained.health_["held_out_gain_error"] > 0
    untrained = NRFDetector(random_state=0).fit(X)
    gain = trained.log_density(new).mean() - untrained.log_density(new).mean()
    assert gain > 0.3 * trained.health_["held_out_gain"]
    best = int(np.argmax([line["held_out_gain"] for line in lines]))
    assert lines[best]["held_out_gain"] == pytest.approx(trained.health_["held_out_gain"], abs=2e-3)
    assert any((one != scores[0]).any() for one in scores[1:])
    np.testing.assert_array_equal(scores[best], trained.score_samples(new))
    np.testing.assert_array_equal(NRFDetector(**settings).fit(X).score_samples(new), trained.score_samples(new))


def test_training_ends_where_it_gains_nothing(monkeypatch):
    monkeypatch.setattr("nrf.detect.fitting.PATIENCE", 2)
    detector = NRFDetector(max_iter=1000, training=Training(learning_rate=1e-9), random_state=0).fit(_normal())
    assert detector.n_iter_ == 100


@pytest.mark.parametrize("field", COLUMN_FIELDS)
def test_the_defaults_train_no_network(field):
    detector = NRFDetector(field=field, random_state=0).fit(_normal())
    assert (detector.n_iter_, detector.history_, set(detector.health_)) == (0, [], {"synthetic_auroc"})
    assert float(_field(detector).density.tilt.strength) == 0
    explicit = NRFDetector(field=field, random_state=0, max_iter=0).fit(_normal())
    np.testing.assert_array_equal(detector.score_samples(_normal()), explicit.score_samples(_normal()))


# ------------------------------------------------------------------------------------------------------ which field


def test_which_field_is_fitted():
    X = _normal(60)
    assert isinstance(_field(NRFDetector().fit(X)), DetectionField)
    assert _field(NRFDetector().fit(X)).neighbours is not None
    assert _field(NRFDetector(field="density").fit(X)).neighbours is None
    assert isinstance(_field(NRFDetector(max_iter=3, training=Training(widths=(4,))).fit(X)), DetectionField)
    for settings in (
        {"field": "inclusive"},
        {"training": Training(n_steps=3)},
        {"training": Training(sigma=0.5, widths=(8,))},
        {"potential": torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))},
    ):
        detector = NRFDetector(max_iter=3, **settings).fit(X)
        assert not isinstance(_field(detector), DetectionField)
        with pytest.raises(InputError, match="not normalised; fit with field='product' or 'density'"):
            detector.log_density(X)


def test_an_unknown_field_names_the_choices():
    with pytest.raises(InputError, match="one of 'auto', 'product', 'density', 'inclusive', got 'kernel'"):
        NRFDetector(field="kernel").fit(_normal())


@pytest.mark.parametrize("field", COLUMN_FIELDS)
def test_settings_of_another_field_say_what_to_do(field):
    with pytest.raises(
        InputError, match="n_steps, sigma belong to field='inclusive'; give that, too, or leave them out"
    ):
        NRFDetector(field=field, training=Training(sigma=0.5, n_steps=3)).fit(_normal())


# ------------------------------------------------------------------------------------------------------------ densities


@pytest.mark.parametrize("field", COLUMN_FIELDS)
@pytest.mark.parametrize("max_iter", [None, 300])
def test_the_density_of_one_column_integrates_to_1(field, max_iter):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, 300), rng.normal(2, 0.3, 300)])[:, None]
    detector = NRFDetector(field=field, max_iter=max_iter, random_state=0).fit(X)
    grid = np.linspace(-25, 25, 4001)[:, None]
    (column,) = detector.encoder_.columns
    area = np.exp(detector.log_density(grid)).sum() * (grid[1, 0] - grid[0, 0]) / column.scale
    assert area == pytest.approx(1, abs=0.05)


def test_the_density_of_two_columns_integrates_to_1_for_ensembles_too():
    detector = NRFDetector(n_estimators=3, max_iter=150, random_state=0).fit(_wave())
    axis = np.linspace(-9, 9, 300)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    a, b = detector.encoder_.columns
    area = np.exp(detector.log_density(grid)).sum() * (axis[1] - axis[0]) ** 2 / (a.scale * b.scale)
    assert area == pytest.approx(1, abs=0.05)


def test_the_score_of_a_density_is_its_log_density():
    detector = NRFDetector(field="density", random_state=0).fit(_normal())
    np.testing.assert_allclose(detector.score_samples(_normal(seed=1)), detector.log_density(_normal(seed=1)))


# ------------------------------------------------------------------------------------------------------------ ensembles


@pytest.mark.parametrize("field", COLUMN_FIELDS)
def test_members_are_those_of_their_own(field, tmp_path):
    X, new = _normal(), _normal(seed=1)
    detector = NRFDetector(field=field, n_estimators=3, max_iter=60, random_state=0).fit(X)
    potentials = detector.fitted_.potentials(new)
    assert potentials.shape == (3, 300)
    np.testing.assert_allclose(detector.score_samples(new), potentials.double().mean(0).numpy())
    assert (detector.score_spread(new) > 0).all()
    detector.save(tmp_path / "d")
    again = NRFDetector.load(tmp_path / "d")
    np.testing.assert_array_equal(again.score_samples(new), detector.score_samples(new))
    np.testing.assert_array_equal(again.log_density(new), detector.log_density(new))


# ---------------------------------------------------------------------------------------------------------- partial_fit


@pytest.mark.parametrize("field", COLUMN_FIELDS)
@pytest.mark.parametrize("n_estimators", [1, 2])
def test_partial_fit_remembers_old_rows_and_learns_new_ones(field, n_estimators):
    """Rows far from those of the first call: an odd place before, a second one where rows are normal after."""
    old, new = _normal(400), _normal(400, seed=1, middle=8.0)
    nowhere = _normal(100, seed=3, middle=-8.0)
    detector = NRFDetector(field=field, n_estimators=n_estimators, random_state=0).fit(old)
    assert (detector.predict(new) == -1).mean() > 0.95
    detector.partial_fit(new)
    for rows in (_normal(300, seed=4), _normal(300, seed=5, middle=8.0)):
        assert (detector.predict(rows) == -1).mean() < 0.15
    assert (detector.predict(nowhere) == -1).mean() > 0.95
    known = _field(detector).standing.n_rows.flatten()
    assert (known == 640).all(), "all rows but those to calibrate on"


@pytest.mark.parametrize("field", COLUMN_FIELDS)
def test_partial_fit_after_a_load_goes_on(field, tmp_path):
    detector = NRFDetector(field=field, keep_examples=True, random_state=0).fit(_normal(400))
    detector.save(tmp_path / "d")
    both = detector, NRFDetector.load(tmp_path / "d")
    for one in both:
        one.partial_fit(_normal(400, seed=1, middle=8.0))
    np.testing.assert_array_equal(*(one.score_samples(_normal(50, seed=2)) for one in both))


def test_rows_are_pooled_by_what_they_stand_for():
    rng = stream(0, "pool")
    rows = torch.randn(100, 2)
    assert pooled(rows, None, rng) == (rows, 100)
    detector = NRFDetector(random_state=0).fit(_normal(250))
    members = detector.members_
    found, n_rows = pooled(rows, members, rng)
    assert n_rows == 300
    assert len(found) == 300
    assert {tuple(row) for row in rows.tolist()} <= {tuple(row) for row in found.tolist()}
    # Anchors that stand for a hundred times as many rows: nearly all that fit are new ones, or all anchors are drawn.
    _field(detector).standing.n_rows.fill_(200 * 1000)
    many = torch.randn(2 * MOST_REMEMBERED, 2)
    found, n_rows = pooled(many, members, rng)
    assert (n_rows, len(found)) == (200_000 + 2 * MOST_REMEMBERED, MOST_REMEMBERED)
    anchors = {tuple(row) for row in _field(detector).neighbours.anchors.tolist()}
    assert len(anchors & {tuple(row) for row in found.tolist()}) == len(anchors)


def test_a_fifth_of_the_rows_judges():
    rows = torch.randn(200, 2)
    parts = Parts.of(rows, 0)
    assert (len(parts.learned), len(parts.held), parts.n_rows) == (160, 40, 200)
    together = {tuple(row) for row in torch.cat([parts.learned, parts.held]).tolist()}
    assert together == {tuple(row) for row in rows.tolist()}
    few = Parts.of(rows[: 5 * FEWEST_HELD - 1], 0)
    assert few.held is None
    assert len(few.learned) == 5 * FEWEST_HELD - 1


# -------------------------------------------------------------------------------------------------------- levels, units


def test_levels_count_less_than_numbers():
    """Levels are 0.6 apart where distances count; the encoding itself is as it was."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=200), "level": rng.choice(["a", "b", "c"], 200)})
    detector = NRFDetector(random_state=0).fit(table)
    encoder, field = detector.encoder_, _field(detector)
    assert field.units == pytest.approx(tuple(encoder.units().tolist()))
    assert set(np.round(field.units, 6)) == {1.0, 0.6}
    anchors = field.neighbours.anchors
    levels = [i for i, unit in enumerate(field.units) if unit != 1]
    assert set(np.round(anchors[:, levels].flatten().tolist(), 5)) == {0.0, 0.6}
    assert _field(NRFDetector(random_state=0).fit(_normal())).units == ()


# --------------------------------------------------------------------------------------------------------- stored files


@pytest.fixture(scope="module", params=COLUMN_FIELDS)
def stored(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / request.param
    NRFDetector(field=request.param, max_iter=3, random_state=0).fit(_normal(100)).save(path)
    return path


def _damaged(stored, target, change):
    """A copy of a stored detector, its tensors changed, with digests that fit."""
    (weights,) = stored.glob("weights-*.safetensors")
    tensors = load_file(weights)
    change(tensors)
    description = json.loads((stored / storage.DESCRIPTION).read_text())
    content = save({name: value.contiguous() for name, value in tensors.items()})
    digest = storage.hashlib.blake2b(content, digest_size=16).hexdigest()
    description["weights_digest"] = digest
    description["digest"] = storage._digest(description)
    target.mkdir()
    (target / f"weights-{digest}.safetensors").write_bytes(content)
    (target / storage.DESCRIPTION).write_text(json.dumps(description))
    return target


def test_an_undamaged_copy_loads(stored, tmp_path):
    again = NRFDetector.load(_damaged(stored, tmp_path / "d", lambda tensors: None))
    np.testing.assert_array_equal(again.score_samples(_normal()), NRFDetector.load(stored).score_samples(_normal()))


MEASURE, NEAR = "settled/potential/density.measure.", "settled/potential/neighbours."


def _set(name, change):
    def apply(tensors):
        tensors[name] = change(tensors[name])

    return apply


DAMAGES = {
    "fewer means": (_set(MEASURE + "means", lambda v: v[:-1]), "parts of different lengths"),
    "fewer weights": (_set(MEASURE + "log_weights", lambda v: v[1:]), "parts of different lengths"),
    "no component": (
        lambda t: [_set(MEASURE + n, lambda v: v[:0])(t) for n in ("means", "variances", "log_weights")],
        "measure has parts of length 0, which is too short",
    ),
    "another width": (_set(MEASURE + "means", lambda v: v.repeat(1, 2)), "means is torch.float32"),
    "negative variances": (_set(MEASURE + "variances", lambda v: -v), "variances must be positive"),
    "a variance of 0": (_set(MEASURE + "variances", lambda v: 0 * v), "variances must be positive"),
    "not finite": (_set(MEASURE + "means", lambda v: v + torch.inf), "not finite"),
    "a rotation of another size": (_set(MEASURE + "rotation", lambda v: torch.eye(3)), "rotation is torch.float32"),
    "doubles": (_set(MEASURE + "means", lambda v: v.double()), "means is torch.float64"),
    "no spread": (_set("settled/potential/standing.spread", lambda v: 0 * v), "spread must be positive"),
    "a field that was never settled": (
        _set("settled/potential/standing.n_rows", lambda v: 0 * v),
        "n_rows must be positive",
    ),
    "no tensor": (lambda t: t.pop(MEASURE + "means"), "means is missing"),
    "one that belongs to nothing": (lambda t: t.update({MEASURE + "x": torch.ones(1)}), "belong to nothing"),
}
OF_NEIGHBOURS = {
    "fewer anchors": (_set(NEAR + "anchors", lambda v: v[:-3]), "parts of different lengths"),
    "one anchor": (
        lambda t: [_set(NEAR + name, lambda v: v[:1])(t) for name in ("anchors", "own")],
        "neighbours has parts of length 1, which is too short",
    ),
    "anchors of another width": (_set(NEAR + "anchors", lambda v: v.repeat(1, 2)), "anchors is torch.float32"),
    "a negative epsilon": (_set(NEAR + "epsilon", lambda v: -v), "epsilon must be positive"),
    "no spread of neighbours": (_set(NEAR + "spread", lambda v: 0 * v), "spread must be positive"),
}


@pytest.mark.parametrize("name", [*DAMAGES, *OF_NEIGHBOURS])
def test_damaged_tensors_are_refused(stored, tmp_path, name):
    change, message = (DAMAGES | OF_NEIGHBOURS)[name]
    if name in OF_NEIGHBOURS and stored.name == "density":
        pytest.skip("a density has no neighbours")
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(_damaged(stored, tmp_path / "d", change))
