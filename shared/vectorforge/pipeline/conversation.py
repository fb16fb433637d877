"""Conversations: read the earlier messages, store the exchange."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError, VectorForgeError
from vectorforge.pipeline.citations.labels import replace_labels
from vectorforge.pipeline.query_log import shielded
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, Outcome
from vectorforge.tokens import estimate_tokens

logger = logging.getLogger(__name__)

_READ_MESSAGES = 100
"""Messages of a stored conversation; more do not fit into a sensible budget."""
_FINISHED: Sequence[Outcome] = ("answered", "empty", "cached")
_STORE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class ConversationMemory:
    """Earlier messages of a query, stored or sent with it.

    Args:
        store: Conversations of the same tenant; None: only messages that the request sends.
        max_history_tokens: Largest size of the earlier messages in the prompt; 0 for no limit.
    """

    store: ConversationRepository | None = None
    max_history_tokens: int = 4096

    async def recall(self, run: QueryRun) -> None:
        """Set ``run.config.history`` to the conversation so far.

        A stored conversation is read for ``conversation_id``. A history above its token limit loses its
        oldest exchanges; it never displaces a chunk. Labels of earlier answers are removed: they named other
        chunks.

        Args:
            run: Has its provider, and earlier messages.

        Raises:
            InvalidInputError: The request has a ``conversation_id`` and messages other than of the role
                system.
            NotFoundError: The conversation does not exist.
            ConflictError: The conversation is full.
            DatabaseError: It could not be read.
        """
        config = run.config
        history: Sequence[HistoryMessage] = config.history
        if config.conversation_id is not None:
            history = await self._stored(run, config.conversation_id)
        history = [without_labels(message) for message in history]
        if config.conversation_id is not None or run.preset.context_config(config).max_context_tokens:
            history = trim_history(history, self.max_history_tokens, run.model or "gpt-4")
        run.config = replace(config, history=tuple(history))

    async def store_exchange(self, run: QueryRun) -> None:
        """Add a finished exchange to its stored conversation. Raises nothing but a cancellation."""
        is_finished = run.error is None and run.outcome in _FINISHED and "template" not in run.degraded
        is_finished = is_finished and run.finish_reason != "tool_calls"
        if run.config.conversation_id is None or self.store is None or not is_finished:
            return
        # the client may disconnect, but the exchange is complete
        await shielded(self._append(self.store, run.config.conversation_id, run))

    async def _stored(self, run: QueryRun, conversation_id: UUID) -> list[HistoryMessage]:
        instructions = [message for message in run.config.history if message.role == "system"]
        if len(instructions) < len(run.config.history):
            raise InvalidInputError("Send messages or conversation_id, not both.", field="messages")
        if self.store is None:
            raise InvalidInputError("No conversations are stored here.", field="conversation_id")
        conversation = await self.store.find_by_id(conversation_id)
        if conversation is None:
            raise NotFoundError(f"Conversation {conversation_id} not found")
        if conversation.message_count + 2 > self.store.max_messages:
            raise ConflictError(
                f"Conversation {conversation_id} is full: {self.store.max_messages} messages are the limit."
            )
        messages = await self.store.last_messages(conversation_id, _READ_MESSAGES)
        return [*instructions, *(HistoryMessage(m.role, m.content) for m in messages)]

    async def _append(self, store: ConversationRepository, conversation_id: UUID, run: QueryRun) -> None:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                added = await store.append(conversation_id, run.search_text, run.answer, run.request_id)
        except Exception as exc:  # noqa: BLE001 - storing must not fail a finished answer
            added, reason = False, exc.message if isinstance(exc, VectorForgeError) else type(exc).__name__
        else:
            reason = "it is full or was deleted"
        if not added:
            logger.warning("Query %s was not added to its conversation: %s", run.request_id, reason)


def trim_history(history: Sequence[HistoryMessage], max_tokens: int, model: str) -> list[HistoryMessage]:
    """Return the latest whole exchanges that fit.

    Args:
        history: Oldest first. System messages always stay, and count.
        max_tokens: Limit by ``estimate_tokens``; 0 for no limit.
        model: Model of the token counts.
    """
    if not max_tokens:
        return list(history)
    left = max_tokens - sum(estimate_tokens(m.content, model) for m in history if m.role == "system")
    first = len(history)
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if message.role == "system":
            continue
        left -= estimate_tokens(message.content, model)
        if left < 0:
            break
        if message.role == "user":
            first = index
    latest = [m for index, m in enumerate(history) if index >= first or m.role == "system"]
    if len(latest) < len(history):
        logger.info("History cut from %d to %d messages", len(history), len(latest))
    return latest


def without_labels(message: HistoryMessage) -> HistoryMessage:
    """Return a message without the labels of an answer, which named other chunks."""
    if message.role != "assistant":
        return message
    return replace(message, content=replace_labels(message.content))
