"""A request as the service sees it, and its answer: only what is needed, since every request pays the cost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from nrf.serve.answers import as_json
from nrf.serve.limits import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
JSON = "application/json"
log = logging.getLogger("nrf.serve")


class Gone(Exception):  # noqa: N818 - nobody is there to hear of an error
    """The client has disconnected before its body was complete."""


@dataclass
class Asked:
    """One request."""

    scope: Scope
    receive: Receive
    model: str = ""
    """Name of the model that answers."""

    def header(self, name: bytes) -> str | None:
        """The value of a header; names are in small letters."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value.decode("latin-1"))
        return None

    def query(self, *known: str) -> dict[str, str]:
        """The query parameters; each must be known and given only once."""
        raw = self.scope["query_string"]
        if not raw:
            return {}
        found: dict[str, str] = {}
        for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
            if name not in known:
                what = f"known are {', '.join(known)}" if known else "there is none"
                raise Refused(422, f"the parameter {name[:40]!r} is not known; {what}")
            if name in found:
                raise Refused(422, f"the parameter {name!r} is given twice")
            found[name] = value
        return found

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return


@dataclass(frozen=True)
class Reply:
    """One answer."""

    body: bytes
    status: int = 200
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refusal(cls, refused: Refused) -> Reply:
        """An error answer, which says what is wrong."""
        return cls(as_json(refused.body), refused.status, headers=refused.headers)

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers as they are sent."""
        found = [(b"content-type", self.media.encode()), (b"content-length", str(len(self.body)).encode())]
        return found + [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]


Handler = Callable[[Asked], Awaitable[Reply]]


async def replied(handler: Handler, asked: Asked) -> Reply:
    """The answer of a handler; an internal error goes to the log, not into the answer."""
    try:
        return await handler(asked)
    except Refused as refused:
        return Reply.refusal(refused)
    except Gone:
        return Reply(b"", 499)
    except Exception:
        log.exception("%s failed", asked.scope["path"])
        return Reply.refusal(Refused(500, "internal error; the log of the service says more"))
