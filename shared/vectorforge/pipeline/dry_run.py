"""Dry run: the request that a query would send to a model."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.generation import prompt, request_for
from vectorforge.pipeline.prompts import without_fence_number
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import SourceCitation
from vectorforge.tokens import estimate_tokens


@dataclass(frozen=True, slots=True)
class DryRun:
    """Request for the model and its estimated cost."""

    query: str
    provider: str
    model: str | None
    request: Mapping[str, Any] | None
    """Body of the request to the vendor; None if no vendor would be called."""
    request_sha256: str | None
    """See ``request_hash``."""
    prompt_tokens: int
    """Estimate from the messages (``estimate_tokens``); vendors add a few for their format."""
    max_completion_tokens: int
    prompt_cost_usd: float | None
    """Cost of the prompt alone; None if the model has no known price."""
    max_cost_usd: float | None
    """Cost with the longest answer allowed."""
    sources: Sequence[SourceCitation]
    used_chunk_ids: Sequence[UUID]
    context_tokens: int
    history_messages: int
    """Earlier messages in the prompt."""
    rewritten_query: str | None
    """Text that was searched for in place of the query, by words of earlier turns."""


def describe_request(run: QueryRun, payload: ContextPayload) -> DryRun:
    """Return the request of a query whose context has been built.

    Raises:
        InvalidInputError: A model would have to rewrite the query first.
        LLMError: There is no provider.
    """
    if run.config.rewrite is True and run.config.history:
        raise InvalidInputError(
            "A dry run calls no model, so it cannot rewrite the query; send rewrite: auto or false.",
            field="rewrite",
        )
    if run.provider is None:
        raise LLMError("No LLM providers configured")
    messages = prompt(run, payload, run.provider)
    request = None
    if run.retrieved or run.preset.on_empty == "generate":
        request = run.provider.request_body(
            messages,
            request_for(run, run.model or ""),
            sources=payload.grounding(run.preset.context_format),
            stream=not run.buffered,
        )
    prompt_tokens = (
        sum(estimate_tokens(m["content"], run.model or "gpt-4") for m in messages) if request else 0
    )
    longest = run.config.max_tokens if request else 0
    return DryRun(
        query=run.query,
        provider=run.provider.name,
        model=run.model,
        request=request,
        request_sha256=None if request is None else request_hash(request),
        prompt_tokens=prompt_tokens,
        max_completion_tokens=longest,
        prompt_cost_usd=_cost(run, prompt_tokens, 0),
        max_cost_usd=_cost(run, prompt_tokens, longest),
        sources=payload.sources,
        used_chunk_ids=[chunk.chunk.id for chunk in payload.used],
        context_tokens=payload.token_count,
        history_messages=len(run.config.history),
        rewritten_query=run.rewritten_query,
    )


def request_hash(body: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of a body as JSON with sorted keys, without white space, in UTF-8.

    Bodies that are equal as JSON, except for the number of the fence, have the same hash.
    """
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(without_fence_number(text).encode("utf-8")).hexdigest()


def _cost(run: QueryRun, prompt_tokens: int, completion_tokens: int) -> float | None:
    if run.provider is None or run.model is None:
        return None
    return run.prices.estimate_cost(run.provider.name, run.model, prompt_tokens, completion_tokens)
