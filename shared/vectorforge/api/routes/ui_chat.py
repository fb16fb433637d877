"""``/api/chat``: the route that ``useChat`` of Vercel's AI SDK asks when it is told nothing else."""

from typing import Any

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.querying import answer_as_stream, check_config, look_up_question
from vectorforge.api.question_route import QuestionRoute
from vectorforge.api.responses import ANSWER_PROBLEMS, nameless_events_content
from vectorforge.api.schemas.ui_chat import UIChatRequest
from vectorforge.api.ui_messages.conversation import history_of, question_of
from vectorforge.api.ui_messages.encoder import UIMessageEncoder

router = APIRouter(prefix="/api", tags=["query"], route_class=QuestionRoute)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer as a UI message stream, version 1, of the AI SDK: server-sent events "
        "whose data is JSON, and `[DONE]`. https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol",
        "content": nameless_events_content("JSON of a part of the message, or `[DONE]`."),
    },
    **ANSWER_PROBLEMS,
}


@router.post("/chat", response_class=Response, responses=_RESPONSES)
async def ui_chat(
    request: Request, body: UIChatRequest, application: ApplicationDep, tenant: Tenant
) -> Response:
    """Answer the last message of a chat, with sources before the text and citations after it."""
    question = question_of(body.messages)
    variant = tenant.choose_variant(body.variant, body.conversation_id)
    config = body.config(history_of(body.messages), variant)
    check_config(application, config, {})
    asked = await look_up_question(application, tenant, body.collection, question, config)
    encoder = UIMessageEncoder(request_id=request.scope["state"]["request_id"])
    return await answer_as_stream(request, application, tenant, question, asked, config, encoder=encoder)
