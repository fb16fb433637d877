"""Step 4 of a query: one model's answer as events, with its citations."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import cache

from vectorforge.deadline import off_event_loop
from vectorforge.errors import DeadlineExceededError, LLMError, LLMTimeoutError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import timed_out
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.types import (
    LLMRequestConfig,
    LLMResponse,
    LLMStreamEvent,
    Message,
    ProviderCapability,
    StreamEnd,
    TextDelta,
)
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.citations.labels import InventedLabels, without_invented_labels
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.guardrails.links import LinkFilter, without_foreign_links
from vectorforge.pipeline.prompts import SEARCH_TOOL_PROMPT
from vectorforge.pipeline.query_log import logged_request
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stopping import QueryStopped
from vectorforge.pipeline.structured import read_answer
from vectorforge.pipeline.types import CitationEvent, QueryEvent, TokenEvent, ToolCallEvent, UsageEvent
from vectorforge.tokens import estimate_tokens
from vectorforge.vendors.resilience import CircuitBreaker

_MAX_CHARS_PER_TOKEN = 64
"""Sixteen times the average of prose: a longer answer means that the model ignores ``max_tokens``."""
_SHORTEST_BOUND_CHARS = 4096
_STEP_CHARS = 1_024
"""Characters read between two pauses: a few milliseconds for any text."""
_SAMPLE_CHARS = 50_000
"""Characters whose tokens are counted where the vendor reported none: 30 ms of emoji, after the deadline."""


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
    checker = CitationChecker(run.query, payload.used, offset=len(run.answer))
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
            run.note_cost(await usage_of(run, payload))
    held = links.finish()[:_STEP_CHARS]  # of an answer that ended early
    for event in _pass_on(run, checker, labels.feed(held) + labels.finish()):
        yield event
    for citation in checker.finish():
        yield CitationEvent(citation)
    run.links_removed += links.changes
    if (links.changes or labels.removed or run.config.stop) and run.response is not None:
        run.response = replace(run.response, content=run.answer)
    run.citations, run.invalid_citations = checker.citations, checker.invalid + labels.removed
    run.uncited_sentences = checker.uncited
    yield await usage_of(run, payload)


def allowed_texts(run: QueryRun, payload: ContextPayload) -> Iterator[str]:
    """Yield the texts whose addresses an answer may name: those of the chunks and of the request."""
    for chunk in payload.used:
        yield from (chunk.chunk.text, chunk.document_source)
        yield from (chunk.document_title or "", chunk.chunk.heading or "")
    yield from (run.query, run.search_text, run.config.system_prompt or "")
    yield from (message.content for message in (*run.config.history, *run.config.following))


def _pass_on(run: QueryRun, checker: CitationChecker, text: str) -> Iterator[QueryEvent]:
    while run.call_pieces:
        run.note_first_token()
        yield ToolCallEvent(run.call_pieces.pop(0))
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
        texts_of_all = cache(lambda: ["\n".join(allowed_texts(run, payload))])  # not for each example

        def clean(example: str) -> str:
            return without_invented_labels(without_foreign_links(example, texts_of_all), len(payload.used))

        texts = read_answer(run, texts, clean)
    if run.config.stop:
        from vectorforge.pipeline.output_format import until_stop

        texts = until_stop(run, texts)
    # a buffered answer is one piece
    return texts if run.stop is None or run.buffered else run.stop.interrupting(texts)


def prompt(run: QueryRun, payload: ContextPayload, provider: BaseLLMProvider) -> list[Message]:
    """Return the messages: system with the context, the conversation, the query.

    An extractive provider gets the query with what it was expanded by, without a template around it.
    """
    config = run.config
    is_plain = payload.user_message == run.quoted_query and not config.following
    if not is_plain and ProviderCapability.EXTRACTIVE in provider.capabilities:
        return [{"role": "user", "content": run.quoted_query}]
    system: list[Message] = []
    # Without chunks the system prompt would refer to an empty context (B-033).
    if run.retrieved or run.preset.context_config(config).user_template or run.needs_no_chunks:
        own = payload.system_prompt if config.search_tool is None else SEARCH_TOOL_PROMPT
        system = [{"role": "system", "content": own}]
    sent = config.history if run.preset.history_policy == "messages" else ()
    history = [{"role": m.role, "content": m.content} for m in sent]
    messages = [*system, *history, {"role": "user", "content": payload.user_message}]
    if run.needs_no_chunks:
        from vectorforge.pipeline.output_format import with_tool_messages

        return with_tool_messages(run, messages)
    return messages


def request_for(run: QueryRun, model: str) -> LLMRequestConfig:
    """Return the request settings of the query."""
    config = run.config
    request = LLMRequestConfig(
        model=model,
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        response_schema=run.preset.response_schema,
    )
    if config.stop or config.offered_tools or config.response_format is not None:
        from vectorforge.pipeline.output_format import with_output

        return with_output(run, request)
    return request


async def _texts(
    run: QueryRun, target: ModelTarget, payload: ContextPayload, limit_s: float | None
) -> AsyncGenerator[str, None]:
    """Yield the answer's pieces; one piece if the query is buffered."""
    messages, request = prompt(run, payload, target.provider), request_for(run, target.model)
    is_quoted = ProviderCapability.EXTRACTIVE in target.provider.capabilities
    sources = payload.grounding(run.preset.context_format, with_headings=is_quoted)
    if not run.is_extractive:
        run.request = logged_request(run, messages, request)
    if run.buffered:
        until = run.deadline.within(limit_s)
        response = await target.provider.generate(messages, request, sources=sources, deadline=until)
        finish(run, response)
        if response.content:
            yield response.content
        return
    pieces = None
    if run.config.search_tool is not None:
        from vectorforge.pipeline.output_format import CallerPieces

        pieces = CallerPieces(run.config.search_tool)
    events = target.provider.stream_events(messages, request, sources=sources, deadline=run.deadline)
    async with aclosing(events):
        event: LLMStreamEvent | None = await _first(events, target, limit_s)
        while event is not None:
            if isinstance(event, TextDelta):
                yield event.text
            elif isinstance(event, StreamEnd):
                finish(run, event.response)
            elif run.config.may_call_tools and (piece := pieces.passed(event) if pieces else event):
                run.call_pieces.append(piece)
                yield ""  # passes the filters at once
            event = await anext(events, None)


def longest_answer(run: QueryRun) -> int:
    """Return the characters that ``max_tokens`` may have."""
    return max(run.config.max_tokens * _MAX_CHARS_PER_TOKEN, _SHORTEST_BOUND_CHARS)


async def _bounded(run: QueryRun, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield the texts up to the characters that ``max_tokens`` may have: not every server counts tokens.

    The rest would be stored, checked and masked at the expense of other queries.
    """
    left = longest_answer(run)
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
        for start in range(0, len(text) or 1, _STEP_CHARS):
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


def finish(run: QueryRun, response: LLMResponse) -> None:
    """Set the response of a model, and the finish reason."""
    run.response = response
    run.finish_reason = str(response.metadata.get("finish_reason", "stop"))
    if response.tool_calls:
        from vectorforge.pipeline.output_format import note_tool_calls

        note_tool_calls(run, response)


async def usage_of(run: QueryRun, payload: ContextPayload) -> UsageEvent:
    """Return the tokens of the answer, estimated if it was cut off.

    Without loading a table of tokens: the time of an answer may have run out.
    """
    response = run.response
    if response is not None:
        return UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    texts = (payload.system_prompt, payload.user_message, run.answer)
    system, query, answer = await off_event_loop(
        sum(map(len, texts)),
        lambda: [estimate_tokens(text, sample_chars=_SAMPLE_CHARS, may_load=False) for text in texts],
    )
    return UsageEvent(system + query, answer, system + query + answer, estimated=True)
