"""How well a piece of text answers a question, without a model: shared words, weighed by their rarity."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vectorforge.llm.providers.extractive.sentences import Piece
from vectorforge.llm.types import GroundingSource

_WORD = re.compile(r"[^\W_]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_STOP_WORDS = frozenset(
    """
    a about an and any are as at be been but by can could d did do does doing for from had has have he
    her him his how i if in into is it its ll many may me might more most much must my no not of off on
    or our s shall she should so some such t than that the their them then there these they this those
    to too up us was we were what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905 - a list would take a line a word
)
# Longest first; a word keeps at least three letters. Far coarser than Porter's: it only has to bring the
# forms of a question and its answer together.
_SUFFIXES = (
    ("ations", "at"), ("ation", "at"), ("ments", ""), ("ment", ""), ("ingly", ""), ("ings", ""), ("ies", "y"),
    ("ied", "y"), ("ing", ""), ("ion", ""), ("ions", ""), ("edly", ""), ("ers", ""), ("ed", ""), ("er", ""),
    ("es", ""), ("ly", ""), ("s", ""), ("e", ""),
)  # fmt: skip
_ENDINGS = tuple(suffix for suffix, _ in _SUFFIXES)

_NUMERIC_QUESTION = re.compile(
    r"\b(?:how (?:many|much|long|old|far|large|big|tall|high|often|fast)"
    r"|(?:what|which) (?:percent|percentage|number|year|date|day|month|decade|century)|when)\b",
    re.IGNORECASE,
)
_NUMERIC_ANSWER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|half|third|hundred|thousand"
    r"|million|billion|percent|century|decade|January|February|March|April|May|June|July|August|September"
    r"|October|November|December|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)\b"
)
_NAME_QUESTION = re.compile(
    r"\b(?:who|whom|whose|where"
    r"|(?:what|which) (?:city|country|state|person|team|company|school|university|name))\b",
    re.IGNORECASE,
)
_REASON_QUESTION = re.compile(r"\bwhy\b", re.IGNORECASE)
_REASON_ANSWER = re.compile(
    r"\b(?:because|since|due to|so that|caused?|causes|reasons?|in order to|therefore|as a result)\b",
    re.IGNORECASE,
)

# Tuned by hand on all of a public question set (SQuAD paragraphs).
_WEIGHT_COSINE = 2.0
_WEIGHT_RANK = 0.2
_WEIGHT_RELEVANCE = 0.5  # of 1,190 first citations 1,129 are right with 0, 1,133 or 1,134 with 0.3 to 0.7
_WEIGHT_TYPE = 0.2
_WEIGHT_BEFORE = 0.3
_PENALTY_SHORT = 0.3
_PENALTY_FRAGMENT = 0.1
_SHORT = 30
"""Characters; what is shorter is seldom a sentence."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece of a source, with its words."""

    source: int
    """Position in the list of sources, best source first."""
    piece: Piece
    terms: frozenset[str]
    before: frozenset[str]
    relevance: float = 0.0
    """Of its source, as a share of the best source's, 0 to 1; 0 where the search did not say."""


@lru_cache(maxsize=16_384)  # passages share their words; at most about 2 MB
def stem(word: str) -> str:
    """A lower-case word without its ending; at least three letters stay."""
    for suffix, replacement in _SUFFIXES if word.endswith(_ENDINGS) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]  # running, runs
    return word.removesuffix("e") if len(word) > 3 else word


def terms(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning; of Chinese, Japanese and Korean, every two characters."""
    words = set(_WORD.findall(text.lower()))
    if text.isascii():
        return frozenset(map(stem, words - _STOP_WORDS))
    found: set[str] = set()
    for word in words:
        if runs := _IDEOGRAPHS.findall(word):
            found.update(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))
        elif word not in _STOP_WORDS:
            found.add(stem(word))
    return frozenset(found)


def candidates(sources: Sequence[GroundingSource], pieces: Iterable[tuple[int, Piece]]) -> list[Candidate]:
    """Pieces with their words; one that stands in several sources counts for the best source only."""
    seen: set[str] = set()
    found: list[Candidate] = []
    shares = _relevance_shares(sources)
    for source, piece in pieces:
        key = " ".join(piece.text.split()).casefold()
        if key not in seen:
            seen.add(key)
            title = sources[source].title or ""
            before = terms(f"{title} {piece.before}")
            found.append(Candidate(source, piece, terms(piece.text), before, shares[source]))
    return found


def _relevance_shares(sources: Sequence[GroundingSource]) -> list[float]:
    """Of each source; by rank alone a far second would be as near as a close one."""
    known = [source.relevance or 0.0 for source in sources]
    best = max(known, default=0.0)
    return [max(0.0, one) / best if best > 0 else 0.0 for one in known]


class Question:
    """A question, and the weight of each of its words among the candidates."""

    def __init__(self, text: str, among: Sequence[Candidate]) -> None:
        self.text = text
        self.terms = terms(text)
        counts = Counter(term for candidate in among for term in candidate.terms & self.terms)
        total = len(among)
        # BM25's inverse document frequency (https://doi.org/10.1561/1500000019), over sentences
        self._idf = {t: math.log(1 + (total - counts[t] + 0.5) / (counts[t] + 0.5)) for t in self.terms}
        self._mass = sum(self._idf.values()) or 1.0
        self._words = {word.casefold() for word in _WORD.findall(text)}

    def coverage(self, found: frozenset[str]) -> float:
        """Share of the question's word weight that is found, 0 to 1."""
        return sum(self._idf[term] for term in self.terms & found) / self._mass

    def lexical_score(self, candidate: Candidate) -> float:
        """Score without meaning: words, rank and relevance of the source, kind of answer, completeness."""
        piece = candidate.piece
        score = self.coverage(candidate.terms)
        score += _WEIGHT_BEFORE * self.coverage(candidate.before - candidate.terms)
        score += _WEIGHT_RANK / (1 + candidate.source)
        score += _WEIGHT_RELEVANCE * candidate.relevance
        score += _WEIGHT_TYPE * self._answer_type(piece.text)
        score -= _PENALTY_SHORT * (len(piece.text) < _SHORT)
        return score - _PENALTY_FRAGMENT * piece.is_fragment

    def score(self, candidate: Candidate, cosine: float) -> float:
        """Score with the cosine of question and piece, where one is known (else 0)."""
        return self.lexical_score(candidate) + _WEIGHT_COSINE * cosine

    def _answer_type(self, text: str) -> float:
        """1 when the text holds what the question word asks for (a number, a name, a reason), 0 when not."""
        if _NUMERIC_QUESTION.search(self.text):
            return float(bool(_NUMERIC_ANSWER.search(text)))
        if _NAME_QUESTION.search(self.text):
            names = (word for word in _WORD.findall(text)[1:] if word[0].isupper())
            return float(any(name.casefold() not in self._words for name in names))
        if _REASON_QUESTION.search(self.text):
            return float(bool(_REASON_ANSWER.search(text)))
        return 0.5
