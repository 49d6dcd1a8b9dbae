"""Checks in front of a service (host names, token, number of requests at a time), and counts of its requests."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nrf.serve.asked import Asked, Handler, Message, Receive, Reply, Scope, Send, replied
from nrf.serve.limits import CLOSE, Limits, Refused
from nrf.serve.metrics import Metrics

App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/", "/health")
ROUTED_PATHS = ("/", "/openapi.json")
"""Paths that the application answers, in addition to ``/page/``."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    """An application behind checks of ``Host``, token and number of requests.

    Args:
        app: The application.
        direct: Handlers by method and path that are called without the application's routing, since that takes longer
            than reading a row.
        limits: Limits of the service.
        metrics: Where requests are counted.
        hosts: Host names that a request may use; any if empty.
        token: Token that ``Authorization: Bearer`` must hold, if any.
    """

    def __init__(
        self,
        app: App,
        direct: Mapping[tuple[str, str], Handler],
        limits: Limits,
        metrics: Metrics,
        hosts: Sequence[str] = (),
        token: str | None = None,
    ) -> None:
        self._app, self._direct, self._limits, self._metrics = app, direct, limits, metrics
        self._hosts, self._paths = frozenset(hosts), frozenset((*ROUTED_PATHS, *(path for _, path in direct)))
        self._token = None if token is None else token.encode()
        self._busy = 0
        metrics.in_flight.set_function(lambda: self._busy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started, path, method = time.perf_counter(), scope["path"], scope["method"]
        status, model = 500, ""
        self._busy += method == "POST"
        try:
            handler = self._direct.get((method, path))
            try:
                self._check(scope, path, method)
            except Refused as refused:
                status = refused.status
                await _send(Reply.refusal(refused), send)
                return
            if handler is None:
                status = await self._pass_on(scope, receive, send)
                return
            asked = Asked(scope, receive)
            reply = await replied(handler, asked)
            status, model = reply.status, asked.model
            await _send(reply, send)
        finally:
            self._busy -= method == "POST"
            shown = path if path in self._paths else "/page" if path.startswith("/page/") else "other"
            self._metrics.answered(shown, model, status, time.perf_counter() - started)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Let the application answer; returns the status."""
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, answer)
        return status

    def _check(self, scope: Scope, path: str, method: str) -> None:
        host, given = b"", b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"authorization":
                given = value
        if self._hosts:
            name = host.decode("latin-1")
            if name not in self._hosts and name.rpartition(":")[0] not in self._hosts:
                raise Refused(400, "the header Host names another machine; ask by 127.0.0.1 or localhost")
        if self._token is not None and path not in OPEN_PATHS and not path.startswith("/page/"):
            scheme, _, token = given.partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
                why = "the token is wrong" if given else "a token is needed"
                raise Refused(401, f"{why}; send Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})
        if method == "POST" and self._busy > self._limits.concurrency:
            busy = f"{self._limits.concurrency} requests are under way, which is the limit; try again soon"
            raise Refused(429, busy, headers={"Retry-After": "1", **CLOSE})


async def _send(reply: Reply, send: Send) -> None:
    headers = [*reply.raw_headers(), *HEADERS]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
