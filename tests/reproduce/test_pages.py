"""The tables of README and docs are those of the records in results/."""

from __future__ import annotations

import ast
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
from nrf.reproduce.pages.readme import PIXELS
from nrf.reproduce.pages.verdicts import NOT_RUN
from nrf.reproduce.runner.record import Record, Row
from nrf.reproduce.runner.report import Table

RESULTS = Path(nrf.__file__).parent.parent.parent / "results"
PAGES = list(pages_beside(RESULTS))
CHANGELOG = RESULTS.parent / "CHANGELOG.md"


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
    page.write_text("Before.\n\n<!-- table: kddcup-ablation -->\n| old |\n<!-- end -->\n\nAfter.\n")
    return tmp_path


def test_another_number_in_a_record_is_another_table(copied, capsys):
    page, results = copied / "docs" / "page.md", copied / "results"
    assert main(["reproduce", "--write-docs", "--results", str(results)]) == 0
    assert f"written: {page}" in capsys.readouterr().out
    before = page.read_text()
    assert before.startswith("Before.\n\n<!-- table: kddcup-ablation -->\n| change of `released`, SGLD |")
    assert before.endswith("|\n<!-- end -->\n\nAfter.\n")
    assert main(["reproduce", "--write-docs", "--results", str(results)]) == 0
    assert "all tables are those of the records" in capsys.readouterr().out
    path = results / "kddcup-ablation.json"
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


NOT_TYPED = re.compile(
    r"<!-- table: .*?<!-- end -->|<!-- value: .*?<!-- /value -->"  # made from records
    r"|^```.*?^```|^~~~.*?^~~~|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$"  # code, settings, closed forms
    r"|\]\([^)]*\)|<[!/a-zA-Z][^>\n]*>"  # links
    r"|\b\d+\.\d+\.\d+\b|(?:Python|version|until|since) \d+\.\d+|95 % interval|Apache-2.0",
    re.DOTALL | re.MULTILINE,
)
_TIME = r"(?:seconds?|minutes?|hours?|days?|weeks?|months?)"
_SIZE = r"[kK]i?B|[MGT]i?B"
MEASURED = re.compile(
    r"\d\.\d|±|\d\s?%"
    rf"|\d\s(?:percent|per cent|µs|ms|s|{_SIZE}|{_TIME}|CPU-\w+|core-hours|GFLOP\S*|nats?|points?(?! of))\b"
    rf"|\d\s(?:(?!miles\b)[\w-]+\s)?(?:per|an?)\s(?:CPU-)?{_TIME}\b|\d\s?(?:×|times)\s(?:as|the|more|less|faster|slower|longer)\b"
    r"|\d\s(?:out\s)?of\s(?:the\s)?\d|\b(?:AUROC|F1|[Aa]ccuracy|[Pp]recision|[Rr]ecall|KL)\s(?:of|is|was)\s\d"
)


def typed_by_hand(name: str, text: str) -> list[str]:
    """Lines with a number that looks measured and stands neither in a table or value of a record nor in code."""
    rest = NOT_TYPED.sub(lambda found: "\n" * found[0].count("\n"), text)
    return [f"{name}:{i}: {line}" for i, line in enumerate(rest.splitlines(), 1) if MEASURED.search(line)]


@pytest.mark.parametrize("page", [*PAGES, CHANGELOG], ids=lambda path: path.name)
def test_no_measured_number_is_typed_by_hand(page):
    """Settings, definitions and closed forms stand in code marks or are mathematics; what was measured, in a record."""
    assert typed_by_hand(page.name, page.read_text()) == []


@pytest.mark.parametrize("script", sorted((RESULTS.parent / "examples").glob("*.py")), ids=lambda path: path.name)
def test_no_measured_number_is_typed_into_the_text_of_an_example(script):
    """The site shows a script's docstring and the comments below its ``# %%`` as text."""
    code = script.read_text()
    heads = re.findall(r"^# %%\n((?:#.*\n)*)", code, flags=re.MULTILINE)
    assert heads
    text = "\n".join([ast.get_docstring(ast.parse(code)) or "", *(re.sub("^# ?", "", h, flags=re.M) for h in heads)])
    assert typed_by_hand(script.name, text) == []


@pytest.mark.parametrize(
    ("typed", "noticed"),
    [
        ("an AUROC of 0.91", True),
        ("an AUROC of 91", True),
        ("in 3 minutes", True),
        ("in 1 hour", True),
        ("91 % of them", True),
        ("scores 4,975 rows per second", True),
        ("12 times faster, 3 × as fast", True),
        ("in 16 of 20 runs", True),
        ("a < 2, which has 0.91, and b > 3", True),
        ("steps of `0.01`, version 0.1.0, $x = 0.1$", False),
        ("has <!-- value: gmm; a; b -->0.91<!-- /value -->", False),
        ("32 modes in two dimensions, 8×8 pixels, 5,000 images", False),
    ],
)
def test_what_counts_as_measured(typed, noticed):
    assert bool(typed_by_hand("page", typed)) == noticed


def test_single_numbers_are_those_of_the_records(tmp_path):
    row = Row("a, b", "F1", 0.5, 0.25, 4, preset="best", column="last", paper=0.75)
    Record("x", "nrf", rows=[row, Row("c", "loss", -1.5)]).write(tmp_path / "x.json")
    records = Records(tmp_path)

    def filled(asked: str) -> str:
        text = fill(f"has <!-- value: {asked} -->?<!-- /value -->.", records, "x.md")
        assert fill(text, records) == text
        return re.sub("<!--.*?-->", "", text)

    place = "x; a, b; F1; preset=best; column=last"
    assert filled(place) == "has 0.500."
    assert filled(f"{place}; sd; form=.2f") == "has 0.50 ± 0.25."
    assert filled(f"{place}; times=100; form=.0f; sd") == "has 50 ± 25."
    assert filled(f"{place}; n") == "has 4."
    assert filled(f"{place}; paper; form=.2f") == "has 0.75."
    assert filled("x; c; loss; form=.1f") == "has −1.5."
    for asked, message in (
        ("x; c", "needs a record, a method and a metric"),
        ("x; c; F1", "x.md: x has no row of 'c'"),
        ("x; c; loss; sds", "'sds' in the value .* is not one of preset="),
        ("x; c; loss; paper", "the paper has no number of 'c'"),
    ):
        with pytest.raises(InputError, match=message):
            filled(asked)
    for text in (
        "<!-- value: x; c; loss -->1",
        "1<!-- /value -->",
        "<!-- value: x; c; loss -->**1**<b><!-- /value -->",
    ):
        with pytest.raises(InputError, match="needs a <!-- /value --> behind its number"):
            fill(text, records)
    with pytest.raises(InputError, match=r"x\.md:2: a value cannot begin a line"):
        fill("It has\n<!-- value: x; c; loss -->1<!-- /value -->.", records, "x.md")


def test_what_is_wrong_with_a_page_is_named():
    records = Records(RESULTS)
    with pytest.raises(InputError, match=r"x.md: there is no table 'kddcup-ablatio'; did you mean kddcup-ablation\?"):
        fill("<!-- table: kddcup-ablatio -->\n<!-- end -->", records, "x.md")
    for text in (
        "<!-- table: kddcup-ablation -->\n",
        "<!-- end -->",
        "<!-- table: a -->\n<!-- table: b -->\n<!-- end -->",
    ):
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


def test_pairs_on_pixels_are_in_the_short_tables_once_both_samplers_have_run(copied):
    folder = copied / "results"
    record = Record.read(folder / "cifar10-one-class.json")

    def lines():
        found = [TABLES[name](Records(folder)).rows for name in ("cifar10-one-class", "summary")]
        return [line for rows in found for line in rows if "pixels (half the width, 3 of 100 epochs)" in line[0]]

    short, summary = lines()
    last, best = (text.split(" / ") for text in short[1:])
    assert summary[2] == f"{' / '.join(last)} (best epochs: {' / '.join(best)} †)"
    assert all(float(a) <= float(b) for a, b in zip(last, best, strict=True))
    without = [row for row in record.rows if (row.method, row.preset) != ("inclusive-NRF, SGLD", PIXELS)]
    replace(record, rows=without).write(folder / "cifar10-one-class.json")
    (summary,) = lines()
    assert summary[2].startswith(f"{NOT_RUN} / {last[1]}")
