"""Limits of requests, and the refusal of requests beyond them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nrf.errors import InputError

MIB = 1 << 20


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        message: What is wrong, and what to do.
        columns: The message column by column, if it is about columns.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        columns: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.columns, self.headers = dict(columns or {}), dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The answer."""
        about = {"columns": self.columns} if self.columns else {}
        return {"error": {"message": self.message, **about}}


@dataclass(frozen=True)
class Limits:
    """Limits of a service: each is per request, except ``concurrency``."""

    max_rows: int = 100_000
    """Maximum number of rows."""
    max_bytes: int = 32 * MIB
    """Maximum size of a body, in bytes."""
    max_unpacked: int = 256 * MIB
    """Maximum size of a Parquet or Arrow body once it is unpacked, in bytes."""
    max_explained: int = 20
    """Maximum number of rows to explain."""
    seconds: float = 30.0
    """Seconds for the body to arrive, and the same time again for the answer."""
    concurrency: int = 256
    """Maximum number of requests with rows at a time, over all clients."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise InputError(f"{name} must be above 0 and finite, got {value}")

    def shown(self) -> dict[str, float]:
        """The limits as `/model` shows them."""
        return asdict(self)

    def check_rows(self, n_rows: int) -> None:
        """Refuse a table with too many rows, or none."""
        if n_rows > self.max_rows:
            raise Refused(413, f"the body has {n_rows} rows, at most {self.max_rows} are taken; send them in parts")
        if n_rows == 0:
            raise Refused(422, "the body has no rows; give at least one")

    def check_unpacked(self, n_bytes: int) -> None:
        """Refuse a table that is too large in memory."""
        if n_bytes > self.max_unpacked:
            raise Refused(
                413, f"the rows take {n_bytes} bytes unpacked, at most {self.max_unpacked} are taken; send fewer rows"
            )

    async def read(self, length: str | None, parts: AsyncIterator[bytes]) -> bytes:
        """Read a body; no byte beyond the limit is kept.

        Args:
            length: What the header Content-Length says.
            parts: The body as it arrives.
        """
        if length is not None and not (length.isascii() and length.isdigit()):
            raise Refused(400, "Content-Length is no whole number", headers=CLOSE)
        if length is not None and (len(length) > 18 or int(length) > self.max_bytes):
            raise self._too_large()
        found, size = [], 0
        try:
            async with asyncio.timeout(self.seconds):
                async for part in parts:
                    size += len(part)
                    if size > self.max_bytes:
                        raise self._too_large()
                    found.append(part)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {self.seconds:g} s", headers=CLOSE) from None
        return found[0] if len(found) == 1 else b"".join(found)

    def _too_large(self) -> Refused:
        message = f"the body is larger than {self.max_bytes} bytes; send the rows in parts"
        return Refused(413, message, headers=CLOSE)


CLOSE = {"Connection": "close"}
"""Headers of answers after which the rest of a body is not read."""
