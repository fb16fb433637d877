"""Bodies of ``/v1/conversations``."""

from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.schemas.base import RequestBody
from vectorforge.db.repositories.conversation_repo import MAX_TITLE_CHARS, Conversation, ConversationMessage


class ConversationRequest(RequestBody):
    """A conversation to be begun."""

    title: str = Field(
        default="", max_length=MAX_TITLE_CHARS, description="Empty: the start of the first question."
    )


class ConversationBody(BaseModel):
    """A stored conversation without its messages."""

    id: UUID
    title: str
    message_count: int
    created_at: datetime
    updated_at: datetime = Field(description="When the last exchange was added.")

    @classmethod
    def of(cls, conversation: Conversation) -> Self:
        """The body for the conversation."""
        return cls(
            id=conversation.id,
            title=conversation.title,
            message_count=conversation.message_count,
            created_at=conversation.created_at,
            updated_at=conversation.updated_at,
        )


class MessageBody(BaseModel):
    """Something that was said."""

    role: Literal["user", "assistant"]
    content: str
    query_id: UUID | None = Field(description="Id in the query log of the question it asks or answers.")
    created_at: datetime

    @classmethod
    def of(cls, message: ConversationMessage) -> Self:
        """The body for the message."""
        return cls(
            role=message.role,
            content=message.content,
            query_id=message.query_id,
            created_at=message.created_at,
        )


class ConversationWithMessages(ConversationBody):
    """A stored conversation."""

    messages: list[MessageBody] = Field(description="The last ones, oldest first.")


class ConversationList(BaseModel):
    """A page of conversations, the one last used first."""

    conversations: list[ConversationBody]
    limit: int
    offset: int
