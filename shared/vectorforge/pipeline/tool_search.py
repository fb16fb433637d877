"""Answer whose search the model decides on (``retrieval: "tool"``), by calling ``search_documents``.

Each round is one call of the model. Its searches run here, their chunks go back as messages of a tool, and
the next round follows, until the model answers or calls a tool of the caller. A search has the scope of the
query: a call names words and a number of chunks, and nothing else of it is read.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import UUID

from vectorforge.errors import InvalidInputError
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.tools import ToolCall
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.generation import generate_answer
from vectorforge.pipeline.prompts import fence
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.step_types import MAX_SEARCH_ROUNDS, QueryStep
from vectorforge.pipeline.types import Citation, QueryEvent, SourcesEvent, TokenEvent, UsageEvent
from vectorforge.retriever.base import RetrievedChunks
from vectorforge.vendors.resilience import CircuitBreaker

_BuildContext: TypeAlias = Callable[[QueryRun], ContextPayload]
_TOKENS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_MOST_CALLS: Final = 4
"""Searches of one round; further calls get a text that says so."""
_NOTHING: Final = "Nothing was found."
_NO_ROOM: Final = "What was found does not fit; answer from the passages that you have."
_NOT_RUN: Final = f"Not run: at most {_MOST_CALLS} searches at once."


async def generate_with_searches(
    run: QueryRun,
    _: ContextPayload,
    target: ModelTarget,
    breaker: CircuitBreaker | None,
    build_context: _BuildContext,
    steps: Callable[[QueryRun], Iterable[QueryEvent]],
    *,
    limit_s: float | None = None,
) -> AsyncGenerator[QueryEvent, None]:
    """Call one model, run its searches, and repeat; arguments as for ``generate_answer``.

    ``build_context`` numbers the chunks found, within the budget of the prompt; ``steps`` returns events
    for those of the searches so far.

    Yields:
        As ``generate_answer``; and ``SourcesEvent`` after each round of searches, with all chunks so far,
        and the events of ``steps``.

    Raises:
        VectorForgeError: As ``generate_answer``, or a search failed.
    """
    usage, citations, invalid = UsageEvent(0, 0, 0), list[Citation](), 0
    payload = _begin(run, build_context)
    for rounds_left in range(MAX_SEARCH_ROUNDS, -1, -1):
        _begin_round(run, may_search=rounds_left > 0)
        async with aclosing(generate_answer(run, payload, target, breaker, limit_s=limit_s)) as events:
            async for event in events:
                if isinstance(event, UsageEvent):
                    usage = _sum(usage, event)
                else:
                    yield event
        citations += run.citations
        invalid += run.invalid_citations
        if not run.search_calls or run.outcome != "answered":
            break
        yield await _searched(run, build_context)
        for event in steps(run):
            yield event
        payload = run.payload or payload
        if run.answer:  # what the model wrote before its search
            run.answer += "\n\n"
            yield TokenEvent("\n\n")
    run.citations, run.invalid_citations = citations, invalid
    if run.response is not None:
        tokens = {name: getattr(usage, name) for name in _TOKENS}
        run.response = replace(run.response, content=run.answer, **tokens)
    if run.outcome == "answered" and run.steps and not run.retrieved:
        run.outcome = "empty"
    yield replace(usage, estimated=run.response is None)


def _sum(one: UsageEvent, other: UsageEvent) -> UsageEvent:
    return UsageEvent(*(getattr(one, name) + getattr(other, name) for name in _TOKENS))


def _begin(run: QueryRun, build_context: _BuildContext) -> ContextPayload:
    """Forget the searches of a model that failed, and return the prompt without chunks."""
    run.outcome, run.retrieved = "answered", RetrievedChunks()
    run.tool_messages.clear()
    return build_context(run)


def _begin_round(run: QueryRun, *, may_search: bool) -> None:
    run.may_search, run.search_calls = may_search, ()
    run.response = None  # its tokens are counted


async def _searched(run: QueryRun, build_context: _BuildContext) -> SourcesEvent:
    """Run the searches of a round, and add their calls and results to the messages."""
    text = run.response.content if run.response else ""
    run.tool_messages.append({"role": "assistant", "content": text, "tool_calls": tuple(run.search_calls)})
    for place, call in enumerate(run.search_calls):
        result = await _result(run, call, build_context) if place < _MOST_CALLS else _NOT_RUN
        run.tool_messages.append({"role": "tool", "content": result, "tool_call_id": call.id})
    sources = run.payload.sources if run.payload else []
    return SourcesEvent(sources, run.retrieved, run.timings.retrieval_ms)


async def _result(run: QueryRun, call: ToolCall, build_context: _BuildContext) -> str:
    """Run one search, and return its chunks for the model: fenced, under the labels of the whole answer."""
    started, tool = time.perf_counter(), run.config.search_tool
    if tool is None or run.search is None:
        raise RuntimeError("a query with a search tool has a search")
    try:
        query, top_k = tool.read(call.arguments)
        found = await run.search(query, top_k)
    except InvalidInputError as exc:
        return exc.message  # the model can correct the call
    run.deadline.clamp(0.0)
    known = {chunk.chunk.id for chunk in run.retrieved}
    new = [chunk for chunk in found if chunk.chunk.id not in known]
    elapsed_ms = (time.perf_counter() - started) * 1000
    run.timings.retrieval_ms += elapsed_ms
    number = sum(message["role"] == "assistant" for message in run.tool_messages)
    step = QueryStep("search", number, "model", (query,), len(found), len(new))
    run.steps.append(replace(step, duration_ms=round(elapsed_ms, 1)))
    ids = {chunk.chunk.id for chunk in found}
    found[:] = [*run.retrieved, *new]  # chunks keep their labels
    found.below_min_score = 0  # a chunk may be in several searches
    found.vectors_error = found.vectors_error or run.retrieved.vectors_error
    found.rerank_error = found.rerank_error or run.retrieved.rerank_error
    run.retrieved = found
    build_context(run)
    return _shown(run, ids)


def _shown(run: QueryRun, ids: set[UUID]) -> str:
    if not ids:
        return _NOTHING
    config = run.preset.context_config(run.config, run.context_limit)
    passages = [
        config.format.write(number, chunk, include_score=config.include_scores)
        for number, chunk in enumerate(run.used, start=1)
        if chunk.chunk.id in ids
    ]
    return fence(config.chunk_separator.join(passages)) if passages else _NO_ROOM
