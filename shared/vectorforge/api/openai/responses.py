"""``/v1/responses`` of OpenAI's API: a question, the search for it and the cited answer."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant, principal_of
from vectorforge.api.openai.errors import openai_problems
from vectorforge.api.openai.models import RequestedModel
from vectorforge.api.openai.response_events import EVENT_TYPES, ResponseEventEncoder
from vectorforge.api.openai.response_object_schemas import EchoedRequest, ResponseBody, ResponseConversation
from vectorforge.api.openai.response_objects import ResponseFormat, whole_response
from vectorforge.api.openai.response_requests import (
    conversation_for,
    find_searched_collection,
    find_stored_conversation,
    read_conversation,
    refuse_impossible,
)
from vectorforge.api.openai.response_schemas import ResponseRequest
from vectorforge.api.query_route import QueryRoute
from vectorforge.api.querying import answer_as_stream, answer_whole, check_config
from vectorforge.pipeline.types import QueryConfig
from vectorforge.threads import off_event_loop

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
    """Answer a question from a collection, with citations as `[n]` and as annotations."""
    refuse_impossible(body)
    asked = RequestedModel.parse(body.model)
    said = read_conversation(body)
    conversation_id = await find_stored_conversation(tenant, body, said)
    config = asked.preset.config(
        tenant.choose_variant(body.variant, conversation_id),
        **{**body.options(), "conversation_id": conversation_id},
        history=said.history,
    )
    check_config(application, config, {"max_tokens": "max_output_tokens", "top_k": _top_k_field(body)})
    collection = await find_searched_collection(application, tenant, asked, body)
    credential = principal_of(request).credential
    async with conversation_for(tenant, body, conversation_id, credential) as kept_in:
        wanted = ResponseFormat(
            question=said.question,
            echo=_echo(body, config, kept_in),
            conversation_id=kept_in,
            with_results="file_search_call.results" in (body.include or ()),
        )
        asking = (request, application, tenant, said.question, collection)
        config = replace(config, conversation_id=kept_in)
        if body.stream:
            encoder = ResponseEventEncoder(wanted, request_id=request.scope["state"]["request_id"])
            return await answer_as_stream(*asking, config, encoder=encoder)
        result = await answer_whole(*asking, config)
        return await off_event_loop(len(result.answer), lambda: whole_response(result, wanted))


def _top_k_field(body: ResponseRequest) -> str:
    return "tools" if body.file_search and body.top_k is None else "top_k"


def _echo(body: ResponseRequest, config: QueryConfig, conversation_id: UUID | None) -> EchoedRequest:
    searched = body.file_search
    return EchoedRequest(
        model=body.model,
        instructions=body.instructions,
        metadata=body.metadata or {},
        temperature=config.temperature,
        top_p=config.top_p,
        max_output_tokens=config.max_tokens,
        tools=[searched.model_dump(mode="json", exclude_unset=True)] if searched else [],
        tool_choice=body.tool_choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        conversation=ResponseConversation(id=conversation_id) if conversation_id else None,
        store=conversation_id is not None,
    )
