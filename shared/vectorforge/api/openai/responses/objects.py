"""Objects of ``/v1/responses`` made from answers."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from vectorforge.api.answers import Usage
from vectorforge.api.openai.chat import own_details
from vectorforge.api.openai.ids import FILE, RESPONSE, prefixed, response_key
from vectorforge.api.openai.labels import rewrite_labels
from vectorforge.api.openai.responses.schemas import (
    EchoedRequest,
    FileCitation,
    FileSearchCall,
    FunctionCall,
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ResponseBody,
    ResponseFailure,
    ResponseUsage,
)
from vectorforge.api.openai.vector_stores.store_schemas import FoundPassage, attributes_of
from vectorforge.llm.tools import ToolCall
from vectorforge.pipeline.step_types import QueryStep
from vectorforge.pipeline.types import Citation, QueryResult, SourceCitation
from vectorforge.types import RetrievedChunk

_INCOMPLETE: Mapping[str, Literal["max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "deadline": "max_output_tokens",  # cut off, too
    "content_filter": "content_filter",
}


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """Format of one response."""

    question: str
    echo: EchoedRequest
    conversation_id: UUID | None = None
    """Stored conversation of the exchange."""
    with_results: bool = False
    """True if the search item includes its chunks."""
    is_json: bool = False
    """The text is JSON: nothing in it is rewritten, and its citations are among the details."""
    has_tools: bool = False
    """The answer may have calls of tools, with or without text."""
    searches_by_tool: bool = False
    """The model decides on the search, whose item has its queries and is complete at the end."""


@dataclass(slots=True)
class ResponseParts:
    """Makes the objects of one response; its ids stay the same from the first to the last."""

    wanted: ResponseFormat
    query_id: UUID
    rewritten_query: str | None = None
    created_at: int = field(default_factory=lambda: int(time.time()))

    @property
    def search_id(self) -> str:
        """Id of the search item."""
        return f"fs_{self._key}"

    @property
    def message_id(self) -> str:
        """Id of the message item."""
        return f"msg_{self._key}"

    @property
    def _key(self) -> str:
        """Query and, of a stored response, conversation: items can be found by it."""
        return response_key(self.query_id, self.wanted.conversation_id)

    def search(
        self,
        status: ItemStatus,
        sources: Sequence[SourceCitation] = (),
        retrieved: Iterable[RetrievedChunk] = (),
        steps: Iterable[QueryStep] = (),
    ) -> FileSearchCall:
        """Return the search item, with results only if requested; ``steps`` are those of a model's calls."""
        metadata = {chunk.chunk.id: chunk.chunk.metadata for chunk in retrieved}
        results = [_found(source, metadata.get(source.chunk_id, {})) for source in sources]
        return FileSearchCall(
            id=self.search_id,
            status=status,
            queries=[text for step in steps for text in step.queries]
            if self.wanted.searches_by_tool
            else [self.rewritten_query or self.wanted.question],
            results=results if self.wanted.with_results and status == "completed" else None,
        )

    def message(
        self, status: ItemStatus, text: str, annotations: Sequence[FileCitation] = ()
    ) -> OutputMessage:
        """Return the message item."""
        content = [OutputText(text=text, annotations=list(annotations))] if status != "in_progress" else []
        return OutputMessage(id=self.message_id, status=status, content=content)

    def call(self, place: int, call: ToolCall, *, status: ItemStatus = "completed") -> FunctionCall:
        """Return the item of a tool call; ``place`` counts the calls of the answer from 0."""
        return FunctionCall(
            id=f"fc_{self._key}_{place}",
            status=status,
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
        )

    def begun(self) -> ResponseBody:
        """Return the response without output."""
        return self._response("in_progress", [])

    def failed(self, failure: ResponseFailure, output: Sequence[OutputItem]) -> ResponseBody:
        """Return the response of a failed query with its partial output."""
        return self._response("failed", output, error=failure)

    def answered(
        self, result: QueryResult, search: FileSearchCall, text: str, annotations: Sequence[FileCitation]
    ) -> ResponseBody:
        """Return the response with its answer, which may be incomplete; calls alone need no message."""
        return self.ended(
            result.finish_reason,
            (search, self.message("completed", text, annotations)),
            result.tool_calls,
            completed_at=int(time.time()),
            usage=_usage(result),
            vectorforge=own_details(result, is_json=self.wanted.is_json),
        )

    def ended(
        self,
        finish_reason: str,
        output: tuple[FileSearchCall, OutputMessage],
        tool_calls: Sequence[ToolCall] = (),
        **values: Any,
    ) -> ResponseBody:
        """Return the response of an answer that has ended, fresh or stored, with the status that follows.

        ``output`` is the search and the message, which is left out if calls of tools come without text.
        """
        search, message = output
        reason = _INCOMPLETE.get(finish_reason)
        status: Literal["completed", "incomplete"] = "incomplete" if reason else "completed"
        calls = [self.call(place, call, status=status) for place, call in enumerate(tool_calls)]
        has_text = any(part.text for part in message.content)
        messages = [] if calls and not has_text else [message.model_copy(update={"status": status})]
        if reason:
            values |= {"incomplete_details": IncompleteDetails(reason=reason), "completed_at": None}
        return self._response(status, [search, *messages, *calls], **values)

    def _response(self, status: Any, output: Sequence[Any], **values: Any) -> ResponseBody:
        absent = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage", "vectorforge"))
        return ResponseBody(
            id=f"{RESPONSE}{self._key}",
            created_at=self.created_at,
            status=status,
            output=list(output),
            **{**absent, **values},
            **dict(self.wanted.echo),
        )


def whole_response(result: QueryResult, wanted: ResponseFormat) -> ResponseBody:
    """Return a whole answer."""
    parts = ResponseParts(wanted, result.request_id, result.rewritten_query)
    chunks = result.retrieved_chunks[: len(result.sources)]
    text, citations = result.answer, list[Citation]()
    if not wanted.is_json:
        text, citations = rewrite_labels(text, result.citations, chunks)
    search = parts.search("completed", result.sources, result.retrieved_chunks, result.steps)
    annotations = [file_citation(citation, result.sources) for citation in citations]
    return parts.answered(result, search, text, annotations)


def file_citation(citation: Citation, sources: Sequence[SourceCitation]) -> FileCitation:
    """Return the annotation of a citation, which has the offsets of ``[n]`` in the text of the client."""
    source = sources[citation.source_number - 1]
    return FileCitation.of(
        citation,
        file_id=prefixed(FILE, source.document_id),
        filename=source.document_source,
        index=citation.start,
        end_index=citation.end,
        chunk_id=str(source.chunk_id),
    )


def _found(source: SourceCitation, metadata: Mapping[str, Any]) -> FoundPassage:
    return FoundPassage.of(
        source,
        file_id=prefixed(FILE, source.document_id),
        filename=source.document_source,
        attributes=attributes_of(metadata),
        chunk_id=str(source.chunk_id),
    )


def _usage(result: QueryResult) -> ResponseUsage:
    used = Usage.of(result)
    return ResponseUsage(
        input_tokens=used.prompt_tokens,
        output_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
    )
