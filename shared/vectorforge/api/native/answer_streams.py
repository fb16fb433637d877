"""``/v1/queries/{id}/events`` and ``/stop``: resume a streamed answer at any event, or stop it.

Any process can replay an answer: it reads the events from the database and polls for more. Each stream has a
final event: the answer's own, or an ``error`` event if its writer has disappeared. Only when the invocation's
time runs out it ends without one, and the client reconnects.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from vectorforge.api.dependencies import LAMBDA_MARGIN_S, ApplicationDep, Tenant
from vectorforge.api.error_schemas import problems
from vectorforge.api.request_state import RequestState, invocation_time_s
from vectorforge.api.streaming.sse import EventEncoder, event_stream_content
from vectorforge.api.streaming.stream import (
    STREAM_HEADERS,
    ClientStream,
    cancelled_on_disconnect,
)
from vectorforge.db.repositories.answer_stream_repo import AnswerStreamRepository, StoredStream
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    AnswerStreamLostError,
    AnswerStreamTooLongError,
    InvalidInputError,
    NotFoundError,
    VectorForgeError,
    log_unexpected,
)
from vectorforge.pipeline.types import ErrorEvent

logger = logging.getLogger(__name__)

RETRY_MS = 1000
"""Milliseconds after which an ``EventSource`` reconnects."""

SILENCE_S = 6.0
"""Silence after which a writer counts as lost; it sends a heartbeat twice a second."""

_SHORTEST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_PAUSE_GROWTH = 1.5
_NOTE_READER_S = 5.0
_BLANK_LINE = b"\n\n"


class ReplayResponse(EventSourceResponse):
    """Replays the events of a stored stream and follows it to its end.

    Args:
        streams: Store of the stream.
        query_id: Id of the stream.
        stored: Its first batches after the event.
        after: Id of the last event that the client has; 0 for none.
        request_id: Id for the problem document of an error.
        deadline: End of the response, even if the stream continues.
        note_reader_s: Longest time between two notes to the writer that a client reads.
    """

    def __init__(
        self,
        streams: AnswerStreamRepository,
        query_id: UUID,
        stored: StoredStream,
        *,
        after: int,
        request_id: str,
        deadline: Deadline,
        note_reader_s: float,
    ) -> None:
        super().__init__((), headers=STREAM_HEADERS)
        self._streams = streams
        self._query_id = query_id
        self._found = stored
        self._after = after
        self._request_id = request_id
        self._deadline = deadline
        self._note_reader_s = min(note_reader_s, _NOTE_READER_S)
        self._written_seen_at = time.monotonic()
        self._noted_at = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; return when all are sent, at the deadline, or on disconnect."""
        client = ClientStream(send, self.raw_headers)
        with suppress(ClientDisconnect):
            async with cancelled_on_disconnect(receive), client:
                await client.send(format_sse_event(retry=RETRY_MS))
                try:
                    await self._follow(client)
                except ClientDisconnect:
                    raise
                except Exception as exc:  # noqa: BLE001 - the client resumes a stream without its end
                    log_unexpected(logger, f"Stream {self._query_id} was not read to its end", exc)

    async def _follow(self, client: ClientStream) -> None:
        pause_s = _SHORTEST_PAUSE_S
        while True:
            news = list(_events_after(self._found, self._after))
            if news:
                self._after = news[-1][0]
                await client.send(b"".join(event for _, event in news))
                pause_s = _SHORTEST_PAUSE_S
            if self._after >= self._found.last_id and self._found.state != "running":
                await client.send(self._final_event())
                return
            if self._deadline.remaining_s() <= 0:
                return
            if self._after >= self._found.last_id:
                await asyncio.sleep(min(pause_s, max(self._deadline.remaining_s(), 0.0)))
                pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)
            await self._poll()

    async def _poll(self) -> None:
        """Read the next batches; an unavailable database is retried later."""
        before = self._found
        try:
            if time.monotonic() - self._noted_at >= self._note_reader_s:
                await self._streams.note_reader(self._query_id)
                self._noted_at = time.monotonic()
            stored = await self._streams.read(self._query_id, self._after)
            if stored is None:  # it has expired
                stored = StoredStream("lost", before.last_id, before.written_at, ())
            self._found = stored
            if stored.written_at != before.written_at:
                self._written_seen_at = time.monotonic()
            elif stored.state == "running" and time.monotonic() - self._written_seen_at >= SILENCE_S:
                await self._streams.give_up(self._query_id, silent_since=stored.written_at)
        except VectorForgeError as exc:
            logger.warning("Failed to read stream %s, retrying: %s", self._query_id, exc.message)
            self._found = replace(before, batches=())
            self._written_seen_at = time.monotonic()  # the writer may have sent heartbeats meanwhile

    def _final_event(self) -> bytes:
        """Return the final event of a stream that lacks one; empty otherwise."""
        if self._found.state == "ended":
            return b""
        error = AnswerStreamLostError() if self._found.state == "lost" else AnswerStreamTooLongError()
        encoder = EventEncoder(request_id=self._request_id, last_id=self._after)
        return encoder.encode(ErrorEvent(error, "generate"))


def has_nothing_after(stored: StoredStream, after: int) -> bool:
    """Return True if a client with this event has received the end, too."""
    if stored.state == "running":
        return False
    return after >= stored.last_id if stored.state == "ended" else after > stored.last_id


def _events_after(stored: StoredStream, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield each event with its id and the blank line that ends it; the encoder writes no other."""
    for first_id, events in stored.batches:
        for number, event in enumerate(events.split(_BLANK_LINE)[:-1], start=first_id):
            if number > after:
                yield number, event + _BLANK_LINE


router = APIRouter(prefix="/v1/queries/{query_id}", tags=["query"])

MAX_EVENT_ID = 2**31 - 2

_EVENTS_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events after that one up to `done` or `error`.",
        "content": event_stream_content(),
    },
    204: {"description": "That was the last event: an `EventSource` stops coming back."},
    **problems(404),
}
_STOP_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": 'The answer ends soon: its last event is `done`, `finish_reason: "stopped"`.'},
    204: {"description": "It had ended already."},
    **problems(404),
}
_LAST_EVENT_ID = "Id of the last event that the client has; 0 for none."


@router.get("/events", response_class=Response, responses=_EVENTS_RESPONSES)
async def follow_answer(
    request: Request,
    query_id: UUID,
    application: ApplicationDep,
    tenant: Tenant,
    last_event_id: Annotated[str | None, Query(description=_LAST_EVENT_ID)] = None,
    header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description=f"{_LAST_EVENT_ID} It goes before the parameter."),
    ] = None,
) -> Response:
    """Stream the stored events of an answer requested with `resumable: true`, from any event on."""
    # An EventSource that reconnects sends the header, and the parameter of its first request as well.
    after = _event_id(header or last_event_id or "0")
    stored = await tenant.answer_streams.read(query_id, after)
    if stored is None:
        raise _no_such_stream(query_id)
    if has_nothing_after(stored, after):
        return Response(status_code=204)
    time_s = invocation_time_s(request.scope)
    return ReplayResponse(
        tenant.answer_streams,
        query_id,
        stored,
        after=after,
        request_id=RequestState.of(request.scope).request_id,
        deadline=Deadline.never() if time_s is None else Deadline.after(time_s - LAMBDA_MARGIN_S),
        note_reader_s=application.config.streams.resume_grace_s / 3,
    )


@router.post("/stop", response_class=Response, status_code=202, responses=_STOP_RESPONSES)
async def stop_answer(query_id: UUID, tenant: Tenant) -> Response:
    """Stop an answer requested with `resumable: true`, in whichever process it runs."""
    state = await tenant.answer_streams.request_stop(query_id)
    if state is None:
        raise _no_such_stream(query_id)
    return Response(status_code=204 if state in ("ended", "lost") else 202)


def _event_id(given: str) -> int:
    if not (given.isascii() and given.isdecimal()) or len(given) > 10 or int(given) > MAX_EVENT_ID:
        raise InvalidInputError(
            f"Last-Event-ID must be a whole number from 0 to {MAX_EVENT_ID}.", field="last_event_id"
        )
    return int(given)


def _no_such_stream(query_id: UUID) -> NotFoundError:
    return NotFoundError(f"Resumable answer {query_id} not found or expired.")
