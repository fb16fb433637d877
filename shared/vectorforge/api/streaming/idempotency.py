"""Idempotent responses: a request with an ``Idempotency-Key`` is answered once and then replayed."""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from vectorforge.api.dependencies import application_of, deadline_of, receive_once, tenant_services_of
from vectorforge.api.request_state import STORED_RESPONSE_KEY, RequestState
from vectorforge.api.streaming.stored_response import StoredResponse
from vectorforge.api.streaming.stream import cancelled_on_disconnect
from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository, KeyedAnswer
from vectorforge.errors import (
    AnswerStreamLostError,
    IdempotencyKeyReusedError,
    IdempotentAnswerPendingError,
    IdempotentAnswerTooLongError,
    InvalidInputError,
)

HEADER = "Idempotency-Key"
MAX_CHARS = 255
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_CHARS}}}")


def key_of(headers: Headers) -> bytes:
    """Return the SHA-256 of the request's key.

    Raises:
        InvalidInputError: The key is repeated, empty, too long or not visible ASCII.
    """
    given = headers.getlist(HEADER)
    if len(given) != 1 or not _KEY.fullmatch(given[0]):
        raise InvalidInputError(
            f"{HEADER} must be given once, with 1 to {MAX_CHARS} visible ASCII characters.", field=HEADER
        )
    return hashlib.sha256(given[0].encode("ascii")).digest()


REPLAYED = ("idempotent-replayed", "true")
MAX_WAITING = 16
"""Requests that wait for one answer in this process; each polls the database up to ten times a second."""

_SHORTEST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.5
_PAUSE_GROWTH = 1.5


class IdempotentResponse(Response):
    """Response under a key: the first request is answered even after a disconnect, the others wait for it.

    Raises:
        InvalidInputError: The key is invalid.
    """

    def __init__(
        self, request: Request, body: bytes, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        super().__init__()
        scope = request.scope
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        self._key = key_of(request.headers)
        self._fingerprint = hashlib.sha256(f"{scope['method']} {path}\n".encode() + body).digest()
        self._request = request
        self._query_id = RequestState.of(scope).query_id
        self._body = body
        self._answer_request = answer
        self._application = application_of(request)
        self._tenant = tenant_services_of(request)
        self._answers: IdempotentAnswerRepository = self._tenant.idempotent_answers
        self._deadline = deadline_of(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Generate or replay the answer.

        Raises:
            IdempotencyKeyReusedError: The key was used with another request.
            IdempotentAnswerPendingError: The first request has no answer by the deadline of this one.
            IdempotentAnswerTooLongError: The answer was too long to be stored.
            VectorForgeError: The query failed before its answer began; the key is free again.
        """
        answer = await self._claim()
        if answer is None:
            with self._count_waiting():
                answer = await self._wait(receive)
        if answer.query_id == self._query_id:
            await self._answer(scope, receive, send)
        else:
            await self._replay(answer, send)

    async def _claim(self) -> KeyedAnswer | None:
        """Return the complete answer or this request's claim; None while another request generates it."""
        answer = await self._answers.claim(self._key, self._fingerprint, self._query_id)
        if answer is None:
            return None
        if not answer.is_same:
            raise IdempotencyKeyReusedError(
                f"This {HEADER} was used with another path or body; use a new one for each request.",
                field=HEADER,
            )
        if answer.state == "overflowed":
            raise IdempotentAnswerTooLongError
        is_own = answer.query_id == self._query_id
        return answer if is_own or answer.state == "ended" else None

    async def _wait(self, receive: Receive) -> KeyedAnswer:
        pause_s = _SHORTEST_PAUSE_S
        while self._deadline.remaining_s() > pause_s:
            async with cancelled_on_disconnect(receive):
                await asyncio.sleep(pause_s)
            if (answer := await self._claim()) is not None:
                return answer
            pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)
        raise IdempotentAnswerPendingError

    @contextmanager
    def _count_waiting(self) -> Iterator[None]:
        state = self._request.app.state
        if not hasattr(state, "waiting_for_answers"):
            state.waiting_for_answers = Counter[tuple[str, bytes]]()
        waiting: Counter[tuple[str, bytes]] = state.waiting_for_answers
        name = (self._tenant.tenant_id, self._key)
        if waiting[name] >= MAX_WAITING:
            raise IdempotentAnswerPendingError
        waiting[name] += 1
        try:
            yield
        finally:
            waiting[name] -= 1
            if not waiting[name]:
                del waiting[name]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stored = StoredResponse(
            self._answers,
            self._query_id,
            deadline=self._deadline,
            max_bytes=self._application.config.streams.stream_buffer_bytes,
        )
        scope[STORED_RESPONSE_KEY] = stored
        async with stored.buffer:
            response = await self._answer_request(Request(scope, receive_once(self._body)))
            if stored.is_streamed:
                await response(scope, receive, send)
                return
            stored.buffer.add(bytes(response.body), last=True)
        await response(scope, receive, send)  # after storing it, so that a client can retry

    async def _replay(self, answer: KeyedAnswer, send: Send) -> None:
        parts = await self._answers.read(answer.query_id, 0)
        if not parts:
            raise AnswerStreamLostError  # it expired or was erased meanwhile
        headers = dict([*(answer.headers or {"content-type": "application/json"}).items(), REPLAYED])
        if parts[-1][0] == answer.last_id:
            headers["content-length"] = str(sum(len(events) for _, events in parts))
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        while True:
            after = parts[-1][0]
            body = b"".join(events for _, events in parts)
            await send({"type": "http.response.body", "body": body, "more_body": after < answer.last_id})
            if after >= answer.last_id:
                return
            parts = await self._answers.read(answer.query_id, after)
            if not parts:
                raise AnswerStreamLostError
