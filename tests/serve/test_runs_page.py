"""The page of runs in a real browser."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
expect = pytest.importorskip("playwright.sync_api").expect

from in_browser import BROWSER_TESTS, keep, serving  # noqa: E402
from nrf.serve.runs import runs_app  # noqa: E402

pytestmark = BROWSER_TESTS


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c63f8ffff3f0300090002fe34c8e2a50000000049454e44ae426082"
)


def write_run(folder, length, rate, iterations=200, seed=1):
    folder.mkdir(exist_ok=True)
    config = {"preset": "gmm-short", "config": {"train": {"iterations": iterations}, "seed": seed}}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [
        {
            "step": step,
            "potential_loss": math.exp(-rate * step) + 0.02 * math.sin(step),
            "u_data": 2 - 2 * math.exp(-rate * step),
            "watched_gap": 0.5 + math.exp(-2 * rate * step),
            "samples_outside": 0.3 * math.exp(-rate * step),
        }
        for step in range(5, length + 1, 5)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def served(tmp_path):
    write_run(tmp_path / "first", 200, 0.02)
    write_run(tmp_path / "second", 120, 0.04, seed=2)
    with serving(runs_app(tmp_path)) as address:
        yield tmp_path, address


def with_charts(page):
    page.wait_for_selector("#charts svg", timeout=20000)
    return page


def test_curves_comparison_and_a_run_that_goes_on(served, open_page):
    folder, address = served
    page = with_charts(open_page(address, width=1100, height=760))
    keep(page, "runs-light", full_page=True)
    assert page.locator("#list tr").count() == 2
    assert page.locator("#charts svg").count() == 2
    assert page.locator("#health-charts svg").count() == 2
    assert page.locator("#compared").is_visible()
    assert page.locator("#differences tbody tr").inner_text().split() == ["seed", "1", "2"]
    assert page.locator("#charts .card").first.locator("path.curve").count() == 2
    label = page.locator("#charts svg").nth(1).get_attribute("aria-label")
    assert f"first ends at {2 - 2 * math.exp(-4):.4g}" in label

    page.get_by_label("Show second").focus()
    page.keyboard.press("Space")
    curves = page.locator("#charts .card").first.locator("path.curve")
    expect(curves).to_have_count(1)
    page.keyboard.press("Space")
    expect(curves).to_have_count(2)

    write_run(folder / "second", 160, 0.04, seed=2)
    expect(page.locator("#list")).to_contain_text("160 of 200")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Show second", "the focus stays"


def test_samples_by_a_slider_that_follows_the_run(served, open_page):
    folder, address = served
    samples = folder / "first" / "samples"
    samples.mkdir()
    for step in (100, 200):
        (samples / f"step-{step:09}.png").write_bytes(PIXEL)
    page = with_charts(open_page(address))
    slider = page.get_by_label("Samples of first, from the first to the latest")
    picture = page.locator("#pictures img")
    expect(picture).to_have_attribute("alt", "Samples of first, step-000000200.png")
    (samples / "step-000000300.png").write_bytes(PIXEL)
    write_run(folder / "first", 150, 0.02)
    expect(picture).to_have_attribute("alt", "Samples of first, step-000000300.png")
    slider.focus()
    page.keyboard.press("Home")
    expect(picture).to_have_attribute("alt", "Samples of first, step-000000100.png")
    (samples / "step-000000400.png").write_bytes(PIXEL)
    write_run(folder / "first", 155, 0.02)
    expect(slider).to_have_attribute("max", "3")
    expect(picture).to_have_attribute("alt", "Samples of first, step-000000100.png")
    expect(slider).to_be_focused()


def test_a_server_that_is_gone_is_said(tmp_path, open_page):
    write_run(tmp_path / "first", 20, 0.02)
    with serving(runs_app(tmp_path)) as address:
        page = with_charts(open_page(address))
    expect(page.locator("#status")).to_contain_text("`nrf runs` does not answer")


def test_dark_and_at_the_width_of_a_phone(served, open_page):
    dark = with_charts(open_page(served[1], width=1100, height=760, scheme="dark"))
    light = with_charts(open_page(served[1]))
    ground = "getComputedStyle(document.body).backgroundColor"
    assert dark.evaluate(ground) != light.evaluate(ground)
    keep(dark, "runs-dark", full_page=True)
    phone = with_charts(open_page(served[1], width=360, height=760))
    keep(phone, "runs-phone", full_page=True)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
