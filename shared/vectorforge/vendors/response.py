"""Outcomes of a request to a vendor, by HTTP or through an SDK: an unread response, or an error."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_SHOWN = 500
"""Characters of a vendor's text in an exception."""


class VendorResponse(ABC):
    """Unread response with a status of 2xx; close it."""

    __slots__ = ()

    @abstractmethod
    async def chunk(self) -> bytes:
        """Return the next bytes of the body; empty at its end.

        Raises:
            ConnectionError: The connection broke before its end.
        """

    @property
    @abstractmethod
    def is_read(self) -> bool:
        """True once the body has been read, so that the connection can be reused."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the connection: reuse it if the body was read, else disconnect.

        A vendor that detects a disconnect stops generating, and charging.
        """

    async def read(self, limit: int = _MAX_ANSWER_BYTES) -> bytes:
        """Return the whole body.

        Raises:
            ConnectionError: The connection broke before its end.
            ValueError: The body is longer.
        """
        body = await self.chunk()
        if self.is_read:
            return _within(limit, body)
        chunks, size = [body], len(body)
        while chunk := await self.chunk():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        return _within(limit, b"".join(chunks))


def _within(limit: int, body: bytes) -> bytes:
    if len(body) > limit:
        raise ValueError(f"the response has more than {limit} bytes")
    return body


class VendorConnectionError(Exception):
    """No connection, or one that broke before the response began."""


class VendorTimeoutError(Exception):
    """No connection in time."""


class VendorStatusError(Exception):
    """Response with a status other than 2xx, redirects included: following them would forward the key.

    Args:
        status: HTTP status.
        headers: Headers of the response; names in any case.
        body: Beginning of the body.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        try:
            parsed = orjson.loads(body)
            text = str(parsed)
        except (ValueError, RecursionError):  # orjson reads deeper than Python writes
            parsed, text = None, body.decode(errors="replace")
        self.text = text
        """The vendor's full text; it may quote the key or the request."""
        error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
        self._error: Mapping[str, Any] = error if isinstance(error, dict) else {}
        super().__init__(f"status {status}: {self.text[:_SHOWN]}")

    @property
    def param(self) -> str | None:
        """Parameter named by the vendor."""
        return self._named("param")

    @property
    def code(self) -> str | None:
        """The vendor's error code."""
        return self._named("code")

    def _named(self, name: str) -> str | None:
        value = self._error.get(name)
        return value if isinstance(value, str) else None


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait, 0 or more; None without a valid header.

    Source: RFC 9110 section 10.2.3 (seconds or a date); ``retry-after-ms`` is OpenAI's finer one.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except (OverflowError, ValueError):  # numbers of any length are parsed as a day, a year or an offset
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
