"""The search for settings: candidates, what is compared, what is written; by Ray the same."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

from nrf import NRFDetector
from nrf.cli import main
from nrf.detect import Windows, tuning
from nrf.detect.tuning import SPACE, Search, Trial, candidates, make_detector, tune, write_search
from nrf.errors import InputError

QUICK = {"field": ("density", "product"), "scaling": ("auto", "quartiles", "deviation")}


def rows(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 2))
    table = pd.DataFrame(z @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(n, 3)), columns=list("abc"))
    return table.assign(k=np.where(z[:, 0] > 0, "u", "v"))


def test_candidates_are_different_and_begin_with_the_defaults():
    found = candidates(10, seed=3)
    assert found[0] == {"field": "product", "scaling": "auto", "n_estimators": 1}
    assert len({repr(point) for point in found}) == 10
    assert found == candidates(10, seed=3)
    assert found != candidates(10, seed=4)
    assert all("training__learning_rate" not in point for point in found if "max_iter" not in point)
    assert candidates(1, base={"false_alarm_rate": 0.2})[0]["false_alarm_rate"] == 0.2
    everything = candidates(10_000)
    assert len(everything) == 2 * 3 * 2 * (1 + 3)
    for point in everything:
        make_detector(point, 0)


def test_settings_of_training_count_wherever_a_network_is_trained():
    space = {"training__learning_rate": (0.01, 0.02, 0.03)}
    assert candidates(9, space=space) == [{}]
    rates = [{"training__learning_rate": rate} for rate in (0.01, 0.02, 0.03)]
    for base in ({"max_iter": 50}, {"field": "inclusive"}):
        found = sorted(candidates(9, space=space, base=base), key=lambda point: point["training__learning_rate"])
        assert found == [base | rate for rate in rates]
    kept = {"training__learning_rate": 0.5}  # not a point of the space: it is the user's to say
    assert candidates(9, space={"scaling": ("auto",)}, base=kept) == [kept | {"scaling": "auto"}]


def test_the_space_is_one_of_parameters():
    names = NRFDetector()._get_param_names()
    assert all(name in names or name.startswith("training__") for name in SPACE)
    detector = make_detector({"max_iter": 5, "training__learning_rate": 0.5}, 7)
    assert (detector.training.learning_rate, detector.random_state) == (0.5, 7)


@pytest.fixture(scope="module")
def search():
    said = list[Trial]()
    found = tune(rows(), trials=6, space=QUICK, on_trial=said.append)
    assert tuple(said) == found.trials
    return found


def test_the_best_is_the_highest_and_the_same_again(search):
    assert [trial.number for trial in search.trials] == list(range(6))
    assert search.best.auroc == max(trial.auroc for trial in search.trials)
    assert search.detector.scaling == search.best.parameters["scaling"]
    assert search.detector.fitted_.provenance.n_rows == 120, "it is fitted to all rows"
    again = tune(rows(), trials=2, space=QUICK)
    assert [trial.auroc for trial in again.trials] == [trial.auroc for trial in search.trials[:2]]
    other = tune(rows(), trials=1, space=QUICK, seed=1)
    assert other.trials[0].auroc != search.trials[0].auroc


def test_all_candidates_face_the_same_anomalies(monkeypatch):
    """Made in the user's columns, not in those that a candidate encodes."""
    seen = []
    real = NRFDetector.score_samples
    monkeypatch.setattr(NRFDetector, "score_samples", lambda self, X: (seen.append(np.asarray(X)), real(self, X))[1])
    fit, fitted = NRFDetector.fit, []
    monkeypatch.setattr(NRFDetector, "fit", lambda self, X, y=None: (fitted.append(np.asarray(X)), fit(self, X, y))[1])
    table = rows(60)[list("abc")]
    tune(table, trials=2, space={"scaling": ("auto", "quartiles")})
    assert [len(part) for part in fitted] == [42, 42, 60]
    assert len(seen[0]) == 18
    everything = np.concatenate([fitted[0], seen[0]])
    assert {tuple(row) for row in everything} == {tuple(row) for row in table.to_numpy()}, "no row is in both parts"
    assert len(seen) == 12  # held-out rows and five kinds of anomalies, twice
    for one, other in zip(seen[:6], seen[6:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_trial_is_begun_after_the_time_is_up():
    found = tune(rows(60), trials=6, space=QUICK, seconds=1e-12)
    assert len(found.trials) == 1, "the first is always tried"


def test_trials_that_end_in_any_order_come_in_that_of_their_numbers(monkeypatch):
    locally = tuning._locally
    monkeypatch.setattr(tuning, "_locally", lambda *given: reversed(list(locally(*given))))
    found = tune(rows(60), trials=3, space={"scaling": ("auto", "quartiles", "deviation")})
    assert [trial.number for trial in found.trials] == [0, 1, 2]


def test_what_is_written(search, tmp_path):
    write_search(search, tmp_path / "out")
    table = list(csv.DictReader((tmp_path / "out" / "trials.csv").open()))
    assert [float(line["auroc"]) for line in table] == pytest.approx([t.auroc for t in search.trials], abs=1e-6)
    best = json.loads((tmp_path / "out" / "best.json").read_text())
    assert best["parameters"] == search.best.parameters
    loaded = NRFDetector.load(tmp_path / "out" / "model")
    np.testing.assert_array_equal(loaded.score_samples(rows()), search.detector.score_samples(rows()))
    write_search(search, tmp_path / "out")  # over one of its kind
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt, which no search wrote"):
        write_search(search, tmp_path / "out")


def test_the_command(tmp_path, capsys):
    rows(80).assign(label=["ok"] * 70 + ["bad"] * 10).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["tune", str(tmp_path / "t.csv"), "--out", str(tmp_path / "out"), "--trials", "1"]
    assert main([*arguments, "--label", "label", "--normal", "ok", "--drop", "c"]) == 0
    printed = capsys.readouterr().out
    assert "trial   0  AUROC" in printed
    assert "1 trials in" in printed
    loaded = NRFDetector.load(tmp_path / "out" / "model")
    assert loaded.fitted_.provenance.n_rows == 70
    assert loaded.file_columns_.names == ("c", "label")
    assert main([*arguments, "--label", "label"]) == 2
    assert "--label and --normal go together" in capsys.readouterr().err


def test_what_is_no_default_is_not_called_so(search, tmp_path, monkeypatch, capsys):
    """Ray may have ended the first trial when the time was up."""
    rest = search.trials[1:]
    found = Search(rest, max(rest, key=lambda trial: trial.auroc), search.detector)
    monkeypatch.setattr("nrf.detect.tuning.tune", lambda *args, **options: found)
    rows(30).to_csv(tmp_path / "t.csv", index=False)
    assert main(["tune", str(tmp_path / "t.csv"), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "best" in printed
    assert not [line for line in printed.splitlines() if line.startswith("default")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 0}, "at least one trial"),
        ({"seconds": 0}, "must be above 0"),
        ({"engine": "spark"}, "engine must be 'local' or 'ray'"),
        ({"space": {"scaling": ()}}, "needs at least one value"),
        ({"base": {"features": Windows(3)}}, "breaks a series: no windows here"),
    ],
)
def test_mistakes(options, words):
    with pytest.raises(InputError, match=words):
        tune(rows(30), **options)
    with pytest.raises(InputError, match="at least 20 rows"):
        tune(rows(10))


@pytest.mark.slow
def test_ray_finds_what_one_process_finds(search, monkeypatch):
    ray = pytest.importorskip("ray", reason="the engine ray needs ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    try:
        found = tune(rows(), trials=6, space=QUICK, engine="ray")
    finally:
        ray.shutdown()
    assert [(t.number, t.parameters, t.auroc) for t in found.trials] == [
        (t.number, t.parameters, t.auroc) for t in search.trials
    ]
    np.testing.assert_array_equal(found.detector.score_samples(rows()), search.detector.score_samples(rows()))
