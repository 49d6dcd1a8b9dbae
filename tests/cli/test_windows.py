"""`nrf detect` on series: `--window`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nrf import NRFDetector
from nrf.cli import main


def table(seed: int, n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {
                "site": site,
                "when": pd.date_range("2024", periods=n, freq="h"),
                "wave": np.sin(np.arange(n) / 3 + phase) + 0.1 * rng.normal(size=n),
                "kind": "normal",
            }
        )
        for site, phase in (("north", 0), ("south", 1))
    ]
    return pd.concat(parts).sample(frac=1, random_state=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    table(0).to_csv(folder / "train.csv", index=False)
    new = table(1)
    odd = (new.site == "south") & (new.when >= "2024-01-05") & (new.when < "2024-01-05T06")
    new.loc[odd, "wave"] *= -1
    new.loc[odd, "kind"] = "odd"
    new.to_csv(folder / "new.csv", index=False)
    new.to_parquet(folder / "new.parquet", index=False)
    options = ["--window", "6", "--time", "when", "--group", "site", "--drop", "kind", "--quiet", "--card"]
    assert main(["detect", "fit", str(folder / "train.csv"), "--out", str(folder / "model"), *options]) == 0
    return folder


def test_scores_are_per_row(folder, capsys):
    assert (
        main(["detect", "score", str(folder / "model"), str(folder / "new.csv"), "--out", str(folder / "s.csv")]) == 0
    )
    found = pd.read_csv(folder / "s.csv", parse_dates=["when"])
    assert list(found.columns) == ["site", "when", "row", "score", "p_value", "anomaly"]
    new = pd.read_csv(folder / "new.csv", parse_dates=["when"])
    assert (found.site == new.site).all()
    expected = NRFDetector.load(folder / "model").score_samples(new.drop(columns="kind"))
    np.testing.assert_allclose(found.score, expected, rtol=1e-6)
    lowest = found.sort_values("score").head(4)
    assert set(lowest.site) == {"south"}
    assert lowest.when.between("2024-01-04T18", "2024-01-05T12").all()
    assert "about 5 % of normal rows" in capsys.readouterr().out


def test_a_parquet_file_gets_the_same_scores(folder):
    for name in ("new.csv", "new.parquet"):
        out = folder / f"{name}.scores.parquet"
        assert main(["detect", "score", str(folder / "model"), str(folder / name), "--out", str(out)]) == 0
    one, other = (pd.read_parquet(folder / f"{n}.scores.parquet") for n in ("new.csv", "new.parquet"))
    np.testing.assert_array_equal(one.score, other.score)


def test_rows_in_no_window_have_empty_cells(folder, capsys):
    new = pd.read_csv(folder / "new.csv").sort_values(["site", "when"]).drop(columns="kind")
    new.drop(index=new.index[[3]]).to_csv(folder / "gap.csv", index=False)
    arguments = ["detect", "score", str(folder / "model"), str(folder / "gap.csv"), "--fdr", "0.2"]
    assert main([*arguments, "--out", str(folder / "gap.scores.csv")]) == 0
    found = pd.read_csv(folder / "gap.scores.csv")
    assert found.score.isna().tolist() == found.p_value.isna().tolist() == [True] * 3 + [False] * (len(new) - 4)
    assert found.anomaly[:3].tolist() == [0, 0, 0]
    assert "rows scored" in capsys.readouterr().out


def test_labels_and_reasons(folder, capsys):
    arguments = [str(folder / "model"), str(folder / "new.csv")]
    assert main(["detect", "evaluate", *arguments, "--label", "kind", "--anomaly", "odd"]) == 0
    printed = capsys.readouterr().out
    assert float(printed.split("AUROC")[1].split()[0]) > 0.9
    scores = pd.read_csv(folder / "s.csv")
    row = int(scores.row[scores.score.idxmin()])
    assert main(["detect", "explain", *arguments, "--row", str(row)]) == 0
    printed = capsys.readouterr().out
    assert f"row {row} (site south" in printed
    assert "in its lowest window" in printed
    assert "wave[" in printed


def test_a_directory_is_scored_file_by_file(folder):
    rows = folder / "rows"
    rows.mkdir()
    new = pd.read_parquet(folder / "new.parquet")
    for site, part in new.groupby("site"):
        part.to_parquet(rows / f"{site}.parquet", index=False)
    assert main(["detect", "score", str(folder / "model"), str(rows), "--out", str(folder / "scores")]) == 0
    parts = pd.concat([pd.read_parquet(folder / "scores" / f"{s}.parquet") for s in ("north", "south")])
    whole = pd.read_parquet(folder / "new.parquet.scores.parquet")
    both = whole.merge(parts, on=["site", "when"], suffixes=("", "_part"))
    np.testing.assert_allclose(both.score, both.score_part, rtol=1e-6)


def test_it_is_not_watched(folder, capsys):
    assert main(["detect", "watch", str(folder / "model"), str(folder / "new.csv")]) == 2
    assert "fit one without windows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--time", "when"], "--time go with windows; give --window SIZE as well"),
        (["--window", "6", "--time", "when", "--drop", "when"], "--time when and --drop when exclude each other"),
        (["--window", "6", "--time", "nowhere"], "time='nowhere': there is no such column"),
        (["--window", "0"], "size of the windows must be a whole number"),
        (["--window", "6", "--time", "when"], "have the same time in 'when'; name the column that identifies"),
    ],
)
def test_options_that_cannot_be(folder, options, words, tmp_path, capsys):
    assert main(["detect", "fit", str(folder / "train.csv"), "--out", str(tmp_path / "m"), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_lacks_a_column(folder, tmp_path, capsys):
    pd.read_csv(folder / "new.csv").drop(columns="site").to_csv(tmp_path / "new.csv", index=False)
    arguments = ["detect", "score", str(folder / "model"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "s.csv")]
    assert main(arguments) == 2
    assert "columns missing: 'site'" in capsys.readouterr().err
