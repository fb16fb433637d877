"""Which errors another step of the ladder may hide, and what is raised when none is left.

The passages themselves as an answer, when no model writes one.
"""

import time
from dataclasses import replace
from typing import TypeVar

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
    LLMRateLimitError,
    LLMRequestError,
    LLMTimeoutError,
    RetrievalError,
    VectorForgeError,
)
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import GroundingSource, LLMResponse
from vectorforge.pipeline.citations.check import CitationChecker, replay_as_events
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.generation import grounding, known_addresses, prompt, request_for
from vectorforge.pipeline.guardrails.links import without_foreign_links
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryEvent, UsageEvent
from vectorforge.tokens import estimate_tokens

_WRONG_REQUESTS = (LLMAuthenticationError, LLMRequestError)
"""Another step would hide what has to be repaired."""
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
"""Say more to the client (429, 504, 503) than that nobody can answer."""


def is_final(run: QueryRun, error: VectorForgeError) -> bool:
    """Whether no other step may be taken: a part of the answer was seen, or the request itself is wrong."""
    return run.timings.first_token_ms is not None or isinstance(error, _WRONG_REQUESTS)


def may_answer_without_search(error: VectorForgeError) -> bool:
    """Whether a step may be taken in place of a search that failed with this."""
    return isinstance(error, _FAILED_SEARCHES) and not isinstance(error, _WRONG_SEARCHES)


def unavailable(error: VectorForgeError) -> VectorForgeError:
    """What to raise when no step works: this error, if it says more than ``AnswerUnavailableError``."""
    if isinstance(error, _OWN_STATUS):
        return error
    return AnswerUnavailableError(f"{error.message} Try again later.", retry_after_s=error.retry_after_s)


_PASSAGES = 3
_MAX_CHARS = 400
"""Of one passage."""
_PROVIDER = "extractive"
_MODEL = "passages"


async def quote_passages(
    run: QueryRun, payload: ContextPayload, quoter: BaseLLMProvider | None
) -> list[QueryEvent]:
    """Answer with what the passages say: the sentences that fit best, else the best passages; always cited.

    Args:
        run: Filled in as by a model.
        payload: Has one passage at least.
        quoter: Finds the sentences; without it, or when it fails or finds none, the passages are cut short.

    Returns:
        ``TokenEvent`` and ``CitationEvent`` in the order of the text, then ``UsageEvent``.
    """
    started = time.perf_counter()
    sources = grounding(run, payload)
    response = _contained(run, payload, await _quoted(run, payload, sources, quoter))
    checker = _checked(run, payload, response)
    if response is None or not checker.citations:
        response = _contained(run, payload, _best_passages(sources))
        checker = _checked(run, payload, response)
    run.note_first_token()
    run.answer, run.response, run.finish_reason = response.content, response, "stop"
    run.citations, run.invalid_citations, run.use.cost_usd = checker.citations, checker.invalid, 0.0
    run.timings.generation_ms += (time.perf_counter() - started) * 1000
    usage = UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    return [*replay_as_events(run.answer, run.citations), usage]


def _checked(run: QueryRun, payload: ContextPayload, response: LLMResponse | None) -> CitationChecker:
    checker = CitationChecker(run.query, payload.used)
    if response is not None:
        checker.feed(response.content)
        checker.finish()
    return checker


_Response = TypeVar("_Response", LLMResponse, LLMResponse | None)


def _contained(run: QueryRun, payload: ContextPayload, response: _Response) -> _Response:
    """The quotes without images: who wrote a passage must not learn when it is read."""
    if response is None:
        return response
    content = without_foreign_links(response.content, known_addresses(run, payload))
    return replace(response, content=content)


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
    except VectorForgeError:  # there are passages, so there is an answer
        return None


def _best_passages(sources: list[GroundingSource]) -> LLMResponse:
    content = "\n\n".join(f"{_shortened(source.text)} {source.label}" for source in sources[:_PASSAGES])
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
