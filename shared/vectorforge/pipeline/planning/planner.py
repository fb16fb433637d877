"""Plan of a search by a model: one short call that returns sub-queries as JSON.

A plan is data. It holds texts to search for and the number of one chunk that was found, and nothing else of
it is read: a document or a model that names a tenant, a collection or a filter changes none of them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vectorforge.deadline import Deadline
from vectorforge.errors import LLMCircuitOpenError, LLMError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMRequestConfig, Message
from vectorforge.pipeline.citations.labels import neutralise_labels
from vectorforge.pipeline.planning.splitting import checked
from vectorforge.pipeline.prompts import fence
from vectorforge.pipeline.run import QueryRun
from vectorforge.types import RetrievedChunk

PLANNING_PROMPT = """\
You plan the search of a document collection for a question. If the question needs several facts, reply with
at most four short, self-contained search queries, one for each fact; if one search is enough, with none. Keep
the language of the question. Do not answer it. Reply with one JSON object only:
{"queries": ["..."], "read": 0}"""

_NEXT = """

Below are passages found so far. Reply with queries for facts that are still missing, or with none if the
passages suffice. "read" is the number of one passage whose whole document should be read, or 0."""

_MAX_TOKENS: Final = 256
_MAX_CHARS: Final = 600
"""Longest query that is planned."""
_CHUNKS: Final = 12
_CHUNK_CHARS: Final = 300
"""Chunks in the prompt of a later round, and the length of each."""
_CODE_FENCE = re.compile(r"\A\s*```\w*\s*(.*?)\s*```\s*\Z", re.DOTALL)
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "queries": {"type": "array", "items": {"type": "string"}},
        "read": {"type": "integer"},
    },
    "required": ["queries", "read"],
    "additionalProperties": False,
}


class PlanError(LLMError):
    """The model's plan is not a JSON object with queries."""

    code = "invalid_plan"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sub-queries of one round."""

    queries: Sequence[str]
    read: int = 0
    """Number of the chunk whose document is to be read, from 1; 0 for none."""
    tokens: int = 0


def can_plan(run: QueryRun) -> bool:
    """Return True if a model answers the query and the query is short enough to be planned."""
    return run.provider is not None and not run.is_extractive and len(run.search_text) <= _MAX_CHARS


async def make_plan(
    run: QueryRun, registry: LLMProviderRegistry, deadline: Deadline, found: Sequence[RetrievedChunk] = ()
) -> Plan:
    """Return the plan of one call of the answering model; its tokens and cost are added to the run.

    Args:
        run: Has a model, see ``can_plan``.
        registry: Models with their circuit breakers.
        deadline: Time limit of the call.
        found: Chunks found so far; none for the first round.

    Raises:
        LLMError: The model failed or its circuit is open; ``PlanError`` for a useless text.
        DeadlineExceededError: No time is left.
    """
    provider = run.provider
    if provider is None or registry.breakers.find(provider.name, run.model or "").state == "open":
        raise LLMCircuitOpenError
    request = LLMRequestConfig(
        model=run.model or "", temperature=0.0, max_tokens=_MAX_TOKENS, response_schema=_SCHEMA
    )
    query = run.rewritten_query or run.search_text
    response = await provider.generate(_messages(query, found), request, deadline=deadline)
    tokens = response.prompt_tokens + response.completion_tokens
    run.note_planning(response.prompt_tokens, response.completion_tokens)
    return parse_plan(response.content, query, len(found), tokens=tokens)


def parse_plan(text: str, query: str, given: int = 0, *, tokens: int = 0) -> Plan:
    """Return the plan in a model's text; too many, too long, empty and repeated queries are left out.

    Args:
        text: JSON object, also within a code fence.
        query: The query that was planned.
        given: Number of chunks in the prompt.
        tokens: Tokens of the call.

    Raises:
        PlanError: It is something else.
    """
    fenced = _CODE_FENCE.match(text)
    try:
        plan = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        raise PlanError("The plan is not JSON.") from None
    queries = plan.get("queries") if isinstance(plan, dict) else None
    if not isinstance(queries, list):
        raise PlanError("The plan has no list of queries.")
    read = plan.get("read")
    is_number = isinstance(read, int) and not isinstance(read, bool) and 1 <= read <= min(given, _CHUNKS)
    return Plan(
        checked((text for text in queries if isinstance(text, str)), query),
        read if is_number else 0,
        tokens,
    )


def _messages(query: str, found: Sequence[RetrievedChunk]) -> list[Message]:
    if not found:
        system, user = PLANNING_PROMPT, f"Question: {query}"
    else:
        passages = "\n---\n".join(
            f"[{number}] {neutralise_labels(chunk.chunk.text[:_CHUNK_CHARS])}"
            for number, chunk in enumerate(found[:_CHUNKS], start=1)
        )
        system, user = PLANNING_PROMPT + _NEXT, f"Question: {query}\n\n{fence(passages)}"
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
