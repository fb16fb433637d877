"""Step 4 of a query: one model's answer as events, with its citations."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, nullcontext
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from vectorforge.deadline import Deadline, off_event_loop
from vectorforge.errors import DeadlineExceededError, LLMError, LLMTimeoutError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import timed_out
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.types import (
    GroundingSource,
    LLMRequestConfig,
    LLMResponse,
    LLMStreamEvent,
    Message,
    ProviderCapability,
    TextDelta,
)
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.citations.labels import InventedLabels, without_invented_labels
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.guardrails.links import LinkFilter, without_foreign_links
from vectorforge.pipeline.presets import preset_text
from vectorforge.pipeline.prompts import FENCE, prompt_digest
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stopping import QueryStopped
from vectorforge.pipeline.structured import read_answer
from vectorforge.pipeline.types import CitationEvent, QueryEvent, TokenEvent, UsageEvent
from vectorforge.tokens import estimate_tokens
from vectorforge.vendors.resilience import CircuitBreaker

_MAX_CHARS_PER_TOKEN = 64
"""Sixteen times the average of prose: a longer answer means that the model ignores ``max_tokens``."""
_SHORTEST_BOUND_CHARS = 4096
_STEP_CHARS = 1_024
"""Characters read between two pauses: a few milliseconds for any text."""


async def generate_answer(
    run: QueryRun,
    payload: ContextPayload,
    target: ModelTarget,
    breaker: CircuitBreaker | None,
    *,
    limit_s: float | None = None,
) -> AsyncGenerator[QueryEvent, None]:
    """Call one model and set the answer in ``run``.

    Args:
        run: Its deadline limits everything.
        payload: The prompt.
        target: Model to call.
        breaker: Circuit breaker of that model; None for a provider without a vendor.
        limit_s: Longest wait for the first token, or for a whole buffered answer; None for the deadline.

    Yields:
        ``TokenEvent`` and ``CitationEvent`` mixed, then one ``UsageEvent``. The answer ends early when the
        time runs out, when ``run.stop`` is requested, and when it is far longer than ``max_tokens``
        (``finish_reason`` "length").

    Raises:
        LLMError: The model failed.
        DeadlineExceededError: The time ran out before the first token.
    """
    started = time.perf_counter()
    checker = CitationChecker(run.query, payload.used)
    links, labels = LinkFilter(lambda: allowed_texts(run, payload)), InventedLabels(len(payload.used))
    try:
        with breaker.call() if breaker is not None else nullcontext():
            answer = _bounded(run, _texts(run, target, payload, limit_s))
            async with aclosing(_readable(run, payload, answer)) as texts:
                async for text in _in_steps(run, _filtered(run, links, labels, _in_steps(run, texts))):
                    for event in _pass_on(run, checker, text):
                        yield event
    except QueryStopped:
        run.outcome, run.finish_reason = "aborted", "stopped"
    except (LLMTimeoutError, DeadlineExceededError):
        if not run.answer or run.deadline.remaining_s() > 0:
            raise
        run.outcome, run.finish_reason = "deadline", "deadline"
    finally:
        run.timings.generation_ms += (time.perf_counter() - started) * 1000
        if run.response or run.answer:  # an answer that was cut off is paid for too
            run.note_cost(await _usage(run, payload))
    held = links.finish()[:_STEP_CHARS]  # of an answer that ended early
    for event in _pass_on(run, checker, labels.feed(held) + labels.finish()):
        yield event
    for citation in checker.finish():
        yield CitationEvent(citation)
    run.links_removed += links.changes
    if links.changes + labels.removed and run.response is not None:
        run.response = replace(run.response, content=run.answer)
    run.citations, run.invalid_citations = checker.citations, checker.invalid + labels.removed
    run.uncited_sentences = checker.uncited
    yield await _usage(run, payload)


def allowed_texts(run: QueryRun, payload: ContextPayload) -> Iterator[str]:
    """Yield the texts whose addresses an answer may name: those of the chunks and of the request."""
    for chunk in payload.used:
        yield from (chunk.chunk.text, chunk.document_source)
        yield from (chunk.document_title or "", chunk.chunk.heading or "")
    yield from (run.query, run.search_text, run.config.system_prompt or "")
    yield from (message.content for message in run.config.history)


def _pass_on(run: QueryRun, checker: CitationChecker, text: str) -> Iterator[QueryEvent]:
    if not text:
        return
    run.note_first_token()
    run.answer += text
    yield TokenEvent(text)
    for citation in checker.feed(text):
        yield CitationEvent(citation)


def _readable(
    run: QueryRun, payload: ContextPayload, texts: AsyncGenerator[str, None]
) -> AsyncGenerator[str, None]:
    """Return the answer's text, out of its JSON if the preset has a schema, until the stop signal."""
    if run.preset.response_schema is not None and not run.is_extractive:

        @cache
        def texts_of_all() -> list[str]:
            return ["\n".join(allowed_texts(run, payload))]  # not for each example

        def clean(example: str) -> str:
            return without_invented_labels(without_foreign_links(example, texts_of_all), len(payload.used))

        texts = read_answer(run, texts, clean)
    # a buffered answer is one piece
    return texts if run.stop is None or run.buffered else run.stop.interrupting(texts)


def prompt(run: QueryRun, payload: ContextPayload, provider: BaseLLMProvider) -> list[Message]:
    """Return the messages: system with the context, the conversation, the query.

    An extractive provider gets the query with what it was expanded by, without a template around it.
    """
    if payload.user_message != run.quoted_query and ProviderCapability.EXTRACTIVE in provider.capabilities:
        return [{"role": "user", "content": run.quoted_query}]
    system: list[Message] = []
    # Without chunks the system prompt would refer to an empty context (B-033).
    if run.retrieved or run.preset.context_config(run.config).user_template:
        system = [{"role": "system", "content": payload.system_prompt}]
    history: list[Message] = []
    if run.preset.history_policy == "messages":
        history = [{"role": m.role, "content": m.content} for m in run.config.history]
    return [*system, *history, {"role": "user", "content": payload.user_message}]


def request_for(run: QueryRun, model: str) -> LLMRequestConfig:
    """Return the request settings of the query."""
    return LLMRequestConfig(
        model=model,
        temperature=run.config.temperature,
        top_p=run.config.top_p,
        max_tokens=run.config.max_tokens,
        response_schema=run.preset.response_schema,
    )


def logged_request(run: QueryRun, messages: list[Message], request: LLMRequestConfig) -> dict[str, Any]:
    """Return what the query log has of a request to a model, for a replay: hashes and settings, no texts."""
    return {
        "sha256": prompt_digest([messages, asdict(request)]),
        "prompt_sha256": prompt_digest([run.config.system_prompt or preset_text(run.preset.name), FENCE]),
        **{name: getattr(request, name) for name in ("model", "temperature", "top_p", "max_tokens")},
        "context_limit": run.context_limit,
        "history": len(run.config.history),
    }


def grounding(run: QueryRun, payload: ContextPayload) -> list[GroundingSource]:
    """Return the chunks of the prompt as data."""
    return [
        GroundingSource(
            number=number,
            label=run.preset.context_format.label_of(number),
            text=chunk.chunk.text,
            score=chunk.score,
            title=chunk.document_title,
            relevance=chunk.relevance,
            heading=chunk.chunk.heading,
        )
        for number, chunk in enumerate(payload.used, start=1)
    ]


async def _texts(
    run: QueryRun, target: ModelTarget, payload: ContextPayload, limit_s: float | None
) -> AsyncGenerator[str, None]:
    """Yield the answer's pieces; one piece if the query is buffered."""
    messages, request = prompt(run, payload, target.provider), request_for(run, target.model)
    sources = grounding(run, payload)
    if not run.is_extractive:
        run.request = logged_request(run, messages, request)
    if run.buffered:
        until = (
            run.deadline if limit_s is None else Deadline(min(run.deadline.at, time.monotonic() + limit_s))
        )
        response = await target.provider.generate(messages, request, sources=sources, deadline=until)
        _finish(run, response)
        if response.content:
            yield response.content
        return
    events = target.provider.stream_events(messages, request, sources=sources, deadline=run.deadline)
    async with aclosing(events):
        event: LLMStreamEvent | None = await _first(events, target, limit_s)
        while event is not None:
            if isinstance(event, TextDelta):
                yield event.text
            else:
                _finish(run, event.response)
            event = await anext(events, None)


async def _bounded(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield the texts up to the characters that ``max_tokens`` may have: not every server counts tokens.

    The rest would be stored, checked and masked at the expense of other queries.
    """
    left = max(run.config.max_tokens * _MAX_CHARS_PER_TOKEN, _SHORTEST_BOUND_CHARS)
    async with aclosing(texts):
        async for text in texts:
            if len(text) > left:
                yield text[:left]
                run.finish_reason = "length"
                if run.response is not None:
                    run.response = replace(run.response, content=text[:left])
                return
            left -= len(text)
            yield text


async def _filtered(
    run: QueryRun, links: LinkFilter, labels: InventedLabels, texts: AsyncIterator[str]
) -> AsyncGenerator[str, None]:
    """Yield the texts without foreign links and invented labels; a filter may hold back a whole answer."""
    try:
        async for text in texts:
            yield labels.feed(links.feed(text))
    except LLMError:
        if run.answer:  # else another model may be called
            yield labels.finish()
        raise
    yield labels.feed(links.finish()) + labels.finish()


async def _in_steps(run: QueryRun, texts: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """Yield the texts in short pieces, with pauses for the event loop.

    A buffered answer is one text, and a vendor may send pieces faster than they are read: without pauses
    other queries would wait, and no time limit could end this one.

    Raises:
        DeadlineExceededError: The time ran out between two pieces.
    """
    read = 0
    async for text in texts:
        for start in range(0, len(text), _STEP_CHARS):
            if read >= _STEP_CHARS:
                read = 0
                await asyncio.sleep(0)
                run.deadline.clamp(0.0)
            piece = text[start : start + _STEP_CHARS]
            read += len(piece)
            yield piece


async def _first(
    events: AsyncGenerator[LLMStreamEvent, None], target: ModelTarget, limit_s: float | None
) -> LLMStreamEvent | None:
    try:
        async with asyncio.timeout(limit_s):
            return await anext(events, None)
    except TimeoutError as exc:
        raise timed_out(target.provider.name) from exc


def _finish(run: QueryRun, response: LLMResponse) -> None:
    run.response = response
    run.finish_reason = str(response.metadata.get("finish_reason", "stop"))


async def _usage(run: QueryRun, payload: ContextPayload) -> UsageEvent:
    response = run.response
    if response is not None:
        return UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    texts = (payload.system_prompt, payload.user_message, run.answer)
    system, query, answer = await off_event_loop(
        sum(map(len, texts)), lambda: [estimate_tokens(text) for text in texts]
    )
    return UsageEvent(system + query, answer, system + query + answer, estimated=True)
