"""What can go wrong before a vendor's answer begins."""

from collections.abc import Mapping
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
        except ValueError:
            parsed = None
        self.text = body.decode(errors="replace") if parsed is None else str(parsed)
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
