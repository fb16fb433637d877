"""Shorter prompt after a model has rejected one as too long.

Turns of the conversation are dropped first, oldest first, then chunks from the end; the best chunk stays, or
its start. Labels do not change, and citations refer to the last prompt.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from vectorforge.errors import LLMContextOverflowError
from vectorforge.llm.registry import ModelTarget
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.conversation import trim_history
from vectorforge.pipeline.generation import prompt
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage
from vectorforge.tokens import estimate_tokens

logger = logging.getLogger(__name__)

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

    Args:
        run: Its conversation and its context become shorter.
        payload: Prompt that was rejected.
        target: Model that rejected it.
        build_context: Builds the prompt.
        error: Its error.

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
