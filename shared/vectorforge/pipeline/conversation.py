"""A question that follows up ("And in winter?") rewritten by a model so that it can be searched for.

Conversations: what was said before a question, and the exchange kept after it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from vectorforge.db.repositories.conversation_repo import Conversation, ConversationMessage
from vectorforge.deadline import Deadline
from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError, VectorForgeError
from vectorforge.llm.types import LLMRequestConfig, Message, ProviderCapability
from vectorforge.pipeline.citations.labels import find_labels
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, Outcome
from vectorforge.tokens import estimate_tokens

logger = logging.getLogger(__name__)

REWRITING_PROMPT = """\
You turn the last question of a conversation into one that can be understood without the conversation.
Replace words such as "it", "they" and "there" by what they stand for, and add what is left out. Keep the
language and the meaning of the question. Do not answer it. Reply with the question only."""

_TIMEOUT_S = 10.0
_MAX_TOKENS = 200
_MAX_CHARS = 2000
_MESSAGES = 6
"""Of the history that the model sees, the latest."""
_MESSAGE_CHARS = 1000


async def rewrite_query(run: QueryRun) -> str | None:
    """The question as it stands alone, in the words of the model that will answer.

    Args:
        run: With a history; its provider is asked once more, for at most ten seconds.

    Returns:
        None when there is no model, when it fails or says nothing usable, or when it changes nothing: then
        the question itself is searched for.
    """
    provider = run.provider
    if provider is None or ProviderCapability.EXTRACTIVE in provider.capabilities:
        return None
    request = LLMRequestConfig(model=run.model or "", temperature=0.0, max_tokens=_MAX_TOKENS)
    deadline = Deadline.after(min(_TIMEOUT_S, run.deadline.remaining_s() / 2))
    try:
        response = await provider.generate(_messages(run), request, deadline=deadline)
    except VectorForgeError as exc:
        logger.warning("The question of query %s was not rewritten: %s", run.request_id, exc.message)
        return None
    run.use.tokens += response.prompt_tokens + response.completion_tokens
    rewritten = " ".join(response.content.split()).strip("\"'“”„ ")
    if not rewritten or len(rewritten) > _MAX_CHARS or response.metadata.get("finish_reason") != "stop":
        logger.warning("The question of query %s was not rewritten: no usable text", run.request_id)
        return None
    return rewritten if rewritten != run.search_text else None


def _messages(run: QueryRun) -> list[Message]:
    said = [message for message in run.config.history if message.role != "system"][-_MESSAGES:]
    lines = [f"{message.role}: {message.content[:_MESSAGE_CHARS]}" for message in said]
    conversation = "\n".join(lines)
    return [
        {"role": "system", "content": REWRITING_PROMPT},
        {
            "role": "user",
            "content": f"Conversation:\n{conversation}\n\nLast question: {run.search_text}",
        },
    ]


_READ_MESSAGES = 100
"""Of a stored conversation; more do not fit into any budget worth its tokens."""
_FINISHED: Sequence[Outcome] = ("answered", "empty", "cached")
_KEEP_TIMEOUT_S = 2.0


class ConversationStore(Protocol):
    """Conversations of one tenant."""

    max_messages: int

    async def find_by_id(self, conversation_id: UUID) -> Conversation | None:
        """The conversation, or None."""
        ...

    async def last_messages(self, conversation_id: UUID, limit: int) -> Sequence[ConversationMessage]:
        """The last messages, oldest first."""
        ...

    async def append(self, conversation_id: UUID, question: str, answer: str, query_id: UUID) -> bool:
        """Add a finished exchange; False when it cannot be added."""
        ...


@dataclass(frozen=True, slots=True)
class ConversationMemory:
    """What a query remembers of its conversation, stored or sent along.

    Args:
        store: Of the same tenant; None: only conversations that are sent along.
        max_history_tokens: Of the earlier messages in the prompt; 0 for no limit.
    """

    store: ConversationStore | None = None
    max_history_tokens: int = 4096

    async def recall(self, run: QueryRun, *, rewriting: bool = True) -> None:
        """Put the conversation so far into ``run.config.history``; rewrite the question if that is wanted.

        A stored conversation is read for ``conversation_id``. The oldest exchanges go first when the history
        exceeds its tokens; it never costs a passage. Labels of earlier answers are removed: they named other
        passages.

        Args:
            run: After its provider was chosen.
            rewriting: False never asks a model.

        Raises:
            InvalidInputError: The request sends messages beside its ``conversation_id``, other than of the
                role system.
            NotFoundError: There is no such conversation.
            ConflictError: There is no room in it.
            DatabaseError: It could not be read.
        """
        config = run.config
        if not config.history and config.conversation_id is None:
            return
        history = [replace(m, content=_said(m)) for m in config.history]
        if config.conversation_id is not None:
            history = await self._stored(run, config.conversation_id)
        if config.conversation_id is not None or run.context_config().max_context_tokens:
            history = trim_history(history, self.max_history_tokens, run.model or "gpt-4")
        run.config = replace(config, history=tuple(history))
        if rewriting and config.rewrite and history:
            run.rewritten_query = await rewrite_query(run)

    async def keep(self, run: QueryRun) -> None:
        """Add the exchange to its stored conversation, if it is finished. Never raises but when cancelled."""
        if run.config.conversation_id is None or self.store is None or not _is_finished(run):
            return
        task = asyncio.create_task(self._append(self.store, run.config.conversation_id, run))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:  # the client has gone, but the exchange is whole
            await task
            raise

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
        said = [HistoryMessage(m.role, _said(HistoryMessage(m.role, m.content))) for m in messages]
        return [*instructions, *said]

    async def _append(self, store: ConversationStore, conversation_id: UUID, run: QueryRun) -> None:
        try:
            async with asyncio.timeout(_KEEP_TIMEOUT_S):
                kept = await store.append(conversation_id, run.search_text, run.answer, run.request_id)
        except Exception as exc:  # noqa: BLE001 - the answer is there; it must not fail for its own record
            kept, reason = False, exc.message if isinstance(exc, VectorForgeError) else type(exc).__name__
        else:
            reason = "it is full or was deleted"
        if not kept:
            logger.warning("Query %s was not added to its conversation: %s", run.request_id, reason)


def trim_history(history: Sequence[HistoryMessage], max_tokens: int, model: str) -> list[HistoryMessage]:
    """The latest exchanges that fit: whole ones, oldest dropped first.

    Args:
        history: Oldest first. System messages are kept in any case, and count.
        max_tokens: As ``estimate_tokens`` counts the contents; 0 for no limit.
        model: Whose tokens are counted.
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
    kept = [m for index, m in enumerate(history) if index >= first or m.role == "system"]
    if len(kept) < len(history):
        logger.info("History cut from %d to %d messages", len(history), len(kept))
    return kept


def _is_finished(run: QueryRun) -> bool:
    return run.error is None and run.outcome in _FINISHED and "template" not in run.degraded


def _said(message: HistoryMessage) -> str:
    """The content, of answers without labels."""
    text = message.content
    if message.role == "assistant":
        parts, done = list[str](), 0
        for label in find_labels(text, 0, len(text)):
            parts.append(text[done : label.start].rstrip(" "))
            done = label.end
        text = "".join([*parts, text[done:]])
    return text
