"""Words of an answer compared with those of its chunks: agreement of two sentences, and the answer's quality.

Without a model and without grammar: negations, quantifiers, opposites, names and numbers are compared where
their neighboring words are the same. This finds answers to review, and proves nothing about a single one.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.words import stem, terms
from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations.labels import replace_labels
from vectorforge.pipeline.citations.names import fold
from vectorforge.pipeline.citations.word_lists import (
    COUNTS,
    FREQUENT,
    HIDDEN_NEGATIONS,
    NEGATIONS,
    NEGATIVE_PREFIXES,
    OPPOSITES,
    ORDINALS,
    PHRASES,
    QUANTIFIERS,
    RELATIONS,
    STRONGER,
)
from vectorforge.pipeline.types import AnswerQuality, Citation

Agreement: TypeAlias = Literal["agrees", "unclear", "contradicts"]
"""Result of a comparison of what two sentences say about the words that they share."""

_TOKEN = pattern_of(r"\d+(?:[.,:/-]\d+)+|\w+(?:[.'’]\w+)*|[^\w\s]")
_PHRASE = pattern_of(rf"\b(?:{'|'.join(sorted(PHRASES, key=len, reverse=True))})\b", re.IGNORECASE)
_PARTS = pattern_of(r"[\W_]+")
_CLAUSE_ENDS = frozenset(
    ". , ; : ( ) ! ? | – — and but while whereas although because if when und aber sondern wenn weil".split()  # noqa: SIM905
)
_PRONOUNS = frozenset("nothing none nobody nichts niemand nicht".split())  # noqa: SIM905
"""Negations that apply to the word before them, too."""
_HIDDEN = frozenset(map(stem, HIDDEN_NEGATIONS))
_SIDES: dict[str, list[tuple[int, int]]] = {}
for _pair, _forms in enumerate(OPPOSITES):
    for _side in (0, 1):
        for _form in {*_forms[_side], *(stem(form) for form in _forms[_side] if len(form) >= 5)}:
            _SIDES.setdefault(_form, []).append((_pair, _side))
_SKIPPED = frozenset("a an the with der die das den dem des ein eine einen einem einer mit".split())  # noqa: SIM905
_MOST_TOKENS = 400
"""Tokens of a sentence that are compared."""
_MOST_SLOTS = 16


class Wording:
    """Words of a sentence and what they do to each other; of a very long one the first 400.

    Args:
        text: Without labels.
        known: Folded words that are names where they open the sentence, too.
    """

    def __init__(self, text: str, known: Container[str] = frozenset()) -> None:
        text = _PHRASE.sub(lambda match: PHRASES[match.group().lower()], text)
        self._known = known
        self._tokens, in_code = list[tuple[str, bool]](), False
        for found in _TOKEN.findall(text)[:_MOST_TOKENS]:
            if found == "`":
                in_code = not in_code
            else:
                self._tokens.append((found, in_code))
        self.words = [token.lower().removesuffix("'s") for token, _ in self._tokens]
        self.content = terms(text)
        self._stems = [_content(word, self.content) for word in self.words]
        self.stems = frozenset(filter(None, self._stems))

    @cached_property
    def negations(self) -> list[tuple[str, frozenset[str]]]:
        """The first word that each negation applies to, and all that it may apply to."""
        found = []
        for i, word in enumerate(self.words):
            if word in NEGATIONS and self.words[i + 1 : i + 2] not in ([","], [":"], ["."]):
                scope = self._after(i)
                before = self._before(i) if not scope or word in _PRONOUNS else []
                if scope or before:
                    found.append(((scope or before)[0], frozenset(scope + before)))
        return found

    @cached_property
    def hidden_negations(self) -> frozenset[str]:
        """Stems of words that may say the same as a negation."""
        return _HIDDEN.intersection(map(stem, self.words))

    @cached_property
    def slots(self) -> list[tuple[int, int, str, bool]]:
        """Start and end of each name and number, in tokens, its text, and True for a number."""
        found: list[tuple[int, int, str, bool]] = []
        for i, (token, _) in enumerate(self._tokens):
            is_number = token[0].isdigit() or self.words[i] in COUNTS
            if is_number:
                value = COUNTS.get(self.words[i])
                found.append((i, i + 1, self.words[i] if value is None else str(value), True))
            elif self._is_name(i):
                if found and found[-1][1] == i and not found[-1][3]:
                    start, _, text, _ = found.pop()
                    found.append((start, i + 1, f"{text} {self.words[i]}", False))
                else:
                    found.append((i, i + 1, self.words[i], False))
        return found[:_MOST_SLOTS]

    def longest_run_of(self, words: frozenset[str]) -> int:
        """Return the largest number of neighboring content words that are all among some."""
        longest = run = 0
        for word in filter(None, self._stems):
            run = run + 1 if word in words else 0
            longest = max(longest, run)
        return longest

    def context(self, start: int, end: int) -> tuple[list[str], list[str]]:
        """Return three words before a slot, nearest first, and three after it; "^" is the start."""
        before = ["^", *self.words[:start]] if start < 3 else self.words[start - 3 : start]
        return before[::-1], self.words[end : end + 3]

    @cached_property
    def gaps(self) -> dict[tuple[str, str], dict[tuple[str, str, tuple[str, ...]], None]]:
        """Negations, quantifiers and opposites between any two other words, with the words around these two.

        Articles are left out, and "with", so that "without" negates.
        """
        kept, held = ["^", "^"], list[str]()
        critical: list[tuple[str, ...]] = [(), ()]
        for word in [*self.words, "$", "$"]:
            if word in NEGATIONS or word in QUANTIFIERS or _sides(word):
                held.append(word)
            elif word not in _SKIPPED:
                kept.append(stem(word))
                critical.append(tuple(held))
                held = []
        found: dict[tuple[str, str], dict[tuple[str, str, tuple[str, ...]], None]] = {}
        for i in range(2, len(kept) - 1):
            found.setdefault((kept[i - 1], kept[i]), {})[kept[i - 2], kept[i + 1], critical[i]] = None
        return found

    @cached_property
    def between(self) -> dict[tuple[str, str], set[str]]:
        """Words between any two others."""
        found: dict[tuple[str, str], set[str]] = {}
        for (before, word), places in self.gaps.items():
            for _, after, _ in places if word in self.stems else ():
                found.setdefault((before, after), set()).add(word)
        return found

    def _is_name(self, i: int) -> bool:
        token, in_code = self._tokens[i]
        if "_" in token or (in_code and token.isalnum()):
            return True
        if not token[0].isupper() or not self._stems[i]:
            return False
        opens = i == 0 or self._tokens[i - 1][0] in '.!?:"*'
        return not opens or token[1:2].isupper() or fold(token) in self._known

    def _after(self, i: int) -> list[str]:
        """Return up to three words of the same clause after one."""
        found: list[str] = []
        for word, word_stem in zip(self.words[i + 1 : i + 15], self._stems[i + 1 : i + 15], strict=True):
            if word in _CLAUSE_ENDS or len(found) == 3:
                break
            found += [word_stem] if word_stem else []
        return found

    def _before(self, i: int) -> list[str]:
        """Return the nearest word of the same sentence before one, if there is any."""
        for j in range(i - 1, max(i - 10, -1), -1):
            if self.words[j] in ".!?":
                break
            if self._stems[j]:
                return [self._stems[j]]
        return []


NO_CONTENT = frozenset(QUANTIFIERS) | frozenset(COUNTS) | NEGATIONS | frozenset(FREQUENT)
"""Words that are compared otherwise, or not at all."""


def _sides(word: str) -> Sequence[tuple[int, int]]:
    """Return the pairs of ``OPPOSITES`` that have a word, with its side."""
    if word in _SIDES or len(word) < 5:
        return _SIDES.get(word, [])
    return _SIDES.get(stem(word), [])


def _content(word: str, content: Container[str]) -> str:
    """Return the stem of a word that carries meaning, a number or an identifier as it is, else nothing."""
    if word[0].isdigit() or "_" in word or "." in word[1:]:
        return word
    return found if (found := stem(word)) in content and word not in NO_CONTENT else ""


def compare(claim: Wording, source: Wording, chunk: Container[str]) -> Agreement:
    """Compare a sentence with the sentence of a chunk that it most likely rests on.

    Args:
        claim: Sentence of the answer.
        source: Sentence of the chunk.
        chunk: Folded words of the whole chunk.

    Returns:
        "contradicts" for an opposite, "unclear" for a difference that may be another way to say the same.
    """
    results = {
        *_compare_negations(claim, source),
        *_compare_slots(claim, source, chunk),
        *_compare_gaps(claim, source),
        *_compare_critical_words(claim, source),
    }
    return "contradicts" if "contradicts" in results else "unclear" if "unclear" in results else "agrees"


def _compare_negations(claim: Wording, source: Wording) -> Iterator[Agreement]:
    for one, other in ((claim, source), (source, claim)):
        for head, scope in one.negations:
            shared = scope & other.stems
            if not shared if one is claim else shared and head not in other.stems:
                yield "unclear"
            if not shared or (one is source and head not in other.stems):
                continue
            denied = chain.from_iterable(words for _, words in other.negations)
            prefixed = (prefix + word for prefix in NEGATIVE_PREFIXES for word in scope)
            if (shared & {head} or shared).isdisjoint(denied) and other.stems.isdisjoint(prefixed):
                hidden = other.hidden_negations - one.stems
                yield "unclear" if other.negations or hidden else "contradicts"
        for word in one.stems - other.stems:
            for base in (word.removeprefix(prefix) for prefix in NEGATIVE_PREFIXES):
                if len(base) >= 5 and base != word and base in other.stems and base not in one.stems:
                    yield "unclear" if other.negations else "contradicts"


def _compare_slots(claim: Wording, source: Wording, chunk: Container[str]) -> Iterator[Agreement]:
    for start, end, text, is_number in claim.slots:
        if text not in chunk and not all(part in chunk for part in _PARTS.split(fold(text))):
            continue  # reported as missing already
        context = claim.context(start, end)
        same = other = 0
        for at, until, filler, is_other_number in source.slots:
            if is_number == is_other_number:
                score = _shared_context(context, source.context(at, until), source)
                is_same = filler == text or f" {text} " in f" {filler} "  # the London Exhibition, London
                same, other = (max(same, score), other) if is_same else (same, max(other, score))
        if other > same and other >= 2:
            yield "contradicts"


def _compare_gaps(claim: Wording, source: Wording) -> Iterator[Agreement]:
    for key, mine in claim.gaps.items():
        for before, after, words in mine:
            theirs = [
                found for left, right, found in source.gaps.get(key, {}) if left == before or right == after
            ]
            if theirs and words not in theirs:
                is_moved = len(claim.negations) == len(source.negations)
                yield _compare_critical(words, theirs[0], is_moved=is_moved)
    for (before, word), mine in claim.gaps.items():
        for _, after, _ in mine if word in claim.stems - source.stems and word.isalpha() else ():
            if source.between.get((before, after), set()) - claim.stems:
                yield "unclear"


def _compare_critical_words(claim: Wording, source: Wording) -> Iterator[Agreement]:
    """Compare ordinals; the claim's comparatives, quantifiers and the like must be anywhere in the source."""
    theirs = {ORDINALS[word] for word in source.words if word in ORDINALS}
    if {ORDINALS[word] for word in claim.words if word in ORDINALS} - theirs:
        yield "contradicts" if theirs else "unclear"
    sides = set(chain.from_iterable(map(_sides, source.words)))
    classes = {QUANTIFIERS[word] for word in source.words if word in QUANTIFIERS}
    for word in claim.words:
        mine = () if word in RELATIONS else _sides(word)
        if mine and sides.isdisjoint(mine) and stem(word) not in source.stems:
            yield "unclear"
        if QUANTIFIERS.get(word) in ("all", "few", "most", "only") and QUANTIFIERS[word] not in classes:
            yield "unclear"


def _compare_critical(claim: Sequence[str], source: Sequence[str], *, is_moved: bool) -> Agreement:
    """Compare the negations, quantifiers and opposites in the same place of two sentences.

    If ``is_moved``, a negation may only be in another place: "sends no statement", "never sends a statement".
    """
    mine, theirs = (set(chain.from_iterable(map(_sides, words))) for words in (claim, source))
    is_opposite = any((pair, 1 - side) in theirs and (pair, side) not in theirs for pair, side in mine)
    negations = [sum(word in NEGATIONS for word in words) for words in (claim, source)]
    if is_opposite != (negations[0] % 2 != negations[1] % 2):
        return "unclear" if is_moved and not is_opposite else "contradicts"
    found = {QUANTIFIERS[word] for word in source if word in QUANTIFIERS}
    classes = {QUANTIFIERS[word] for word in claim if word in QUANTIFIERS} - found
    if any(found & STRONGER[name] for name in classes):
        return "contradicts"
    return "unclear" if classes & {"only", "few"} else "agrees"


def _shared_context(
    one: tuple[Sequence[str], Sequence[str]], other: tuple[Sequence[str], Sequence[str]], source: Wording
) -> int:
    """Return the number of equal words next to two slots, 0 if they tell nothing."""
    left, right = (_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    has_content = any(stem(word) in source.stems for word in (*one[0][:left], *one[1][:right]))
    return left + right if has_content and (left + right >= 3 or (left and right)) else 0


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


LOW_RELEVANCE = 0.3
"""Share of the answer's words in the chunks below which it is poor (D-039)."""

_WORD = pattern_of(r"[^\W_]+")
_ASCII_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
"""ASCII characters outside of ``_WORD``: splitting is ten times faster than searching for words."""
_STEM_LETTERS = 3
"""Number of first letters that a word shares with its stem."""
_IDEOGRAPHS = pattern_of(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def relevance(answer: str, chunks: Sequence[str]) -> float:
    """Return the share of the answer's distinct words in the chunks, 0 to 1; 0 for an answer without words.

    ``|answer words ∩ context words| / |answer words|`` (D-039) without labels; in Chinese, Japanese and
    Korean every two characters are a word.
    """
    return _ChunkWords(chunks).relevance(replace_labels(answer, " "))


def completeness(query: str, answer: str, chunks: Sequence[str]) -> float:
    """Return the share of the query's content words that occur in chunks and answer, 0 to 1.

    Words count by their stem (``terms``). 0 for a query without content words.
    """
    return _ChunkWords(chunks).completeness(query, replace_labels(answer, " "))


def assess(
    query: str,
    answer: str,
    chunks: Sequence[str],
    citations: Sequence[Citation] = (),
    *,
    invalid: int = 0,
    uncited: int = 0,
) -> AnswerQuality:
    """Assess an answer.

    Args:
        query: The query.
        answer: The answer with its labels.
        chunks: Texts of the chunks in the prompt.
        citations: Checked citations of the answer.
        invalid: Count of labels that name no chunk.
        uncited: Count of sentences without a citation.

    Returns:
        ``low`` is set if the relevance is below ``LOW_RELEVANCE`` or at least half of the labels are
        unsupported; an answer that declines is never low.
    """
    supported = sum(citation.verdict == "supported" for citation in citations)
    unsupported = sum(citation.verdict == "unsupported" for citation in citations)
    text, words = replace_labels(answer, " "), _ChunkWords(chunks)
    shared = words.relevance(text)
    false_labels = unsupported + invalid
    is_poorly_cited = false_labels > 0 and 2 * false_labels >= len(citations) + invalid
    return AnswerQuality(
        relevance=shared,
        completeness=words.completeness(query, text),
        supported_citations=supported,
        unsupported_citations=unsupported,
        uncited_sentences=uncited,
        low=(shared < LOW_RELEVANCE or is_poorly_cited) and not answer.strip().startswith(NO_ANSWER),
    )


class _ChunkWords:
    """Words of the chunks, read once for all figures."""

    def __init__(self, chunks: Sequence[str]) -> None:
        self._plain = _ascii_words("\n".join(chunk for chunk in chunks if chunk.isascii()))
        """Words of ASCII texts, for which ``_words`` and ``terms`` differ by the stem only."""
        self._others = [chunk for chunk in chunks if not chunk.isascii()]

    def relevance(self, answer: str) -> float:
        words = _words(answer)
        missing = words.difference(self._plain)
        for chunk in self._others if missing else ():
            missing -= _words(chunk)
        return (len(words) - len(missing)) / len(words) if words else 0.0

    def completeness(self, query: str, answer: str) -> float:
        requested = terms(query)
        given = (
            _with_stems(requested, _ascii_words(answer)) if answer.isascii() else requested & terms(answer)
        )
        missing = given - _with_stems(given, self._plain)
        for chunk in self._others if missing else ():
            missing -= terms(chunk)
        return (len(given) - len(missing)) / len(requested) if requested else 0.0


def _with_stems(wanted: frozenset[str], words: Iterable[str]) -> frozenset[str]:
    """Return the stems that some of the words have; only words that begin like a stem are stemmed."""
    if not wanted:
        return wanted
    beginnings = {stem[:_STEM_LETTERS] for stem in wanted}
    return wanted & terms(" ".join({word for word in words if word[:_STEM_LETTERS] in beginnings}))


def _ascii_words(text: str) -> list[str]:
    return text.lower().translate(_ASCII_GAPS).split()


def _words(text: str) -> set[str]:
    if text.isascii():
        return set(_ascii_words(text))
    words, found = set(_WORD.findall(fold(text))), set[str]()
    for word in words:
        runs = _IDEOGRAPHS.findall(word)
        found.update(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))
        if not runs:
            found.add(word)
    return found
