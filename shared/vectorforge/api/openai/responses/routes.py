"""``/v1/responses`` of OpenAI's API: a query, its search and the cited answer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant, principal_of
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.openai.ids import CONVERSATION, collection_reference, parse_response_id, prefixed
from vectorforge.api.openai.models import (
    Conversation,
    RefusedOptions,
    RequestedModel,
    answering_collection,
    reject_options,
)
from vectorforge.api.openai.output_options import check_output
from vectorforge.api.openai.request_schemas import CalledFunction, CalledTool, ClientMessage
from vectorforge.api.openai.responses.events import EVENT_TYPES, ResponseEventEncoder
from vectorforge.api.openai.responses.objects import ResponseFormat, whole_response
from vectorforge.api.openai.responses.requests import (
    FILE_SEARCH,
    InputItem,
    ResponseRequest,
    ResponseTool,
    resolve_references,
)
from vectorforge.api.openai.responses.schemas import (
    EchoedRequest,
    ResponseBody,
    ResponseConversation,
    TextConfig,
)
from vectorforge.api.querying import QueryRoute, SurfaceQuery, check_config, find_collection
from vectorforge.api.request_state import RequestState
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.exchange import ExchangeDetails
from vectorforge.pipeline.types import HistoryMessage, QueryConfig
from vectorforge.types import Collection

_IGNORED_ITEMS = ("file_search_call", "reasoning")
"""Items of an earlier response that are not part of the conversation."""

_REFUSED: RefusedOptions = {
    "background": (bool, "`background` is not supported."),
    "prompt": (bool, "Stored prompts are not supported; send `input`."),
    "top_logprobs": (bool, "`top_logprobs` is not supported."),
    "include": (
        lambda include: "message.output_text.logprobs" in (include or ()),
        "Log probabilities are not supported.",
    ),
}


def reject_unsupported(body: ResponseRequest) -> None:
    """Reject unsupported options that would change the answer.

    Raises:
        InvalidInputError: The request has one; the error has its field.
    """
    reject_options(body, _REFUSED)
    if body.tool_choice == "none" and body.file_search is not None:
        raise InvalidInputError("Every query runs `file_search`.", field="tool_choice")
    for number, tool in enumerate(body.tools or ()):
        if tool.type not in (FILE_SEARCH, "function"):
            raise InvalidInputError(
                "Only tools of the types file_search and function are supported.",
                field=f"tools.{number}.type",
            )
    if sum(tool.type == FILE_SEARCH for tool in body.tools or ()) > 1:
        raise InvalidInputError("Only one `file_search` tool is supported.", field="tools")


def read_conversation(body: ResponseRequest, items: Sequence[InputItem]) -> Conversation:
    """Return the query and the conversation before it in the request, whose references are resolved.

    Raises:
        InvalidInputError: The query is missing, or an item is not supported.
    """
    messages = [_message(item, f"input.{index}") for index, item in enumerate(items)]
    conversation = Conversation.of(messages, field="input")
    if not body.instructions:
        return conversation
    return replace(conversation, history=(HistoryMessage("system", body.instructions), *conversation.history))


def _message(item: InputItem, field: str) -> ClientMessage:
    if item.type in _IGNORED_ITEMS:
        return ClientMessage(role="developer")  # blank, so skipped; the others keep their index
    if item.type == "function_call":
        function = CalledFunction(name=item.name or "", arguments=item.arguments or "")
        return ClientMessage(role="assistant", tool_calls=[CalledTool(id=item.call_id, function=function)])
    if item.type == "function_call_output":
        return ClientMessage(role="tool", tool_call_id=item.call_id, content=item.output)
    if item.type != "message":
        raise InvalidInputError(
            "Only messages, function calls, their outputs and item references are supported.",
            field=f"{field}.type",
        )
    return item


async def find_searched_collection(
    application: Application, tenant: TenantServices, requested: RequestedModel, body: ResponseRequest
) -> Collection:
    """Return the collection named by the model or by the tool ``file_search``.

    Raises:
        InvalidInputError: They name two different ones.
        NotFoundError: It does not exist.
    """
    answering = answering_collection(application, requested)
    if body.file_search is None:
        return await find_collection(application, tenant, answering)
    searched = await tenant.find_collection(collection_reference(body.file_search.vector_store_ids[0]))
    if requested.collection is not None:
        answered = await find_collection(application, tenant, answering)
        if answered.id != searched.id:
            raise InvalidInputError(
                f"The model answers from {answered.name!r}, file_search names {searched.name!r}; "
                f"use model {requested.preset.name!r} to let the tool decide.",
                field="tools",
            )
    return searched


async def find_stored_conversation(
    tenant: TenantServices, body: ResponseRequest, conversation: Conversation
) -> UUID | None:
    """Return the id of the stored conversation that the query continues, or None.

    Raises:
        InvalidInputError: Several are named, the response is not the last of its conversation, the request
            has messages of its own, or ``store`` is false.
    """
    names = ("previous_response_id", "conversation", "conversation_id")
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) > 1:
        raise InvalidInputError(f"Send {given[0]} or {given[1]}, not both.", field=given[1])
    if not given:
        return None
    if any(message.role != "system" for message in (*conversation.history, *conversation.following)):
        raise InvalidInputError(
            f"The conversation is given by {given[0]}; send only the query.", field="input"
        )
    if body.store is False:
        raise InvalidInputError(
            "Continuing a stored conversation requires `store: true`; else send it in `input`.",
            field="store",
        )
    if body.previous_response_id is None:
        return body.conversation.id if body.conversation else body.conversation_id
    query_id, conversation_id = parse_response_id(body.previous_response_id)
    last = await tenant.conversations.last_messages(conversation_id, 1, with_details=True)
    if not last or last[0].query_id != query_id:
        raise InvalidInputError(
            "Only the last response of a stored conversation can be continued.",
            field="previous_response_id",
        )
    details = ExchangeDetails.from_json(last[0].details)
    if details and (details.has_earlier_input or details.result.tool_calls):
        raise InvalidInputError(
            "This response had earlier messages in `input`, or calls tools: send the conversation again.",
            field="previous_response_id",
        )
    return conversation_id


@asynccontextmanager
async def conversation_for(
    tenant: TenantServices, body: ResponseRequest, continued: UUID | None, credential: str
) -> AsyncIterator[UUID | None]:
    """Yield the id of the conversation for the exchange; ``store: true`` creates one.

    A new conversation is deleted if the block raises, since it stays empty; that of a stream which is aborted
    later is deleted at the end of its query.

    Raises:
        ConflictError: The tenant or the credential has the maximum number of conversations.
    """
    if continued is not None or not body.store:
        yield continued
        return
    begun = await tenant.conversations.create(credential=credential)
    try:
        yield begun.id
    except BaseException:  # a cancellation, too
        await tenant.conversations.delete(begun.id)
        raise


router = APIRouter(prefix="/v1", tags=["openai"], route_class=QueryRoute)

_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": list(EVENT_TYPES)},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The response: JSON, or with `stream: true` server-sent events, the last of which is "
        "`response.completed`, `response.incomplete` or `response.failed`.",
        "content": {"text/event-stream": {"itemSchema": _EVENT}},
    },
    **openai_problems(404, 409, 413, 415, 429, 502, 504),
}


@router.post("/responses", response_model=ResponseBody, responses=_RESPONSES)
async def create_response(
    request: Request, body: ResponseRequest, application: ApplicationDep, tenant: Tenant
) -> Response | ResponseBody:
    """Answer a query from a collection, with citations as `[n]` and as annotations."""
    reject_unsupported(body)
    requested = RequestedModel.parse(body.model)
    credential = principal_of(request).credential
    items, called_in = await resolve_references(tenant, body.input, credential)
    conversation = read_conversation(body, items)
    conversation_id = await find_stored_conversation(tenant, body, conversation)
    config = requested.preset.config(
        tenant.choose_variant(body.variant, conversation_id),
        **{**body.options(), "conversation_id": conversation_id},
        history=conversation.history,
        following=conversation.following,
    )
    top_k_field = "tools" if body.file_search and body.top_k is None else "top_k"
    check_config(application, config, {"max_tokens": "max_output_tokens", "top_k": top_k_field})
    check_output(application, config, requested.preset, format_field="text")
    _check_tools(body, config, conversation_id)
    collection = await find_searched_collection(application, tenant, requested, body)
    continued = conversation_id or (called_in if body.store else None)
    async with conversation_for(tenant, body, continued, credential) as stored_in:
        wanted = ResponseFormat(
            question=conversation.question,
            echo=_echo(body, config, stored_in),
            conversation_id=stored_in,
            with_results="file_search_call.results" in (body.include or ()),
            is_json=config.response_format is not None,
            has_tools=config.has_tools,
            searches_by_tool=config.search_tool is not None,
        )
        config = replace(
            config,
            conversation_id=stored_in,
            begins_conversation=stored_in != continued,
            sends_history=stored_in != conversation_id,
        )
        query = SurfaceQuery(request, conversation.question, collection, config)
        encoder = ResponseEventEncoder(wanted, request_id=RequestState.of(request.scope).request_id)
        return await query.answer(
            lambda result: whole_response(result, wanted), stream=body.stream, encoder=encoder
        )


def _check_tools(body: ResponseRequest, config: QueryConfig, conversation_id: UUID | None) -> None:
    if config.has_tools and (conversation_id is not None or (body.store and config.search_tool)):
        field = "tools" if config.search_tool is None else "retrieval"
        raise InvalidInputError("Tools need the conversation in `input`, not a stored one.", field=field)


def _echo(body: ResponseRequest, config: QueryConfig, conversation_id: UUID | None) -> EchoedRequest:
    return EchoedRequest(
        model=body.model,
        instructions=body.instructions,
        metadata=body.metadata or {},
        temperature=config.temperature,
        top_p=config.top_p,
        max_output_tokens=config.max_tokens,
        tools=[_echoed(tool) for tool in body.tools or ()],
        tool_choice=body.tool_choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        conversation=ResponseConversation(id=prefixed(CONVERSATION, conversation_id))
        if conversation_id
        else None,
        store=conversation_id is not None,
        text=TextConfig(format=wanted.model_dump(mode="json", by_alias=True, exclude_unset=True))
        if (wanted := body.text and body.text.format)
        else TextConfig(),
    )


def _echoed(tool: ResponseTool) -> dict[str, Any]:
    if tool.client_function is not None:
        return {"type": tool.type, "strict": None, **tool.client_function.model_dump(mode="json")}
    return tool.model_dump(mode="json", exclude_unset=True)
