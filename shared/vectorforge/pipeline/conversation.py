"""Conversations: read the earlier messages, make follow-up queries self-contained, store the exchange."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from vectorforge.db.repositories.conversation_repo import ERASED, ConversationMessage, ConversationRepository
from vectorforge.deadline import Deadline
from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError, VectorForgeError, reason_of
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.patterns import WORD
from vectorforge.llm.providers.words import names, terms
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMRequestConfig, Message
from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations.labels import replace_labels
from vectorforge.pipeline.exchange import ExchangeDetails
from vectorforge.pipeline.follow_ups import expand, stands_alone
from vectorforge.pipeline.query_log import shielded
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Outcome

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
        if config.conversation_id is not None and not config.sends_history:
            history = await self._stored(run, config.conversation_id)
        history = [without_labels(message) for message in history]
        if config.conversation_id is not None or run.preset.context_config(config).max_context_tokens:
            history = trim_history(history, self.max_history_tokens, run.model or "gpt-4")
        run.config = replace(config, history=tuple(history))

    async def store_exchange(self, run: QueryRun) -> None:
        """Add a finished exchange to its stored conversation. Raises nothing but a cancellation."""
        is_finished = run.error is None and run.outcome in _FINISHED and "template" not in run.degraded
        is_finished = is_finished and (run.config.sends_history or run.finish_reason != "tool_calls")
        if run.config.conversation_id is None or self.store is None or not is_finished:
            return
        # the client may disconnect, but the exchange is complete
        await shielded(self._append(self.store, run.config.conversation_id, run))

    async def drop_begun(self, run: QueryRun) -> None:
        """Delete the conversation that an aborted query began: nothing of it can be read or continued.

        Raises nothing but a cancellation.
        """
        begun = run.config.conversation_id if run.config.begins_conversation else None
        if begun is not None and self.store is not None:
            await shielded(self._delete(self.store, begun))

    async def _stored(self, run: QueryRun, conversation_id: UUID) -> list[HistoryMessage]:
        instructions = [message for message in run.config.history if message.role == "system"]
        if len(instructions) < len(run.config.history):
            raise InvalidInputError("Send messages or conversation_id, not both.", field="messages")
        if self.store is None:
            raise InvalidInputError("No conversations are stored here.", field="conversation_id")
        conversation = await self.store.find_by_id(conversation_id)
        if conversation is None:
            raise NotFoundError(f"Conversation {conversation_id} not found")
        messages = await self.store.last_messages(conversation_id, _READ_MESSAGES)
        if run.config.regenerates and [m.content for m in messages[-2:-1]] == [run.search_text]:
            run.replaces, messages = messages[-1].query_id, messages[:-2]
        elif conversation.message_count + 2 > self.store.max_messages:
            raise ConflictError(
                f"Conversation {conversation_id} is full: {self.store.max_messages} messages are the limit."
            )
        return [*instructions, *(HistoryMessage(m.role, m.content) for m in without_blank(messages))]

    async def _delete(self, store: ConversationRepository, conversation_id: UUID) -> None:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await store.delete(conversation_id)
        except Exception as exc:  # noqa: BLE001 - an empty conversation must not fail the end of a query
            logger.warning("Conversation %s stays empty: %s", conversation_id, type(exc).__name__)

    async def _append(self, store: ConversationRepository, conversation_id: UUID, run: QueryRun) -> None:
        try:
            details = ExchangeDetails.of(run).to_json()
        except ValueError:  # the answer without them is better than none
            details = None
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                added = await store.append(
                    conversation_id,
                    run.search_text,
                    run.answer,
                    run.request_id,
                    details=details,
                    replaces=run.replaces,
                )
        except Exception as exc:  # noqa: BLE001 - storing must not fail a finished answer
            added, reason = False, reason_of(exc)
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


def without_blank(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Return messages without exchanges of which a text is erased, or that are calls of tools alone."""
    blank = {message.query_id for message in messages if message.content in ("", ERASED)}
    return [message for message in messages if message.query_id not in blank]


def without_labels(message: HistoryMessage) -> HistoryMessage:
    """Return a message without the labels of an answer, which named other chunks."""
    if message.role != "assistant":
        return message
    return replace(message, content=replace_labels(message.content))


REWRITING_PROMPT = """\
You turn the last question of a conversation into one that can be understood without the conversation.
Replace words such as "it", "they" and "there" by what they stand for, and add what is left out. Keep the
language of the question, its meaning, and its names and numbers. Do not answer it. Reply with the question
only."""

_MAX_TOKENS = 128
_MAX_CHARS = 600
"""Longest query that is rewritten, longest result, and longest part of a message that the model gets."""
_FEW_WORDS = 2
"""Words of a query that may all be replaced: "And theirs?"."""
_SENTENCE_END = pattern_of(r"[.!?:]\s")
_MESSAGES = 6
"""Latest messages of the history that the model gets."""


class QueryRewriter:
    """Makes follow-up queries self-contained.

    Args:
        registry: Models with their circuit breakers.
        timeout_s: Longest wait for a model, at most half of the time left.
    """

    def __init__(self, registry: LLMProviderRegistry, *, timeout_s: float = 4.0) -> None:
        self._registry = registry
        self._timeout_s = timeout_s

    async def rewrite(self, run: QueryRun, *, calling_model: bool = True) -> None:
        """Set ``run.rewritten_query`` or ``run.expansion``, as ``QueryConfig.rewrite`` says.

        Without a model, and if it fails or returns nothing usable, earlier turns expand the query. Raises
        nothing but a cancellation.

        Args:
            run: Has its history and its provider.
            calling_model: False never calls a model.
        """
        mode, turns = run.config.rewrite, _turns(run)
        if not mode or not turns:
            return
        text = None
        if calling_model and (mode is True or not stands_alone(run.search_text)):
            text = await self._by_model(run)
        if text is None:
            run.expand(expand(run.search_text, turns))
        elif text != run.search_text:
            run.rewritten_query = text

    async def _by_model(self, run: QueryRun) -> str | None:
        """Return the model's text; None without a model, if it fails or returns nothing usable."""
        provider = run.provider
        if provider is None or run.is_extractive or len(run.search_text) > _MAX_CHARS:
            return None
        if self._registry.breakers.find(provider.name, run.model or "").state == "open":
            return None  # no time is left to lose: the answer needs a fallback
        messages = _messages(run)
        try:
            rewritten = await self._call(run, provider, messages)
        except VectorForgeError as exc:
            logger.warning("Query %s was not rewritten: %s", run.request_id, exc.message)
            return None
        known = terms(messages[-1]["content"])
        is_related = not terms(rewritten).isdisjoint(known) and _keeps(run.search_text, rewritten)
        if len(rewritten) > _MAX_CHARS or not is_related:
            logger.warning("Query %s was not rewritten: no usable text", run.request_id)
            return None
        return rewritten

    async def _call(self, run: QueryRun, provider: BaseLLMProvider, messages: list[Message]) -> str:
        """Return the text of one short answer; empty if it was cut off."""
        request = LLMRequestConfig(model=run.model or "", temperature=0.0, max_tokens=_MAX_TOKENS)
        deadline = Deadline.after(min(self._timeout_s, run.deadline.remaining_s() / 2))
        response = await provider.generate(messages, request, deadline=deadline)
        run.used_tokens += response.prompt_tokens + response.completion_tokens
        if response.metadata.get("finish_reason") != "stop":
            return ""
        return " ".join(response.content.split()).strip("\"'“”„ ")


def _keeps(query: str, rewritten: str) -> bool:
    """Return False if a number of the query is missing, all of its names, or all other words (a translation).

    One name is enough: in German every noun looks like one, and may be inflected.
    """
    words, kept = WORD.findall(query), terms(rewritten)
    numbers = terms(" ".join(word for word in words if word[0].isdigit()))
    named = terms(" ".join(word for sentence in _SENTENCE_END.split(query) for word in names(sentence)))
    others = {word for word in words if word == word.lower() and not word[0].isdigit()}
    is_same_language = len(others) <= _FEW_WORDS or not others.isdisjoint(WORD.findall(rewritten.lower()))
    return is_same_language and numbers <= kept and (not named or not named.isdisjoint(kept))


def _turns(run: QueryRun) -> list[HistoryMessage]:
    return [m for m in run.config.history if m.role in ("user", "assistant") and m.content]


def _messages(run: QueryRun) -> list[Message]:
    conversation = "\n".join(f"{turn.role}: {turn.content[:_MAX_CHARS]}" for turn in _turns(run)[-_MESSAGES:])
    query = f"Conversation:\n{conversation}\n\nLast question: {run.search_text}"
    return [{"role": "system", "content": REWRITING_PROMPT}, {"role": "user", "content": query}]
