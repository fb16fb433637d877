"""Step 4 of a query: one model's answer as events, with its citations as they appear."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace

from vectorforge.background import off_event_loop
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, LLMError, LLMTimeoutError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import timed_out
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.resilience import CircuitBreaker
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
from vectorforge.pipeline.guardrails.addresses import AllowedAddresses
from vectorforge.pipeline.guardrails.links import LinkFilter, without_foreign_links
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stopping import QueryStopped
from vectorforge.pipeline.structured import read_answer
from vectorforge.pipeline.types import CitationEvent, QueryEvent, TokenEvent, UsageEvent
from vectorforge.tokens import estimate_tokens

_MAX_CHARS_PER_TOKEN = 64
"""On average, sixteen times what prose has: a model that writes more does not keep to ``max_tokens``."""
_SHORTEST_BOUND_CHARS = 4096
_STEP_CHARS = 1_024
"""Of an answer that are read between two pauses: a few milliseconds, whatever stands in them."""


async def generate_answer(
    run: QueryRun,
    payload: ContextPayload,
    writer: ModelTarget,
    breaker: CircuitBreaker,
    *,
    limit_s: float | None = None,
) -> AsyncGenerator[QueryEvent, None]:
    """Ask one model and fill in ``run``.

    Args:
        run: Its deadline bounds everything.
        payload: The prompt.
        writer: Who is asked.
        breaker: Of that model.
        limit_s: Longest wait for the first token, or for the whole of a buffered answer; None for no other
            than the deadline.

    Yields:
        ``TokenEvent`` and ``CitationEvent`` mixed, then one ``UsageEvent``. When the time runs out, or
        ``run.stop`` asks for the end, the answer is what was said so far; so it is when a model goes on
        far beyond ``max_tokens`` (``finish_reason`` "length").

    Raises:
        LLMError: The model failed.
        DeadlineExceededError: The time ran out before the first token.
    """
    started = time.perf_counter()
    checker = CitationChecker(run.query, payload.used)
    known = known_addresses(run, payload)
    links, labels = LinkFilter(known), InventedLabels(len(payload.used))
    try:
        with breaker.call():
            answer = _bounded(run, _texts(run, writer, payload, limit_s))
            if run.preset.response_schema is not None:
                answer = read_answer(run, answer)
            async with aclosing(_until_stopped(run, answer)) as texts:
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
        if run.response or run.answer:  # also of an answer that was cut off: its words are paid for
            run.note_cost(await _usage(run, payload))
    held = links.finish()[:_STEP_CHARS]  # of an answer that was ended
    for event in _pass_on(run, checker, labels.feed(held) + labels.finish()):
        yield event
    for citation in checker.finish():
        yield CitationEvent(citation)
    _contain(run, links.changes, labels.removed)
    _contain_examples(run, known, len(payload.used))
    run.citations, run.invalid_citations = checker.citations, checker.invalid + labels.removed
    yield await _usage(run, payload)


def known_addresses(run: QueryRun, payload: ContextPayload) -> AllowedAddresses:
    """The addresses that an answer may name: those of the passages, and what the caller sent."""

    def texts() -> Iterator[str]:
        for passage in payload.used:
            yield from (passage.chunk.text, passage.document_source)
            yield from (passage.document_title or "", passage.chunk.heading or "")
        yield from (run.query, run.search_text, run.config.system_prompt or "")
        yield from (message.content for message in run.config.history)

    return AllowedAddresses(texts)


def _pass_on(run: QueryRun, checker: CitationChecker, text: str) -> Iterator[QueryEvent]:
    if not text:
        return
    if run.timings.first_token_ms is None:
        run.note_first_token()
    run.answer += text
    yield TokenEvent(text)
    for citation in checker.feed(text):
        yield CitationEvent(citation)


def _contain(run: QueryRun, links: int, labels: int) -> None:
    """Let the model's response not hold what was taken out of the answer."""
    run.links_removed += links
    if links + labels and run.response is not None:
        run.response = replace(run.response, content=run.answer)


def _contain_examples(run: QueryRun, known: AllowedAddresses, passages: int) -> None:
    if run.structured is not None and run.structured.examples:
        examples = tuple(
            without_invented_labels(without_foreign_links(example, known), passages)
            for example in run.structured.examples
        )
        run.structured = replace(run.structured, examples=examples)


def prompt(run: QueryRun, payload: ContextPayload, provider: BaseLLMProvider) -> list[Message]:
    """System with the context, then the conversation so far, then the question.

    Who only quotes the passages gets the question alone where a template would surround it with them.
    """
    if payload.user_message != run.search_text and ProviderCapability.EXTRACTIVE in provider.capabilities:
        return [{"role": "user", "content": run.search_text}]
    system: list[Message] = []
    # Without any passage a prompt with the context would speak of what is not there (B-033).
    if run.retrieved or run.context_config().user_template is not None:
        system = [{"role": "system", "content": payload.system_prompt}]
    history: list[Message] = []
    if run.preset.history_policy == "messages":
        history = [{"role": m.role, "content": m.content} for m in run.config.history]
    return [*system, *history, {"role": "user", "content": payload.user_message}]


def request_for(run: QueryRun, model: str) -> LLMRequestConfig:
    """The sampling that the query asks for."""
    return LLMRequestConfig(
        model=model,
        temperature=run.config.temperature,
        top_p=run.config.top_p,
        max_tokens=run.config.max_tokens,
        response_schema=run.preset.response_schema,
    )


def grounding(run: QueryRun, payload: ContextPayload) -> list[GroundingSource]:
    """The passages of the prompt as data."""
    return [
        GroundingSource(
            number=number,
            label=run.preset.context_format.label_of(number),
            text=chunk.chunk.text,
            score=chunk.score,
            title=chunk.document_title,
            relevance=chunk.relevance,
        )
        for number, chunk in enumerate(payload.used, start=1)
    ]


def _until_stopped(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    return texts if run.buffered else run.stop.interrupting(texts)  # nobody can stop what comes as a whole


async def _texts(
    run: QueryRun, writer: ModelTarget, payload: ContextPayload, limit_s: float | None
) -> AsyncGenerator[str, None]:
    """The answer's pieces; one piece when the query is buffered."""
    messages, request = prompt(run, payload, writer.provider), request_for(run, writer.model)
    sources = grounding(run, payload)
    if run.buffered:
        until = (
            run.deadline if limit_s is None else Deadline(min(run.deadline.at, time.monotonic() + limit_s))
        )
        response = await writer.provider.generate(messages, request, sources=sources, deadline=until)
        _finish(run, response)
        if response.content:
            yield response.content
        return
    events = writer.provider.stream_events(messages, request, sources=sources, deadline=run.deadline)
    async with aclosing(events):
        event: LLMStreamEvent | None = await _first(events, writer, limit_s)
        while event is not None:
            if isinstance(event, TextDelta):
                yield event.text
            else:
                _finish(run, event.response)
            event = await anext(events, None)


async def _bounded(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The texts until there are more characters than the query's tokens have: not every server counts them.

    What comes after it would be kept, checked and masked for the log by a process that answers others, too.
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
    """The texts without foreign links and invented labels; a filter may hold back a whole answer."""
    try:
        async for text in texts:
            yield labels.feed(links.feed(text))
    except LLMError:
        if run.answer:  # else another model may be asked
            yield labels.finish()
        raise
    yield labels.feed(links.finish()) + labels.finish()


async def _in_steps(run: QueryRun, texts: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """The texts in pieces that are read in a moment; the event loop serves others after some of them.

    A whole answer is one text, and a vendor may send its pieces faster than they are read: without a pause
    nobody else would be answered meanwhile, and no time limit of this query could end it.

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
    events: AsyncGenerator[LLMStreamEvent, None], writer: ModelTarget, limit_s: float | None
) -> LLMStreamEvent | None:
    try:
        async with asyncio.timeout(limit_s):
            return await anext(events, None)
    except TimeoutError as exc:
        raise timed_out(writer.provider.name) from exc


def _finish(run: QueryRun, response: LLMResponse) -> None:
    run.response = response
    run.finish_reason = str(response.metadata.get("finish_reason", "stop"))


async def _usage(run: QueryRun, payload: ContextPayload) -> UsageEvent:
    response = run.response
    if response is not None:
        return UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    texts = (payload.system_prompt, payload.user_message, run.answer)
    system, question, answer = await off_event_loop(
        sum(map(len, texts)), lambda: [estimate_tokens(text) for text in texts]
    )
    return UsageEvent(system + question, answer, system + question + answer, estimated=True)
