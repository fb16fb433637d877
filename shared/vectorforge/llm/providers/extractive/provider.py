"""Answers without a model: quotes the sentences of the sources that answer best, each with its label."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from vectorforge.errors import VectorForgeError
from vectorforge.health import ComponentHealth
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.extractive.ranking import Candidate, Question, candidates
from vectorforge.llm.providers.extractive.sentences import Piece, split
from vectorforge.llm.types import Completion, GroundingSource, ProviderCall, ProviderCapability
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Vector

logger = logging.getLogger(__name__)

Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""Texts -> vectors, in the same order."""

NO_ANSWER = "I don't have enough information to answer that question."

_MODEL = "extractive-v1"
_MAX_SENTENCES = 3
_MAX_CHARS = 480
"""Of the quotations together (360 on average); a single longer one is kept whole."""
_MAX_SOURCE_CHARS = 20_000
"""Of one source; what follows is not read."""
_MAX_SOURCES = 20
"""Best first; the others are not read."""
_EMBEDDED = 12
"""Candidates compared by meaning: the best by words, so that an answer takes tens of milliseconds."""
_EMBED_TIMEOUT_S = 10.0
_SHORT_QUESTION = 3
"""Words; an answer may well repeat so few."""
_KEPT = 0.6
"""A further sentence scores at least this share of the first one's."""
_DUPLICATE = 0.7
"""Shared words of two sentences (Jaccard index) from which they say the same."""
_ENOUGH_COVERAGE = 0.25
"""Weight share of the question's words that the best source must hold, when there is no embedder."""
_ENOUGH_EVIDENCE = 0.55
"""Half the share of the question's words in the best source, plus the best cosine, when there is an embedder.
On two public sets 2 % of the answerable questions fall below, and 99 % of those foreign to the documents."""

_CAPABILITIES = frozenset(ProviderCapability)


class ExtractiveProvider(BaseLLMProvider):
    """Quotes instead of writing: no model, no key, nothing made up.

    The answer is one to three verbatim sentences of the sources, each followed by the label of its source,
    or the sentence ``NO_ANSWER`` when the sources do not speak of what is asked. It does not compose,
    compare or count. The question is the last message of the user; the other messages and the sampling
    settings change nothing.

    Args:
        embed: Compares by meaning too; words alone when not given or when it fails.
        **options: See ``BaseLLMProvider``; ``default_model`` is "extractive-v1".
    """

    def __init__(self, *, embed: Embed | None = None, **options: Any) -> None:
        super().__init__(**{"default_model": _MODEL, "retries": 0, **options})
        self._embed = embed

    def provider_name(self) -> str:
        """The name "extractive"."""
        return "extractive"

    @property
    def capabilities(self) -> frozenset[ProviderCapability]:
        """Those of a model, and that it quotes."""
        return _CAPABILITIES

    async def _call_api(self, call: ProviderCall) -> Completion:
        parts = await self._answer(call)
        return _completion("".join(parts), is_streamed=False)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        parts = await self._answer(call)
        for part in parts:
            yield part
            await asyncio.sleep(0)  # lets each part be sent before the next one
        yield _completion("".join(parts), is_streamed=True)

    async def _list_models(self) -> list[str]:
        return [_MODEL]

    async def _health_probe(self) -> ComponentHealth:
        return ComponentHealth("llm.extractive", True, "quotes the sources; no model")

    async def _answer(self, call: ProviderCall) -> list[str]:
        """The answer in parts: sentence, label, sentence, label ..."""
        text = next((m["content"] for m in reversed(call.messages) if m["role"] == "user"), "")
        question, ranked = await asyncio.to_thread(_ranked, text, call.sources)
        if not ranked or not question.terms:
            return [NO_ANSWER]
        cosines = await self._cosines(text, ranked[:_EMBEDDED])
        if not _is_enough(question, ranked, cosines):
            return [NO_ANSWER]
        if cosines:
            scored = [(question.score(c, cosine), c) for c, cosine in zip(ranked, cosines, strict=False)]
        else:
            scored = [(question.lexical_score(c), c) for c in ranked]
        return _written(_chosen(scored), call.sources)

    async def _cosines(self, text: str, ranked: Sequence[Candidate]) -> list[float]:
        """Cosine of the question and each candidate; empty without an embedder."""
        if self._embed is None:
            return []
        try:
            async with asyncio.timeout(_EMBED_TIMEOUT_S):
                query, *others = await self._embed([text, *(candidate.piece.text for candidate in ranked)])
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("Answering by words alone, the embedder failed: %s", type(exc).__name__)
            return []
        return [_cosine(query, other) for other in others]


def _ranked(text: str, sources: Sequence[GroundingSource]) -> tuple[Question, list[Candidate]]:
    """The question and everything that can be quoted, best by words first."""
    cut = [split(source.text[:_MAX_SOURCE_CHARS]) for source in sources[:_MAX_SOURCES]]
    quotable = (
        (n, piece) for n, pieces in enumerate(cut) for piece in pieces if not _is_a_question(piece, text)
    )
    found = candidates(sources, quotable)
    question = Question(text, found)
    return question, sorted(found, key=question.lexical_score, reverse=True)


def _is_a_question(piece: Piece, asked: str) -> bool:
    """Questions are no answers; least of all the one that was asked, as an example in a text may be."""
    if piece.kind == "prose" and piece.text.endswith("?"):
        return True
    words = asked.casefold().split()
    return len(words) > _SHORT_QUESTION and " ".join(words) in " ".join(piece.text.casefold().split())


def _is_enough(question: Question, found: Sequence[Candidate], cosines: Sequence[float]) -> bool:
    """Whether the sources speak of what is asked."""
    by_source: dict[int, frozenset[str]] = {}
    for candidate in found:
        words = by_source.get(candidate.source, frozenset())
        by_source[candidate.source] = words | candidate.terms | candidate.before
    if cosines:
        # Unweighted: a word that every source holds is the subject, and rarity would count it for nothing.
        share = max(len(question.terms & words) for words in by_source.values()) / len(question.terms)
        return share / 2 + max(cosines) >= _ENOUGH_EVIDENCE
    return max(question.coverage(words) for words in by_source.values()) >= _ENOUGH_COVERAGE


def _chosen(scored: Sequence[tuple[float, Candidate]]) -> list[Candidate]:
    """The best sentences that differ, within the limits of an answer."""
    scored = sorted(scored, key=lambda pair: pair[0], reverse=True)
    best_score, best = scored[0]
    chosen = [best]
    length = len(best.piece.text)
    for score, candidate in scored[1:]:
        if len(chosen) == _MAX_SENTENCES or score < _KEPT * best_score:
            break
        if length + len(candidate.piece.text) > _MAX_CHARS:
            continue
        if any(_says_the_same(candidate, other) for other in chosen):
            continue
        chosen.append(candidate)
        length += len(candidate.piece.text)
    return chosen


def _says_the_same(one: Candidate, other: Candidate) -> bool:
    text, other_text = one.piece.text.casefold(), other.piece.text.casefold()
    if text in other_text or other_text in text:
        return True
    return len(one.terms & other.terms) >= _DUPLICATE * len(one.terms | other.terms)


def _written(chosen: Sequence[Candidate], sources: Sequence[GroundingSource]) -> list[str]:
    """Text and label in turn; best source first, sentences of one source in the order they stand there."""
    order = list(dict.fromkeys(candidate.source for candidate in chosen))
    parts: list[str] = []
    for candidate in sorted(chosen, key=lambda c: (order.index(c.source), c.piece.start)):
        label = sources[candidate.source].label
        text, kind = candidate.piece.text, candidate.piece.kind
        if kind == "prose":
            starts_line = not parts or parts[-1].endswith("\n")
            parts += ["" if starts_line else " ", text, f" {label}"]
        else:  # a label within a fence or a row would become part of it
            before_label = " " if kind == "item" else "\n"
            parts += ["\n" if parts else "", text, f"{before_label}{label}\n"]
    parts[-1] = parts[-1].rstrip("\n")
    return [part for part in parts if part]


def _completion(content: str, *, is_streamed: bool) -> Completion:
    return Completion(
        model=_MODEL,
        finish_reason="stop",
        content="" if is_streamed else content,
        prompt_tokens=0,  # no model read anything
        completion_tokens=estimate_tokens(content, _MODEL),
        metadata={"extractive": True},
    )


def _cosine(one: Vector, other: Vector) -> float:
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / norms if norms else 0.0
