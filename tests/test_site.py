"""The built site: strict, and in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest

import nrf

pytest.importorskip("mkdocs")

PROJECT = Path(nrf.__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-quic",
]  # fmt: skip
PICTURES = os.environ.get("NRF_SCREENSHOTS")
"""A folder to keep pictures of the pages in."""
needs_browser = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    paths = [str(PROJECT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    return folder


def test_it_builds_without_a_warning_and_fetches_nothing(site):
    assert (site / "results" / "demo" / "panels.png").is_file()
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    fetched = re.compile(
        r"""<(?:script|img|iframe|link rel="?(?:stylesheet|icon|preload))[^>]*(?:src|href)=["']?https?:"""
    )
    assert fetched.search('<script src="https://example.org/x.js">')
    assert [page.name for page in pages if fetched.search(page.read_text())] == []


def test_the_reference_describes_what_is_public(site):
    def page(name: str) -> str:
        return (site / "reference" / f"{name}.html").read_text()

    for module in (
        nrf.samplers,
        nrf.learners,
        nrf.networks,
        nrf.data,
        nrf.metrics,
        nrf.training,
        nrf.detect,
        nrf.fields,
    ):
        name = module.__name__.rpartition(".")[2]
        text = page(name)
        missing = [part for part in module.__all__ if f'id="nrf.{name}.{part}"' not in text]
        assert missing == [], name
    assert 'id="nrf.runs.trained.TrainedModel.log_density"' in page("runs")
    assert 'href="detect.html#nrf.detect.NRFDetector"' in page("index")


def test_every_page_has_a_title_and_a_description_of_its_own(site):
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    del pages["404.html"]
    for pattern in (r"<title>(.*?) - nrf</title>", r'<meta name="description" content="(.*?)"'):
        found = {name: re.search(pattern, text) for name, text in pages.items()}
        assert [name for name, match in found.items() if match is None] == []
        counted = Counter(match[1] for match in found.values() if match is not None)
        assert [text for text, n in counted.items() if n > 1] == []
    assert "<title>Anomaly detection with neural random fields - nrf</title>" in pages["index.html"]


def test_examples_and_results_of_docstrings_are_shown_as_such(site):
    pages = {path.name: path.read_text() for path in (site / "reference").glob("*.html")}
    assert [name for name, text in pages.items() if "<blockquote>" in text] == []  # from >>>
    assert "sampling from the reference" in re.sub(r"\s+", " ", pages["runs.html"])  # one description, two lines
    assert 'class="task-list' in (site / "contributing.html").read_text()


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not write to the terminal."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield found
        found.close()


def _note(request, troubles):
    if request.failure != "net::ERR_ABORTED":  # what a page still fetches when the next one is opened
        troubles.append(f"{request.failure}: {request.url}")


def _watch(page, troubles, hosts):
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: _note(request, troubles))
    page.on(
        "response", lambda answer: troubles.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
    )
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))


@needs_browser
def test_every_page_opens_at_the_width_of_a_telephone_and_every_link_leads_somewhere(site, address, browser):
    troubles, hosts, seen, wide = [], set(), dict[str, set[str]](), []
    page = browser.new_page(viewport={"width": 360, "height": 740})
    _watch(page, troubles, hosts)
    waiting, wanted = [f"{address}/index.html"], set[tuple[str, str]]()
    while waiting:
        url = waiting.pop()
        if url in seen:
            continue
        page.goto(url)
        seen[url] = set(page.eval_on_selector_all("[id]", "all => all.map(one => one.id)"))
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(url)
        for link in page.eval_on_selector_all("a[href]", "all => all.map(one => one.href)"):
            place, part = urldefrag(link)
            if place.startswith(address):
                wanted.add((place, part))
                if place.endswith(".html"):
                    waiting.append(place)
    page.close()
    assert troubles == []
    assert hosts == {"127.0.0.1"}
    assert wide == []
    assert {urlsplit(url).path[1:] for url in seen} == {
        path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html"
    }
    anchors = [(place, part) for place, part in wanted if place in seen and part and part not in seen[place]]
    assert [found for found in anchors if not found[1].startswith("__")] == []
    files = [urlsplit(place).path[1:] for place, _ in wanted if not place.endswith(".html")]
    assert [name for name in files if name and not (site / name).exists()] == []


@needs_browser
@pytest.mark.parametrize("served", [True, False], ids=["served", "as a file"])
def test_search_works_without_a_network(site, address, browser, served):
    troubles, hosts = [], set()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    _watch(page, troubles, hosts)
    page.goto(f"{address}/index.html" if served else (site / "index.html").as_uri())
    page.click("input.md-search__input")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect(page.locator(".md-search-result__meta")).to_have_text(re.compile("Type to start"), timeout=20_000)
    page.keyboard.type("temperature")
    page.wait_for_selector("li.md-search-result__item", timeout=20_000)
    assert page.locator("li.md-search-result__item").count() >= 2
    assert troubles == []
    assert hosts <= {"127.0.0.1", "", None}
    page.close()


@needs_browser
def test_pictures(address, browser):
    """Pages as they look, kept where NRF_SCREENSHOTS says; here it is only seen that there is something on them."""
    views = {"wide": {"width": 1280, "height": 900}, "telephone": {"width": 360, "height": 740}}
    for size, viewport in views.items():
        page = browser.new_page(viewport=viewport)
        for name in (
            "index",
            "should-i-use-this",
            "method",
            "results",
            "detection",
            "reference/detect",
            "reference/cli",
        ):
            page.goto(f"{address}/{name}.html")
            assert page.locator("article h1").inner_text().strip()
            if PICTURES:
                Path(PICTURES).mkdir(parents=True, exist_ok=True)
                page.screenshot(path=Path(PICTURES) / f"{size}-{name.replace('/', '-')}.png")
        page.close()
