"""``/v1/conversations``: stored conversations, which queries refer to by ``conversation_id``."""

from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api.answers import RELEVANCE, AnswerDetails, CitationBody, Latency, Usage
from vectorforge.api.dependencies import Limit, Offset, PartsLimit, Tenant, existing, principal_of
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import Body, ConversationId, Locations, LocationText, RequestBody
from vectorforge.db.repositories.conversation_repo import MAX_TITLE_CHARS, ConversationMessage, MessageContext
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.exchange import ExchangeDetails
from vectorforge.types import Scope


class ConversationRequest(RequestBody):
    """A new conversation."""

    title: str = Field(default="", max_length=MAX_TITLE_CHARS, description="Empty: start of the first query.")


class ConversationChange(RequestBody):
    """A new title of a conversation."""

    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TITLE_CHARS)]


class ConversationBody(Body):
    """A stored conversation without its messages."""

    id: UUID
    title: str
    message_count: int
    created_at: datetime
    updated_at: datetime = Field(description="When the last exchange was added.")


class MessageSourceBody(Body):
    """A chunk that an answer was written from."""

    number: int = Field(description="N of its label, from 1.")
    chunk_id: UUID
    document_id: UUID
    document_source: str
    title: str | None
    heading: str | None
    start_offset: int
    end_offset: int
    locations: Locations
    location_text: LocationText
    text: str
    score: float | None = Field(default=None, description="As of `details`, null without.")
    relevance: float | None = Field(default=None, description=RELEVANCE)


class MessageDetails(AnswerDetails):
    """Details of a stored answer, as of the query itself."""

    finish_reason: str
    outcome: str
    query_truncated: bool
    citations: list[CitationBody]
    latency: Latency
    usage: Usage


class MessageBody(Body):
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    query_id: UUID | None = Field(description="Id in the query log of its query.")
    created_at: datetime
    collection_id: UUID | None = Field(default=None, description="Collection of its query.")
    provider: str | None = Field(
        default=None, description="Provider of an answer; `extractive`: no model wrote it."
    )
    model: str | None = None
    sources: list[MessageSourceBody] | None = Field(
        default=None, description="Chunks of an answer; null if its record is not in the query log."
    )
    details: MessageDetails | None = Field(
        default=None,
        description="Citations, times and cost of an answer; null if erased.",
    )

    @classmethod
    def with_context(cls, message: ConversationMessage, context: MessageContext | None) -> Self:
        """Return the body of a message, with its details and what the query log has of its query."""
        stored = ExchangeDetails.from_json(message.details)
        details = stored and MessageDetails.of(stored.result)
        if context is None:
            return cls.of(message, details=details)
        if message.role == "user":
            return cls.of(message, collection_id=context.collection_id, details=None)
        scores = dict(enumerate(stored.scores if stored else (), start=1))
        sources = []
        for source in context.sources:
            score, relevance = scores.get(source.number, (None, None))
            sources.append(MessageSourceBody.of(source, score=score, relevance=relevance))
        of_query = {name: getattr(context, name) for name in ("collection_id", "provider", "model")}
        return cls.of(message, sources=sources, details=details, **of_query)


class ConversationWithMessages(ConversationBody):
    """A stored conversation."""

    messages: list[MessageBody] = Field(description="The last ones, oldest first.")


class ConversationList(BaseModel):
    """A page of conversations, the one last used first."""

    conversations: list[ConversationBody]
    limit: int
    offset: int


router = APIRouter(prefix="/v1/conversations", tags=["conversations"])


@router.post("", status_code=201, responses=problems(409, 413, 415))
async def create_conversation(
    request: Request, response: Response, tenant: Tenant, body: ConversationRequest | None = None
) -> ConversationBody:
    """Create a conversation."""
    conversation = await tenant.conversations.create(
        (body or ConversationRequest()).title, credential=principal_of(request).credential
    )
    response.headers["Location"] = f"/v1/conversations/{conversation.id}"
    return ConversationBody.of(conversation)


@router.get("", responses=problems())
async def list_conversations(
    request: Request,
    tenant: Tenant,
    limit: Limit = 50,
    offset: Offset = 0,
    own: Annotated[bool, Query(description="Only those that this credential created.")] = False,
) -> ConversationList:
    """List the conversations, most recently used first."""
    credential = principal_of(request).credential if own else None
    conversations = await tenant.conversations.list(limit=limit, offset=offset, credential=credential)
    bodies = [ConversationBody.of(conversation) for conversation in conversations]
    return ConversationList(conversations=bodies, limit=limit, offset=offset)


@router.get("/{conversation_id}", responses=problems(404))
async def show_conversation(
    conversation_id: ConversationId,
    tenant: Tenant,
    limit: PartsLimit = 100,
    sources: Annotated[
        bool, Query(description="Return collection, model, chunks and details of each answer.")
    ] = False,
) -> ConversationWithMessages:
    """Return one conversation with its last messages."""
    conversation = existing(
        await tenant.conversations.find_by_id(conversation_id), "Conversation", conversation_id
    )
    messages = await tenant.conversations.last_messages(conversation_id, limit, with_details=sources)
    queries = {message.query_id for message in messages if message.query_id} if sources else set()
    contexts = await tenant.conversations.contexts(list(queries)) if queries else {}
    bodies = [MessageBody.with_context(m, contexts.get(m.query_id) if m.query_id else None) for m in messages]
    return ConversationWithMessages.of(conversation, messages=bodies)


def _changeable_by(request: Request) -> str | None:
    """Return the credential whose conversations the request may change; None: all of the tenant."""
    principal = principal_of(request)
    return None if principal.allows(Scope.WRITE) else principal.credential


@router.patch("/{conversation_id}", responses=problems(404, 413, 415))
async def change_conversation(
    request: Request, conversation_id: ConversationId, body: ConversationChange, tenant: Tenant
) -> ConversationBody:
    """Rename a conversation; without the scope `write` only one that this credential created."""
    changed = await tenant.conversations.rename(
        conversation_id, body.title, credential=_changeable_by(request)
    )
    return ConversationBody.of(existing(changed, "Conversation", conversation_id))


@router.delete("/{conversation_id}", status_code=204, responses=problems(404))
async def delete_conversation(request: Request, conversation_id: ConversationId, tenant: Tenant) -> None:
    """Delete a conversation with its messages; its queries stay in the query log.

    Without the scope `write` only one that this credential created.
    """
    if not await tenant.conversations.delete(conversation_id, credential=_changeable_by(request)):
        raise NotFoundError(f"Conversation {conversation_id} not found")
