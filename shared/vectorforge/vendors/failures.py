"""Errors before a vendor's response begins, Retry-After, and the one retry policy.

Vendors' SDKs retry nothing, and nothing is retried after the first token.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import orjson

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, VectorForgeError

_SHOWN = 500
"""Characters of a vendor's text in an exception."""


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


T = TypeVar("T")

_FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
"""Longest wait between two attempts without Retry-After."""

_UNLIMITED_S = 1e6
"""Finite replacement of infinity for a timer."""


class RetryBudget:
    """Budget that limits retries to a share of the calls, so that they do not amplify an outage.

    Each call adds ``ratio`` of a retry and each retry takes one; at most ``most`` are saved, and all are
    available at the start.
    Source: https://sre.google/sre-book/handling-overload/ ("per-client retry budget", 10 %).

    Args:
        ratio: Retries earned per call.
        most: Retries that can be saved.
    """

    def __init__(self, *, ratio: float = 0.1, most: float = 20.0) -> None:
        self._ratio = ratio
        self._most = most
        self._saved = most
        self._lock = threading.Lock()

    def earn(self) -> None:
        """Count a call."""
        with self._lock:
            self._saved = min(self._most, self._saved + self._ratio)

    def spend(self) -> bool:
        """Take a retry; return False if none is left."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True


async def with_retries(
    operation: Callable[[], Awaitable[T]],
    *,
    retries: int,
    deadline: Deadline,
    on_retry: Callable[[], None] = lambda: None,
    budget: RetryBudget | None = None,
) -> T:
    """Await ``operation`` and retry it after retryable errors until ``retries`` or the time is used up.

    The backoff grows from 0.2 s to at most 5 s, with jitter. A ``retry_after_s`` is honored if it fits into
    the time left, else the error is raised immediately: the SDKs' own loops sleep for minutes on a
    Retry-After (https://github.com/openai/openai-node/issues/1924).

    Args:
        operation: One attempt; ends by the deadline itself.
        retries: Attempts after the first, 0 or more.
        deadline: No attempt starts and no wait ends after it.
        on_retry: Called before each attempt but the first.
        budget: Shared with other calls; None: no further limit.

    Raises:
        VectorForgeError: The last attempt's error.
        DeadlineExceededError: The time ran out before any attempt failed.
    """
    if deadline.remaining_s() <= 0:
        raise DeadlineExceededError
    if budget is not None:
        budget.earn()
    attempts = _Attempts(retries, deadline, budget)
    try:
        return await operation()
    except VectorForgeError as exc:
        first_error = exc
    try:
        async with asyncio.timeout(min(deadline.remaining_s(), _UNLIMITED_S)):
            return await _again(operation, first_error, attempts, on_retry)
    except TimeoutError as exc:
        raise attempts.last_error or DeadlineExceededError() from exc


@dataclass(slots=True)
class _Attempts:
    """State of the attempts: remaining retries and last error."""

    retries: int
    deadline: Deadline
    budget: RetryBudget | None
    made: int = 1
    last_error: VectorForgeError | None = None

    def wait_before_next(self, exc: Exception) -> bool | float:
        """Return the seconds to wait, True for the default backoff, False for no further attempt."""
        if not isinstance(exc, VectorForgeError):
            return False
        self.last_error = exc
        wait_s = exc.retry_after_s
        if not exc.retryable or (wait_s is not None and wait_s >= self.deadline.remaining_s()):
            return False
        if self.made <= self.retries and self.budget is not None and not self.budget.spend():
            return False
        return True if wait_s is None else wait_s


async def _again(
    operation: Callable[[], Awaitable[T]],
    first_error: VectorForgeError,
    attempts: _Attempts,
    on_retry: Callable[[], None],
) -> T:
    """Retry after a failed first attempt."""
    import stamina  # most calls succeed at once without it

    async for attempt in stamina.retry_context(
        on=attempts.wait_before_next,
        attempts=attempts.retries + 1,
        timeout=None,
        wait_initial=_FIRST_WAIT_S,
        wait_max=LONGEST_WAIT_S,
        wait_jitter=_FIRST_WAIT_S,
    ):
        with attempt:
            attempts.made = attempt.num
            if attempt.num == 1:
                raise first_error
            on_retry()
            return await operation()
    raise AssertionError("stamina always returns or raises")
