"""Answers as the events of a streamed response.

https://developers.openai.com/api/reference/resources/responses/streaming-events
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT
from pydantic import BaseModel

from vectorforge.api.error_schemas import openai_error
from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.api.openai.responses.objects import ResponseFormat, ResponseParts, file_citation
from vectorforge.api.openai.responses.schemas import (
    FileCitation,
    FileSearchCall,
    FunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    ResponseFailure,
)
from vectorforge.api.problems import problem_of
from vectorforge.api.streaming.sse import encode_json, json_event
from vectorforge.errors import LLMRateLimitError
from vectorforge.llm.tools import ToolCall, ToolCallDelta, join_tool_calls
from vectorforge.pipeline.types import (
    Citation,
    CitationEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    QueryResult,
    SourceCitation,
    SourcesEvent,
    TokenEvent,
    ToolCallEvent,
)

EVENT_TYPES = (
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.output_item.done",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.annotation.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.completed",
    "response.incomplete",
    "error",
    "response.failed",
)
"""Types of all events of a stream, in the order of their first occurrence."""

_SEARCH = 0
"""Place of the search in the output."""


class ResponseEventEncoder:
    """Encodes a response event by event; the last one equals the result of ``whole_response``.

    Order: ``response.created``, ``response.in_progress``, the item of the search with its own events, the
    item of the message with its text and annotations, and last ``response.completed`` or
    ``response.incomplete``. An annotation follows the end of its sentence and its ``[n]``. A failure
    is ``error``, for which clients have an exception, and ``response.failed``. With tools the message begins
    with its text, and each tool call is an item with its own events. If the model decides on the search, the
    item of the search ends last.
    """

    headers: Mapping[str, str] = {}
    ping = KEEPALIVE_COMMENT

    def __init__(self, wanted: ResponseFormat, *, request_id: str) -> None:
        self.request_id = request_id
        self._wanted = wanted
        self._last_number = -1
        self._parts: ResponseParts | None = None
        self._search: FileSearchCall | None = None
        self._sources: Sequence[SourceCitation] = ()
        self._rewriter = LabelRewriter()
        self._places: list[str] = []
        """Ids of the items after the search, in the order of their beginning."""
        self._calls: list[ToolCallDelta] = []
        self._text: list[str] = []
        self._waiting: list[Citation] = []
        """Citations whose label is not sent yet."""
        self._annotations: list[FileCitation] = []

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as any number of events of a streamed response."""
        return b"".join(self._events(event))

    def _events(self, event: QueryEvent) -> Iterator[bytes]:
        match event:
            case MetaEvent():
                yield from self._begin(event)
            case SourcesEvent():
                yield from self._found(event)
            case TokenEvent():
                is_json = self._wanted.is_json
                yield from self._say(event.text if is_json else self._rewriter.feed(event.text))
            case CitationEvent() if not self._wanted.is_json:
                self._waiting.append(event.citation)
                yield from self._annotate()
            case ToolCallEvent():
                yield from self._call(event.piece)
            case DoneEvent():
                yield from self._end(event.result)
            case ErrorEvent():
                yield from self._failure(event.error)

    def _begin(self, event: MetaEvent) -> Iterator[bytes]:
        self._parts = parts = ResponseParts(self._wanted, event.request_id, event.rewritten_query)
        begun = parts.begun()
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        yield self._event(
            "response.output_item.added", output_index=_SEARCH, item=parts.search("in_progress")
        )
        for state in ("in_progress", "searching"):
            yield self._search_event(parts, state)

    def _found(self, event: SourcesEvent) -> Iterator[bytes]:
        parts = self._begun_parts
        self._sources = event.sources
        yield from self._say(self._rewriter.continue_with(event.retrieved_chunks[: len(event.sources)]))
        if not self._wanted.searches_by_tool:  # else there may be more
            yield from self._end_search(parts.search("completed", event.sources, event.retrieved_chunks))
        if not self._wanted.has_tools:
            yield from self._begin_message()

    def _end_search(self, search: FileSearchCall) -> Iterator[bytes]:
        self._search = search
        yield self._search_event(self._begun_parts, "completed")
        yield self._event("response.output_item.done", output_index=_SEARCH, item=search)

    def _begin_message(self) -> Iterator[bytes]:
        message = self._begun_parts.message("in_progress", "")
        if message.id not in self._places:
            yield self._added(message)
            yield self._message_event("content_part.added", part=OutputText(text="", annotations=[]))

    def _added(self, item: OutputMessage | FunctionCall) -> bytes:
        self._places.append(item.id)
        return self._event("response.output_item.added", output_index=len(self._places), item=item)

    def _call(self, piece: ToolCallDelta) -> Iterator[bytes]:
        self._calls.append(piece)
        begun = self._begun_parts.call(
            piece.index, ToolCall(piece.id or "", piece.name or "", ""), status="in_progress"
        )
        if piece.id is not None:
            yield self._added(begun)
        if piece.arguments:
            place = {"item_id": begun.id, "output_index": self._places.index(begun.id) + 1}
            yield self._event("response.function_call_arguments.delta", **place, delta=piece.arguments)

    def _say(self, text: str) -> Iterator[bytes]:
        if text:
            yield from self._begin_message()
            self._text.append(text)
            yield self._message_event("output_text.delta", delta=text, logprobs=[])
        yield from self._annotate()

    def _annotate(self) -> Iterator[bytes]:
        while self._waiting and self._rewriter.has_emitted(self._waiting[0]):
            citation = self._rewriter.locate(self._waiting.pop(0))
            annotation = file_citation(citation, self._sources)
            number = len(self._annotations)
            self._annotations.append(annotation)
            yield self._message_event(
                "output_text.annotation.added", annotation_index=number, annotation=annotation
            )

    def _end(self, result: QueryResult) -> Iterator[bytes]:
        yield from self._say(self._rewriter.finish())
        parts, text = self._begun_parts, "".join(self._text)
        if self._wanted.searches_by_tool:
            found = (result.sources, result.retrieved_chunks, result.steps)
            yield from self._end_search(parts.search("completed", *found))
        search = self._search or parts.search("completed")
        response = parts.answered(result, search, text, self._annotations)
        for item in response.output[1:]:
            if isinstance(item, OutputMessage):
                yield from self._begin_message()
                yield self._message_event("output_text.done", text=text, logprobs=[])
                yield self._message_event("content_part.done", part=item.content[0])
            place = {"output_index": self._places.index(item.id) + 1}
            if isinstance(item, FunctionCall):
                done = {"item_id": item.id, "name": item.name, "arguments": item.arguments}
                yield self._event("response.function_call_arguments.done", **place, **done)
            yield self._event("response.output_item.done", **place, item=item)
        response.output[1:] = sorted(response.output[1:], key=lambda item: self._places.index(item.id))
        yield self._event(f"response.{response.status}", response=response)

    def _failure(self, error: Exception) -> Iterator[bytes]:
        yield from self._say(self._rewriter.finish())
        body = openai_error(problem_of(error, request_id=self.request_id))["error"]
        # At the top level, as documented, and in `error`, as OpenAI sends them and its clients read them.
        top_level = {name: body[name] for name in ("code", "message", "param")}
        yield self._event("error", **top_level, error=body)
        if self._parts is not None:
            limited = isinstance(error, LLMRateLimitError)
            code = "rate_limit_exceeded" if limited else "server_error"
            failure = ResponseFailure.model_validate({"code": code, "message": body["message"]})
            yield self._event("response.failed", response=self._parts.failed(failure, self._output_so_far()))

    def _output_so_far(self) -> list[OutputItem]:
        if self._search is None and not self._wanted.searches_by_tool:
            return []
        parts = self._begun_parts
        message = parts.message("incomplete", "".join(self._text), self._annotations)
        items: list[OutputMessage | FunctionCall] = [message]
        for place, call in enumerate(join_tool_calls(self._calls)):
            items.append(parts.call(place, call, status="incomplete"))
        search = self._search or parts.search("incomplete")
        return [search, *(item for item in items if item.id in self._places)]

    @property
    def _begun_parts(self) -> ResponseParts:
        if self._parts is None:
            raise RuntimeError("a query begins with MetaEvent")
        return self._parts

    def _search_event(self, parts: ResponseParts, state: str) -> bytes:
        return self._event(
            f"response.file_search_call.{state}", item_id=parts.search_id, output_index=_SEARCH
        )

    def _message_event(self, name: str, **data: Any) -> bytes:
        return self._event(
            f"response.{name}",
            item_id=self._begun_parts.message_id,
            output_index=self._places.index(self._begun_parts.message_id) + 1,
            content_index=0,
            **data,
        )

    def _event(self, event_type: str, **data: Any) -> bytes:
        self._last_number += 1
        plain = {
            name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            for name, value in data.items()
        }
        whole = {"type": event_type, "sequence_number": self._last_number, **plain}
        return json_event(encode_json(whole), event=event_type)
