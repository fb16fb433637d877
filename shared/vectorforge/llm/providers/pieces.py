"""Pieces of chunks that can be quoted, their scores for a query, and whether they cover it."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from vectorforge.llm.providers import patterns
from vectorforge.llm.providers.patterns import all_terms

_ENOUGH_COVERAGE = 0.25
"""Weight share of the query's words that the best source must contain, without an embedder."""
_ENOUGH_EVIDENCE = 0.65
"""Half the share of the query's words in the best piece and before it, plus the best cosine."""
_ENOUGH_IN_OTHER_LANGUAGES = 0.6
"""The same for queries in other languages than English, whose vectors are further apart."""
_MISSING_TERM = 0.3
_MISSING_NAME = 0.1
"""Further evidence required by an English query with a technical term or a name that no chunk has. With these
figures 2 to 7 % of the own queries of six collections are refused, and 96 to 100 % of others' queries."""

# Tuned by hand on a public question set (SQuAD paragraphs).
_WEIGHT_RANK = 0.2
_WEIGHT_RELEVANCE = 0.5  # of 1,190 first citations 1,129 are right with 0, 1,133 or 1,134 with 0.3 to 0.7
_WEIGHT_TYPE = 0.3
_WEIGHT_BEFORE = 0.3
_WEIGHT_SUBJECT = 1.5
_WEIGHT_OPENING = 0.5
_PENALTY_SHORT = 0.3
_PENALTY_FRAGMENT = 0.1
_SHORT = 30
"""Characters; shorter texts are rarely sentences."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a chunk that can be quoted."""

    start: int
    end: int
    """``chunk[start:end]`` is the part with its markup."""
    text: str
    """Text without markup on one line, a row as "column: value; column: value"; code as it is, in a fence."""
    before: str
    """Heading above and preceding text of the same block, which often define what "it" refers to."""
    kind: str = "prose"
    """prose | item | step (of a numbered list) | code | row."""
    is_fragment: bool = False
    """True if the chunk's edge may have cut the sentence."""
    block: int = 0
    """Number of the paragraph, item or row."""
    part: int = 0
    """Number of the block's list, table or code with the paragraph that leads in to it."""
    subject: str = ""
    """First cell of a row, or what an item explains: "dev: ..."."""
    opens: str = ""
    """Heading right above it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Piece of a source, with its words."""

    source: int
    """Position in the list of sources, best source first."""
    piece: Piece
    terms: frozenset[str]
    before: frozenset[str]
    subject: frozenset[str]
    """Words of ``piece.subject``."""
    opens: frozenset[str]
    """Words of ``piece.opens``."""
    relevance: float = 0.0
    """Relevance of its source as a share of the best source's, 0 to 1; 0 if unknown."""


Scored: TypeAlias = tuple[float, Candidate]
Quote: TypeAlias = tuple[int, Piece]
"""A piece with the position of its source."""
Parts: TypeAlias = dict[tuple[int, int], list[Piece]]
"""Pieces by their source's position and their part, in their order."""


class WeightedQuery:
    """Query with the weight of each of its words among the candidates."""

    def __init__(self, text: str, among: Sequence[Candidate]) -> None:
        self.text = text
        self.terms = all_terms(text)
        counts = Counter(chain.from_iterable(candidate.terms & self.terms for candidate in among))
        total = len(among)
        # BM25's inverse document frequency (https://doi.org/10.1561/1500000019), over sentences
        self._idf = {t: math.log(1 + (total - counts[t] + 0.5) / (counts[t] + 0.5)) for t in self.terms}
        self._mass = sum(self._idf.values()) or 1.0
        self._words = {word.casefold() for word in patterns.WORD.findall(text)}

    def coverage(self, words: frozenset[str]) -> float:
        """Return the share of the query's word weight in ``words``, 0 to 1."""
        return sum(map(self._idf.__getitem__, self.terms & words)) / self._mass

    def lexical_score(self, candidate: Candidate) -> float:
        """Score by words, rank and relevance of the source, kind of answer and completeness."""
        piece = candidate.piece
        score = self.coverage(candidate.terms)
        score += _WEIGHT_BEFORE * self.coverage(candidate.before - candidate.terms)
        score += _WEIGHT_OPENING * self.coverage(candidate.opens)
        score += _WEIGHT_RANK / (1 + candidate.source)
        score += _WEIGHT_RELEVANCE * candidate.relevance
        score += _WEIGHT_TYPE * self._answer_type(piece.text)
        score += _WEIGHT_SUBJECT * self.coverage(candidate.subject) * (candidate.subject <= self.terms)
        score -= _PENALTY_SHORT * (piece.kind == "prose" and len(piece.text) < _SHORT)
        return score - _PENALTY_FRAGMENT * piece.is_fragment

    def _answer_type(self, text: str) -> float:
        """Return 1 if the text has what the query word requires (a number, a name, a reason), else 0."""
        if patterns.NUMERIC_QUESTION.search(self.text):
            return float(bool(patterns.NUMERIC_ANSWER.search(text)))
        if patterns.NAME_QUESTION.search(self.text):
            names = (word for word in patterns.WORD.findall(text)[1:] if word[0].isupper())
            return float(any(name.casefold() not in self._words for name in names))
        if patterns.REASON_QUESTION.search(self.text):
            return float(bool(patterns.REASON_ANSWER.search(text)))
        return 0.5

    def is_covered(self, ranked: Sequence[Candidate], cosines: Sequence[float]) -> bool:
        """Return True if the candidates cover the query.

        Args:
            ranked: All candidates, best first.
            cosines: Cosines of the query and the first candidates; empty without an embedder.
        """
        if cosines:
            # Unweighted: a word in every source is the subject, and rarity would give it no weight.
            share = max(len(self.terms & (one.terms | one.before)) for one in ranked) / len(self.terms)
            return share / 2 + max(cosines) >= self._required_evidence(ranked)
        by_source: dict[int, frozenset[str]] = {}
        for one in ranked:
            by_source[one.source] = by_source.get(one.source, frozenset()) | one.terms | one.before
        return max(map(self.coverage, by_source.values())) >= _ENOUGH_COVERAGE

    def _required_evidence(self, ranked: Sequence[Candidate]) -> float:
        """Return the threshold: what a query names must be somewhere in the chunks."""
        if not patterns.ENGLISH_QUERY.search(self.text):
            return _ENOUGH_IN_OTHER_LANGUAGES
        found = frozenset[str]().union(*(one.terms | one.before for one in ranked))
        missing = [word for word in _names(self.text) if not all_terms(word) <= found]
        if any(patterns.TECHNICAL_TERM.search(word) for word in missing):
            return _ENOUGH_EVIDENCE + _MISSING_TERM
        return _ENOUGH_EVIDENCE + (_MISSING_NAME if missing else 0.0)


def _names(text: str) -> Iterator[str]:
    """Yield the words with a capital letter, but for the first one, and those with several."""
    for word in patterns.WORD.finditer(text):
        is_capitalized = word[0][0].isupper() and bool(text[: word.start()].strip())
        if word[0].casefold() not in patterns.STOP_WORDS and (
            is_capitalized or patterns.TECHNICAL_TERM.search(word[0])
        ):
            yield word[0]
