"""Fallbacks: quoted chunks as an answer, a shorter prompt, and the errors that allow them.

A prompt that a model has rejected as too long loses turns of the conversation first, oldest first, then
chunks from the end; the best chunk stays, or its start. Labels do not change, and citations refer to the last
prompt.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from vectorforge.errors import (
    AnswerUnavailableError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    LLMAuthenticationError,
    LLMContextOverflowError,
    LLMRateLimitError,
    LLMRequestError,
    LLMTimeoutError,
    RetrievalError,
    VectorForgeError,
)
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.types import GroundingSource, LLMResponse
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.conversation import trim_history
from vectorforge.pipeline.generation import allowed_texts, prompt, request_for
from vectorforge.pipeline.guardrails.links import without_foreign_links
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, QueryEvent, UsageEvent
from vectorforge.tokens import estimate_tokens

logger = logging.getLogger(__name__)


_WRONG_REQUESTS = (LLMAuthenticationError, LLMRequestError)
"""Errors to repair: a fallback would hide them."""
_FAILED_SEARCHES = (EmbeddingError, RetrievalError, DatabaseUnavailableError, DeadlineExceededError)
_WRONG_SEARCHES = (EmbeddingAuthenticationError, EmbeddingInputError)
_OWN_STATUS = (
    LLMRateLimitError,
    LLMTimeoutError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    DeadlineExceededError,
    DatabaseUnavailableError,
)
"""Errors with a more precise status (429, 504, 503) than ``AnswerUnavailableError``."""
_CHUNKS = 3
_MAX_CHARS = 400
"""Characters of one quoted chunk."""
_PROVIDER = "extractive"
_MODEL = "passages"


def is_final(run: QueryRun, error: VectorForgeError) -> bool:
    """Return True if no fallback may follow: the answer has begun, or the request is invalid."""
    return run.timings.first_token_ms is not None or isinstance(error, _WRONG_REQUESTS)


def may_answer_without_search(error: VectorForgeError) -> bool:
    """Return True if a fallback may replace a search that failed with this error."""
    return isinstance(error, _FAILED_SEARCHES) and not isinstance(error, _WRONG_SEARCHES)


def unavailable(error: VectorForgeError) -> VectorForgeError:
    """Return the error to raise if no step works: this one if it has a status of its own."""
    if isinstance(error, _OWN_STATUS):
        return error
    return AnswerUnavailableError(
        f"{error.message.rstrip('.')}. Try again later.", retry_after_s=error.retry_after_s
    )


async def quote_passages(
    run: QueryRun, payload: ContextPayload, quoter: BaseLLMProvider | None
) -> Iterator[QueryEvent]:
    """Answer with the best sentences of the chunks, else with the best chunks; always cited.

    Args:
        run: Set as by a model.
        payload: Has at least one chunk.
        quoter: Finds the sentences; if it is None, fails or finds none, the chunks are shortened.

    Returns:
        ``TokenEvent`` and ``CitationEvent`` in the order of the text, then ``UsageEvent``.
    """
    started = time.perf_counter()
    sources = payload.grounding(run.preset.context_format, with_headings=True)
    quoted = await _quoted(run, payload, sources, quoter)
    response, checker = _checked(run, payload, quoted or _best_chunks(sources))
    if quoted is not None and not checker.citations and quoted.metadata["finish_reason"] != "length":
        response, checker = _checked(run, payload, _best_chunks(sources))
    run.timings.generation_ms += (time.perf_counter() - started) * 1000
    usage = UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    return run.adopt(
        response.content,
        response,
        checker.citations,
        usage,
        invalid_citations=checker.invalid,
        uncited_sentences=checker.uncited,
        finish_reason=str(response.metadata["finish_reason"]),
    )


def _checked(
    run: QueryRun, payload: ContextPayload, response: LLMResponse
) -> tuple[LLMResponse, CitationChecker]:
    """Check the citations of quotes without images: loading one could tell the author of a document."""
    text = without_foreign_links(response.content, lambda: allowed_texts(run, payload))
    if run.config.stop:
        from vectorforge.pipeline.output_format import cut_at_stop

        text = cut_at_stop(text, run.config.stop)
    checker = CitationChecker(run.query, payload.used)
    checker.feed(text)
    checker.finish()
    return replace(response, content=text), checker


async def _quoted(
    run: QueryRun, payload: ContextPayload, sources: list[GroundingSource], quoter: BaseLLMProvider | None
) -> LLMResponse | None:
    if quoter is None:
        return None
    try:
        return await quoter.generate(
            prompt(run, payload, quoter),
            request_for(run, quoter.default_model),
            sources=sources,
            deadline=run.deadline,
        )
    except VectorForgeError:  # the chunks themselves are an answer
        return None


def _best_chunks(sources: list[GroundingSource]) -> LLMResponse:
    content = "\n\n".join(f"{_shortened(source.text)} {source.label}" for source in sources[:_CHUNKS])
    completion_tokens = estimate_tokens(content)
    return LLMResponse(
        content=content,
        model=_MODEL,
        provider=_PROVIDER,
        prompt_tokens=0,
        completion_tokens=completion_tokens,
        total_tokens=completion_tokens,
        latency_ms=0.0,
        metadata={"finish_reason": "stop", "extractive": True},
    )


def _shortened(text: str) -> str:
    text = text.strip()
    if len(text) <= _MAX_CHARS:
        return text
    return text[:_MAX_CHARS].rsplit(maxsplit=1)[0] + " …"


BuildContext: TypeAlias = Callable[[QueryRun], ContextPayload]
"""Builds the prompt of a run and sets it there."""

_MARGIN = 0.95
"""Share of the space by the vendor's count that is used: tokens per letter differ between texts."""

_LEAST_CONTEXT = 32
"""Tokens of the shortest useful context; without it the model is not called."""


def shorten_prompt(
    run: QueryRun,
    payload: ContextPayload,
    target: ModelTarget,
    build_context: BuildContext,
    error: LLMContextOverflowError,
) -> ContextPayload:
    """Build a shorter prompt and set it in ``run``.

    Raises:
        LLMContextOverflowError: ``error``, if nothing can be dropped.
    """
    config, turns = run.config, _turn_tokens(run)
    excess = _excess(run, payload, target, error)
    if excess <= 0:
        raise error
    if turns:
        run.config = replace(config, history=_latest_turns(run, turns - excess))
        excess -= turns - _turn_tokens(run)
    if excess > 0:
        limit = payload.context_token_count - excess
        if limit < _LEAST_CONTEXT:
            run.config = config
            raise error
        run.context_limit = limit
        payload = build_context(run)
    run.overflowed = True
    logger.warning(
        "Query %s was too long for %s/%s; retrying with %d of %d chunks and %d of %d messages",
        run.request_id, target.provider.name, target.model,
        len(payload.used), len(run.retrieved), len(run.config.history), len(config.history),
    )  # fmt: skip
    return payload


def _excess(
    run: QueryRun, payload: ContextPayload, target: ModelTarget, error: LLMContextOverflowError
) -> int:
    """Return the tokens to drop, by our count; half of the droppable ones if the vendor gives none."""
    model = run.preset.counting_model
    size = sum(
        estimate_tokens(message["content"], model) for message in prompt(run, payload, target.provider)
    )
    theirs = error.prompt_tokens or size
    room = (error.limit_tokens or 0) - run.config.max_tokens
    if 0 < room < theirs:
        return size - int(size * room / theirs * _MARGIN)
    return (_turn_tokens(run) + payload.context_token_count) // 2


def _latest_turns(run: QueryRun, tokens: int) -> tuple[HistoryMessage, ...]:
    """Return the latest turns that fit, and every system message."""
    history, model = run.config.history, run.preset.counting_model
    system = sum(estimate_tokens(m.content, model) for m in history if m.role == "system")
    return tuple(trim_history(history, max(system + tokens, 1), model))


def _turn_tokens(run: QueryRun) -> int:
    """Return the tokens of the turns that are messages of their own."""
    if run.preset.history_policy != "messages":
        return 0
    model = run.preset.counting_model
    return sum(estimate_tokens(m.content, model) for m in run.config.history if m.role != "system")
