"""What can go wrong before a vendor's answer begins."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

_SHOWN = 500
"""Characters of a vendor's complaint in an exception's text."""


class VendorConnectionError(Exception):
    """No connection, or one that broke before the answer began."""


class VendorTimeoutError(Exception):
    """No connection in time."""


class VendorStatusError(Exception):
    """The vendor answered with a status other than 2xx.

    Redirects are among them: followed, they would take the key along.

    Args:
        status: What it answered.
        headers: Of the answer; names in any case.
        body: Its beginning.
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
        """What the vendor says, all of it; it may quote the key or the request."""
        error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
        self._error: Mapping[str, Any] = error if isinstance(error, dict) else {}
        super().__init__(f"status {status}: {self.text[:_SHOWN]}")

    @property
    def param(self) -> str | None:
        """The parameter that the vendor names."""
        return self._named("param")

    @property
    def code(self) -> str | None:
        """The vendor's word for the error."""
        return self._named("code")

    def _named(self, name: str) -> str | None:
        value = self._error.get(name)
        return value if isinstance(value, str) else None


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds to wait, 0 or more; None when the vendor named none that can be read.

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
    except (OverflowError, ValueError):  # numbers of any length are read as a day, a year or an offset
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
