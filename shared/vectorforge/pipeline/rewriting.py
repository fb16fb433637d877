"""Search text of a follow-up query: rewritten by the model, or expanded by earlier turns."""

import logging

from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.patterns import terms
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMRequestConfig, Message
from vectorforge.pipeline.follow_ups import expand, stands_alone
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage

logger = logging.getLogger(__name__)

REWRITING_PROMPT = """\
You turn the last question of a conversation into one that can be understood without the conversation.
Replace words such as "it", "they" and "there" by what they stand for, and add what is left out. Keep the
language and the meaning of the question. Do not answer it. Reply with the question only."""

_MAX_TOKENS = 128
_MAX_CHARS = 600
"""Longest query that is rewritten, longest result, and longest part of a message that the model gets."""
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
        if len(rewritten) > _MAX_CHARS or terms(rewritten).isdisjoint(known):
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


def _turns(run: QueryRun) -> list[HistoryMessage]:
    return [m for m in run.config.history if m.role in ("user", "assistant") and m.content]


def _messages(run: QueryRun) -> list[Message]:
    conversation = "\n".join(f"{turn.role}: {turn.content[:_MAX_CHARS]}" for turn in _turns(run)[-_MESSAGES:])
    query = f"Conversation:\n{conversation}\n\nLast question: {run.search_text}"
    return [{"role": "system", "content": REWRITING_PROMPT}, {"role": "user", "content": query}]
