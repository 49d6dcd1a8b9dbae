"""`nrf serve`."""

from __future__ import annotations

import gc
import importlib
import logging
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import tyro

from nrf.cli.parsing import say
from nrf.errors import InputError, needs, printable

Model = Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[MODEL]")]
MIB = 1 << 20


def serve(
    model: Model = None,
    /,
    models: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    token_file: Path | None = None,
    no_token: bool = False,
    max_rows: int = 100_000,
    max_mib: int = 32,
    max_explained: int = 20,
    seconds: float = 30.0,
    concurrency: int = 256,
    drift: float = 0.01,
) -> int:
    """Serve saved detectors over HTTP: scores, decisions, explanations. A folder that is replaced is loaded again.

    Example: nrf serve model --port 8765

    Args:
        model: Folder of a detector; it is served as `default`.
        models: Folder whose subfolders are detectors, served by their names; instead of MODEL, or in addition.
        host: Address to listen on. Any address other than 127.0.0.1 needs --token-file, or --no-token.
        port: Port to listen on.
        token_file: File with the token that requests must send: Authorization: Bearer TOKEN.
        no_token: Answer requests without a token, also on an address other than 127.0.0.1.
        max_rows: Maximum number of rows in a request.
        max_mib: Maximum size of a body in MiB; unpacked, eight times as many.
        max_explained: Maximum number of rows that a request may have explained.
        seconds: Seconds for a body to arrive, and the same time again for the answer.
        concurrency: Maximum number of requests with rows at a time.
        drift: Watch the scored rows for drift, with at most this probability of ever raising a false alarm; 0 watches
            nothing.
    """
    with needs("serve", "nrf serve"):
        import uvicorn

        importlib.import_module("pyarrow")  # without it, a later error would name another extra

    from nrf.serve.app import detection_app
    from nrf.serve.limits import Limits
    from nrf.serve.runs import LOOPBACK
    from nrf.serve.served import Models

    if not 0 <= drift < 1:
        raise InputError(f"drift must lie between 0 and 1, got {drift}; 0 watches nothing")
    if not 0 < port < 65536:
        raise InputError(f"port must lie between 1 and 65535, got {port}")
    loopback = host in LOOPBACK
    token = None if token_file is None else _token(token_file)
    if no_token and token is not None:
        raise InputError("--token-file and --no-token exclude each other; give one of them")
    if not loopback and token is None and not no_token:
        raise InputError(
            f"anybody who reaches {host} could send requests; give --token-file FILE with a token, or say --no-token, "
            "or leave out --host"
        )
    limits = Limits(max_rows, max_mib * MIB, 8 * max_mib * MIB, max_explained, seconds, concurrency)
    found = Models(model, models)
    listening = _listening(host, port)
    hosts = LOOPBACK if loopback else ()
    app = detection_app(found, limits=limits, hosts=hosts, token=token, drift_level=drift or None)
    _log_to_stderr()
    names = ", ".join(found.served)
    say(f"{names} at http://{host}:{port} ({'with' if token else 'without'} a token; Ctrl-C ends it)")
    sys.stdout.flush()
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=max(1, round(seconds)),
    )
    server = uvicorn.Server(config)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # loaded models stay: collecting among them again and again would delay answers
    with listening, suppress(KeyboardInterrupt):  # requests under way have been answered by then
        server.run(sockets=[listening])
    say("stopped")
    return 0


SWITCH_SECONDS = 0.001
"""How long a thread may keep others waiting. With Python's 5 ms, each step of scoring waits for the network thread."""


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port} ({error}); choose another --port or --host") from error


BACKLOG = 2048
"""Maximum number of connections that wait to be accepted."""


def _token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: the token cannot be read ({error})") from error
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"{file}: a token has at least {SHORTEST_TOKEN} letters and digits in one line; make one with "
            "`openssl rand -hex 32`"
        )
    return token


SHORTEST_TOKEN = 16


class _Printable(logging.Formatter):
    """Log lines with control characters escaped, since parts come from requests or files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("nrf: %(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("nrf.serve")
    log.handlers, log.level, log.propagate = [handler], logging.INFO, False
