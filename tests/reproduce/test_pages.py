"""The tables of README and docs are those of the records in results/."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import nrf
from nrf.cli import main
from nrf.errors import InputError
from nrf.reproduce.pages import Records, fill, pages_beside, write_pages
from nrf.reproduce.pages.fill import TABLES
from nrf.reproduce.runner.record import Record, Row
from nrf.reproduce.runner.report import Table

RESULTS = Path(nrf.__file__).parent.parent.parent / "results"
PAGES = list(pages_beside(RESULTS))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_tables_are_those_of_the_records(page):
    text = page.read_text()
    assert fill(text, Records(RESULTS), page.name) == text, "`nrf reproduce --write-docs` makes the tables anew"


def test_every_table_is_in_a_page():
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []


@pytest.fixture
def copied(tmp_path):
    (tmp_path / "docs").mkdir()
    shutil.copytree(RESULTS / "cells", tmp_path / "results" / "cells")
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path / "results")
    page = tmp_path / "docs" / "page.md"
    page.write_text("Before.\n\n<!-- table: ablation -->\n| old |\n<!-- end -->\n\nAfter.\n")
    return tmp_path


def test_another_number_in_a_record_is_another_table(copied, capsys):
    page, results = copied / "docs" / "page.md", copied / "results"
    assert main(["reproduce", "--write-docs", "--results", str(results)]) == 0
    assert f"written: {page}" in capsys.readouterr().out
    before = page.read_text()
    assert before.startswith("Before.\n\n<!-- table: ablation -->\n| revision | IS-c10: generation |")
    assert before.endswith("|\n<!-- end -->\n\nAfter.\n")
    assert main(["reproduce", "--write-docs", "--results", str(results)]) == 0
    assert "all tables are those of the records" in capsys.readouterr().out
    path = results / "ablation.json"
    path.write_text(path.read_text().replace(str(Record.read(path).rows[0].mean), "1.999"))
    assert fill(before, Records(results)) != before
    assert write_pages(results) == [page]
    assert "1.999" in page.read_text()


@pytest.mark.parametrize(
    ("page", "name"),
    [("serve", "serving"), ("scale", "directory"), ("time", "windows"), ("performance", "detector-speed")],
)
def test_a_page_with_other_numbers_than_its_benchmark_is_noticed(copied, page, name):
    text, path = (RESULTS.parent / "docs" / f"{page}.md").read_text(), copied / "results" / f"{name}.json"
    record = Record.read(path)
    assert fill(text, Records(path.parent)) == text
    replace(record, rows=[replace(row, mean=1.5 * row.mean + 1) for row in record.rows]).write(path)
    changed = fill(text, Records(path.parent))
    assert changed != text
    blocks = [re.findall(rf"<!-- table: {name}\b.*?<!-- end -->", t, flags=re.DOTALL) for t in (text, changed)]
    assert blocks[0]
    assert all(before != after for before, after in zip(*blocks, strict=True))


@pytest.mark.parametrize(
    ("page", "heading"), [("serve", "Measured"), ("scale", "How much, how fast"), ("time", "What was tried")]
)
def test_no_measured_number_is_typed_by_hand(page, heading):
    text = (RESULTS.parent / "docs" / f"{page}.md").read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    outside = re.sub(r"<!-- table: .*?<!-- end -->", "", section, flags=re.DOTALL)
    assert "<!-- table: " in section
    assert "\n|" not in outside
    assert not re.findall(r"\d (?:%|(?:ms|s|MB|MiB|GB|seconds|minutes|hours|CPU-seconds|rows per)\b)|0\.\d\d", outside)


def test_what_is_wrong_with_a_page_is_named():
    records = Records(RESULTS)
    with pytest.raises(InputError, match=r"x.md: there is no table 'ablatio'; did you mean ablation\?"):
        fill("<!-- table: ablatio -->\n<!-- end -->", records, "x.md")
    for text in ("<!-- table: ablation -->\n", "<!-- end -->", "<!-- table: a -->\n<!-- table: b -->\n<!-- end -->"):
        with pytest.raises(InputError, match="needs an <!-- end --> of its own"):
            fill(text, records)
    assert main(["reproduce", "gmm", "--write-docs"]) == 2


def test_a_row_must_be_there_once(tmp_path):
    rows = [Row("a", "m", 1.0), Row("a", "m", 2.0), Row("b", "m", 3.0, case="c")]
    Record("x", "nrf", rows=rows).write(tmp_path / "x.json")
    found = Records(tmp_path).rows("x")
    assert found.get("b", "m", case="c").mean == 3.0
    assert found.find("b", "m") is None
    with pytest.raises(InputError, match="2 rows are of"):
        found.get("a", "m")
    with pytest.raises(InputError, match="has no row of 'c'"):
        found.get("c", "m")


def test_bars_in_a_cell_are_no_bars_of_the_table():
    assert Table(["q(h|x)", "n"], [["", "1"]]).as_markdown() == "| q(h\\|x) | n |\n|---|---|\n|  | 1 |"


def test_noise_levels_are_in_the_table_of_learners_once_they_are_in_the_record(copied):
    folder = copied / "results"
    record = Record.read(folder / "gmm.json")
    others = [row for row in record.rows if row.preset != "levels"]
    replace(record, rows=others).write(folder / "gmm.json")
    assert not [line for line in TABLES["gmm, learners"](Records(folder)).rows if line[0] == "levels"]
    place = {"preset": "levels", "case": "revision, averaged weights"}
    rows = [
        Row("levels", "iterations", 3000, preset="levels"),
        Row("levels", "covered modes", 30.5, **place),
        Row("levels", "realistic ratio", 0.97, **place),
        Row("levels", "log-likelihood", -1.73, preset="levels", case="averaged weights"),
        Row("levels", "log-likelihood, as it is", -1.74, preset="levels", case="averaged weights"),
        Row("levels", "integral", 0.99, preset="levels", case="averaged weights"),
        Row("levels", "slope", 1.02, preset="levels", case="averaged weights"),
    ]
    replace(record, rows=[*others, *rows]).write(folder / "gmm.json")
    (line,) = (line for line in TABLES["gmm, learners"](Records(folder)).rows if line[0] == "levels")
    assert list(line) == ["levels", "levels", "3,000", "", "30.50 / 0.97", "−1.73", "", "−1.740; 0.990; 1.020"]


def test_pages_do_without_the_rows_that_were_quoted_until_pairs_were_run(copied):
    """The paper's own numbers of CIFAR-10 are in a record only as long as no pair on pixels is."""
    folder = copied / "results"
    record = Record.read(folder / "cifar10-one-class.json")
    before = [TABLES[name](Records(folder)).rows for name in ("summary", "cifar10-one-class")]
    ours = [row for row in record.rows if not (row.quoted and row.method.startswith("inclusive-NRF"))]
    assert len(ours) < len(record.rows)
    replace(record, rows=ours).write(folder / "cifar10-one-class.json")
    assert [TABLES[name](Records(folder)).rows for name in ("summary", "cifar10-one-class")] == before
