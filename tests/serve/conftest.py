"""A browser for tests of the pages."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from in_browser import ARGUMENTS, CHROMIUM


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=90_000)  # a busy machine takes its time
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def open_page(browser):
    """Opens the page at an address; in the end, that nothing went wrong in it and nothing was asked of others."""
    pages = []

    def opened(address, width=1280, height=900, scheme="light", **options):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        page.asked, page.wrong = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
        page.goto(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        refused = "Failed to load resource"  # the browser notes each refusal of the service
        assert [text for text in page.wrong if refused not in text] == []
        assert {urlsplit(url).hostname for url in page.asked if not url.startswith("blob:")} == {"127.0.0.1"}
        page.close()
