"""The pages' own arithmetic and CSV parser, in a real browser, against Python's."""

from __future__ import annotations

import csv
import io
import random

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright.sync_api")

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from in_browser import BROWSER_TESTS, serving
from nrf.detect.calibration import Calibration, false_discoveries
from nrf.detect.tables.dialect import sniffed
from nrf.errors import InputError
from nrf.serve.runs import PAGE

pytestmark = BROWSER_TESTS


@pytest.fixture
def evaluate(open_page):
    """Runs a function of the page's modules: a name and its JavaScript, which finds the module as `m`."""
    with serving(Starlette(routes=[Mount("/page", StaticFiles(directory=PAGE))])) as address:
        page = open_page(f"{address}page/icon.svg")

        def run(module, code, given):
            return page.evaluate(
                f"async (given) => {{ const m = await import('/page/{module}.js'); return ({code})(given); }}", given
            )

        yield run


def python_rows(text, separator):
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]


KNOWN = [
    'a,b\n1,2\n',
    '\ufeffa,b\r\n"x, y","he said ""no"""\r\n',
    'a,b\r\n"two\r\nlines",2\r\n\r\n\r\n3,4',
    'a;b\n"1;2";"x\ny"\n',
    'a\n""\n\n5\n',
    'a,b\rx,y\r',
    'a,b\nx"y,z\n"q"r,s\n',
    'a,b\n,\n"",""\n',
    'a,b\n1,"never closed\n2,3\n',
    "",
    "\n\n",
]  # fmt: skip


def test_csv_is_read_as_python_reads_it(evaluate):
    rng = random.Random(4)
    texts = [(text, ";" if ";" in text else ",") for text in KNOWN]
    for _ in range(400):
        letters = rng.choices('ab1 é🙂",;\n\r', weights=[3, 3, 3, 1, 1, 1, 4, 5, 1, 3, 1], k=rng.randrange(40))
        texts.append(("".join(letters), ","))
    code = """(all) => all.map(([text, separator]) => {
        const c = new m.CsvTable(text, separator);
        return [c.header, Array.from({length: c.length}, (_, i) => c.row(i))]; })"""
    for (text, separator), (header, rows) in zip(texts, evaluate("csv", code, texts), strict=True):
        wanted = python_rows(text.removeprefix("\ufeff"), separator)
        assert [header, *rows] == (wanted or [[]]), repr(text)


def test_parts_hold_all_rows_and_keep_to_the_limits(evaluate):
    rows = [[str(i), "é" * (i % 7), 'a "b"\r\nc' if i % 3 else ""] for i in range(100)]
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["n", "text", "more"], *rows])
    code = """([text, maxRows, maxBytes]) => {
        const c = new m.CsvTable(text), parts = [];
        for (let i = 0, end; i < c.length; i = end) {
          end = c.partEnd(i, maxRows, maxBytes);
          if (end === i) return "too long";
          parts.push(c.part(i, end));
        }
        return parts; }"""
    for max_rows, max_bytes in ((7, 10**9), (1000, 300), (1000, 10**9), (1, 80)):
        parts = evaluate("csv", code, [file.getvalue(), max_rows, max_bytes])
        read = [python_rows(part, ",") for part in parts]
        assert [row for part in read for row in part[1:]] == rows
        assert all(part[0] == ["n", "text", "more"] and len(part) <= max_rows + 1 for part in read)
        assert max(len(part.encode()) for part in parts) <= max_bytes
    assert len(evaluate("csv", code, [file.getvalue(), 1000, 10**9])) == 1
    assert evaluate("csv", code, [file.getvalue(), 1000, 30]) == "too long"


def test_the_separator_is_found_as_the_service_finds_it(evaluate, tmp_path):
    texts = [
        "a,b\n1,2\n",
        "a;b\n1,5;2\n",
        "a\tb\n1\t2\n",
        "a|b,c\n1|2\n",
        "a\n1\n",
        '"a;b",c\n1,2\n',
        "a;b,c\n1;2\n3,4;5\n",
    ]
    found = evaluate("csv", "(all) => all.map(m.separatorOf)", texts)
    for i, (text, separator) in enumerate(zip(texts, found, strict=True)):
        path = tmp_path / f"{i}.csv"
        path.write_text(text)
        assert separator == sniffed(path), text
    path.write_text("a;b,c\n1;2,3\n")  # the service refuses this one; the page has to show something
    with pytest.raises(InputError, match="both separate"):
        sniffed(path)
    assert evaluate("csv", "m.separatorOf", "a;b,c\n1;2,3\n") == ","


def test_written_csv_is_read_back(evaluate):
    rows = [["row", "x"], ["1", 'a "b", c'], ["2", "two\nlines"], ["3", ""]]
    assert python_rows(evaluate("csv", "m.written", rows), ",") == rows


@pytest.mark.parametrize("n", [5, 99, 400])
def test_thresholds_and_rates_are_those_of_the_detector(evaluate, n):
    rng = np.random.default_rng(n)
    calibration = Calibration.of(rng.normal(size=n).round(1))  # with ties
    scores = np.concatenate([rng.normal(size=150), rng.normal(-3, 1, 30)]).round(1)
    p_values = calibration.p_values(scores)
    rates = [0.0001, 0.01, 0.05, 0.1, 1 / 6, 0.5, 0.99]
    code = """([known, scores, p, rates]) => {
        const c = new m.Calibration({n: known.length, scores: known}), s = new m.Scored(scores, p);
        return {order: s.order, rules: rates.map((rate) => ({...m.outcome(s, c, {rate}), cutoff: s.cutoff(rate)})),
          by: scores.map((score) => m.outcome(s, c, {score}))}; }"""
    given = [calibration.scores.tolist(), scores.tolist(), p_values.tolist(), rates]
    found = evaluate("rates", code, given)
    assert scores[found["order"]].tolist() == sorted(scores)
    for rate, rule in zip(rates, found["rules"], strict=True):
        threshold = calibration.threshold(rate)
        assert rule["flagged"] == (scores < threshold).sum()
        assert rule["threshold"] == threshold
        assert rule["rate"] <= rate + 1e-9
        assert rule["rate"] > rate - 1 / (n + 1)
        assert rule["expected"] == pytest.approx(180 * rule["rate"])
        assert rule["fdr"] == pytest.approx(min(1, rule["expected"] / rule["flagged"]) if rule["flagged"] else 0)
        discoveries = false_discoveries(p_values, rate)
        assert rule["cutoff"] == (p_values[discoveries].max() if discoveries.any() else 0)
    for score, rule in zip(scores, found["by"], strict=True):
        assert rule["flagged"] == (scores < score).sum()
        assert rule["rate"] == pytest.approx((1 + (calibration.scores < score).sum()) / (n + 1))


def test_the_false_discovery_rate_bounds_the_share_of_false_alarms(evaluate):
    """Over many draws, the mean share of normal rows among the flagged is at most the mean of what the page says."""
    rng, shares, said = np.random.default_rng(0), [], []
    given = []
    for _ in range(60):
        calibration = Calibration.of(rng.normal(size=300))
        scores = np.concatenate([rng.normal(size=180), rng.normal(-4, 1, 20)])
        given.append([calibration.scores.tolist(), scores.tolist(), calibration.p_values(scores).tolist()])
    code = """(all) => all.map(([known, scores, p]) => {
        const s = new m.Scored(scores, p), c = new m.Calibration({n: 300, scores: known});
        const found = m.outcome(s, c, {rate: 0.03});
        return [found.fdr, s.order.slice(0, found.flagged)]; })"""
    for fdr, flagged in evaluate("rates", code, given):
        said.append(fdr)
        shares.append(np.mean(np.array(flagged) < 180))
    assert 0.1 < np.mean(shares) <= np.mean(said) < 0.3


def test_of_many_calibration_rows_a_part_is_enough(evaluate):
    known = np.sort(np.random.default_rng(2).normal(size=20_001))
    code = """([n, scores]) => { const c = new m.Calibration({n, scores});
        return [c.threshold(0.01), c.rate(c.threshold(0.01)), c.threshold(1e-6)]; }"""
    at, rate, nothing = evaluate("rates", code, [len(known), known[::10].tolist()])
    assert at == pytest.approx(Calibration.of(known).threshold(0.01), abs=0.02)
    assert rate == pytest.approx(0.01, abs=0.001)
    assert nothing == -np.inf


def test_rows_are_sorted_by_number_where_all_cells_are_numbers(evaluate):
    code = """(cells) => [false, true].map((down) =>
        m.sortedBy(cells.map((_, i) => i), (i) => cells[i], down).map((i) => cells[i]))"""
    assert evaluate("rows", code, ["10", "9", "", "-1e1"]) == [["-1e1", "9", "10", ""], ["10", "9", "-1e1", ""]]
    assert evaluate("rows", code, ["b", "a10", "a9", ""])[0] == ["a9", "a10", "b", ""]
