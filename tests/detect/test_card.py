"""The model card: what it says, and that it lives beside a detector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nrf import NRFDetector
from nrf.cli import main
from nrf.detect import Windows
from nrf.detect.card import CARD, model_card, write_card
from nrf.detect.tables.files import FileColumns


def rows(n: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"size": rng.normal(size=n), "grade|odd`name": rng.choice(["a", "b"], n), "same": 1.0, "row": np.arange(n)}
    )


@pytest.fixture(scope="module")
def detector() -> NRFDetector:
    with pytest.warns(UserWarning, match="left out"):
        return NRFDetector(random_state=0, false_alarm_rate=0.1).fit(rows())


def test_it_says_what_was_found(detector):
    card = model_card(detector)
    assert "- Rows: 200," in card
    assert "- Columns: 4" in card
    assert "| `size` | number |" in card
    assert "| `grade\\|oddʼname` | levels | 2 |" in card
    assert "| `same` | left out | constant |" in card
    assert f"`{detector.threshold_rule_}`" in card
    assert "flagged with a probability of at most 10 %, on average over calibration sets of 40 rows" in card
    assert f"synthetic anomalies made of them: {detector.health_['synthetic_auroc']:.4g}" in card
    for name, version in detector.fitted_.provenance.versions.items():
        assert f"- {name} {version}" in card
    headings = [line for line in card.splitlines() if line.startswith("## ")]
    assert len(headings) == 8


def test_names_are_shown_as_they_are():
    """Code in Markdown is shown as it is written: only in a table a bar must be marked."""
    odd = "a<b|c"
    table = rows().assign(**{odd: np.random.default_rng(1).normal(size=200)})[["size", odd]]
    found = NRFDetector(random_state=0).fit(table)
    file = FileColumns(label="w|x<y")
    found.fitted_ = replace(found.fitted_, provenance=replace(found.fitted_.provenance, file=file), warnings=("1 < 2",))
    card = model_card(found)
    assert "| `a<b\\|c` | number |" in card
    assert "by the label `w|x<y`," in card
    assert "The fit warned: 1 &lt; 2" in card


def test_what_is_kept_is_said(detector):
    assert "calibration rows, where it is saved" not in model_card(detector)
    kept = NRFDetector(random_state=0, keep_examples=True).fit(rows()[["size"]])
    assert "- The 40 calibration rows, where it is saved with `keep_examples`." in model_card(kept)
    assert "- 200 rows are few" in model_card(kept)
    file = FileColumns(ids=("order",), dropped=("notes",))
    provenance = replace(kept.fitted_.provenance, file=file, n_rows=500, split_seed=77)
    card = model_card(replace(kept.fitted_, provenance=provenance))
    assert "- Names of rows, copied to the scores: `order`" in card
    assert "- Left out by request: `notes`" in card
    assert "rows are few" not in card
    assert "- seed of the split into training and calibration rows: 77" in card


def test_many_columns_are_cut_short():
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 103)), columns=[f"c{i}" for i in range(103)])
    card = model_card(NRFDetector(random_state=0, field="density").fit(wide))
    assert "103 × number; 104 encoded." in card
    assert "| `c99` |" in card
    assert "| `c100` |" not in card
    assert "and 3 more." in card


def test_a_trained_network_is_said():
    found = NRFDetector(random_state=0, max_iter=5).fit(rows()[["size"]])
    assert f", with a network around the mixture ({found.n_iter_} iterations)" in model_card(found)
    assert "nats per row that the network adds" in model_card(found)


def test_the_number_of_anchors_is_that_of_the_field(detector):
    count = detector.members_.module("potential").neighbours.anchors.shape[-2]
    assert f"**{count} training rows**, encoded" in model_card(detector)


def test_a_density_keeps_no_row():
    found = NRFDetector(random_state=0, field="density").fit(rows()[["size"]])
    card = model_card(found)
    assert "No training row is part of the field" in card
    assert "potential of a density" in card


def test_promises_are_in_words():
    few = rows(30)[["size"]]
    with pytest.warns(RuntimeWarning, match="nothing is flagged"):
        assert "nothing is flagged" in model_card(NRFDetector(random_state=0, false_alarm_rate=0.001).fit(few))
    assert "says nothing about false alarms" in model_card(NRFDetector(random_state=0, contamination=0.1).fit(few))
    with pytest.warns(RuntimeWarning, match="training rows"):
        assert "There is no promise" in model_card(NRFDetector(random_state=0, false_alarm_rate=0.2).fit(few[:15]))
    card = model_card(NRFDetector(features=Windows(4), random_state=0).fit(rows()[["size"]]))
    assert "an aim and no guarantee" in card
    assert "windows of 4 rows in the order given. A row's score is the mean of the windows" in card
    assert "windows of training rows**, encoded" in card
    series = rows()[["size", "row"]].assign(site=["n", "s"] * 100)
    windows = Windows(4, time="row", group="site", how="min", max_gap=None)
    card = model_card(NRFDetector(features=windows, random_state=0).fit(series))
    assert "rows ordered by `row`, for each `site` apart. A row's score is the lowest of the windows" in card


def test_images_and_several_models():
    images = np.random.default_rng(0).normal(size=(60, 1, 8, 8))
    card = model_card(NRFDetector(random_state=0, n_estimators=2).fit(images))
    assert "- Images of the shape 1 × 8 × 8" in card
    assert "mean of 2 models" in card
    assert "feature step first: PrincipalComponents" in card


def test_the_card_of_a_loaded_detector_is_the_same(detector, tmp_path):
    detector.save(tmp_path / "model")
    path = write_card(detector, tmp_path / "model")
    assert path.name == CARD
    loaded = NRFDetector.load(tmp_path / "model")
    assert model_card(loaded) == path.read_text() == model_card(detector)


def test_a_card_goes_with_its_detector(detector, tmp_path):
    """Another detector in the folder does not keep the card of the one before; a file of the user's own stays."""
    detector.save(tmp_path / "model")
    write_card(detector, tmp_path / "model")
    detector.save(tmp_path / "model")
    assert not (tmp_path / "model" / CARD).exists()
    (tmp_path / "model" / CARD).write_text("my own notes")
    detector.save(tmp_path / "model")
    assert (tmp_path / "model" / CARD).read_text() == "my own notes"


def test_fit_writes_it(tmp_path, capsys):
    rows()[["size"]].to_csv(tmp_path / "train.csv", index=False)
    arguments = ["detect", "fit", str(tmp_path / "train.csv"), "--out", str(tmp_path / "model"), "--quiet"]
    assert main(arguments) == 0
    assert not (tmp_path / "model" / CARD).exists()
    assert main([*arguments, "--card"]) == 0
    assert "# Model card" in (tmp_path / "model" / CARD).read_text()
    assert f"card       {tmp_path / 'model' / CARD}" in capsys.readouterr().out
    assert NRFDetector.load(tmp_path / "model").fitted_.provenance.n_rows == 200
