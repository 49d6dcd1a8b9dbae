"""What tests of the pages share; the fixtures are in serve/conftest.py."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-quic",
]  # fmt: skip
PICTURES = os.environ.get("NRF_SCREENSHOTS")
"""A folder to keep pictures of the pages in."""
BROWSER_TESTS = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
]


@contextmanager
def serving(app):
    """An application on a free port of this computer; gives its address."""
    uvicorn = pytest.importorskip("uvicorn")
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started and time.monotonic() < end:
        time.sleep(0.05)
    assert server.started
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(60)


def keep(page, name, **options):
    """A picture of the page in the folder for them, if there is one."""
    if PICTURES:
        path = Path(PICTURES) / f"{name}.png"
        page.mouse.move(0, 0)
        page.screenshot(path=str(path), **options)
        image = pytest.importorskip("PIL.Image")
        image.open(path).convert("RGB").quantize(96, dither=image.Dither.NONE).save(path, optimize=True)
