"""Retries, results and streams of requests, and the two senders that do their input and output."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

import httpx2
from pydantic_core import from_json, to_json

from vectorforge.http_client.calls import Call, Steps, stop_answer
from vectorforge.http_client.errors import (
    ServerUnreachableError,
    StreamInterruptedError,
    UnexpectedResponseError,
    response_error,
)
from vectorforge.http_client.models import EVENTS, AnswerEvent

T = TypeVar("T")
Outcome: TypeAlias = httpx2.Response | httpx2.TransportError
Exchange: TypeAlias = Generator[Call[Any] | float, Any, T]
"""Yields a call, whose outcome it receives, or seconds to sleep."""

_RETRIED: Final = (429, 503)
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 8.0
_LONGEST_RETRY_AFTER_S = 60.0
"""A longer ``Retry-After``, as of a daily limit, is left to the caller."""


def responses(call: Call[Any], retries: int) -> Exchange[httpx2.Response]:
    """Send a call until it succeeds or may not be repeated.

    Retried are 429, 503, other errors with ``Retry-After``, and failed connections; not timeouts, and no
    deletion whose connection failed, since it may have been done.

    Raises:
        ResponseError: The server has reported an error.
        ServerUnreachableError: There was no response.
    """
    for attempt in itertools.count():
        is_last = attempt >= retries or not call.repeatable
        pause_s = min(_FIRST_BACKOFF_S * 2**attempt, _LONGEST_BACKOFF_S) * random.uniform(0.5, 1)
        outcome: Outcome = yield call
        if isinstance(outcome, httpx2.TransportError):
            if is_last or call.method == "DELETE" or isinstance(outcome, httpx2.TimeoutException):
                url = outcome.request.url.copy_with(userinfo=b"", query=None)  # no secrets in errors
                text = f"{call.method} {url}: {str(outcome) or type(outcome).__name__}"
                raise ServerUnreachableError(text) from outcome
        elif outcome.is_success:
            return outcome
        else:
            retry_after_s = _retry_after_s(outcome)
            is_temporary = outcome.status_code in _RETRIED or retry_after_s is not None
            if is_last or not is_temporary or (retry_after_s or 0) > _LONGEST_RETRY_AFTER_S:
                raise response_error(outcome.status_code, _problem(outcome), retry_after_s)
            pause_s = pause_s if retry_after_s is None else retry_after_s
        yield pause_s
    raise AssertionError("unreachable")


def results(described: Call[Any] | Steps[Any], retries: int) -> Exchange[Any]:
    """Send a call, or the calls of steps in turn, and return the result; raises as ``responses``."""
    if isinstance(described, Call):
        response = yield from responses(described, retries)
        return _parse(described.result.model_validate_json, response.content)
    result: Any = None
    while True:
        try:
            step = described.send(result)
        except StopIteration as end:
            return end.value
        result = (yield from results(step, retries)) if isinstance(step, Call) else (yield step)


def _parse(parse: Callable[[bytes], T], content: bytes) -> T:
    try:
        return parse(content)
    except ValueError as exc:  # pydantic's, too
        raise UnexpectedResponseError(f"The server's response is not as documented: {exc}") from exc


def _retry_after_s(response: httpx2.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):  # this API sends seconds only
        return None


def _problem(response: httpx2.Response) -> dict[str, Any]:
    try:
        problem = from_json(response.content)
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return problem
    return {"detail": response.text[:200], "request_id": response.headers.get("x-request-id", "")}


class EventDecoder:
    """Decodes the lines of an event stream (https://html.spec.whatwg.org/multipage/server-sent-events.html).

    Args:
        call: The streamed query.
        response: Its response; the header ``X-Request-Id`` is the query's id.
    """

    def __init__(self, call: Call[Any], response: httpx2.Response) -> None:
        self.has_ended = False
        """True after the last event, an error, or a failed connection."""
        self.query_id: str = response.headers.get("x-request-id", "")
        self._key = call.idempotency_key or ""
        self._last_id = ""
        self._fields: dict[str, str] = {}

    def feed(self, line: str) -> AnswerEvent | None:
        """Return the event that ends with this line; None for the other lines, and for unknown events.

        Raises:
            ResponseError: The event ``error``.
            UnexpectedResponseError: The event is not as documented.
        """
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        self._last_id = fields.get("id", self._last_id)
        name = fields.get("event", "")
        self.has_ended = name in ("done", "error")
        if name == "error":
            problem: dict[str, Any] = _parse(from_json, fields["data"].encode())
            raise response_error(problem.get("status", 500), problem)
        if name not in EVENTS:
            return None
        parse: Callable[[bytes], AnswerEvent] = EVENTS[name].model_validate_json
        return _parse(parse, fields["data"].encode())

    def interrupted(self, exc: Exception | None) -> StreamInterruptedError:
        """Return the error of a stream that ended before its last event."""
        self.has_ended = True
        reason = "" if exc is None else f" ({str(exc) or type(exc).__name__})"
        return StreamInterruptedError(
            f"The answer broke off after event {self._last_id or 0}{reason}.",
            query_id=self.query_id,
            last_event_id=self._last_id,
            idempotency_key=self._key,
        )


def _request(client: httpx2.Client | httpx2.AsyncClient, call: Call[Any]) -> httpx2.Request:
    headers = {} if call.idempotency_key is None else {"Idempotency-Key": call.idempotency_key}
    content = None
    if call.body is not None:
        headers["Content-Type"] = "application/json"
        content = to_json(call.body)
    return client.build_request(
        call.method,
        call.path,
        content=content,
        data=call.form,
        files=call.files,
        params=call.params or None,
        headers=headers,
        timeout=httpx2.USE_CLIENT_DEFAULT if call.timeout_s is None else call.timeout_s,
    )


class SyncSender:
    """Sends calls and waits for their results."""

    def __init__(self, client: httpx2.Client, retries: int) -> None:
        self.client = client
        self._retries = retries

    def __call__(self, described: Call[Any] | Steps[Any]) -> Any:
        """Return the result of a call or of steps."""
        return self._run(results(described, self._retries), stream=False)

    def stream(self, call: Call[Any]) -> Generator[AnswerEvent, None, None]:
        """Yield the events of a streamed answer."""
        response: httpx2.Response = self._run(responses(call, self._retries), stream=True)
        decoder = EventDecoder(call, response)
        try:
            for line in response.iter_lines():
                if (event := decoder.feed(line)) is not None:
                    yield event
                if decoder.has_ended:
                    return
            raise decoder.interrupted(None)
        except httpx2.TransportError as exc:
            raise decoder.interrupted(exc) from exc
        finally:
            response.close()
            if not (decoder.has_ended or self.client.is_closed):
                with suppress(httpx2.TransportError):
                    self.client.send(_request(self.client, stop_answer(decoder.query_id)))

    def _run(self, exchange: Exchange[T], *, stream: bool) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return cast("T", end.value)
            if isinstance(step, Call):
                outcome = self._send(step, stream=stream)
            else:
                time.sleep(step)

    def _send(self, call: Call[Any], *, stream: bool) -> Outcome:
        try:
            response = self.client.send(_request(self.client, call), stream=stream)
            if not response.is_success:
                response.read()
        except httpx2.TransportError as exc:
            return exc
        return response


class AsyncSender:
    """Sends calls from coroutines."""

    def __init__(self, client: httpx2.AsyncClient, retries: int) -> None:
        self.client = client
        self._retries = retries

    async def __call__(self, described: Call[Any] | Steps[Any]) -> Any:
        """Return the result of a call or of steps."""
        return await self._run(results(described, self._retries), stream=False)

    async def stream(self, call: Call[Any]) -> AsyncGenerator[AnswerEvent, None]:
        """Yield the events of a streamed answer."""
        response: httpx2.Response = await self._run(responses(call, self._retries), stream=True)
        decoder = EventDecoder(call, response)
        try:
            async for line in response.aiter_lines():
                if (event := decoder.feed(line)) is not None:
                    yield event
                if decoder.has_ended:
                    return
            raise decoder.interrupted(None)
        except httpx2.TransportError as exc:
            raise decoder.interrupted(exc) from exc
        finally:
            await response.aclose()
            if not (decoder.has_ended or self.client.is_closed):
                with suppress(httpx2.TransportError):
                    await self.client.send(_request(self.client, stop_answer(decoder.query_id)))

    async def _run(self, exchange: Exchange[T], *, stream: bool) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = exchange.send(outcome)
            except StopIteration as end:
                return cast("T", end.value)
            if isinstance(step, Call):
                outcome = await self._send(step, stream=stream)
            else:
                await asyncio.sleep(step)

    async def _send(self, call: Call[Any], *, stream: bool) -> Outcome:
        try:
            response = await self.client.send(_request(self.client, call), stream=stream)
            if not response.is_success:
                await response.aread()
        except httpx2.TransportError as exc:
            return exc
        return response
