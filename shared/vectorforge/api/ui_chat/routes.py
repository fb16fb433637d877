"""``/api/chat``: the default route of ``useChat`` of Vercel's AI SDK 7, with additional fields of our own."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.error_schemas import ANSWER_PROBLEMS
from vectorforge.api.openai.models import MODEL_PRESETS
from vectorforge.api.querying import QueryRoute, SurfaceQuery, check_config, requested_collection
from vectorforge.api.request_state import RequestState
from vectorforge.api.schemas import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_QUERY_CHARS,
    CollectionReference,
    ConversationReference,
    ModelName,
    ProviderName,
    QueryOptions,
    RequestBody,
    Temperature,
    given,
)
from vectorforge.api.streaming.sse import nameless_events_content
from vectorforge.api.ui_chat.encoder import UIMessageEncoder
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import HistoryMessage, QueryConfig
from vectorforge.pipeline.variants import Variant

MAX_CHAT_MESSAGES = 1000
"""``useChat`` sends the whole chat with every query."""

_OWN_FIELDS = {"id", "trigger", "message_id", "collection", "preset"}


class TextPart(BaseModel):
    """A piece of a message's text."""

    type: Literal["text"]
    text: str = Field(max_length=MAX_QUERY_CHARS)


class OtherPart(BaseModel):
    """A part of which only the type is read: sources, data, reasoning, tools, steps, files."""

    type: str = Field(max_length=200)


def _kind(part: Any) -> str:
    type_ = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return "TextPart" if type_ == "text" else "OtherPart"


UIMessagePart = Annotated[
    Annotated[TextPart, Tag("TextPart")] | Annotated[OtherPart, Tag("OtherPart")], Discriminator(_kind)
]


class UIMessage(BaseModel):
    """A message of the chat, as ``UIMessage`` of the AI SDK."""

    role: Literal["user", "assistant", "system"]
    parts: list[UIMessagePart] = Field(max_length=MAX_PARTS)


class UIChatRequest(RequestBody, QueryOptions):
    """A chat whose last message is the query. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: str | None = Field(default=None, max_length=200, description="The client's id of the chat.")
    messages: list[UIMessage] = Field(
        min_length=1,
        max_length=MAX_CHAT_MESSAGES,
        description="Oldest first: at most 100 messages with text, and the user's query.",
    )
    trigger: Literal["submit-message", "regenerate-message"] = Field(
        default="submit-message", description="`regenerate-message` bypasses the answer cache."
    )
    message_id: str | None = Field(default=None, alias="messageId", max_length=200, description="Not used.")

    collection: CollectionReference | None = None
    preset: Literal["vectorforge", "rag_query", "docrag"] = Field(
        default="vectorforge", description="Defaults and formats."
    )
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_score: float | None = Field(default=None, description="Minimum score; an explicit null disables it.")
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = None
    temperature: Temperature | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    conversation_id: ConversationReference | None = Field(
        default=None, description="A stored conversation, whose messages replace earlier ones of the request."
    )

    def config(self, history: tuple[HistoryMessage, ...], variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant."""
        explicit = given(self, but=_OWN_FIELDS)
        for name in ("top_k", "max_tokens"):  # null means the default
            if explicit.get(name, 0) is None:
                del explicit[name]
        return MODEL_PRESETS[self.preset].config(
            variant,
            **explicit,
            stream=True,
            history=() if self.conversation_id else history,
            use_cache=self.trigger != "regenerate-message",
            regenerates=self.trigger == "regenerate-message",
        )


def question_of(messages: Sequence[UIMessage]) -> str:
    """Return the query in the last message.

    Raises:
        InvalidInputError: It is not the user's, has no text, or has a file.
    """
    last, field = messages[-1], f"messages.{len(messages) - 1}"
    if last.role != "user":
        raise InvalidInputError("The last message must have the role `user`.", field=field)
    if any(part.type == "file" for part in last.parts):
        raise InvalidInputError("Files are not supported; send text.", field=f"{field}.parts")
    query = _text(last)
    if not query.strip():
        raise InvalidInputError("The last message has no text.", field=f"{field}.parts")
    return query


def history_of(messages: Sequence[UIMessage]) -> tuple[HistoryMessage, ...]:
    """Return the conversation before the query, oldest first: the last 100 messages with text.

    ``useChat`` sends all of a chat, also answers that broke off before their first word.
    """
    earlier = [HistoryMessage(message.role, _text(message)) for message in messages[:-1]]
    return tuple(message for message in earlier if message.content.strip())[-MAX_MESSAGES:]


def _text(message: UIMessage) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, TextPart))


router = APIRouter(prefix="/api", tags=["query"], route_class=QueryRoute)

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
    query = question_of(body.messages)
    variant = tenant.choose_variant(body.variant, body.conversation_id)
    config = body.config(history_of(body.messages), variant)
    check_config(application, config, {})
    collection = requested_collection(application, body.collection)
    encoder = UIMessageEncoder(request_id=RequestState.of(request.scope).request_id)
    return await SurfaceQuery(request, query, collection, config).stream(encoder)
