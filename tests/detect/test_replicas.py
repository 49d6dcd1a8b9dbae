"""How a detector trains: to the end on any finite data, silently or with progress, and saying so if it was in vain."""

import json
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import nrf.detect.fitting
from nrf import NRFDetector
from nrf.detect import Training, replicas, storage
from nrf.detect.checkup import check_field
from nrf.detect.defaults import spec_for
from nrf.errors import NonFiniteError
from nrf.fields import Choice
from nrf.training import Trainer, progress
from nrf.training import trainer as trainer_module

FAST = {"max_iter": 40, "random_state": 0}
INCLUSIVE = {"max_iter": 40, "random_state": 0, "field": "inclusive"}
"""A line of metrics every ten iterations."""
PRODUCT = {"max_iter": 150, "random_state": 0, "field": "product"}
"""One every fifty."""


def _gaussian(n=200, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def curves(n, d):
    """Sums of three sinusoids of random height and phase, and noise: many columns, few rows."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, d)
    waves = [rng.normal(size=(n, 1)) * np.sin(2 * np.pi * k * t + 0.3 * rng.normal(size=(n, 1))) for k in (1, 2, 3)]
    return sum(waves) + 0.05 * rng.normal(size=(n, d))


# --------------------------------------------------------------------------------------------- fits that must not end


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(48, 251), (70, 150)])
def test_wide_short_tables_train_to_the_end_at_the_first_attempt(shape):
    X = curves(*shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = NRFDetector(random_state=0, field="inclusive").fit(X)
    assert detector.n_iter_ == 400
    assert detector.history_[-1]["rollbacks"] == 0
    assert np.isfinite(detector.score_samples(X)).all()


def test_the_guard_does_not_judge_by_single_iterations():
    """Of 48 rows an epoch is one batch, and its gap is mostly chance."""
    assert spec_for(38, (251,), {}, 0.5).train.log_every >= 10
    assert spec_for(3000, (5,), {}, 0.1).train.log_every == 3000 // 128


def test_pixels_of_perceptrons_are_smoothed_by_their_spacing():
    """With less noise than images are apart, samples never arrive and the gap grows without end."""
    flat = spec_for(100, (1, 25, 25), {}, 0.3)
    assert flat.learner.data_noise == pytest.approx(0.27)
    assert flat.sampler.step_size == pytest.approx(0.27**2 / 2)
    images = np.random.default_rng(0).random((30, 1, 5, 7))
    detector = NRFDetector(max_iter=3, random_state=0, field="inclusive").fit(images)
    assert detector.recipe_.learner.data_noise > 0.3


def _data(kind, n, d):
    rng = np.random.default_rng(n * d)
    X = rng.normal(size=(n, d))
    match kind:
        case "constant but for one row":
            X[1:] = 5.0
        case "cauchy":
            X = rng.standard_cauchy(size=(n, d)) ** 3
        case "collinear":
            X = np.outer(rng.normal(size=n), rng.normal(size=d))
        case "duplicated":
            X = np.tile(X[:2], (n, 1))[:n]
        case "integers":
            X = rng.integers(0, 3, size=(n, d)).astype(float)
        case "images":
            X = rng.random((n, 1, 3, d // 3))
        case "all scales":
            X = X * 10.0 ** rng.integers(-30, 30, size=d)
    return X


@pytest.mark.parametrize("field", ["inclusive", "product", "density"])
@pytest.mark.parametrize(
    ("kind", "n", "d"),
    [
        ("normal", 2, 1),
        ("normal", 60, 400),
        ("constant but for one row", 30, 20),
        ("cauchy", 3, 300),
        ("cauchy", 50, 7),
        ("collinear", 40, 100),
        ("duplicated", 30, 250),
        ("duplicated", 50, 3),
        ("integers", 19, 80),
        ("images", 2, 9),
        ("images", 33, 51),
        ("all scales", 45, 60),
    ],
)
def test_no_fit_of_finite_data_ends_in_an_error(kind, n, d, field):
    X = _data(kind, n, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = NRFDetector(max_iter=25, random_state=0, field=field).fit(X)
    assert np.isfinite(detector.score_samples(X)).all()
    assert detector.n_iter_ == 25


def _failing(monkeypatch, times, at=24):
    """Let the weights of the first so many attempts be lost after so many iterations."""
    begun = []
    build = Trainer.__init__

    def init(self, learner, *args, **kwargs):
        build(self, learner, *args, **kwargs)
        begun.append(self)
        attempt, update = len(begun), learner.update

        def fails(batch, rng):
            if attempt <= times and self.step >= at:
                for parameter in learner.modules["potential"].parameters():
                    parameter.data.fill_(float("nan"))
                raise NonFiniteError("lost")
            return update(batch, rng)

        learner.update = fails

    monkeypatch.setattr(Trainer, "__init__", init)
    return begun


@pytest.mark.parametrize(("settings", "lines"), [(INCLUSIVE, [10, 20, 30, 40]), (PRODUCT, [50, 100, 150])])
def test_a_second_attempt_has_lower_rates_and_one_warning_says_so(monkeypatch, settings, lines):
    plain = NRFDetector(**settings).fit(_gaussian()).recipe_
    begun = _failing(monkeypatch, 1)
    with pytest.warns(RuntimeWarning) as caught:
        detector = NRFDetector(**settings).fit(_gaussian())
    assert len(begun) == 2
    assert [str(w.message)[:40] for w in caught] == ["training became unstable and was restart"]
    assert "learning_rate=0.0013 and step_size" in str(caught[0].message)
    assert caught[0].filename == __file__, "the warning names the line that called fit"
    recipe = detector.recipe_
    assert recipe.learner.potential_lr == plain.learner.potential_lr / 4
    assert recipe.learner.generator_lr == plain.learner.generator_lr / 4
    assert recipe.sampler.step_size == plain.sampler.step_size / 2
    assert detector.n_iter_ == settings["max_iter"]
    assert [row["step"] for row in detector.history_] == lines, "of the last attempt alone"


@pytest.mark.parametrize(("settings", "at", "good"), [(INCLUSIVE, 24, "20 of 40"), (PRODUCT, 120, "100 of 150")])
def test_after_the_last_attempt_the_last_good_state_is_taken(monkeypatch, settings, at, good):
    begun = _failing(monkeypatch, 99, at)
    with pytest.warns(RuntimeWarning, match=f"that of iteration {good}, the last stable one"):
        detector = NRFDetector(**settings).fit(_gaussian())
    assert len(begun) == replicas.ATTEMPTS
    assert detector.n_iter_ == int(good.split()[0])
    assert np.isfinite(detector.score_samples(_gaussian())).all()
    assert (detector.predict(_gaussian()) == 1).mean() > 0.8


class Explosive(torch.nn.Module):
    """Not finite where long steps lead."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        u = -(self.scale * x.square()).sum(1)
        return torch.where(x.abs().sum(1) > 40, torch.full_like(u, float("nan")), u)


def test_samples_that_are_never_finite_leave_the_networks_untrained():
    X = _gaussian(60)
    with pytest.warns(RuntimeWarning, match="iteration 0 of 40"):
        detector = NRFDetector(**FAST, potential=Explosive(), training=Training(step_size=5000.0)).fit(X)
    assert detector.n_iter_ == 0
    assert np.isfinite(detector.score_samples(X)).all()


# ------------------------------------------------------------------------------------------------------ what it counts


@pytest.mark.parametrize(("settings", "first", "enough"), [(INCLUSIVE, 10, 20), (PRODUCT, 50, 100)])
def test_iterations_are_those_taken(tmp_path, settings, first, enough):
    X = _gaussian()
    stopped = NRFDetector(**settings, callbacks=[lambda detector, numbers: numbers["step"] >= enough]).fit(X)
    assert stopped.n_iter_ == enough
    stopped.save(tmp_path / "model")
    assert NRFDetector.load(tmp_path / "model").n_iter_ == enough
    stopped.callbacks = None
    assert stopped.partial_fit(X).n_iter_ == settings["max_iter"]
    stopped.callbacks = [lambda detector, numbers: True]
    stopped.warm_start = True
    assert stopped.fit(X).n_iter_ == first


def test_files_without_the_new_fields_still_load(tmp_path):
    detector = NRFDetector(**FAST).fit(_gaussian())
    detector.save(tmp_path / "model")
    path = tmp_path / "model" / storage.DESCRIPTION
    description = json.loads(path.read_text())
    assert description["health"] == detector.health_
    for name in ("n_iter", "health"):
        description.pop(name)
    description["digest"] = storage._digest(description)
    path.write_text(json.dumps(description))
    old = NRFDetector.load(tmp_path / "model")
    assert (old.n_iter_, old.health_) == (40, None)


# --------------------------------------------------------------------------------------------------- silence, progress


@pytest.mark.parametrize("verbose", [None, 0])
@pytest.mark.parametrize("settings", [INCLUSIVE, PRODUCT])
def test_a_fit_without_a_terminal_is_silent_even_if_it_goes_back(verbose, settings, capfd, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_AFTER", 0.0)
    refuse, refused = trainer_module._refuse, []

    def once(numbers, *args, **kwargs):
        if not refused:
            refused.append(True)
            raise NonFiniteError("the gap grew")
        refuse(numbers, *args, **kwargs)

    monkeypatch.setattr(trainer_module, "_refuse", once)
    detector = NRFDetector(**settings, verbose=verbose).fit(_gaussian())
    assert detector.history_[-1]["rollbacks"] == 1
    assert capfd.readouterr() == ("", "")


def test_progress_is_printed_where_asked_for(capfd, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_AFTER", 0.0)
    NRFDetector(**FAST, verbose=1).fit(_gaussian())
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("NRFDetector 0 %\n")
    assert err.splitlines()[-1].startswith("NRFDetector: took ")
    assert "\x1b" not in err
    assert "\r" not in err


# -------------------------------------------------------------------------------------------------- fits without effect


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_fit_is_better_than_no_training_and_does_not_warn(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = NRFDetector(**INCLUSIVE | {"max_iter": 150, "random_state": seed}).fit(_gaussian(300, 5, seed))
    assert found.health_["synthetic_auroc"] > found.health_["untrained_synthetic_auroc"] + 0.05


def test_training_that_learns_nothing_says_so_once():
    with pytest.warns(RuntimeWarning) as caught:
        detector = NRFDetector(**INCLUSIVE, training=Training(learning_rate=1e-9)).fit(_gaussian())
    numbers = detector.health_
    assert numbers["synthetic_auroc"] == pytest.approx(numbers["untrained_synthetic_auroc"], abs=0.01)
    (text,) = [str(w.message) for w in caught]
    assert text.startswith("training made this detector no better")
    assert f"{numbers['synthetic_auroc']:.2f}, that of the same networks before training" in text
    assert f"{numbers['untrained_synthetic_auroc']:.2f} (0.5 is chance)" in text
    assert caught[0].filename == __file__


def test_a_field_that_tells_nothing_says_so_once():
    rows = torch.from_numpy(_gaussian()).float()
    choices, warned = [Choice(0.0, 0.0, 0.01)], []
    blind = SimpleNamespace(potentials=lambda x: torch.zeros(1, len(x)))
    found = check_field(blind, choices, rows, n_iter=0, warn=warned.append)
    assert found == {"synthetic_auroc": 0.5}
    (text,) = warned
    assert text.startswith("this detector cannot separate normal rows from any kind of synthetic anomaly: the mean")
    assert "is 0.50 (0.5 is chance)" in text
    warned.clear()
    seeing = SimpleNamespace(potentials=lambda x: -x.square().sum(1)[None])
    assert check_field(seeing, choices, rows, n_iter=0, warn=warned.append)["synthetic_auroc"] > 0.6
    assert not warned


def test_categories_and_images_are_looked_at_too():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 6, 200)
    table = pd.DataFrame({f"c{i}": pd.Categorical((kind * (i + 1) % 7).astype(str)) for i in range(4)})
    found = NRFDetector(**INCLUSIVE | {"max_iter": 100}).fit(table).health_
    assert found["synthetic_auroc"] > found["untrained_synthetic_auroc"]
    stripes = np.sin(np.arange(6) + rng.uniform(0, 1, (120, 1, 6, 1))) + 0.1 * rng.random((120, 1, 6, 6))
    assert set(NRFDetector(**INCLUSIVE).fit(stripes).health_) == {"synthetic_auroc", "untrained_synthetic_auroc"}
    for rows in (table, stripes):
        (name,) = (found := NRFDetector(random_state=0).fit(rows).health_)
        assert name == "synthetic_auroc"
        assert found[name] > 0.7


def test_few_rows_are_not_judged():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*calibration rows cannot keep")
        for n in (15, 80):  # of 80 19 are held out
            slow = Training(learning_rate=1e-9)
            assert NRFDetector(**INCLUSIVE, training=slow).fit(_gaussian(n)).health_ is None
            assert NRFDetector(random_state=0).fit(_gaussian(n)).health_ is None
            trained = NRFDetector(**PRODUCT, training=slow).fit(_gaussian(n)).health_
            assert set(trained) == {"strength", "held_out_gain", "held_out_gain_error"}
            assert trained["strength"] == 0


@pytest.mark.parametrize(
    ("settings", "look"),
    [(INCLUSIVE, "check_training"), (PRODUCT, "check_field"), ({"random_state": 0}, "check_field")],
)
def test_looking_changes_neither_scores_nor_random_numbers(monkeypatch, settings, look):
    X = _gaussian()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    looked = NRFDetector(**settings).fit(X)
    assert torch.equal(torch.get_rng_state(), before)
    called = []
    monkeypatch.setattr(nrf.detect.fitting, look, lambda *args, **kwargs: called.append(args))
    blind = NRFDetector(**settings).fit(X)
    assert called
    assert blind.health_ is None
    np.testing.assert_array_equal(looked.score_samples(X), blind.score_samples(X))
    assert looked.offset_ == blind.offset_


def test_a_fit_without_a_network_does_not_wait_for_the_compiler():
    program = (
        "import sys, numpy as np; from nrf import NRFDetector\n"
        "NRFDetector(random_state=0).fit(np.random.default_rng(0).normal(size=(200, 10)))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
