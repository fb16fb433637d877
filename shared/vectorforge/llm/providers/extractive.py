"""Answers without a model: the best matching sentences of the chunks, quoted with their labels."""

import asyncio
import logging
import math
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from operator import itemgetter, mul
from typing import Any, Literal, TypeAlias, TypeVar

from vectorforge.errors import VectorForgeError
from vectorforge.health import ComponentHealth
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers import patterns
from vectorforge.llm.providers.quotations import Piece, following, heading_line, leads_in, split, together
from vectorforge.llm.providers.words import Candidate, Parts, Quote, Scored, WeightedQuery, all_terms, terms
from vectorforge.llm.types import Completion, GroundingSource, ProviderCall, ProviderCapability
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Compare, Vector

logger = logging.getLogger(__name__)

Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""Texts -> vectors, in the same order."""

_FinishReason: TypeAlias = Literal["stop", "length"]

R = TypeVar("R")

NO_ANSWER = "I don't have enough information to answer that question."

_MODEL = "extractive-v1"
_MAX_SENTENCES = 3
_MAX_CHARS = 480
"""Length of all quotations together (360 on average); a single longer one is not cut."""
_MAX_SOURCE_CHARS = 20_000
"""Length of one source that is read."""
_MAX_SOURCES = 20
"""Number of sources that are read, best first."""
_EMBEDDED = 12
"""Candidates compared by vector: the best by words, so that an answer takes tens of milliseconds."""
_CHECKED = 4
"""The best word by word; their cosines tell whether the query is covered, mostly that of the first."""
_MAX_HEADING_CHARS = 120
_EMBED_TIMEOUT_S = 10.0
_SHORT_QUERY = 3
"""Words; an answer may repeat so few."""
_MIN_SHARE = 0.6
"""Minimum score of a further sentence, as a share of the first one's."""
_DUPLICATE = 0.7
"""Jaccard index of two sentences' words from which they count as duplicates."""
_SAME_STATEMENT = 0.6
"""The same from which sentences of two sources are about the same: quoted both if their values differ."""
# Tuned by hand on a public question set (SQuAD paragraphs).
_WEIGHT_COSINE = 2.0
_WEIGHT_COMPARED = 3.0
_WEIGHT_FOLLOWING = 0.3
_WEIGHT_DISAGREES = 1.0


class ExtractiveProvider(BaseLLMProvider):
    """Provider that quotes instead of generating: no model, no key, no invented text.

    The answer is one to three verbatim sentences of the sources, each followed by the label of its source,
    or the sentence ``NO_ANSWER`` when the sources do not cover the query. The provider does not compose,
    compare or count. The query is the user's last message; other messages and sampling have no effect. An
    answer beyond ``max_tokens`` ends with its last whole quotation, or within the first.

    Args:
        embed: Adds comparison by vector; words alone when not given or when it fails.
        compare: Ranks instead of the vectors, which then only decide whether there is an answer.
        **options: See ``BaseLLMProvider``; ``default_model`` is "extractive-v1".
    """

    def __init__(self, *, embed: Embed | None = None, compare: Compare | None = None, **options: Any) -> None:
        super().__init__(**{"default_model": _MODEL, "retries": 0, **options})
        self._embed, self._compare = embed, compare

    def provider_name(self) -> str:
        """Return "extractive"."""
        return "extractive"

    @property
    def capabilities(self) -> frozenset[ProviderCapability]:
        """Capabilities of a model, and quoting."""
        return frozenset(ProviderCapability)

    async def _call_api(self, call: ProviderCall) -> Completion:
        parts, finish_reason = await self._answer_within_limit(call)
        return self._completion(call, "".join(parts), finish_reason, is_streamed=False)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        parts, finish_reason = await self._answer_within_limit(call)
        for part in parts:
            yield part
            await asyncio.sleep(0)  # lets the consumer send each part
        yield self._completion(call, "".join(parts), finish_reason, is_streamed=True)

    def _completion(
        self, call: ProviderCall, content: str, finish_reason: _FinishReason, *, is_streamed: bool
    ) -> Completion:
        dropped = call.config.model != self.default_model  # a request named a model
        return Completion(
            model=_MODEL,
            finish_reason=finish_reason,
            content="" if is_streamed else content,
            prompt_tokens=0,  # no model is involved
            completion_tokens=_tokens(content),
            metadata={"extractive": True, **({"dropped_parameters": ["model"]} if dropped else {})},
        )

    async def _list_models(self) -> list[str]:
        return [_MODEL]

    async def _health_probe(self) -> ComponentHealth:
        return ComponentHealth("llm.extractive", True, "quotes the sources; no model")

    async def _answer_within_limit(self, call: ProviderCall) -> tuple[list[str], _FinishReason]:
        """Return the parts that ``max_tokens`` allows, and the finish reason; a refusal is whole."""
        parts = await self._answer(call)
        shortened = _shortened(parts, call.config.max_tokens) if len(parts) > 1 else parts
        return shortened, "stop" if shortened == parts else "length"

    async def _answer(self, call: ProviderCall) -> list[str]:
        """Return the answer in parts: sentence, label, sentence, label ..."""
        text = next((m["content"] for m in reversed(call.messages) if m["role"] == "user"), "")
        query, ranked, parts = await asyncio.to_thread(_ranked, text, call.sources)
        if not ranked or not query.terms:
            return [NO_ANSWER]
        best = [] if query.needs_words(ranked[0][1]) else ranked[:_EMBEDDED]
        compared = await self._compared(text, best, call.sources)
        candidates = [candidate for _, candidate in ranked]
        cosines: list[float] = []
        for number in (1, _CHECKED) if compared else (_EMBEDDED,):
            if query.is_english or not compared:
                nearest = [candidate.piece for _, candidate in (compared or best)[:number]]
                texts = [" ".join([*query.headings(piece), piece.text]) for piece in nearest]
                cosines = await self._cosines([text, *texts])
            if query.is_covered(candidates, cosines):
                break
        else:
            return [NO_ANSWER]
        if cosines and not compared:
            compared = _added(best, cosines, _WEIGHT_COSINE)
        return _rendered(query, _select(query, compared or ranked, parts), call.sources)

    async def _compared(
        self, text: str, best: Sequence[Scored], sources: Sequence[GroundingSource]
    ) -> list[Scored]:
        """Return candidates by words and similarity to the query, best first; empty without ``compare``."""
        if self._compare is None or not best:
            return []
        headings = [(source.heading or source.title or "")[:_MAX_HEADING_CHARS] for source in sources]
        pairs = [(headings[candidate.source], candidate.piece.text) for _, candidate in best]
        return _added(best, await self._in_time(self._compare(text, pairs)) or [], _WEIGHT_COMPARED)

    async def _cosines(self, texts: Sequence[str]) -> list[float]:
        """Return the cosine of the first text and each other; empty without an embedder."""
        if self._embed is None or len(texts) == 1:
            return []
        vectors = await self._in_time(self._embed(texts))
        return [_cosine(vectors[0], other) for other in vectors[1:]] if vectors else []

    async def _in_time(self, call: Awaitable[R]) -> R | None:
        """Return the result of the embedder, or None if it fails."""
        try:
            async with asyncio.timeout(_EMBED_TIMEOUT_S):
                return await call
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("Ranking without the embedder, which failed: %s", type(exc).__name__)
            return None


def _ranked(text: str, sources: Sequence[GroundingSource]) -> tuple[WeightedQuery, list[Scored], Parts]:
    """Return the query, everything quotable with its score by words, best first, and the parts."""
    parts: Parts = {}
    quotable: list[tuple[int, Piece]] = []
    for number, source in enumerate(sources[:_MAX_SOURCES]):
        for piece in split(source.text[:_MAX_SOURCE_CHARS], source.heading or "", source.headings):
            parts.setdefault((number, piece.part), []).append(piece)
            if not _is_question(piece, text) and not patterns.REFERENCE.fullmatch(piece.text):
                quotable.append((number, piece))
    among = _candidates(sources, quotable)
    query = WeightedQuery(text, [one for one, *_ in among])
    scored: list[Scored] = []
    for same in among:
        scores = list(map(query.lexical_score, same))
        ends = [leads_in(one.piece) and one.piece is parts[one.source, one.piece.part][-1] for one in same]
        # of equal lead-ins one whose list is in the same chunk
        _, _, best = min(zip(ends, (-score for score in scores), same, strict=True), key=itemgetter(0, 1))
        scored.append((max(scores), best))
    return query, sorted(scored, key=itemgetter(0), reverse=True), parts


def _candidates(
    sources: Sequence[GroundingSource], pieces: Iterable[tuple[int, Piece]]
) -> list[list[Candidate]]:
    """Return pieces with their words; those with the same text, under several headings, are together."""
    best = max((source.relevance or 0.0 for source in sources), default=0.0)
    result: dict[str, list[Candidate]] = {}
    for number, piece in pieces:
        source = sources[number]
        path = "" if source.headings else source.heading or ""
        before = all_terms(f"{source.title or ''} {path} {piece.before}")
        share = max(0.0, source.relevance or 0.0) / best if best > 0 else 0.0
        words = all_terms(piece.text)
        result.setdefault(" ".join(piece.text.split()).casefold(), []).append(
            Candidate(number, piece, words, before, all_terms(piece.subject), terms(piece.opens), share)
        )
    return list(result.values())


def _added(best: Sequence[Scored], similarities: Sequence[float], weight: float) -> list[Scored]:
    """Return candidates with weighted similarities added to their scores, best first; empty without any."""
    pairs = zip(best, similarities, strict=bool(similarities))
    scored = [(score + weight * similarity, candidate) for (score, candidate), similarity in pairs]
    return sorted(scored, key=itemgetter(0), reverse=True)


def _is_question(piece: Piece, query: str) -> bool:
    """Return True for a question, or the query itself, which a text may contain as an example."""
    if piece.kind == "prose" and patterns.QUESTION.search(piece.text):
        return True
    words = query.casefold().split() if piece.kind in ("prose", "code") else ()
    return len(words) > _SHORT_QUERY and " ".join(words) in " ".join(piece.text.casefold().split())


def _select(query: WeightedQuery, ranked: Sequence[Scored], parts: Parts) -> list[Quote]:
    """Return the best sentence with what belongs to it, then distinct others within the limits."""
    best_score, best = ranked[0]
    whole_part = parts[best.source, best.piece.part]
    part = _of_query(query, best.piece, whole_part)
    is_procedure = query.is_procedure(best.piece)
    together_pieces = together(best.piece, part, is_procedure=is_procedure)
    quotes = [(best.source, piece) for piece in together_pieces]
    length = sum(len(piece.text) for _, piece in quotes)
    chosen = [best]
    keys = query.keys & best.before
    next_piece = following(quotes[-1][1], part)
    bonuses = [
        _WEIGHT_FOLLOWING * (other.piece is next_piece) + _WEIGHT_DISAGREES * _disagrees(best, other)
        for _, other in ranked[1:]
    ]
    for score, other in _added(ranked[1:], bonuses, 1.0):
        if len(quotes) >= _MAX_SENTENCES or score < _MIN_SHARE * best_score:
            break
        if not keys <= other.before or (other.piece in whole_part and other.piece not in part):
            continue
        has_steps = is_procedure and other.source == best.source
        further = _further(other, parts, length, is_procedure=has_steps)
        added = [(other.source, piece) for piece in further if (other.source, piece) not in quotes]
        if len(added) == len(further) > 0 and not any(_is_duplicate(other, one) for one in chosen):
            first = len(together_pieces)
            later = (at for at, one in enumerate(quotes[first:], first) if _precedes(added[0], one))
            place = first if other.piece is next_piece else next(later, len(quotes))
            quotes[place:place] = added
            chosen.append(other)
            length += sum(len(piece.text) for _, piece in added)
    return quotes


def _further(other: Candidate, parts: Parts, length: int, *, is_procedure: bool) -> Sequence[Piece]:
    """Return a further sentence with what belongs to it; empty if the answer would be too long.

    Code without a sentence that leads in to it may be of something else.
    """
    part = parts[other.source, other.piece.part]
    pieces = together(other.piece, part, is_procedure=is_procedure, used_chars=length)
    if len(pieces) > 1:
        return pieces
    needs_others = leads_in(other.piece) or other.piece.kind == "code"
    return [] if needs_others or length + len(other.piece.text) > _MAX_CHARS else pieces


def _of_query(query: WeightedQuery, piece: Piece, part: Sequence[Piece]) -> list[Piece]:
    """Return a piece's part without rows and items whose subject has less of the query than another's."""
    lead = query.matched(all_terms(" ".join(one.text for one in part if one.kind == "prose")))
    named = [one for one in part if one.subject and one.kind in ("row", "item")]
    words = {one: query.matched(all_terms(one.subject)) - lead for one in named}
    most = set(words.values())
    less = {one for one, own in words.items() if any(map(own.__lt__, most))} - {piece}
    return [one for one in part if one not in less]


def _precedes(one: Quote, other: Quote) -> bool:
    """Return True if a sentence stands before the other in the same paragraph, or a step in its list."""
    (source, piece), (other_source, after) = one, other
    are_steps = piece.kind == after.kind == "step" and piece.part == after.part
    return source == other_source and (are_steps or piece.block == after.block) and piece.start < after.start


def _is_duplicate(one: Candidate, other: Candidate) -> bool:
    text, other_text = one.piece.text.casefold(), other.piece.text.casefold()
    if text in other_text or other_text in text:
        return True
    return _similarity(one, other) >= _DUPLICATE and not _disagrees(one, other)


def _similarity(one: Candidate, other: Candidate) -> float:
    return len(one.terms & other.terms) / (len(one.terms | other.terms) or 1)


def _disagrees(one: Candidate, other: Candidate) -> bool:
    """Return True if two sources make the same statement with different numbers or names."""
    if one.source == other.source or _similarity(one, other) < _SAME_STATEMENT:
        return False
    values, other_values = (set(patterns.VALUE.findall(c.piece.text)) for c in (one, other))
    return bool(values and other_values) and values != other_values


def _rendered(query: WeightedQuery, quotes: Sequence[Quote], sources: Sequence[GroundingSource]) -> list[str]:
    """Return text and label in turn; all but the sentences of a paragraph on lines of their own.

    Neighboring items and rows under one heading are a paragraph that begins with it.
    """
    parts: list[str] = []
    steps = sum(piece.kind == "step" for _, piece in quotes)
    last: Quote | None = None
    last_above = ""
    for quote in quotes:
        source, piece = quote
        above = _above(query, piece)
        is_same_heading = above == last_above or (last is not None and piece.heading == last[1].text)
        if last is not None and not is_same_heading:
            parts.append("\n\n")
        elif last is not None:
            is_same_block = (last[0], last[1].block) == (source, piece.block)
            goes_on = (is_same_block or last[1].kind == piece.kind == "prose") and _ends_sentence(last[1])
            parts.append(" " if goes_on else "\n")
        # a label within a fence would become part of it
        text = patterns.ITEM.sub("", piece.text) if piece.kind == "step" and steps == 1 else piece.text
        if not is_same_heading:
            text = f"{above}\n{text}".lstrip()
        parts += [text, ("\n" if piece.kind == "code" else " ") + sources[source].label]
        last, last_above = quote, above
    return parts


def _above(query: WeightedQuery, piece: Piece) -> str:
    """Return the lines above a quotation: needed headings, and the lead-in of its list or table."""
    headings, innermost = query.headings(piece), piece.path.rpartition(" > ")[2]
    lead = "" if piece.heading == heading_line(innermost) else piece.heading
    if piece.heading and not lead and innermost not in headings:
        headings.append(innermost)
    return "\n".join(filter(None, (heading_line(" > ".join(headings)), lead))) or piece.heading


def _shortened(parts: Sequence[str], max_tokens: int) -> list[str]:
    """Return the quotations of ``_rendered`` with their labels that have at most so many tokens.

    If not even the first has: its start, up to a blank if there is one.
    """
    ends = [end for end in range(2, len(parts) + 1) if end == len(parts) or not parts[end].strip()]
    count = bisect_right(ends, max_tokens, key=lambda end: _tokens("".join(parts[:end])))
    if count:
        return list(parts[: ends[count - 1]])
    text = parts[0]
    length = bisect_right(range(1, len(text) + 1), max_tokens, key=lambda end: _tokens(text[:end]))
    return [text if length == len(text) else text[: length + 1].rpartition(" ")[0] or text[:length]]


def _tokens(text: str) -> int:
    # a table of its own took 0.3 s of the first query, and 78 MB
    return estimate_tokens(text, may_load=False)


def _ends_sentence(piece: Piece) -> bool:
    return piece.text.rstrip("\"'”’»)")[-1:] in tuple(".!?…。！？")


def _cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors of one length; 0 if one is zero."""
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / norms if norms else 0.0  # no Python call per dimension
