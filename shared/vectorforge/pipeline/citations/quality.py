"""Answer quality without a model: words shared with the chunks, supported citations.

Heuristics: they find answers to review, and prove nothing about a single one.
"""

import re
from collections.abc import Iterable, Sequence

from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.quotations import terms
from vectorforge.pipeline.citations.labels import replace_labels
from vectorforge.pipeline.citations.names import fold
from vectorforge.pipeline.types import AnswerQuality, Citation

LOW_RELEVANCE = 0.3
"""Share of the answer's words in the chunks below which it is poor (D-039)."""

_WORD = re.compile(r"[^\W_]+")
_ASCII_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
"""ASCII characters outside of ``_WORD``: splitting is ten times faster than searching for words."""
_STEM_LETTERS = 3
"""Number of first letters that a word shares with its stem."""
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


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
    query: str, answer: str, chunks: Sequence[str], citations: Sequence[Citation] = (), invalid: int = 0
) -> AnswerQuality:
    """Assess an answer.

    Args:
        query: The query.
        answer: The answer with its labels.
        chunks: Texts of the chunks in the prompt.
        citations: Checked citations of the answer.
        invalid: Count of labels that name no chunk.

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
