"""``/v1/responses/{id}`` of OpenAI's API: stored responses, from their conversation and the query log.

https://developers.openai.com/api/reference/resources/responses
"""

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from vectorforge.api.dependencies import Tenant
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.openai.ids import CONVERSATION, RESPONSE, parse_response_id, prefixed, response_key
from vectorforge.api.openai.labels import rewrite_labels
from vectorforge.api.openai.models import model_name
from vectorforge.api.openai.responses.objects import ResponseFormat, ResponseParts, file_citation
from vectorforge.api.openai.responses.schemas import (
    EchoedRequest,
    FileCitation,
    FileSearchCall,
    OutputItem,
    OutputMessage,
    ResponseBody,
    ResponseConversation,
    ResponseFailure,
    ResponseUsage,
)
from vectorforge.api.openai.vector_stores.store_schemas import CursorList, unix_time
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.conversation_repo import ConversationMessage
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import InvalidInputError, LLMRateLimitError, NotFoundError
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.context import cite
from vectorforge.pipeline.exchange import ExchangeDetails
from vectorforge.pipeline.presets import find_preset
from vectorforge.types import RetrievedChunk

router = APIRouter(prefix="/v1/responses", tags=["openai"])

_UNFINISHED = ("error", "deadline")
"""Outcomes of queries whose exchange is in no conversation."""


class InputText(BaseModel):
    """Text of a query."""

    type: Literal["input_text"] = "input_text"
    text: str


class StoredInput(BaseModel):
    """The query of a stored response."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["user"] = "user"
    status: Literal["completed"] = "completed"
    content: list[InputText]


class StoredInputList(CursorList):
    """The input of a stored response: its query."""

    data: list[StoredInput]


class ResponseDeleted(BaseModel):
    """A response that was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


@router.get("/{response_id}", responses=openai_problems(404))
async def retrieve_response(
    response_id: str,
    tenant: Tenant,
    stream: Annotated[bool, Query(description="Only false: a stored response is not streamed.")] = False,
) -> ResponseBody:
    """Return a response of a request with `store: true`."""
    if stream:
        raise InvalidInputError("Stored responses are not streamed.", field="stream")
    query_id, conversation_id = _ids(response_id)
    exchange = await tenant.conversations.exchange(conversation_id, query_id)
    if len(exchange) < 2:
        return await _unfinished(tenant, query_id, conversation_id)
    log = await tenant.query_logs.find_by_id(query_id)
    question, answer = exchange[-2:]
    details = ExchangeDetails.from_json(answer.details)
    is_continued = len(exchange) > 2 and not (details and details.has_earlier_input)
    previous = exchange[0].query_id if is_continued else None
    echo = await _echo(tenant, log, conversation_id, previous)
    parts = ResponseParts(
        ResponseFormat(question.content, echo, conversation_id),
        query_id,
        details.result.rewritten_query if details else None,
        created_at=unix_time(log.created_at if log and log.created_at else question.created_at),
    )
    return parts.ended(
        details.result.finish_reason if details else "stop",
        await _output(tenant, parts, answer.content, log),
        details.result.tool_calls if details else (),
        completed_at=unix_time(answer.created_at),
        usage=_usage(log),
    )


async def _unfinished(tenant: TenantServices, query_id: UUID, conversation_id: UUID) -> ResponseBody:
    """Return a stored response that failed or ran out of time, of which only the query log has a record."""
    log = await tenant.query_logs.find_by_id(query_id)
    is_kept = log is not None and log.conversation_id == conversation_id and log.outcome in _UNFINISHED
    if log is None or not is_kept or await tenant.conversations.find_by_id(conversation_id) is None:
        raise _not_found(RESPONSE + response_key(query_id, conversation_id))
    echo = await _echo(tenant, log, conversation_id, None)
    wanted = ResponseFormat(log.query_text, echo, conversation_id)
    parts = ResponseParts(wanted, query_id, created_at=unix_time(log.created_at))
    output = await _output(tenant, parts, log.generated_response, log)
    if log.error_code is None:
        return parts.ended("deadline", output, usage=_usage(log))
    code = "rate_limit_exceeded" if log.error_code == LLMRateLimitError.code else "server_error"
    message = f"The query failed in the stage {log.error_stage}: {log.error_code}."
    search, text = output
    kept: list[OutputItem] = (
        [search, text.model_copy(update={"status": "incomplete"})] if log.generated_response else [search]
    )
    return parts.failed(ResponseFailure.model_validate({"code": code, "message": message}), kept)


@router.get("/{response_id}/input_items", responses=openai_problems(404))
async def list_input_items(
    response_id: str,
    tenant: Tenant,
    after: Annotated[
        str | None, Query(max_length=200, description="There is one item, and none after it.")
    ] = None,
) -> StoredInputList:
    """Return the query of a stored response; the conversation before it has responses of its own."""
    query_id, _, exchange = await _exchange(tenant, response_id)
    content = [InputText(text=exchange[-2].content)]
    items = [StoredInput(id=f"msg_{query_id.hex}_input", content=content)]
    return StoredInputList.of([] if after else items, has_more=False)


@router.delete("/{response_id}", responses=openai_problems(404))
async def delete_response(response_id: str, tenant: Tenant) -> ResponseDeleted:
    """Delete a stored response with its query, and the conversation if nothing is left of it."""
    query_id, conversation_id, _ = await _exchange(tenant, response_id)
    if not await tenant.conversations.delete_exchange(conversation_id, query_id):
        raise NotFoundError(f"Response {response_id} not found")
    return ResponseDeleted(id=RESPONSE + response_key(query_id, conversation_id))


async def _exchange(
    tenant: TenantServices, response_id: str
) -> tuple[UUID, UUID, Sequence[ConversationMessage]]:
    """Return the ids of query and conversation, and the last messages: query and answer, and one before."""
    query_id, conversation_id = _ids(response_id)
    exchange = await tenant.conversations.exchange(conversation_id, query_id)
    if len(exchange) < 2:
        raise _not_found(response_id)
    return query_id, conversation_id, exchange


def _ids(response_id: str) -> tuple[UUID, UUID]:
    try:
        return parse_response_id(response_id)
    except InvalidInputError:
        raise _not_found(response_id) from None


def _not_found(response_id: str) -> NotFoundError:
    return NotFoundError(f"Response {response_id} not found. Only responses with `store: true` are stored.")


async def _echo(
    tenant: TenantServices, log: QueryLog | None, conversation_id: UUID, previous: UUID | None
) -> EchoedRequest:
    """Return the fields of the request that are logged, and defaults for the others."""
    preset = find_preset(log.preset if log and log.preset else "vectorforge")
    collection = await tenant.collections.find_by_id(log.collection_id) if log else None
    request = (log.request if log else None) or {}
    return EchoedRequest(
        model=model_name(preset.name, collection.name if collection else None),
        instructions=None,
        metadata={},
        temperature=request.get("temperature"),
        top_p=request.get("top_p"),
        max_output_tokens=request.get("max_tokens") or preset.config(None).max_tokens,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        previous_response_id=RESPONSE + response_key(previous, conversation_id) if previous else None,
        conversation=ResponseConversation(id=prefixed(CONVERSATION, conversation_id)),
        store=True,
    )


async def _chunks(tenant: TenantServices, log: QueryLog | None) -> list[RetrievedChunk]:
    """Return the chunks of the prompt in the order of their labels; none if one was deleted since."""
    found = []
    for chunk_id in log.used_chunk_ids if log else ():
        cited = await tenant.documents.chunk(chunk_id)
        document = cited and await tenant.documents.find_by_id(cited.chunk.document_id)
        if not cited or not document:
            return []
        found.append(RetrievedChunk(cited.chunk, 0.0, 0.0, document.source, document.title))
    return found


async def _output(
    tenant: TenantServices, parts: ResponseParts, answer: str, log: QueryLog | None
) -> tuple[FileSearchCall, OutputMessage]:
    """Return the items of the search and the message."""
    text, annotations = _cited(parts.wanted.question, answer, await _chunks(tenant, log))
    return parts.search("completed"), parts.message("completed", text, annotations)


def _cited(query: str, answer: str, chunks: Sequence[RetrievedChunk]) -> tuple[str, list[FileCitation]]:
    """Return the answer with labels `[n]`, and the annotations of those that name one of the chunks."""
    checker = CitationChecker(query, chunks)
    checker.feed(answer)
    checker.finish()
    text, citations = rewrite_labels(answer, checker.citations, chunks)
    sources = [cite(chunk) for chunk in chunks]
    return text, [file_citation(citation, sources) for citation in citations]


def _usage(log: QueryLog | None) -> ResponseUsage | None:
    if log is None:
        return None
    read, written = log.prompt_tokens or 0, log.completion_tokens or 0
    return ResponseUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
