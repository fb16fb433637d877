"""``/v1/chat/completions``: OpenAI's API over questions to a collection."""

from typing import Any

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.openai.chat import ChatChunkEncoder, ChatFormat, chat_completion
from vectorforge.api.openai.conversation import Conversation
from vectorforge.api.openai.error_responses import openai_problems
from vectorforge.api.openai.model_names import AskedModel
from vectorforge.api.openai.models import look_up_answering_collection
from vectorforge.api.openai.refusals import refuse_impossible
from vectorforge.api.querying import answer_as_stream, answer_whole, check_config
from vectorforge.api.question_route import QuestionRoute
from vectorforge.api.responses import nameless_events_content
from vectorforge.api.schemas.openai_chat import ChatCompletion, ChatCompletionRequest
from vectorforge.text_work import beside_the_loop

router = APIRouter(prefix="/v1", tags=["openai"], route_class=QuestionRoute)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer: JSON, or with `stream: true` chunks as server-sent events that end with "
        "`data: [DONE]`.",
        "content": nameless_events_content("JSON of a `chat.completion.chunk`, or `[DONE]`."),
    },
    **openai_problems(404, 409, 413, 415, 429, 502, 504),
}


@router.post("/chat/completions", response_model=ChatCompletion, responses=_RESPONSES)
async def create_chat_completion(
    request: Request, body: ChatCompletionRequest, application: ApplicationDep, tenant: Tenant
) -> Response | ChatCompletion:
    """Answer the last message from a collection, with citations as `[n]` and as annotations."""
    refuse_impossible(body)
    asked = AskedModel.parse(body.model)
    conversation = Conversation.of(body.messages)
    config = asked.preset.config(
        tenant.choose_variant(body.variant, body.conversation_id),
        **body.options(),
        history=conversation.history,
    )
    check_config(application, config, {"max_tokens": body.limit_field})
    question = conversation.question
    known = await look_up_answering_collection(application, tenant, asked, question, config)
    wanted = ChatFormat(
        model=asked.name,
        base_url=str(request.base_url).rstrip("/"),
        append_sources=bool(body.append_sources),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )
    if body.stream:
        encoder = ChatChunkEncoder(wanted, request_id=request.scope["state"]["request_id"])
        return await answer_as_stream(request, application, tenant, question, known, config, encoder=encoder)
    result = await answer_whole(request, application, tenant, question, known, config)
    return await beside_the_loop(len(result.answer), lambda: chat_completion(result, wanted))
