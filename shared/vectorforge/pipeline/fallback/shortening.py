"""A question whose prompt is longer than the model's context: shortened and asked once more.

Turns of the conversation go first, the oldest before the others, then passages from the end; the best one
stays, or its start. Their labels do not change, and what is cited is among what was sent last. What cannot be
made shorter, or is too long a second time, raises what the vendor said.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from vectorforge.errors import LLMContextOverflowError
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.resilience import CircuitBreaker
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.conversation import trim_history
from vectorforge.pipeline.generation import generate_answer, prompt
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage, QueryEvent
from vectorforge.tokens import estimate_tokens

logger = logging.getLogger(__name__)

BuildContext: TypeAlias = Callable[[QueryRun], ContextPayload]
"""Makes the prompt of what a run has, and notes it there."""

_MARGIN = 0.95
"""Of what fits by the vendor's count: tokens per letter differ between what stays and what goes."""

_LEAST_CONTEXT = 32
"""Tokens; less of a passage than that would answer nothing, and a model is not asked without any."""


async def generate_within_context(
    run: QueryRun,
    writer: ModelTarget,
    breaker: CircuitBreaker,
    build_context: BuildContext,
    *,
    limit_s: float | None = None,
) -> AsyncGenerator[QueryEvent, None]:
    """``generate_answer``, once more with a shorter prompt where the model finds the first one too long.

    Args:
        run: Has the prompt, which a shorter one replaces; its deadline bounds both.
        writer: Who is asked.
        breaker: Of that model.
        build_context: Makes the prompt, of what ``run`` has.
        limit_s: Longest wait for the first token, or for the whole of a buffered answer, of both together.

    Yields:
        As ``generate_answer``.

    Raises:
        LLMContextOverflowError: It cannot be made shorter, or is still too long.
        LLMError: The model failed.
        DeadlineExceededError: The time ran out before the first token.
    """
    started, payload = time.monotonic(), run.payload or build_context(run)
    try:
        async with aclosing(generate_answer(run, payload, writer, breaker, limit_s=limit_s)) as events:
            async for event in events:
                yield event
        return
    except LLMContextOverflowError as exc:
        if run.timings.first_token_ms is not None:
            raise
        payload = _shortened(run, payload, writer, build_context, exc)
    if limit_s is not None:
        limit_s = max(limit_s - (time.monotonic() - started), 0.0)
    async with aclosing(generate_answer(run, payload, writer, breaker, limit_s=limit_s)) as events:
        async for event in events:
            yield event


def _shortened(
    run: QueryRun,
    payload: ContextPayload,
    writer: ModelTarget,
    build_context: BuildContext,
    error: LLMContextOverflowError,
) -> ContextPayload:
    """A shorter prompt, noted in ``run``.

    Raises:
        LLMContextOverflowError: ``error``, when nothing can be taken away.
    """
    config, turns = run.config, _turn_tokens(run)
    excess = _excess(run, payload, writer, error)
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
        "Query %s was too long for %s/%s; asked again with %d of %d passages and %d of %d messages",
        run.request_id, writer.provider.name, writer.model,
        len(payload.used), len(run.retrieved), len(run.config.history), len(config.history),
    )  # fmt: skip
    return payload


def _excess(
    run: QueryRun, payload: ContextPayload, writer: ModelTarget, error: LLMContextOverflowError
) -> int:
    """Tokens, as we count them, that have to go; half of what can go where the vendor does not say."""
    model = run.context_config().model
    size = sum(
        estimate_tokens(message["content"], model) for message in prompt(run, payload, writer.provider)
    )
    theirs = error.prompt_tokens or size
    room = (error.limit_tokens or 0) - run.config.max_tokens
    if 0 < room < theirs:
        return size - int(size * room / theirs * _MARGIN)
    return (_turn_tokens(run) + payload.context_token_count) // 2


def _latest_turns(run: QueryRun, tokens: int) -> tuple[HistoryMessage, ...]:
    """The conversation with as many of its latest turns as fit, and every system message."""
    history, model = run.config.history, run.context_config().model
    system = sum(estimate_tokens(m.content, model) for m in history if m.role == "system")
    return tuple(trim_history(history, max(system + tokens, 1), model))


def _turn_tokens(run: QueryRun) -> int:
    """Tokens of the turns that are messages of their own."""
    if run.preset.history_policy != "messages":
        return 0
    model = run.context_config().model
    return sum(estimate_tokens(m.content, model) for m in run.config.history if m.role != "system")
