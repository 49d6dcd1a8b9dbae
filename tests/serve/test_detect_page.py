"""The page of `nrf serve` in a real browser, against a small service that keeps the contract (`contract_app`)."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
expect = pytest.importorskip("playwright.sync_api").expect

from contract_app import contract_app, real_app  # noqa: E402 (needs starlette)
from in_browser import BROWSER_TESTS, keep, serving  # noqa: E402
from nrf import NRFDetector  # noqa: E402
from nrf.detect.calibration import false_discoveries  # noqa: E402
from nrf.detect.storage import CARD_MARK  # noqa: E402

pytestmark = BROWSER_TESTS
CARD = f"""{CARD_MARK}

# Compressors

Readings of three sites, one row per minute of a **healthy** machine.

| site | rows |
|---|---|
| Aarhus | 1000 |
| `Cork<1\\|2` | 400 &lt; 500 |

- Do not use it for machines of another make.
- <img src=x onerror="document.title='broken in'"> is text here.

```sh
nrf detect score model readings.csv --out scores.csv
```
"""
DRIFT = {
    "model": "default", "n": 1200, "e_value": 250.0, "peak": 300.0, "alarm": True, "level": 0.01,
    "columns": [
        {"name": "flow (m³/h)", "e_value": 900.0, "alarm": True}, {"name": "site", "e_value": 0.4, "alarm": False},
    ],
    "history": [[n, 0.002 * n] for n in range(0, 1200, 20)],
}  # fmt: skip


def readings(n, seed):
    """Readings of healthy compressors: all follow the load, which no column holds."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["Aarhus", "Bergen", "Cork"], n, p=[0.5, 0.3, 0.2])
    mode = rng.choice(["steady", "ramp", "idle"], n, p=[0.7, 0.2, 0.1])
    middle, spread = np.array([[78, 7], [55, 15], [12, 3]])[[["steady", "ramp", "idle"].index(m) for m in mode]].T
    load = rng.normal(middle, spread).clip(2, 100)
    return pd.DataFrame(
        {
            "site": site,
            "mode": mode,
            "pressure (bar)": (1.2 + 0.062 * load + rng.normal(0, 0.12, n)).round(2),
            "current (A)": (4 + 0.41 * load + rng.normal(0, 1, n)).round(1),
            "temperature (°C)": (31 + 0.45 * load + 4 * (site == "Cork") + rng.normal(0, 1.6, n)).round(1),
            "vibration (mm/s)": np.exp(rng.normal(np.log(1.1 + 0.012 * load), 0.12)).round(2),
            "flow (m³/h)": (0.9 * load + rng.normal(0, 2.2, n)).clip(0).round(1),
        }
    )


FAULTS = [
    {"vibration (mm/s)": 2.2, "temperature (°C)": 1.25},  # a bearing
    {"flow (m³/h)": 0.5, "pressure (bar)": 0.75},  # a leak
    {"temperature (°C)": 1.3},
    {"pressure (bar)": 0.6},
]


def mixed_readings(n=600, faults=14):
    """Healthy readings with some faults among them, each of its own size."""
    rng, table = np.random.default_rng(8), readings(n, 7)
    for i, row in enumerate(rng.choice(n, faults, replace=False)):
        size = rng.uniform(0.5, 1.2)
        for column, factor in FAULTS[i % len(FAULTS)].items():
            table.loc[row, column] = round(table.loc[row, column] * (1 + (factor - 1) * size), 2)
    return table


@pytest.fixture(scope="module")
def detector():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(false_alarm_rate=0.02, random_state=0, keep_examples=True).fit(readings(2000, 0))


@pytest.fixture(scope="module")
def other():
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["width", "height"])
    return NRFDetector(contamination=0.1, random_state=0).fit(table)


@pytest.fixture(params=["contract", "service"])
def made_app(request, tmp_path):
    """Makes an application: the small one that keeps the contract, and the service itself."""
    if request.param == "contract":
        return contract_app
    pytest.importorskip("nrf.serve.app", reason="the service is not there")
    return lambda models, **options: real_app(models, tmp_path, **options)


def give(page, table, name="readings.csv"):
    text = table if isinstance(table, str) else table.to_csv(index=False)
    expect(page.locator("#wanted")).to_contain_text("Columns")
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": text.encode()})


def scored(page, table):
    give(page, table)
    expect(page.locator("#result")).to_be_visible()


def test_upload_threshold_explanation_and_download(open_page, made_app, detector):
    table = mixed_readings()
    wanted = detector.predict(table) < 0
    with serving(made_app({"default": detector})) as address:
        page = open_page(address)
        scored(page, table)
        expect(page.locator("#flagged")).to_have_text(f"{wanted.sum()} of 600")
        expect(page.locator("#expected")).to_have_text("at most 12")  # 2 % of 600, by 400 calibration rows: 8/401
        expect(page.locator("#fdr")).to_have_text(f"at most {round(100 * 600 * 8 / 401 / wanted.sum())} %")
        assert page.locator("#choice").is_hidden()
        assert page.locator("#drift").is_hidden()
        first = page.locator("#found tbody tr").first
        lowest = int(np.argmin(detector.score_samples(table)))
        expect(first.locator("button")).to_have_text(str(lowest + 1))
        assert table.site[lowest] in first.inner_text()

        first.click()
        why = detector.explain(table[lowest : lowest + 1])[0]
        change = why.changes[0]
        expect(page.locator(".changes li").first).to_contain_text(change.feature)
        expect(page.locator(".changes .to").first).to_have_text(f"{change.typical:.7g}")
        worst = min(why.contributions, key=why.contributions.get)
        expect(page.locator("#explanation .parts tbody tr").first).to_contain_text(worst)
        expect(page.locator("#status")).to_contain_text(f"Row {lowest + 1}: {worst} is")
        keep(page, "detect-light", full_page=True)
        page.locator("#explanation button").click()
        expect(page.locator("#explanation .parts tbody tr")).to_have_count(7)

        with page.expect_download() as waiting:
            page.click("#download")
        rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
        assert waiting.value.suggested_filename == "readings-scores.csv"
        assert [row["row"] for row in rows] == [str(i + 1) for i in range(600)]
        np.testing.assert_allclose([float(row["score"]) for row in rows], detector.score_samples(table), rtol=1e-9)
        np.testing.assert_allclose([float(row["p_value"]) for row in rows], detector.p_values(table), rtol=1e-9)
        assert [row["anomaly"] == "1" for row in rows] == wanted.tolist()

        before = len(page.asked)
        page.fill("#rate", "10")
        tenth = detector.score_samples(table) < detector.calibration_.threshold(0.1)
        expect(page.locator("#flagged")).to_have_text(f"{tenth.sum()} of 600")
        page.click("#fdr5")
        found = false_discoveries(detector.p_values(table), 0.05).sum()
        expect(page.locator("#flagged")).to_have_text(f"{found} of 600")
        slider = page.locator("#threshold")
        slider.focus()
        page.keyboard.press("End")
        expect(page.locator("#flagged")).to_have_text("600 of 600")
        page.keyboard.press("ArrowLeft")
        assert "600 rows flagged" in slider.get_attribute("aria-valuetext")
        assert len(page.asked) == before, "the slider asks nobody"
        page.fill("#rate", "0.1")
        expect(page.locator("#none")).to_be_visible()
        expect(page.locator("#rate-note")).to_contain_text("400 calibration rows cannot keep this rate, only 0.25 %")
        page.click("#own")
        expect(page.locator("#flagged")).to_have_text(f"{wanted.sum()} of 600")


def test_parts_of_a_long_file_are_scored_one_after_the_other(open_page, made_app, detector):
    table = mixed_readings(450)
    with serving(made_app({"default": detector}, max_rows=100)) as address:
        page = open_page(address)
        scored(page, table)
        expect(page.locator("#flagged")).to_have_text(f"{(detector.predict(table) < 0).sum()} of 450")
        assert sum(url.endswith("/predict?model=default") for url in page.asked) == 5
        page.get_by_label("all rows").check()
        expect(page.locator("#page")).to_have_text("1 to 12 of 450 rows")
    with serving(made_app({"default": detector}, max_bytes=9000)) as address:
        page = open_page(address)
        scored(page, table)
        expect(page.locator("#flagged")).to_have_text(f"{(detector.predict(table) < 0).sum()} of 450")


def test_a_bad_file_says_what_is_wrong_by_column(open_page, made_app, detector):
    with serving(made_app({"default": detector})) as address:
        page = open_page(address)
        problem = page.get_by_role("alert").locator("li")
        give(page, mixed_readings(30).drop(columns="flow (m³/h)"))
        expect(problem).to_contain_text("flow (m³/h)")
        give(page, "site,mode\n")
        expect(page.locator("#problem")).to_contain_text("a header, but no rows")
        give(page, "")
        expect(page.locator("#problem")).to_contain_text("nothing in it")
        page.set_input_files("#file", {"name": "x.csv", "mimeType": "text/csv", "buffer": b"a,b\n\xff,1\n"})
        expect(page.locator("#problem")).to_contain_text("x.csv is not UTF-8 text; save it as CSV (UTF-8)")
        page.set_input_files("#file", {"name": "x.csv", "mimeType": "text/csv", "buffer": b"PAR1aaaa"})
        expect(page.locator("#problem")).to_contain_text("is a Parquet file")
        assert page.locator("#result").is_hidden()
        scored(page, mixed_readings(30))
        assert page.locator("#problem").inner_text() == "", "a good file takes the message away"


def test_refusals_and_a_lost_connection_have_a_sentence_and_another_try(open_page, detector):
    trouble = [429, 413]
    with serving(contract_app({"default": detector}, trouble=trouble)) as address:
        page = open_page(address)
        give(page, mixed_readings(50))
        expect(page.locator("#problem")).to_contain_text("This is more than the service takes at once. Trouble 413")
        trouble.append(500)
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#problem")).to_contain_text("The service failed. Trouble 500")
    give(page, mixed_readings(50))
    expect(page.locator("#problem")).to_contain_text("The service does not answer. Check that `nrf serve` is running")


def test_the_token_is_asked_for_and_kept_in_memory_only(open_page, made_app, detector):
    with serving(made_app({"default": detector}, token="secret-words")) as address:
        page = open_page(address)
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-why")).to_have_text("The service does not know this token.")
        field.fill("secret-words")
        page.keyboard.press("Enter")
        scored(page, mixed_readings(40))
        expect(page.locator("#token")).to_be_hidden()
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.reload()
        expect(page.locator("#token")).to_be_visible()


def test_several_models_and_the_card_as_plain_text(open_page, detector, other):
    with serving(contract_app({"machines": detector, "parts": other}, card=CARD)) as address:
        page = open_page(address)
        choice = page.get_by_label("Model", exact=True)
        expect(choice).to_have_value("machines")
        expect(page.locator("#column-list tr")).to_have_count(7)
        page.locator("#card summary").click()
        expect(page.locator("#card-text li").nth(1)).to_contain_text('<img src=x onerror="document.title=')
        assert page.locator("#card-text img").count() == 0
        expect(page.locator("#card-text table td")).to_have_text(["Aarhus", "1000", "Cork<1|2", "400 < 500"])
        expect(page.locator("#card-text")).not_to_contain_text("<!--")
        choice.select_option("parts")
        expect(page.locator("#wanted")).to_have_text("Columns, in any order: width, height")
        rows = pd.DataFrame(np.random.default_rng(3).normal(size=(60, 2)), columns=["height", "width"])
        scored(page, rows)
        flagged = (other.predict(rows[["width", "height"]]) < 0).sum()
        expect(page.locator("#flagged")).to_have_text(f"{flagged} of 60")
        choice.select_option("machines")
        expect(page.locator("#problem")).to_contain_text("do not fit")
        expect(page.locator("#result")).to_be_hidden()
        page.goto(f"{address}?model=parts")
        expect(choice).to_have_value("parts")


def test_everything_by_keyboard(open_page, detector):
    with serving(contract_app({"default": detector})) as address:
        page = open_page(address)
        expect(page.locator("#wanted")).to_contain_text("site")

        def tab_to(selector):
            for _ in range(30):
                page.keyboard.press("Tab")
                if page.evaluate("(s) => document.activeElement.matches(s)", selector):
                    outline = page.evaluate(
                        "getComputedStyle(document.activeElement.id === 'file' ? "
                        "document.activeElement.nextSibling : document.activeElement).outlineStyle"
                    )
                    assert outline == "solid", f"the focus on {selector} can be seen"
                    return
            raise AssertionError(f"Tab does not lead to {selector}")

        tab_to("#file")
        tab_to("#paste")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Rows as CSV")).to_be_focused()
        page.keyboard.insert_text(mixed_readings(80).to_csv(index=False, sep=";"))
        tab_to("#pasted button")
        page.keyboard.press("Enter")
        expect(page.locator("#scores-title")).to_be_focused()
        tab_to("#threshold")
        before = page.locator("#flagged").inner_text()
        page.keyboard.press("PageUp")
        page.keyboard.press("PageUp")
        expect(page.locator("#flagged")).not_to_have_text(before)
        expect(page.locator("#status")).to_contain_text("rows flagged, at most")
        tab_to("#rate")
        tab_to("#found th[aria-sort] button")
        page.keyboard.press("Enter")
        expect(page.locator("#found th[aria-sort]")).to_have_attribute("aria-sort", "descending")
        tab_to("button.row")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        second = page.locator("#found button.row").nth(1)
        expect(second).to_be_focused()
        expect(second).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#why-title")).to_contain_text(second.inner_text())
        expect(page.locator("#explanation .parts")).to_be_visible()
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, input, select, textarea')].filter((e) => !e.innerText?.trim() "
            "&& !e.labels?.length && !e.getAttribute('aria-label')).map((e) => e.outerHTML)"
        )
        assert nameless == []


def test_nothing_moves_by_itself(open_page, detector):
    """Layout shifts that no input led to; the middle of Google's scale begins at 0.1."""
    count = """() => new Promise((resolve) => {
        new PerformanceObserver((list) => resolve(list.getEntries().filter((e) => !e.hadRecentInput)
            .reduce((sum, e) => sum + e.value, 0))).observe({type: "layout-shift", buffered: true});
        setTimeout(() => resolve(0), 500);
    })"""
    with serving(contract_app({"default": detector}, card=CARD)) as address:
        for width in (360, 1280):
            page = open_page(address, width=width)
            expect(page.locator("#wanted")).to_contain_text("site")
            assert page.evaluate(count) < 0.02
            page.evaluate(
                "document.querySelector('main').prepend(Object.assign(document.createElement('textarea'), {rows: 9}))"
            )
            page.wait_for_timeout(100)
            assert page.evaluate(count) > 0.02, "a shift would be noticed"


def test_a_file_of_many_rows(open_page, detector):
    """The page itself is no brake: the service's part is played by the test."""
    n = 120_000
    asked = []

    def answer(route):
        rows = route.request.post_data.count("\n") - 1
        asked.append(rows)
        scores = [((i * 7919) % 10007) / 1000 - 6 for i in range(rows)]
        p_values = [min(1.0, max(1 / 401, (score + 6) / 10)) for score in scores]
        route.fulfill(json={"model": "default", "n": rows, "scores": scores, "p_values": p_values})

    with serving(contract_app({"default": detector}, max_rows=50_000, max_bytes=1 << 24)) as address:
        page = open_page(address)
        page.route("**/predict?*", answer)
        row = readings(1, 5).to_csv(index=False).split("\n")
        scored(page, f"{row[0]}\n" + f"{row[1]}\n" * n)
        expect(page.locator("#flagged")).to_contain_text("of 120,000")
        assert sum(asked) == n
        assert len(asked) == 6
        took = page.evaluate("""() => {
            const slider = document.getElementById("threshold"), began = performance.now();
            for (let i = 0; i < 20; i++) { slider.value = -6 + i / 3; slider.dispatchEvent(new Event("input")); }
            return (performance.now() - began) / 20; }""")
        assert took < 200, f"a move of the slider takes {took:.0f} ms"


def test_dark_and_at_the_width_of_a_phone(open_page, detector):
    table = mixed_readings()
    with serving(contract_app({"default": detector}, card=CARD, drift=DRIFT)) as address:
        dark = open_page(address, scheme="dark")
        scored(dark, table)
        light = open_page(address)
        ground = "getComputedStyle(document.body).backgroundColor"
        assert dark.evaluate(ground) != light.evaluate(ground)
        dark.locator("#found button.row").nth(1).click()
        expect(dark.locator(".changes")).to_be_visible()
        expect(dark.locator("#drift")).to_contain_text("Columns that moved")
        expect(dark.locator("#drift li")).to_have_text("flow (m³/h) e-value 900")
        keep(dark, "detect-dark", full_page=True)
        phone = open_page(address, width=360, height=740, has_touch=True, is_mobile=True)
        scored(phone, table)
        phone.locator("#found button.row").first.tap()
        expect(phone.locator(".changes")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360
        expect(phone.locator("#why")).to_be_in_viewport()
        phone.set_viewport_size({"width": 360, "height": 1180})
        phone.evaluate("document.getElementById('result').scrollIntoView()")
        keep(phone, "detect-phone")
        phone.get_by_text("Model card").tap()
        phone.get_by_text("Columns (7)").tap()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360
