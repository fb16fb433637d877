"""Sub-queries of a search: planned by one short call of a model that returns JSON, or split by rules.

A plan is data. It holds texts to search for and the number of one chunk that was found, and nothing else of
it is read: a document or a model that names a tenant, a collection or a filter changes none of them.

Without a model, two questions, comparisons and conjunctions are split. The query itself is searched for as
well, so a part that is not a good query costs little. A part that has no content words of its own is left
out, and a query that no rule fits is not split.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vectorforge.deadline import Deadline
from vectorforge.errors import LLMCircuitOpenError, LLMError
from vectorforge.llm.providers.words import terms
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMRequestConfig, Message
from vectorforge.pipeline.citations.labels import neutralise_labels
from vectorforge.pipeline.prompts import fence
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.step_types import MAX_SUB_QUERIES, MAX_SUB_QUERY_CHARS
from vectorforge.types import RetrievedChunk

_MAX_SPLIT_CHARS = 2_000
"""Longer queries are texts rather than questions, and are not split."""
_SENTENCE = re.compile(r"(?<=[?!.;？！。])\s+|\n+|(?<=[？！。])")
_QUESTION_WORDS = (
    r"what|which|who|whom|whose|when|where|why|how|does|do|did|is|are|was|were|can|could|should|must|may|will"
    r"|was|welche[rsmn]?|wer|wem|wen|wann|wo|warum|wieso|wie|kann|können|muss|müssen|soll|gibt"
)
_CLAUSES = re.compile(
    rf"[,;]?\s+(?:and|und|sowie|but|or|oder)\s+(?:also\s+|auch\s+)?(?=(?:{_QUESTION_WORDS})\b)"
    rf"|,\s+(?=(?:what|which|who|when|where|why|how|welche[rsmn]?|wann|warum|wie)\b)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"\b(?:differences?|distinction|relation(?:ship)?|choice|choose|unterschied\w*)\s+(?:between|zwischen)\s+"
    r"(?P<one>.+?)\s+(?:and|und)\s+(?P<other>.+)",
    re.IGNORECASE | re.DOTALL,
)
_COMPARE = re.compile(
    r"\b(?:compare|contrast|vergleiche)\s+(?P<one>.+?)\s+(?:with|to|and|against|mit|und)\s+(?P<other>.+)",
    re.IGNORECASE | re.DOTALL,
)
_DIFFER = re.compile(
    r"\b(?:do(?:es)?|is|are)\s+(?P<one>.+?)\s+(?:differ(?:ent)?|compare[ds]?)\s+(?:from|with|to)\s+(?P<other>.+)",
    re.IGNORECASE | re.DOTALL,
)
_VERSUS = re.compile(
    r"^(?P<one>.+?)\s+(?:vs\.?|versus|compared\s+(?:with|to)|as\s+opposed\s+to|im\s+vergleich\s+zu)\s+(?P<other>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_RATHER = re.compile(
    r"^(?P<one>.+?)\s+(?:instead\s+of|rather\s+than|statt|anstelle\s+von)\s+(?P<other>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_COMPARISONS = (_BETWEEN, _COMPARE, _DIFFER, _VERSUS, _RATHER)
_QUALIFIER = re.compile(
    r"\s+(?:in|for|with|on|when|of|by|regarding|für|bei|mit)\s+(?P<rest>.+)$", re.IGNORECASE
)
"""Aspect of a comparison, which stands after the second subject and applies to both: "A and B in speed"."""
_CONJUNCTION = re.compile(
    r"(?<!\d)\s+(?:and|und|sowie|as well as|along with|plus)\s+(?!/|so on\b|so weiter\b)|,\s+(?=\S+ and )",
    re.IGNORECASE,
)
_POINTER = re.compile(
    r"\b(?:it|its|they|them|their|theirs|one|ones|this|these|those|es|er|sie|ihn|ihm|ihr|ihre[nmrs]?|deren|dessen)\b",
    re.IGNORECASE,
)
_FEW_TERMS = 3
"""Content words of a clause that may lack its subject."""
_TRIM = " \t\r\n,;:?!.？！。\"“”'"


def split(query: str) -> list[str]:
    """Return at most four sub-queries; none if no rule fits.

    Args:
        query: In English or German; of other languages, only sentences are split.
    """
    if len(query) > _MAX_SPLIT_CHARS:
        return []
    sentences = [part for part in _SENTENCE.split(query) if terms(part)]
    parts = [part for sentence in sentences for part in _split_sentence(sentence)]
    return checked(_with_subject(parts), query)


def _with_subject(parts: Sequence[str]) -> Iterator[str]:
    """Return the parts; one that points at something before it ("does it expire?") is joined by the first."""
    for number, part in enumerate(parts):
        is_clause = number > 0 and len(part.split()) > 2 and len(terms(part)) <= _FEW_TERMS
        points = is_clause and _POINTER.search(part)
        yield f"{part} {parts[0]}" if points else part


def checked(parts: Iterable[str], query: str) -> list[str]:
    """Return the parts that are queries: bounded, with content, each once, and none the query itself."""
    known, found = {_folded(query)}, list[str]()
    for part in parts:
        text = " ".join("".join(c if c.isprintable() else " " for c in part).split()).strip(_TRIM)
        if len(text) <= MAX_SUB_QUERY_CHARS and terms(text) and _folded(text) not in known:
            known.add(_folded(text))
            found.append(text)
    return found[:MAX_SUB_QUERIES]


def _folded(text: str) -> str:
    return " ".join(text.lower().split()).strip(_TRIM)


def _split_sentence(sentence: str) -> Iterator[str]:
    for pattern in _COMPARISONS:
        if match := pattern.search(sentence.strip(_TRIM)):
            yield from _compared(match["one"], match["other"])
            return
    clauses = [part for part in _CLAUSES.split(sentence) if part and terms(part)]
    if len(clauses) > 1:
        yield from clauses
    else:
        yield from _conjoined(sentence.strip(_TRIM))


def _compared(one: str, other: str) -> Iterator[str]:
    """Return both subjects, each with what is compared of them."""
    qualifier = _QUALIFIER.search(other)
    yield f"{one} {qualifier['rest']}" if qualifier and not _QUALIFIER.search(one) else one
    yield other


def _conjoined(sentence: str) -> Iterator[str]:
    """Return the sentence with the part before a conjunction, and with the part after it."""
    if len(found := _CONJUNCTION.split(sentence)) < 2:
        yield sentence
        return
    first, *others = found
    head = " ".join(first.split()[:-1])
    yield first
    for part in others:
        is_short = len(terms(part)) <= 2 and terms(head)
        yield f"{head} {part}" if is_short else part


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
