"""``/v1/conversations``: stored conversations, which queries refer to by ``conversation_id``."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import Limit, Offset, PartsLimit, Tenant, existing, principal_of
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import Body, RequestBody
from vectorforge.db.repositories.conversation_repo import MAX_TITLE_CHARS
from vectorforge.errors import NotFoundError


class ConversationRequest(RequestBody):
    """A new conversation."""

    title: str = Field(default="", max_length=MAX_TITLE_CHARS, description="Empty: start of the first query.")


class ConversationBody(Body):
    """A stored conversation without its messages."""

    id: UUID
    title: str
    message_count: int
    created_at: datetime
    updated_at: datetime = Field(description="When the last exchange was added.")


class MessageBody(Body):
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    query_id: UUID | None = Field(description="Id in the query log of its query.")
    created_at: datetime


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
async def list_conversations(tenant: Tenant, limit: Limit = 50, offset: Offset = 0) -> ConversationList:
    """List the conversations, most recently used first."""
    conversations = await tenant.conversations.list(limit=limit, offset=offset)
    bodies = [ConversationBody.of(conversation) for conversation in conversations]
    return ConversationList(conversations=bodies, limit=limit, offset=offset)


@router.get("/{conversation_id}", responses=problems(404))
async def show_conversation(
    conversation_id: UUID, tenant: Tenant, limit: PartsLimit = 100
) -> ConversationWithMessages:
    """Return one conversation with its last messages."""
    conversation = existing(
        await tenant.conversations.find_by_id(conversation_id), "Conversation", conversation_id
    )
    messages = await tenant.conversations.last_messages(conversation_id, limit)
    return ConversationWithMessages.of(conversation, messages=messages)


@router.delete("/{conversation_id}", status_code=204, responses=problems(404))
async def delete_conversation(conversation_id: UUID, tenant: Tenant) -> None:
    """Delete a conversation with its messages; its queries stay in the query log."""
    if not await tenant.conversations.delete(conversation_id):
        raise NotFoundError(f"Conversation {conversation_id} not found")
