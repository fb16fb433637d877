"""Storage of an answer under an ``Idempotency-Key``, whole or as a stream, independent of its client."""

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from uuid import UUID

from vectorforge.api.streaming.answer_buffer import AnswerBuffer
from vectorforge.api.streaming.stream import OpenedQuery, QueryEventEncoder, ResumableQueryResponse
from vectorforge.db.repositories.answer_stream_repo import EventBatch, Readership, StreamState
from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository, StreamHead
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import ErrorEvent, QueryEvent


class StoredResponse:
    """Recorder of an answer for replay; attached to the request state.

    Args:
        answers: Store; the caller has claimed the key.
        query_id: Id of the query.
        deadline: Deadline of the query.
        max_bytes: Maximum bytes of the answer; a longer one is not stored.
    """

    def __init__(
        self, answers: IdempotentAnswerRepository, query_id: UUID, *, deadline: Deadline, max_bytes: int
    ) -> None:
        self.stop = StopSignal()
        """Stops the stream on request."""
        self.is_streamed = False
        self._query_id = query_id
        self._storage = _Storage(answers)
        self.buffer = AnswerBuffer(
            self._storage,
            query_id,
            self.stop,
            deadline=deadline,
            max_bytes=max_bytes,
            grace_s=math.inf,  # a client may retry at any time
        )

    async def stream(
        self,
        events: AsyncGenerator[QueryEvent, None],
        encoder: QueryEventEncoder,
        *,
        resumable: bool,
        ping_interval_s: float,
    ) -> ResumableQueryResponse:
        """Return the answer as server-sent events, once the search is done.

        Raises:
            VectorForgeError: The query failed before its answer began.
        """
        self.is_streamed = True
        opened = await OpenedQuery.open(events)
        noting = _FailureNoting(encoder, self._storage.note_failure)
        response = ResumableQueryResponse(opened, noting, self.buffer, ping_interval_s=ping_interval_s)
        self._storage.head = StreamHead(dict(response.headers), resumable)
        if resumable:  # its reader may resume in another process
            with suppress(VectorForgeError):  # else written with the first events
                await self._storage.write(self._query_id, EventBatch(1, b"", 0))
        return response


class _Storage:
    """Adapter of the repository for the buffer."""

    def __init__(self, answers: IdempotentAnswerRepository) -> None:
        self.head: StreamHead | None = None
        self._answers = answers
        self._has_failed = False
        self._has_begun = False

    def note_failure(self) -> None:
        """Note that the answer ends with an error, so that a retry generates it again."""
        self._has_failed = True

    async def open(self, query_id: UUID) -> None:
        raise AssertionError("it was opened when its key was claimed")

    async def write(
        self, query_id: UUID, batch: EventBatch, state: StreamState = "running"
    ) -> Readership | None:
        head = None if self._has_begun else self.head
        is_kept = state == "running" or not self._has_failed
        seen = await self._answers.write(query_id, batch, state, head=head, is_kept=is_kept)
        self._has_begun = head is not None or self._has_begun
        return seen

    async def give_up(self, query_id: UUID) -> bool:
        return await self._answers.give_up(query_id)


class _FailureNoting:
    """Encoder that reports a failure."""

    def __init__(self, encoder: QueryEventEncoder, note: Callable[[], None]) -> None:
        self._encoder = encoder
        self._note = note

    @property
    def request_id(self) -> str:
        return self._encoder.request_id

    @property
    def headers(self) -> Mapping[str, str]:
        return self._encoder.headers

    def encode(self, event: QueryEvent) -> bytes:
        if type(event) is ErrorEvent:
            self._note()
        return self._encoder.encode(event)

    def encode_failure(self, error: Exception, partial_answer: str) -> bytes:
        self._note()
        return self._encoder.encode_failure(error, partial_answer)
