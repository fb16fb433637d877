"""Words of texts, and how well the pieces of chunks have those of a query."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

from vectorforge.llm.providers import patterns
from vectorforge.llm.providers.quotations import Piece


@lru_cache(maxsize=16_384)  # chunks share their words; at most about 2 MB
def stem(word: str) -> str:
    """Return a lower-case word without its ending; at least three letters stay.

    Of long words without accents, which a query often leaves out.
    """
    if _in_other_script(word[0]):
        return _start(word)
    if len(word) >= patterns.START and not word.isascii():
        word = _unaccented(word)
    for suffix, replacement in patterns.SUFFIXES if word.endswith(patterns.ENDINGS) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]  # running, runs
    return word.removesuffix("e") if len(word) > 3 else word


def _in_other_script(text: str) -> bool:
    """Return True if most letters are not Latin."""
    letters = [letter for letter in text if letter.isalpha()]
    others = [letter >= "\u0370" and not "\u1e00" <= letter <= "\u1eff" for letter in letters]
    return sum(others) * 2 > len(letters)


def _start(word: str) -> str:
    """Return the start of a word of another script, which its forms have in common, without accents."""
    return patterns.PARTICLES.sub("", _unaccented(word))[: patterns.START]


def _unaccented(word: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFD", word) if not unicodedata.combining(one))


def _grams(run: str) -> Iterator[str]:
    """Yield pairs of syllables, but four letters of a script such as Thai, whose pairs are in every text."""
    size = 2 if run[0] >= patterns.FIRST_SYLLABLE else 4
    for start in range(max(1, len(run) - size + 1)):
        yield run[start : start + size]


def _acronyms(words: Iterable[str], text: str) -> Iterator[str]:
    """Yield the words that a text has in capitals."""
    for word in words:
        big = word.upper()
        if big in text and patterns.ACRONYM.fullmatch(big) and re.search(rf"(?<!\w){big}(?!\w|-\d)", text):
            yield word


def _meaningful(words: set[str], text: str) -> set[str]:
    """Return words without stop words, of which those in capitals alone count: "it" in "Call IT."."""
    has_small = not all(map(str.isupper, filter(str.isalpha, text)))
    stop_words = words & patterns.STOP_WORDS
    return words - stop_words | set(_acronyms(stop_words, text) if has_small else ())


def _folded(text: str) -> str:
    """Return the text in lower case, of full and half width in one form, without the dots of İ and ı."""
    if text.isascii():
        return text.lower()
    text = patterns.OTHER_WIDTH.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)
    return text.lower().replace("ß", "ss").replace("i\u0307", "i").replace("ı", "i")


def terms(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning; of scripts without spaces, pairs of characters."""
    if text.isascii():
        words = set(patterns.WORD.findall(text.lower()))
        return frozenset(map(stem, _meaningful(words, text)))
    words = set(patterns.MARKED_WORD.findall(_folded(text)))
    stems: set[str] = set()
    for word in _meaningful(words, text):
        if runs := patterns.UNSPACED.findall(word):
            pairs = {gram for run in runs for gram in _grams(run)}
            stems |= pairs - patterns.STOP_WORDS
            stems |= set(map(stem, set(patterns.UNSPACED.sub(" ", word).split()) - patterns.STOP_WORDS))
        else:
            stems.add(stem(word))
    return frozenset(stems)


def all_terms(text: str) -> frozenset[str]:
    """Return the terms, and identifiers, paths and versions as a whole; of settings (A_B) only the whole."""
    return terms(patterns.SETTING.sub(" ", text)) | frozenset(_exact(text))


def _exact(text: str) -> list[str]:
    """Return identifiers, paths and versions, also those that Chinese characters or Korean endings touch."""
    return patterns.EXACT.findall(patterns.UNSPACED.sub(" ", _folded(text)))


_ENOUGH_EVIDENCE = 0.67
"""Half the share of an English query's words in the best piece and before it, plus the best cosine."""
_FIRST_SOURCES = 5
"""Sources of which all pieces together count: in more of them, words of any query stand somewhere."""
_ENOUGH_WORDS = 1.2
"""The share of the letters of another query in the best piece, the one in the first sources' pieces together,
and the best coverage. Of eleven languages 0 to 5 % of the own queries are refused, of others' 38 to 89 %."""
_ENOUGH_SYLLABLES = 1.7
"""The same in Vietnamese: 2 % and 63 %; with 1.2 none and 9 %."""
_ENOUGH_THAI = 0.9
_ENOUGH_PAIRS = 0.8
"""The same in Thai and scripts like it, and in Chinese and Arabic, whose words are pairs or have prefixes."""
_PROCEDURE_SHARE = 0.75
"""Share of the query's letters in the words above a step from which all steps are quoted."""
_MISSING_TERM = 0.3
_MISSING_NAME = 0.1
"""Further evidence required by an English query with a technical term or a name that no chunk has. With these
figures 2 to 4 % of the own queries of five collections are refused, and 96 to 100 % of others' queries."""

# Tuned by hand on a public question set (SQuAD paragraphs).
_WEIGHT_RANK = 0.2
_WEIGHT_RELEVANCE = 0.7  # of 1,190 first citations 1,129 are right with 0, 1,133 or 1,134 with 0.3 to 0.7
_WEIGHT_TYPE = 0.3
_WEIGHT_BEFORE = 0.4
_WEIGHT_SUBJECT = 1.5
_WEIGHT_KEY = 0.2  # a subject that the query names, even by words that most sentences have
_WEIGHT_OPENING = 0.5
_PENALTY_SHORT = 0.1
_PENALTY_FRAGMENT = 0.1
_NAME_WORDS = 3
"""Words of a query for a definition; with longer ones fewer first citations were right."""
_NAME_CHARS = 80
"""Beginning of a sentence with what it defines."""
_SHORT = 30
"""Characters; shorter texts are rarely sentences."""


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


_KINDS = {
    "step": patterns.STEPS,
    "number": patterns.NUMERIC_QUESTION,
    "name": patterns.NAME_QUESTION,
    "reason": patterns.REASON_QUESTION,
    "definition": patterns.DEFINITION_QUESTION,
}
"""Kind of query -> its pattern; the first one that a query has counts."""


class WeightedQuery:
    """Query with the weight of each of its words among the candidates."""

    def __init__(self, text: str, among: Sequence[Candidate]) -> None:
        self.text = text
        self.terms = all_terms(text)
        self._kind = next((kind for kind, query in _KINDS.items() if query.search(text)), "")
        if self._kind == "definition" and sum(map(_word_share, self.terms)) > _NAME_WORDS:
            self._kind = ""  # "What are the two ways to ..."
        self._wants_duration = bool(patterns.DURATION_QUESTION.search(text))
        # Stems are English: forms of another language's word have their start in common.
        self.is_english = bool(patterns.ENGLISH_QUERY.search(text))
        inflected = frozenset() if self.is_english else self.terms
        self._starts = {term: term[: patterns.START] for term in inflected if len(term) >= patterns.START}
        counts = Counter(chain.from_iterable(self.matched(candidate.terms) for candidate in among))
        total = len(among)
        # BM25's inverse document frequency (https://doi.org/10.1561/1500000019), over sentences
        self._idf = {t: math.log(1 + (total - counts[t] + 0.5) / (counts[t] + 0.5)) for t in self.terms}
        # fsum, here and in coverage: the order of a set, and so sum's rounding, differs between processes
        self._mass = math.fsum(self._idf.values()) or 1.0
        parts = frozenset(map(stem, patterns.WORD.findall(" ".join(_exact(text)))))
        self._in_no_text = frozenset(term for term in self.terms - parts if not counts[term])
        """Terms that only headings may have."""
        self.keys = frozenset(term for term in self._in_no_text if any(map(str.isdigit, term)))
        """Versions, dates and codes among these."""
        self._letters = sum(map(_letters, self.terms)) or 1
        self._identifiers = frozenset(filter(patterns.IDENTIFIER.match, self.terms))
        most_words = 3 * len(self._identifiers)
        parts = frozenset(map(stem, patterns.WORD.findall(" ".join(self._identifiers)))) - self._identifiers
        if not (self.is_english or self._kind == "number"):
            words = patterns.WORD.findall(patterns.UNSPACED.sub(" ", _folded(text)))
            written = chain.from_iterable(_acronyms(words, one.piece.text) for one in among)
            acronyms = (self.terms - parts) & frozenset(map(stem, written))
            self._identifiers |= acronyms
            most_words += 2 * len(acronyms)
        self._is_short = sum(map(_word_share, self.terms - parts)) <= most_words
        self._words = {word.casefold() for word in patterns.WORD.findall(text)}

    def coverage(self, words: frozenset[str]) -> float:
        """Return the share of the query's word weight in ``words``, 0 to 1."""
        return math.fsum(map(self._idf.__getitem__, self.matched(words))) / self._mass

    def matched(self, words: frozenset[str]) -> frozenset[str]:
        """Return the query's terms that are in ``words``, in another language in any form."""
        found = self.terms & words
        if not self._starts:
            return found
        starts = {word[: patterns.START] for word in words}
        return found | {term for term, start in self._starts.items() if start in starts}

    def lexical_score(self, candidate: Candidate) -> float:
        """Score by words, rank and relevance of the source, kind of answer and completeness."""
        piece = candidate.piece
        score = self.coverage(candidate.terms)
        score += _WEIGHT_BEFORE * self.coverage(candidate.before - candidate.terms)
        score += bool(self.keys) and self.keys <= candidate.before
        score += _WEIGHT_OPENING * self.coverage(candidate.opens)
        score += _WEIGHT_RANK / (1 + candidate.source)
        score += _WEIGHT_RELEVANCE * candidate.relevance
        score += _WEIGHT_TYPE * self._answer_type(candidate)
        if candidate.subject and candidate.subject <= self.terms:
            score += _WEIGHT_KEY + _WEIGHT_SUBJECT * self.coverage(candidate.subject)
        score -= _PENALTY_SHORT * (piece.kind == "prose" and len(piece.text) < _SHORT)
        score += self._has_identifiers(candidate.terms | candidate.before)
        return score - _PENALTY_FRAGMENT * piece.is_fragment

    def _answer_type(self, candidate: Candidate) -> float:
        """Return 1 if a piece is what the query asks for (a step, a number, a name, a reason), else 0."""
        piece = candidate.piece
        if self._kind == "definition":
            return float(self._defines(candidate))
        if self._kind == "step":
            return float(piece.kind == "step")
        if self._kind == "number":
            has_number = bool(patterns.NUMERIC_ANSWER.search(piece.text))
            is_other = self._wants_duration and not patterns.DURATION_ANSWER.search(piece.text)
            return has_number * (0.5 if is_other else 1.0)
        if self._kind == "name":
            names = (word for word in patterns.WORD.findall(piece.text)[1:] if word[0].isupper())
            return float(any(name.casefold() not in self._words for name in names))
        if self._kind == "reason":
            return float(bool(patterns.REASON_ANSWER.search(piece.text)))
        return 0.5

    def _defines(self, candidate: Candidate) -> bool:
        """Return True if the query names what the piece begins with, or the heading right above it."""
        if candidate.opens and candidate.opens <= self.terms:
            return True
        text = candidate.piece.text[:_NAME_CHARS]
        verb = patterns.DEFINITION.search(text)
        name = terms(text[: verb.start()]) if verb else frozenset()
        return bool(name) and name <= self.terms

    def headings(self, piece: Piece) -> list[str]:
        """Return the headings that a quotation of the piece needs.

        These have words of the query that no text has, or a number: the version and date of a release.
        """
        wants_number = self._kind == "number"
        needs_number = piece.heading or (wants_number and not patterns.NUMERIC_ANSWER.search(piece.text))
        headings: list[str] = []
        for heading in piece.path.split(" > "):
            has_words = not self._in_no_text.isdisjoint(all_terms(heading))
            is_needed = has_words and not patterns.QUESTION.search(heading.strip("*_"))
            if is_needed or (needs_number and any(map(str.isdigit, heading))):
                headings.append(heading)
        return headings

    def needs_words(self, best: Candidate) -> bool:
        """Return True between texts of another script, any two of which are near to an English model."""
        return _in_other_script(self.text) and _in_other_script(best.piece.text)

    def is_procedure(self, best: Piece) -> bool:
        """Return True for a query about a procedure, by its words or those above the steps that it found."""
        is_above = best.kind == "step" and self._share(terms(best.heading)) >= _PROCEDURE_SHARE
        return is_above or bool(patterns.PROCEDURE.search(self.text) or patterns.STEPS.search(self.text))

    def is_covered(self, ranked: Sequence[Candidate], cosines: Sequence[float]) -> bool:
        """Return True if the candidates cover the query.

        Args:
            ranked: All candidates, best first.
            cosines: Cosines of an English query and the first candidates; empty if words alone decide.
        """
        found = [one.terms | one.before for one in ranked]
        if any(map(self._has_identifiers, found)):
            return True
        if self._is_short and self._lacks_code(frozenset().union(*found)):
            return False
        if cosines and self.is_english:
            # Unweighted: a word in every source is the subject, and rarity would give it no weight.
            share = max(len(self.terms & words) for words in found) / len(self.terms)
            return share / 2 + max(cosines) >= self._required_evidence(frozenset().union(*found))
        first = (words for words, one in zip(found, ranked, strict=True) if one.source < _FIRST_SOURCES)
        best, anywhere = max(map(self._share, found)), self._share(chain.from_iterable(first))
        return best + anywhere + max(map(self.coverage, found)) >= self._enough_words()

    def _enough_words(self) -> float:
        run = patterns.UNSPACED.search(self.text)
        if run and not patterns.KANA_OR_HANGUL.search(self.text):
            return _ENOUGH_THAI if run[0][0] < patterns.FIRST_SYLLABLE else _ENOUGH_PAIRS
        if patterns.ARABIC.search(self.text):
            return _ENOUGH_PAIRS
        return _ENOUGH_SYLLABLES if patterns.VIETNAMESE.search(self.text) else _ENOUGH_WORDS

    def _has_identifiers(self, words: frozenset[str]) -> bool:
        """Return True if the words have all identifiers of a query with few other words.

        A model knows no codes, and of "was bedeutet E05" no other word, in any language, is in its answer.
        """
        return self._is_short and self._identifiers <= words

    def _lacks_code(self, words: frozenset[str]) -> bool:
        """Return True if the words have no spelling of a code: PAY-330, "PAY 330", PAY330."""
        codes = filter(patterns.CODE.match, self._identifiers)
        return any(words.isdisjoint((one, one.replace("-", ""), one.rpartition("-")[2])) for one in codes)

    def _share(self, words: Iterable[str]) -> float:
        """Return the share of the query's letters in words that begin as one of these does.

        Stems are English; long words say more in any language.
        """
        starts = {word[: patterns.START] for word in words}
        return sum(_letters(term) for term in self.terms if term[: patterns.START] in starts) / self._letters

    def _required_evidence(self, found: frozenset[str]) -> float:
        """Return the threshold of an English query: what it names must be somewhere in the chunks."""
        missing = [word for word in names(self.text) if not all_terms(word) <= found]
        if any(patterns.TECHNICAL_TERM.search(word) for word in missing):
            return _ENOUGH_EVIDENCE + _MISSING_TERM
        return _ENOUGH_EVIDENCE + (_MISSING_NAME if missing else 0.0)


def _letters(term: str) -> float:
    """Return the length of a term; little for pairs from a Hiragana letter on, which are mostly grammar."""
    return len(term) / 4 if patterns.IN_HIRAGANA.match(term) else len(term)


def _word_share(term: str) -> float:
    """Return how much of a word a term is: groups of letters overlap."""
    return _letters(term) / len(term) / (len(term) + 1) if patterns.UNSPACED.match(term) else 1.0


def names(text: str) -> Iterator[str]:
    """Yield the words with a capital letter, but for the first one, and those with several."""
    for word in patterns.WORD.finditer(text):
        is_capitalized = word[0][0].isupper() and bool(text[: word.start()].strip())
        if word[0].casefold() not in patterns.STOP_WORDS and (
            is_capitalized or patterns.TECHNICAL_TERM.search(word[0])
        ):
            yield word[0]
