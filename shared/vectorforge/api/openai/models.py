"""``/v1/models`` and the contents of OpenAI requests: model names, messages and citations.

A model is a preset and, after a slash, a collection. https://platform.openai.com/docs/api-reference/models
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

from fastapi import APIRouter
from pydantic import BaseModel, Field

from vectorforge.api.answers import link_to, title_of
from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.openai.chat_schemas import Annotation, UrlCitation
from vectorforge.api.openai.labels import without_sources_footer
from vectorforge.api.openai.request_schemas import MAX_TEXT_CHARS, ClientMessage, ContentPart, OpenAIBody
from vectorforge.api.querying import find_collection, requested_collection
from vectorforge.api.schemas import MAX_NAME_CHARS
from vectorforge.bootstrap import Application
from vectorforge.errors import AnsweringModelNotFoundError, InvalidInputError, NotFoundError
from vectorforge.llm.tools import ToolCall
from vectorforge.pipeline.presets import DEFAULT_COLLECTION, DOCRAG, RAG_QUERY, VECTORFORGE, Preset
from vectorforge.pipeline.types import Citation, HistoryMessage, SourceCitation
from vectorforge.retriever.base import CollectionChoice
from vectorforge.types import Collection

MODEL_PRESETS = {preset.name: preset for preset in (VECTORFORGE, RAG_QUERY, DOCRAG)}
"""Presets for model names; profiles need a number and have a router of their own."""


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """Preset and collection of a model name."""

    name: str
    """As requested, repeated in the answer."""
    preset: Preset
    collection: str | None
    """Name or id; None selects the default collection."""

    @classmethod
    def parse(cls, name: str) -> "RequestedModel":
        """``vectorforge``, ``vectorforge/handbook``, ``docrag/handbook`` and so on.

        Raises:
            AnsweringModelNotFoundError: It begins with no preset, or no collection can
                have the name that follows.
        """
        prefix, slash, collection = name.partition("/")
        preset = MODEL_PRESETS.get(prefix)
        if preset is None or (slash and not collection) or len(collection) > MAX_NAME_CHARS:
            raise AnsweringModelNotFoundError
        return cls(name, preset, collection or None)


def model_name(preset: str, collection: str | None = None) -> str:
    """Return the name of the model that answers from this collection."""
    return f"{preset}/{collection}" if collection else preset


class ModelBody(BaseModel):
    """A preset that answers from a collection."""

    id: str = Field(description="What `model` of a question says.")
    object: Literal["model"] = "model"
    created: int = Field(description="When the collection was made; Unix time in seconds.")
    owned_by: Literal["vectorforge"] = "vectorforge"

    @classmethod
    def of(cls, name: str, collection: Collection) -> Self:
        """Return the body of the model with this name."""
        made = collection.created_at
        return cls(id=name, created=int(made.timestamp()) if made else 0)


class ModelList(BaseModel):
    """A model for each collection of the tenant."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


def _model_not_found(error: NotFoundError) -> AnsweringModelNotFoundError:
    return AnsweringModelNotFoundError(f"{error} GET /v1/models lists every model.")


def answering_collection(application: Application, requested: RequestedModel) -> CollectionChoice:
    """Return the collection that the model answers from."""
    if requested.collection is not None:
        return CollectionChoice((requested.collection,), _model_not_found)
    return requested_collection(
        application, None, preferred=DEFAULT_COLLECTION if requested.preset is DOCRAG else None
    )


RefusedOptions: TypeAlias = Mapping[str, tuple[Callable[[Any], bool], str]]
"""Field -> whether its value is rejected, and the reason."""


def reject_options(body: OpenAIBody, refused: RefusedOptions) -> None:
    """Reject unsupported options that would change the answer.

    Raises:
        InvalidInputError: The request has one; the error has its field.
    """
    for field, (is_refused, reason) in refused.items():
        if is_refused(getattr(body, field)):
            raise InvalidInputError(reason, field=field)


router = APIRouter(prefix="/v1/models", tags=["openai"])


@router.get("", responses=openai_problems())
async def list_answering_models(tenant: Tenant) -> ModelList:
    """List the collections that can be queried, each as one model."""
    # Other presets of a collection, and presets alone, are valid names, too: they would lengthen menus only.
    collections = [c for c in await tenant.collections.list() if not c.by_profile]
    return ModelList(data=[ModelBody.of(model_name(VECTORFORGE.name, c.name), c) for c in collections])


@router.get("/{model:path}", responses=openai_problems(404))
async def show_answering_model(model: str, application: ApplicationDep, tenant: Tenant) -> ModelBody:
    """Return one model; the slash in its name need not be encoded."""
    requested = RequestedModel.parse(model)
    choice = answering_collection(application, requested)
    return ModelBody.of(requested.name, await find_collection(application, tenant, choice))


def url_citations(
    citations: Iterable[Citation], sources: Sequence[SourceCitation], base_url: str
) -> list[Annotation]:
    """Return one annotation for each citation, in the order of the answer.

    ``url_citation`` is the only kind that all clients accept; ``link_to`` chooses its address. Offsets are
    those of ``[n]`` in the sent text; ``base_url`` is the one that the client uses, without a final slash.
    """
    return [_annotation(citation, sources[citation.source_number - 1], base_url) for citation in citations]


def _annotation(citation: Citation, source: SourceCitation, base_url: str) -> Annotation:
    cited = UrlCitation.of(
        citation,
        start_index=citation.start,
        end_index=citation.end,
        title=title_of(source, citation.locations),
        url=link_to(source, citation.locations, base_url) or "",
    )
    return Annotation(url_citation=cited)


_ROLES: dict[str, Literal["user", "assistant", "system", "tool"]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A query and the conversation before it."""

    question: str
    history: tuple[HistoryMessage, ...] = ()
    """Oldest first, including the client's ``system`` and ``developer`` messages, which do not replace the
    prompt with the chunks."""
    following: tuple[HistoryMessage, ...] = ()
    """Messages after the query: calls of tools and their results, or the start of an answer."""

    @classmethod
    def of(cls, messages: Sequence[ClientMessage], *, field: str = "messages") -> "Conversation":
        """Split messages, oldest first, into the user's last one (the query), and those before and after it.

        Raises:
            InvalidInputError: No message of the user holds text, a message holds what is no text (an image,
                audio, a file), or a tool's result does not follow its call.
        """
        read = [_read(message, f"{field}.{index}") for index, message in enumerate(messages)]
        _check_results(read, field)
        requested = next((i for i in range(len(read) - 1, -1, -1) if read[i].role == "user"), None)
        if requested is None:
            raise InvalidInputError(
                f"No message has the role `user`: send the query as the last one of this role in `{field}`.",
                field=field,
            )
        query = read[requested].content
        if not query.strip():
            raise InvalidInputError("The query must not be blank.", field=f"{field}.{requested}.content")
        after = [message for message in read[requested + 1 :] if message.role != "system"]
        before = read[:requested] + [m for m in read[requested + 1 :] if m.role == "system"]
        return cls(query, _joined(before), _joined(after))


def _joined(messages: Sequence[HistoryMessage]) -> tuple[HistoryMessage, ...]:
    """Return messages without blank ones; neighboring tool calls become one message, as vendors require."""
    joined: list[HistoryMessage] = []
    for message in messages:
        if message.tool_calls and joined and joined[-1].tool_calls:
            joined[-1] = replace(joined[-1], tool_calls=(*joined[-1].tool_calls, *message.tool_calls))
        elif message.content.strip() or message.tool_calls or message.role == "tool":
            joined.append(message)
    return tuple(joined)


def _check_results(messages: Sequence[HistoryMessage], field: str) -> None:
    """Raise ``InvalidInputError`` unless each tool call has one result, before the next query."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise InvalidInputError(
                    "A result of a tool must follow the call that its id names.", field=f"{field}.{index}"
                )
            waiting.discard(message.tool_call_id)
        elif waiting and message.role == "user":
            break
        waiting |= {call.id for call in message.tool_calls}
    if waiting:
        raise InvalidInputError(f"The tool call {min(waiting)!r:.100} has no result.", field=field)


def _read(message: ClientMessage, field: str) -> HistoryMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidInputError(
            "Messages of the roles user, assistant, system, developer and tool are read.",
            field=f"{field}.role",
        )
    text = _text(message.content or (), f"{field}.content")
    if role != "assistant":
        return HistoryMessage(role, text, tool_call_id=message.tool_call_id if role == "tool" else None)
    calls = (
        ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
    )
    return HistoryMessage(role, without_sources_footer(text), tool_calls=tuple(calls))


def _text(parts: Sequence[ContentPart], field: str) -> str:
    """Return the text of a message, with its parts on separate lines."""
    text = "\n".join(_part_text(part, f"{field}.{index}") for index, part in enumerate(parts))
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidInputError(f"{field} may hold {MAX_TEXT_CHARS} characters at most.", field=field)
    return text


def _part_text(part: ContentPart, field: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _TEXT_PARTS:
        raise InvalidInputError("Only text is read: no images, audio or files.", field=f"{field}.type")
    if part.text is None:
        raise InvalidInputError("A part of text has its text in `text`.", field=f"{field}.text")
    return part.text
