"""Step 4 of a query: the model's answer as events, with its citations as they appear."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vectorforge.errors import DeadlineExceededError, LLMError, LLMTimeoutError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import GroundingSource, LLMRequestConfig, LLMResponse, Message, TextDelta
from vectorforge.pipeline.citation_check import CitationChecker
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.presets import Preset
from vectorforge.pipeline.prompts import NO_RESULTS_ANSWER
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.structured import read_answer
from vectorforge.pipeline.types import CitationEvent, QueryEvent, TokenEvent, UsageEvent
from vectorforge.tokens import estimate_tokens


async def generate_answer(
    run: QueryRun, preset: Preset, payload: ContextPayload
) -> AsyncGenerator[QueryEvent, None]:
    """Ask the model and fill in ``run``.

    Yields:
        ``TokenEvent`` and ``CitationEvent`` mixed, then one ``UsageEvent``.

    Raises:
        LLMError: The model failed, or none is configured.
        DeadlineExceededError: The time ran out before the first token.
    """
    if not run.retrieved:
        run.outcome = "empty"
        if preset.on_empty == "sentence":
            run.answer, run.finish_reason, run.cost_usd = NO_RESULTS_ANSWER, "empty", 0.0
            yield TokenEvent(NO_RESULTS_ANSWER)
            yield UsageEvent(0, 0, 0)
            return
    if run.provider is None:
        raise LLMError(
            "No LLM providers configured: set VECTORFORGE_OPENAI_API_KEY or another provider's key."
        )
    started = time.perf_counter()
    checker = CitationChecker(run.query, payload.used)
    try:
        async with aclosing(read_answer(run, _texts(run, run.provider, payload))) as texts:
            async for text in texts:
                run.note_first_token()
                run.answer += text
                yield TokenEvent(text)
                for citation in checker.feed(text):
                    yield CitationEvent(citation)
    except (LLMTimeoutError, DeadlineExceededError):
        if not run.answer or run.deadline.remaining_s() > 0:
            raise
        run.outcome, run.finish_reason = "deadline", "deadline"
    finally:
        run.generation_ms = (time.perf_counter() - started) * 1000
        if run.response or run.answer:  # also of an answer that was cut off: its words are paid for
            run.note_cost(_usage(run, payload))
    for citation in checker.finish():
        yield CitationEvent(citation)
    run.citations, run.invalid_citations = checker.citations, checker.invalid
    yield _usage(run, payload)


async def _texts(
    run: QueryRun, provider: BaseLLMProvider, payload: ContextPayload
) -> AsyncGenerator[str, None]:
    """The answer's pieces; one piece when the query is buffered."""
    messages = prompt(run, payload)
    request = request_for(run, run.config.llm_model or provider.default_model)
    sources = grounding(run, payload)
    if run.buffered:
        response = await provider.generate(messages, request, sources=sources, deadline=run.deadline)
        _finish(run, response)
        if response.content:
            yield response.content
        return
    events = provider.stream_events(messages, request, sources=sources, deadline=run.deadline)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TextDelta):
                yield event.text
            else:
                _finish(run, event.response)


def prompt(run: QueryRun, payload: ContextPayload) -> list[Message]:
    """System with the context, then the conversation so far, then the question."""
    system: list[Message] = []
    if run.retrieved:  # without any passage the prompt would speak of a context that is not there (B-033)
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
        )
        for number, chunk in enumerate(payload.used, start=1)
    ]


def _finish(run: QueryRun, response: LLMResponse) -> None:
    run.response = response
    run.finish_reason = str(response.metadata.get("finish_reason", "stop"))


def _usage(run: QueryRun, payload: ContextPayload) -> UsageEvent:
    response = run.response
    if response is not None:
        return UsageEvent(response.prompt_tokens, response.completion_tokens, response.total_tokens)
    prompt_tokens = estimate_tokens(payload.system_prompt) + estimate_tokens(payload.user_message)
    completion_tokens = estimate_tokens(run.answer)
    return UsageEvent(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, estimated=True)
