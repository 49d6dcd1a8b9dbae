"""`nrf detect`: what is printed and written, and one line with exit code 2 for every mistake."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import nrf.cli.detect as cli
import nrf.cli.looking as looking
from nrf.cli import main
from nrf.cli.parsing import parse
from nrf.detect import NRFDetector
from nrf.detect.explain import Change, Explanation
from nrf.detect.storage import _digest
from nrf.detect.tables import stream as stream_module
from nrf.detect.tables.files import FileColumns
from nrf.detect.tables.stream import read_table
from nrf.figures import contribution_bars

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

N = 240
BAD = np.arange(N) % 12 == 5
ODD_ROW = 6
"""The first bad row, counted from 1."""


def table():
    """Amounts that go with a balance and a city, but for bad rows; a constant, and labels."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=N)
    return pa.table(
        {
            "amount": np.where(BAD, 60.0, z).round(4),
            "balance": (2 * z + 0.1 * rng.normal(size=N)).round(4),
            "city": np.where(z > 0, "Oslo", "Rome"),
            "site": np.full(N, "north"),
            "label": np.where(BAD, "bad", "ok"),
            "kind": BAD.astype(int),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folder with the table as CSV and Parquet."""
    folder = tmp_path_factory.mktemp("detect")
    csv.write_csv(table(), folder / "data.csv")
    parquet.write_table(table(), folder / "data.parquet")
    return folder


@pytest.fixture(scope="module")
def model(data):
    """A detector fitted by the command line to the rows labelled ok."""
    folder = data / "model"
    arguments = ["--label", "label", "--normal", "ok", "--drop", "kind", "--max-iter", "30", "--quiet"]
    assert main(["detect", "fit", str(data / "data.csv"), "--out", str(folder), *arguments]) == 0
    return folder


@pytest.fixture
def run(capsys):
    """Run a command that must work; returns what it prints."""

    def call(*arguments) -> str:
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return call


@pytest.fixture
def fails(capsys):
    """Run a command that must fail: exit code 2, one line, no traceback; returns the line."""

    def call(*arguments) -> str:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        error = capsys.readouterr().err
        assert code == 2, error
        assert error.count("\n") == 1, error
        assert error.startswith("nrf: ")
        return error

    return call


def read(path):
    return (parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)).to_pydict()


def fit(run, data, out, *arguments):
    return run("detect", "fit", data, "--out", out, "--max-iter", "10", "--quiet", *arguments)


# ----------------------------------------------------------------------------------------------------------------- fit


def test_fit_says_what_it_did(run, data, tmp_path):
    printed = fit(run, data / "data.csv", tmp_path / "m", "--label", "label", "--normal", "ok", "--drop", "kind")
    lines = dict(line.split(maxsplit=1) for line in printed.replace("left out", "left_out").splitlines())
    assert lines["rows"] == f"{N - BAD.sum()} of {N} with label = ok"
    assert lines["columns"] == "3, encoded as 6"
    assert lines["left_out"] == "kind, label, site (constant)"
    assert re.fullmatch(r"-?[\d.]+: flags at most 5 % of normal rows, by 44 held-out rows", lines["threshold"])
    assert lines["time"].endswith(" s")
    fitted = NRFDetector.load(tmp_path / "m")
    assert fitted.encoder_.names == ("amount", "balance", "city", "site")
    assert fitted.n_iter_ == 10


def test_fit_is_that_of_the_library(run, data, tmp_path):
    fit(
        run,
        data / "data.parquet",
        tmp_path / "m",
        "--drop",
        "kind",
        "label",
        "site",
        "--seed",
        "3",
        "--n-estimators",
        "2",
    )
    rows = read_table(data / "data.parquet", drop=["kind", "label", "site"])
    want = NRFDetector(max_iter=10, random_state=3, n_estimators=2).fit(rows)
    found = NRFDetector.load(tmp_path / "m")
    assert found.n_estimators == 2
    np.testing.assert_allclose(found.score_samples(rows), want.score_samples(rows), rtol=1e-5)
    assert found.offset_ == pytest.approx(want.offset_)


def test_fit_options(run, data, tmp_path):
    drop = ["--drop", "kind", "label", "site"]
    printed = fit(run, data / "data.csv", tmp_path / "a", *drop, "--contamination", "0.1")
    assert "flags 10 % of the rows that set it (contamination)" in printed
    found = NRFDetector.load(tmp_path / "a")
    assert (found.predict(read_table(data / "data.csv", drop=drop[1:])) < 0).mean() == pytest.approx(0.1, abs=0.01)
    printed = fit(run, data / "data.csv", tmp_path / "a", *drop, "--false-alarm-rate", "0.2")  # replaces the one before
    assert "flags at most 20 % of normal rows, by 48 held-out rows" in printed
    printed = fit(run, data / "data.csv", tmp_path / "b", *drop, "--false-alarm-rate", "0.001")
    assert "no threshold: 48 held-out rows cannot keep a false-alarm rate of 0.1 %, only 2.1 % or more" in printed


def test_labels_that_are_numbers(run, data, tmp_path):
    for name in ("data.csv", "data.parquet"):
        printed = fit(run, data / name, tmp_path / name, "--label", "kind", "--normal", "0", "--drop", "label")
        assert f"{N - BAD.sum()} of {N} with kind = 0" in printed


def test_fit_mistakes(fails, data, tmp_path, model):
    source, out = data / "data.csv", tmp_path / "m"
    assert "go together" in fails("detect", "fit", source, "--out", out, "--label", "label")
    assert "go together" in fails("detect", "fit", source, "--out", out, "--normal", "ok")
    message = fails("detect", "fit", source, "--out", out, "--drop", "kind", "--drop=label")
    assert "--drop is given more than once, and only the last would count; give all after one --drop" in message
    message = fails("detect", "fit", source, "--out", out, "--label", "label", "--normal", "OK")
    assert "no row has label = OK; there are 'bad', 'ok'" in message
    assert "has no column 'y'; its columns are 'amount'" in fails(
        "detect", "fit", source, "--out", out, "--label", "y", "--normal", "0"
    )
    assert "has no column 'nothing'" in fails("detect", "fit", source, "--out", out, "--drop", "nothing")
    both = ["--contamination", "0.1", "--false-alarm-rate", "0.1"]
    assert "give either --false-alarm-rate or --contamination, not both" in fails(
        "detect", "fit", source, "--out", out, *both
    )
    assert "does not exist" in fails("detect", "fit", tmp_path / "no.csv", "--out", out)
    assert "must end in" in fails("detect", "fit", model, "--out", out)
    assert "contamination must lie in (0, 0.5]" in fails(
        "detect", "fit", source, "--out", out, "--contamination", "0.7"
    )
    assert "false_alarm_rate must lie in" in fails("detect", "fit", source, "--out", out, "--false-alarm-rate", "2")
    assert "n_estimators" in fails("detect", "fit", source, "--out", out, "--n-estimators", "0")
    assert "max_iter" in fails("detect", "fit", source, "--out", out, "--max-iter", "-1")
    assert "--out" in fails("detect", "fit", source)
    assert not out.exists()


def test_fit_refuses_a_foreign_place_before_it_trains(fails, data, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    for name, message in (("foreign", "exists and is no saved detector"), ("file", "is a file; choose a folder")):
        line = fails("detect", "fit", data / "data.csv", "--out", tmp_path / name, "--max-iter", "100000000")
        assert message in line
    assert (tmp_path / "foreign" / "letter.txt").read_text() == "dear"


def test_fit_needs_columns_that_vary(fails, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n1,2\n1,2\n")
    assert "'a' (constant), 'b' (constant)" in fails("detect", "fit", tmp_path / "x.csv", "--out", tmp_path / "m")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert "nrf:" in fails("detect", "fit", tmp_path / "x.csv", "--out", tmp_path / "m")


def zip_table(n=60):
    """Codes with leading zeros, numbers with none, and years."""
    lines = ["zip,code,share,amount"]
    lines += [f"{1000 * (i % 3) + 123:05},{i % 4},0.{i % 9},{i % 7 + 0.5}" for i in range(n)]
    return "\n".join(lines) + "\n"


def test_a_zip_code_is_not_a_number(capsys, run, tmp_path):
    source, model = tmp_path / "x.csv", tmp_path / "m"
    source.write_text(zip_table())
    assert main(["detect", "fit", str(source), "--out", str(model), "--max-iter", "10", "--quiet"]) == 0
    printed, said = capsys.readouterr()
    assert "leading zeros" in said
    assert "'zip'" in said
    assert "'code'" not in said
    assert re.search(r"zip +levels +3\n", printed)
    assert re.search(r"code +number", printed)
    columns = {c.name: c for c in NRFDetector.load(model).encoder_.columns}
    assert columns["zip"].levels == ("00123", "01123", "02123")
    (tmp_path / "new.csv").write_text("zip,code,share,amount\n00123,1,0.5,1\n123,1,0.5,1\n")
    run("detect", "score", model, tmp_path / "new.csv", "--out", tmp_path / "s.csv")
    known, unknown = read(tmp_path / "s.csv")["score"]
    assert unknown < known - 0.1  # 123 was never there


@pytest.fixture
def settings(monkeypatch):
    """What `fit` gives the detector; what this one does not know is taken off again."""
    given: dict = {}
    real = cli._detector

    def recorded(show, **some):
        given.clear()
        given.update(some)
        return real(show, **{name: value for name, value in some.items() if name in NRFDetector().get_params()})

    monkeypatch.setattr(cli, "_detector", recorded)
    return given


def test_fit_passes_its_options_on(run, settings, tmp_path):
    (tmp_path / "x.csv").write_text(zip_table())
    fit(run, tmp_path / "x.csv", tmp_path / "m")
    assert not {"categorical", "keep", "contamination", "false_alarm_rate"} & set(settings)
    assert (settings["max_levels"], settings["scaling"]) == (64, "auto")
    more = ["--categorical", "code", "--keep", "zip", "--max-levels", "2", "--scaling", "deviation", "--device", "cpu"]
    fit(run, tmp_path / "x.csv", tmp_path / "m", *more)
    wanted = {"categorical": ("code",), "keep": ("zip",), "max_levels": 2, "scaling": "deviation", "device": "cpu"}
    assert {name: settings[name] for name in wanted} == wanted
    fitted = NRFDetector.load(tmp_path / "m")
    assert (fitted.max_levels, fitted.scaling) == (2, "deviation")
    code = fitted.encoder_.columns[1]
    assert (code.kind, code.hashed_buckets is None) == ("categorical", False)  # four levels are more than two


def test_categorical_columns_are_read_as_they_are_written(run, settings, tmp_path):
    (tmp_path / "x.csv").write_text("code,amount\n" + "".join(f"{'1.0' if i % 2 else '1'},{i}\n" for i in range(40)))
    fit(run, tmp_path / "x.csv", tmp_path / "m", "--categorical", "code")
    assert NRFDetector.load(tmp_path / "m").encoder_.columns[0].levels == ("1", "1.0")
    (tmp_path / "new.csv").write_text("code,amount\n1.0,20\n1.00,20\n")
    run("detect", "score", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "s.csv")
    known, unknown = read(tmp_path / "s.csv")["score"]
    assert unknown < known - 0.1


def test_fit_shows_the_columns_before_it_trains(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("nrf.detect.detector.train", lambda *a, **k: pytest.fail("trained"))
    with pytest.raises(pytest.fail.Exception, match="trained"):
        cli.fit(data / "data.csv", out=tmp_path / "m", drop=("kind",), quiet=True)
    assert re.search("city +levels +2\n", capsys.readouterr().out)


def test_the_table_of_columns(run, tmp_path):
    rows = table().append_column("day", pa.array(3 * np.arange(N) % 10 * 86_400, pa.timestamp("s")))
    rows = rows.append_column("ok", pa.array(BAD)).append_column("none", pa.nulls(N))
    rows = rows.append_column("size", pa.array([None if i % 7 == 0 else i % 10 for i in range(N)]))
    parquet.write_table(rows, tmp_path / "x.parquet")
    printed = fit(run, tmp_path / "x.parquet", tmp_path / "m", "--drop", "kind", "--id", "label")
    shown = {re.split(r"\s{2,}", line)[0]: re.split(r"\s{2,}", line)[1:] for line in printed.splitlines()[1:12]}
    assert printed.splitlines()[0].split() == ["column", "kind", "found"]
    assert shown["amount"][0] == "number"
    assert re.fullmatch(r"-[\d.]+ … 60", shown["amount"][1])
    assert shown["city"] == ["levels", "2"]
    hint = "later dates score as unusual, --drop day leaves it out"
    assert shown["day"] == ["date", f"1970-01-01 00:00:00 … 1970-01-10 00:00:00 UTC; {hint}"]
    assert shown["ok"] == ["boolean"]
    assert shown["size"] == ["number", "0 … 9, some missing"]
    assert shown["site"] == ["left out", "constant"]
    assert shown["none"] == ["left out", "all missing"]
    assert shown["kind"] == ["left out", "--drop"]
    assert shown["label"] == ["left out", "--id"]
    assert "rows" in shown  # the summary follows: every column had one line


def test_many_columns_share_lines(run, tmp_path):
    rng = np.random.default_rng(0)
    wide = pa.table({f"x{i}": rng.normal(size=40) for i in range(25)} | {"city": ["a", "b"] * 20})
    wide = wide.append_column("day", pa.array(np.arange(40) % 7 * 86_400, pa.timestamp("s")))
    csv.write_csv(wide, tmp_path / "x.csv")
    lines = fit(run, tmp_path / "x.csv", tmp_path / "m").splitlines()
    assert re.split(r"\s{2,}", lines[1]) == ["number", "25", "x0, x1, x2, x3, x4, x5, x6, x7 and 17 more"]
    assert re.split(r"\s{2,}", lines[2]) == ["levels", "1", "city (2)"]
    assert re.split(r"\s{2,}", lines[3])[:2] == ["date", "1"]
    assert lines[3].endswith("--drop day leaves it out)")
    assert lines[4].startswith("rows")


def test_what_fit_says_of_dates_is_so(run, tmp_path, capsys):
    """Rows a month later are flagged by their date; without it they are not."""
    rng = np.random.default_rng(0)

    def month(first):
        days = first + rng.integers(0, 30, 300)
        return pa.table({"when": pa.array(days * 86_400, pa.timestamp("s")), "x": rng.normal(size=300)})

    for name, first in (("train", 0), ("new", 31)):
        parquet.write_table(month(first), tmp_path / f"{name}.parquet")
    flagged = {}
    for options in ((), ("--drop", "when")):
        model = tmp_path / f"m{len(options)}"
        printed = run("detect", "fit", tmp_path / "train.parquet", "--out", model, "--quiet", *options)
        assert ("later dates score as unusual, --drop when leaves it out" in printed) == (not options)
        assert (
            main(["detect", "score", str(model), str(tmp_path / "new.parquet"), "--out", str(tmp_path / "s.csv")]) == 0
        )
        said, error = capsys.readouterr()
        flagged[options] = int(re.search(r"^(\d+) flagged", said, re.MULTILINE)[1])
        hint = f"{flagged[options]} of 300 rows are flagged, though the threshold allows 5 %"
        assert (hint in error) == ("when counts most" in error) == (not options)
    assert flagged[()] > 150 > 40 > flagged["--drop", "when"]


def test_times_of_rows_are_left_out_unless_asked_for(run, tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {"at": pa.array(np.sort(rng.integers(0, 10**7, 300)), pa.timestamp("s")), "x": rng.normal(size=300)}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    fit = ["detect", "fit", tmp_path / "t.parquet", "--quiet"]
    printed = run(*fit, "--out", tmp_path / "a")
    assert re.search(r"^at +left out +identifier: the time of each row", printed, re.MULTILINE)
    assert "--keep at uses it, --id at copies it to the scores" in printed
    assert re.search(r"^at +date ", run(*fit, "--out", tmp_path / "b", "--keep", "at"), re.MULTILINE)


def test_options_that_exclude_each_other(fails, data, settings, tmp_path):
    source = ["detect", "fit", data / "data.csv", "--out", tmp_path / "m"]
    message = fails(*source, "--drop", "city", "--categorical", "city")
    assert "--categorical city and --drop city exclude each other" in message
    message = fails(*source, "--id", "city", "--keep", "city")
    assert "--keep city and --id city exclude each other" in message
    assert "has no column 'town'" in fails(*source, "--categorical", "town")
    assert "no such column" in fails(*source, "--keep", "town")
    assert "has no column 'town'" in fails(*source, "--id", "town")
    assert "device 'moon' cannot be used" in fails(*source, "--device", "moon")


# --------------------------------------------------------------------------------------------------------------- score


def with_ids():
    names = [f"A,{i}" if i % 9 else None for i in range(N)]
    names[1] = "NA"  # as good a name as any
    return table().add_column(0, "order", pa.array(names)).append_column("score", pa.array(range(N)))


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("fdr", [(), ("--fdr", "0.4")])
def test_ids_are_copied_and_labels_passed_over(run, tmp_path, name, fdr, monkeypatch):
    whole = stream_module.batches_for
    monkeypatch.setattr(stream_module, "batches_for", lambda *a, **k: whole(*a, **(k | {"batch_rows": 50})))
    source = tmp_path / name
    (csv.write_csv if source.suffix == ".csv" else parquet.write_table)(with_ids(), source)
    options = ["--label", "label", "--normal", "ok", "--drop", "kind", "--id", "order", "score"]
    fit(run, source, tmp_path / "m", *options)
    fitted = NRFDetector.load(tmp_path / "m")
    assert fitted.encoder_.names == ("amount", "balance", "city", "site")
    assert (fitted.file_columns_.label, fitted.file_columns_.ids) == ("label", ("order", "score"))
    for target in ("s.csv", "s.parquet"):
        out = tmp_path / target
        printed = run("detect", "score", tmp_path / "m", source, "--out", out, "--top", "3", *fdr)
        got = (
            read(out)
            if target == "s.parquet"
            else csv.read_csv(
                out, convert_options=csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
            ).to_pydict()
        )
        assert list(got) == ["order", "id_score", "row", "score", "p_value", "anomaly"]
        blank = "" if (source.suffix, target) == (".csv", "s.parquet") else None
        assert got["order"] == [blank if v is None else v for v in with_ids()["order"].to_pylist()]
        assert [int(v) for v in got["id_score"]] == list(range(N))
        assert got["row"] == list(range(1, N + 1))
        first, second, third = np.argsort(got["score"], kind="stable")[:3].tolist()
        lines = [re.split(r"\s{2,}", line) for line in printed.splitlines()[-4:]]
        assert lines[0] == ["order", "score", "row", "score", "p-value"]
        for line, place in zip(lines[1:], (first, second, third), strict=True):
            assert line[:3] == [got["order"][place] or line[0], str(place), str(place + 1)]
            assert float(line[3]) == pytest.approx(got["score"][place], rel=1e-3)
    printed = run("detect", "explain", tmp_path / "m", source, "--row", "6")
    assert printed.startswith("row 6 (order A,5, score 5): anomaly")
    printed = run("detect", "evaluate", tmp_path / "m", source, "--label", "label", "--normal", "ok")
    assert f"rows {N}, anomalies {BAD.sum()}" in printed
    run("detect", "score", tmp_path / "m", source, "--out", tmp_path / "one.parquet", "--id", "kind", "city")
    assert list(read(tmp_path / "one.parquet"))[:3] == ["kind", "city", "row"]  # others than at fit, even a feature
    bare = with_ids().drop_columns(["order", "score", "label", "kind"])
    parquet.write_table(bare, tmp_path / "bare.parquet")
    run("detect", "score", tmp_path / "m", tmp_path / "bare.parquet", "--out", tmp_path / "bare.csv")
    assert list(read(tmp_path / "bare.csv")) == ["row", "score", "p_value", "anomaly"]


def test_ids_of_every_type(run, fails, tmp_path):
    rows = table().drop_columns(["label", "kind"])
    rows = rows.append_column("code", pa.array(["x", "y"] * (N // 2)).dictionary_encode())
    rows = rows.append_column("day", pa.array(np.arange(N, dtype=np.int32)).cast(pa.date32())).append_column(
        "pair", pa.array([[1, 2]] * N)
    )
    parquet.write_table(rows, tmp_path / "x.parquet", row_group_size=70)
    fit(run, tmp_path / "x.parquet", tmp_path / "m", "--id", "code", "day", "pair")
    score = ["detect", "score", tmp_path / "m", tmp_path / "x.parquet", "--out"]
    for fdr in ((), ("--fdr", "0.3")):
        run(*score, tmp_path / "s.parquet", *fdr)
        got = parquet.read_table(tmp_path / "s.parquet")
        assert got.select(["code", "day", "pair"]).to_pydict() == rows.select(["code", "day", "pair"]).to_pydict()
    assert "'pair' holds nested values, which CSV files cannot; write .parquet" in fails(*score, tmp_path / "s.csv")
    long = rows.append_column("account", pa.array(123456789.0 + np.arange(N)))
    parquet.write_table(long, tmp_path / "long.parquet")
    score[3] = tmp_path / "long.parquet"
    printed = run(*score, tmp_path / "s.csv", "--id", "account", "--top", "1")
    assert re.match(r"12345\d{4}\.0 ", printed.splitlines()[-1])  # with all its digits
    score[3] = tmp_path / "x.parquet"
    run(*score, tmp_path / "s.csv", "--id", "code", "day")
    assert [str(v) for v in read(tmp_path / "s.csv")["day"][:2]] == ["1970-01-01", "1970-01-02"]


def test_detectors_saved_without_these_columns_are_read(model, tmp_path):
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    description = json.loads((tmp_path / "detector.json").read_text())
    assert description.pop("file_columns")["label"] == "label"
    (tmp_path / "detector.json").write_text(json.dumps(description | {"digest": _digest(description)}))
    assert NRFDetector.load(tmp_path).file_columns_ == FileColumns()


def test_the_most_abnormal_rows(run, fails, data, model, tmp_path):
    arguments = ["detect", "score", model, data / "data.csv", "--out", tmp_path / "s.csv", "--top"]
    assert "0 or more" in fails(*arguments, "-1")
    lines = run(*arguments, "5000").splitlines()
    assert len(lines) == 3 + N  # all there are
    assert "row" not in run(*arguments, "0").splitlines()[-1].split()
    ranked = [float(line.split()[1]) for line in lines[3:]]
    assert ranked == sorted(ranked)


def test_score_and_explain_on_a_device(run, fails, data, model, tmp_path):
    for action in (["score", "--out", tmp_path / "s.csv"], ["explain", "--row", 1]):
        first, *rest = action
        run("detect", first, model, data / "data.csv", *rest, "--device", "cpu")
        message = fails("detect", first, model, data / "data.csv", *rest, "--device", "moon")
        assert "device 'moon' cannot be used" in message


def test_score_files(run, data, model, tmp_path):
    rows = read_table(data / "data.parquet", drop=["label", "kind"])
    fitted = NRFDetector.load(model)
    for source in ("data.csv", "data.parquet"):
        for target in ("s.csv", "s.parquet"):
            printed = run(
                "detect", "score", model, data / source, "--out", tmp_path / target, "--drop", "label", "kind"
            )
            got = read(tmp_path / target)
            assert list(got) == ["row", "score", "p_value", "anomaly"]
            assert got["row"] == list(range(1, N + 1))
            np.testing.assert_allclose(got["score"], fitted.score_samples(rows), rtol=1e-4, atol=1e-5)
            assert f"{N} rows scored" in printed
            assert f"{sum(got['anomaly'])} flagged by threshold" in printed
    assert np.array(got["anomaly"])[BAD].all()


def test_score_by_false_discoveries(run, data, model, tmp_path):
    out = tmp_path / "s.csv"
    drop = ["--drop", "label", "kind"]
    printed = run("detect", "score", model, data / "data.csv", "--out", out, "--fdr", "0.4", *drop)
    rows = read_table(data / "data.csv", drop=drop[1:])
    got = np.array(read(out)["anomaly"]) == 1
    np.testing.assert_array_equal(got, NRFDetector.load(model).predict_fdr(rows, 0.4))
    assert f"{got.sum()} flagged, those with p-value ≤ " in printed
    assert "(false discovery rate 0.4)" in printed
    printed = run("detect", "score", model, data / "data.csv", "--out", out, "--fdr", "0.03", *drop)
    assert f"0 flagged: no p-value is low enough for a false discovery rate of 0.03 among {N} rows" in printed


def test_score_mistakes(fails, data, model, tmp_path):
    source, out = data / "data.csv", tmp_path / "s.csv"
    drop = ["--drop", "label", "kind"]
    csv.write_csv(table().append_column("extra", table()["kind"]), tmp_path / "extra.csv")
    message = fails("detect", "score", model, tmp_path / "extra.csv", "--out", out)
    assert "not there at fit: 'extra'; leave them out with --drop" in message
    assert "must end in .csv or .parquet" in fails("detect", "score", model, source, "--out", tmp_path / "s.txt", *drop)
    assert "is no saved detector" in fails("detect", "score", tmp_path, source, "--out", out, *drop)
    message = fails("detect", "score", tmp_path / "elsewhere", source, "--out", out, *drop)
    assert "it does not exist; give the folder it was saved in" in message
    assert "give MODEL first, then DATA" in fails("detect", "score", source, model, "--out", out)
    assert "does not exist" in fails("detect", "score", model, tmp_path / "no.csv", "--out", out)
    assert "is the input" in fails("detect", "score", model, source, "--out", source, *drop)
    assert "between 0 and 1" in fails("detect", "score", model, source, "--out", out, "--fdr", "1.5", *drop)
    (tmp_path / "x.csv").write_text("amount,balance,city\n1,2,Oslo\n3,x,Rome\n")
    assert "column 'balance', row 2: 'x' is no number" in fails(
        "detect", "score", model, tmp_path / "x.csv", "--out", out
    )
    (tmp_path / "x.csv").write_text("amount,balance,city\n1,inf,Oslo\n")
    assert "rows 1 to 1:" in fails("detect", "score", model, tmp_path / "x.csv", "--out", out)
    assert not out.exists()


# ------------------------------------------------------------------------------------------------------------- explain


def test_explain_names_what_is_wrong(run, data, model, tmp_path):
    figure = tmp_path / "pictures" / "f.png"
    drop = ["--drop", "label", "kind"]
    for source in ("data.csv", "data.parquet"):
        printed = run("detect", "explain", model, data / source, "--row", ODD_ROW, "--out", figure, *drop)
        first, second, header, *rest = printed.splitlines()
        assert first.startswith(f"row {ODD_ROW}: anomaly, score ")
        assert second.startswith("threshold ")
        assert re.split(r"\s{2,}", header) == ["feature", "value", "typical value", "contribution", "what is new"]
        changes = {line.split()[0]: re.split(r"\s{2,}", line)[1:] for line in rest}
        value, typical, contribution, new = changes["amount"]
        assert value == "60"
        assert abs(float(typical)) < 60
        assert float(contribution) < 0
        assert new.startswith("above the range at fit")
        assert Image.open(figure).size[0] > 300


def test_explain_a_normal_row(run, data, model):
    rows = read_table(data / "data.csv", drop=["label", "kind"])
    row = int(np.argmax(NRFDetector.load(model).score_samples(rows))) + 1
    printed = run("detect", "explain", model, data / "data.csv", "--row", row, "--drop", "label", "kind")
    assert printed.startswith(f"row {row}: normal, score ")
    assert "nothing has to change" in printed


def test_explain_shows_the_cell_of_the_file(run, model, tmp_path):
    """Not what is left of it after encoding: a city that was not there at fit has no output of its own."""
    (tmp_path / "x.csv").write_text("amount,balance,city\n0,0,Oslo\n80,,Atlantis\n")
    printed = run("detect", "explain", model, tmp_path / "x.csv", "--row", 2)
    assert "row 2: anomaly" in printed
    shown = {line.split()[0]: line.split()[1] for line in printed.splitlines()[3:]}
    assert shown["amount"] == "80"
    assert shown.get("city", "Atlantis") == "Atlantis"
    assert shown.get("balance", "missing") == "missing"


def test_explain_mistakes(fails, data, model, tmp_path):
    source = ["detect", "explain", model, data / "data.csv", "--drop", "label", "kind"]
    assert "counts from 1" in fails(*source, "--row", "0")
    assert f"has {N} rows, there is no row {N + 1}" in fails(*source, "--row", N + 1)
    assert "must end in .png" in fails(*source, "--row", "1", "--out", tmp_path / "f.jpg")
    assert "--row" in fails(*source)


def test_the_bar_chart():
    changes = (Change("a$b", 3.0, 1.0, -4.0),)
    contributions = {"a$b": -4.0, "x" * 80: 0.5, **{f"c{i}": 0.01 * i for i in range(20)}}
    explanation = Explanation(-5.0, -1.0, 0.01, changes, contributions, {}, 0.0, True)
    figure = contribution_bars(explanation, "row 7 of 50% $")
    (axis,) = figure.axes
    assert len(axis.patches) == 15
    assert axis.patches[-1].get_width() == -4.0  # the costliest on top
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names[-1] == r"a\$b"
    assert max(map(len, names)) <= 33
    assert "7 smaller ones not shown" in axis.get_xlabel()
    assert "anomaly" in axis.get_title(loc="left")
    figure.canvas.draw()
    normal = contribution_bars(Explanation(5.0, -1.0, 0.9, (), {"a": 0.0}, {}, 5.0, True))
    assert "(normal)" in normal.axes[0].get_title(loc="left")


# ------------------------------------------------------------------------------------------------------------ evaluate


def measures(printed: str) -> dict[str, str]:
    return dict(re.split(r"\s{2,}", line) for line in printed.splitlines()[2:-1])


@pytest.mark.parametrize(
    "labels",
    [
        ["--label", "label", "--normal", "ok", "--drop", "kind"],
        ["--label", "label", "--anomaly", "bad", "--drop", "kind"],
        ["--label", "kind", "--normal", "0", "--drop", "label"],
        ["--label", "kind", "--anomaly", "1.0", "--drop", "label"],
    ],
)
def test_evaluate(run, data, model, labels):
    from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score

    rows = read_table(data / "data.csv", drop=["label", "kind"])
    fitted = NRFDetector.load(model)
    u = fitted.score_samples(rows)
    flagged = u < fitted.offset_
    want = {
        "AUROC": roc_auc_score(BAD, -u),
        "average precision": average_precision_score(BAD, -u),
        "precision": precision_score(BAD, flagged),
        "recall": recall_score(BAD, flagged),
        "F1": f1_score(BAD, flagged),
        "false-alarm rate": (flagged & ~BAD).sum() / (~BAD).sum(),
    }
    for source in ("data.csv", "data.parquet"):
        printed = run("detect", "evaluate", model, data / source, *labels)
        assert printed.startswith(f"rows {N}, anomalies {BAD.sum()}\n")
        got = measures(printed)
        assert list(got) == list(want)
        for name, value in want.items():
            assert float(got[name]) == pytest.approx(value, abs=1e-4), name


def test_rows_without_a_label_are_left_out(run, model, tmp_path):
    (tmp_path / "x.csv").write_text("amount,balance,city,y\n0,0,Oslo,0\n60,0,Rome,1\n1,2,Oslo,\n")
    printed = run("detect", "evaluate", model, tmp_path / "x.csv", "--label", "y", "--normal", "0")
    assert printed.startswith("rows 2, anomalies 1, 1 without a label left out\n")


def test_evaluate_where_nothing_is_flagged(run, data, tmp_path):
    drop = ["--drop", "kind", "label", "site"]
    fit(run, data / "data.csv", tmp_path / "m", *drop, "--false-alarm-rate", "0.001")  # too low to flag any
    (tmp_path / "x.csv").write_text("amount,balance,city,y\n0,0,Oslo,0\n0,0,Oslo,1\n")
    got = measures(run("detect", "evaluate", tmp_path / "m", tmp_path / "x.csv", "--label", "y", "--normal", "0"))
    assert got["precision"] == "none flagged"
    assert (got["AUROC"], got["F1"]) == ("0.5000", "0.0000")


def test_evaluate_takes_a_label_that_was_constant_at_fit(run, fails, data, tmp_path):
    """A training file of normal rows has a column of equal labels, which the fit leaves out by itself."""
    csv.write_csv(table().filter(pa.array(~BAD)), tmp_path / "normal.csv")
    assert "label (constant), kind (constant)" in fit(run, tmp_path / "normal.csv", tmp_path / "m")
    by_name = ["--label", "label", "--normal", "ok", "--drop", "kind"]
    by_number = ["--label", "kind", "--normal", "0", "--drop", "label"]
    printed = [run("detect", "evaluate", tmp_path / "m", data / "data.csv", *a) for a in (by_name, by_number)]
    assert measures(printed[0]) == measures(printed[1])  # a label is never looked at, even if it was a constant number


def test_evaluate_mistakes(fails, run, data, model, tmp_path):
    source = ["detect", "evaluate", model, data / "data.csv", "--drop", "kind", "--label", "label"]
    assert "either --normal or --anomaly" in fails(*source)
    assert "either --normal or --anomaly" in fails(*source, "--normal", "ok", "--anomaly", "bad")
    message = fails(*source, "--normal", "good")
    assert f"none of the {N} labelled rows have label = good" in message
    assert "'bad', 'ok'" in message
    missing = ["detect", "evaluate", model, data / "data.csv", "--label", "y", "--normal", "1"]
    assert "has no column 'y'" in fails(*missing)
    as_feature = ["detect", "evaluate", model, data / "data.csv", "--label", "city", "--normal", "Oslo"]
    assert "label 'city' as a feature" in fails(*as_feature, "--drop", "kind", "label")
    (tmp_path / "x.csv").write_text("amount,balance,city,y\n0,0,Oslo,\n")
    message = fails("detect", "evaluate", model, tmp_path / "x.csv", "--label", "y", "--normal", "0")
    assert "missing everywhere" in message
    (tmp_path / "x.csv").write_text("amount,balance,city,y\n0,0,Oslo,0\n")
    message = fails("detect", "evaluate", model, tmp_path / "x.csv", "--label", "y", "--normal", "0")
    assert "all of the 1 labelled rows have y = 0" in message


# -------------------------------------------------------------------------------------------------------------- export


def test_export(run, data, model, tmp_path):
    onnx = pytest.importorskip("onnx")
    assert "m.onnx" in run("detect", "export", model, "--out", tmp_path / "deep" / "m.onnx")
    graph = onnx.load(tmp_path / "deep" / "m.onnx")
    assert [o.name for o in graph.graph.output] == ["score"]


def test_export_mistakes(fails, model, tmp_path):
    assert "must end in .onnx" in fails("detect", "export", model, "--out", tmp_path / "m.bin")
    assert "is no saved detector" in fails("detect", "export", tmp_path, "--out", tmp_path / "m.onnx")


def test_old_names_of_commands_and_options_still_work(model, data, tmp_path, capsys):
    pytest.importorskip("onnx")
    assert main(["export", str(model), "--out", str(tmp_path / "m.onnx")]) == 0
    assert "nrf: nrf export is deprecated: use nrf detect export\n" in capsys.readouterr().err
    assert (tmp_path / "m.onnx").is_file()
    old = ["--iterations", "3", "--members=2", "--drop", "kind", "--quiet"]
    assert main(["detect", "fit", str(data / "data.csv"), "--out", str(tmp_path / "m"), *old]) == 0
    said = capsys.readouterr().err
    assert "--iterations is deprecated: use --max-iter" in said
    assert "--members is deprecated: use --n-estimators" in said
    found = NRFDetector.load(tmp_path / "m")
    assert (found.n_iter_, found.n_estimators, found.members_.count) == (3, 2, 2)


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize("action", ["fit", "score", "explain", "evaluate", "export"])
def test_every_action_has_help(action, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["detect", action, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert f"usage: nrf detect {action}" in printed
    (example,) = re.findall(rf"Example: nrf detect {action} (.*)", printed)
    parse(cli.ACTIONS[action][0], example.split(), "nrf")  # it is one that can be read


def test_the_commands_of_the_docs_can_be_read():
    page = (Path(cli.__file__).parents[3] / "docs" / "detection.md").read_text()
    commands = re.findall(r"^nrf detect (\w+) (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 6
    for action, rest in commands:
        parse(cli.ACTIONS[action][0], shlex.split(rest), "nrf")


def test_overviews(run, fails, capsys):
    assert "evaluate" in run("detect", "--help")
    assert "detect " in run("--help")
    assert "export" in run("detect", "--help")
    assert main(["detect"]) == 2
    assert "usage: nrf detect ACTION" in capsys.readouterr().out
    assert "unknown command 'fit'; did you mean `nrf detect fit`?" in fails("fit", "x.csv")
    assert "unknown action 'train'; `nrf detect` knows fit, score, explain, evaluate" in fails("detect", "train")
    assert "--nonsense" in fails("detect", "score", "m", "d", "--out", "s.csv", "--nonsense")


def test_a_tampered_model_is_one_line(fails, data, model, tmp_path):
    (tmp_path / "m").mkdir()
    for file in model.iterdir():
        (tmp_path / "m" / file.name).write_bytes(file.read_bytes())
    (weights,) = (tmp_path / "m").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert "does not match" in fails("detect", "score", tmp_path / "m", data / "data.csv", "--out", tmp_path / "s.csv")


def test_as_a_process(data, model, tmp_path):
    arguments = ["detect", "score", model, data / "data.csv", "--out", tmp_path / "s.csv", "--drop", "label", "kind"]
    done = subprocess.run([sys.executable, "-m", "nrf", *map(str, arguments)], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert (tmp_path / "s.csv").is_file()


def _heeds_ctrl_c():
    """Also where the tests were started in the background of a shell, which has the signal ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_score_leaves_nothing_and_says_so(data, model, tmp_path, number):
    """Scores are written to a partial file; SIGTERM left it there, and Ctrl-C spoke of work that is kept."""
    rows = "".join(f"{i % 7}.5,{i % 5}.5,Oslo,north\n" for i in range(200_000))
    (tmp_path / "big.csv").write_text("amount,balance,city,site\n" + rows)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "s.csv").write_text("old")
    command = [sys.executable, "-m", "nrf", "detect", "score", model, tmp_path / "big.csv"]
    command += ["--out", tmp_path / "out" / "s.csv"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_heeds_ctrl_c)
    end = time.monotonic() + 120
    while not list((tmp_path / "out").glob(".partial-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT), error  # Python may end itself by the signal; shells say 130
    assert "nothing was written" in error
    assert "kept" not in error
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["s.csv"]
    assert (tmp_path / "out" / "s.csv").read_text() == "old"


def test_places_are_checked_before_any_work(fails, data, model, tmp_path, monkeypatch):
    for module in (cli, looking):
        monkeypatch.setattr(module, "load_model", lambda *arguments: pytest.fail("loaded the detector"))
    (tmp_path / "file").write_text("")
    for action in (["score"], ["explain", "--row", "1"]):
        out = tmp_path / "file" / ("s.csv" if action == ["score"] else "s.png")
        error = fails("detect", action[0], model, data / "data.csv", "--out", out, *action[1:])
        assert "file is not a folder" in error
    assert "file is not a folder" in fails("detect", "fit", data / "data.csv", "--out", tmp_path / "file" / "model")
    assert "is not a folder" in fails("detect", "export", model, "--out", tmp_path / "file" / "m.onnx")


def test_control_characters_are_not_printed(capsys, tmp_path):
    """Names, levels and identifiers come from files: they could clear the screen or hide what is said."""
    evil = "\x1b[2J\x1b]0;x\x07"
    rng = np.random.default_rng(0)
    rows = "".join(f'o{i}{evil},{rng.normal():.3f},"{"a" if i % 2 else "b"}{evil}"\n' for i in range(60))
    (tmp_path / "x.csv").write_text(f"id,size{evil},kind\n" + rows)
    (tmp_path / "odd.csv").write_text(f"id,size{evil},kind\n1,{evil},a\n")
    fit_ = ["fit", tmp_path / "x.csv", "--out", tmp_path / "m", "--id", "id", "--max-iter", "5", "--quiet"]
    score_ = ["score", tmp_path / "m", tmp_path / "x.csv", "--out", tmp_path / "s.csv", "--top", "3"]
    explain_ = ["explain", tmp_path / "m", tmp_path / "x.csv", "--row", "1"]
    odd = ["score", tmp_path / "m", tmp_path / "odd.csv", "--out", tmp_path / "s.csv"]
    for command in (fit_, score_, explain_, odd):
        assert main(["detect", *map(str, command)]) == (2 if command is odd else 0)
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        assert "\x07" not in printed.out + printed.err
        assert "\\x1b[2J" in printed.out + printed.err
    assert evil in (tmp_path / "s.csv").read_text()  # the file has them as they are


def test_rows_are_stored_only_if_asked_for(run, data, tmp_path):
    for flags, kept in (([], False), (["--keep-examples"], True)):
        fit(run, data / "data.csv", tmp_path / "m", "--drop", "label", "kind", *flags)
        assert (NRFDetector.load(tmp_path / "m").fitted_.calibrated.rows is not None) == kept
