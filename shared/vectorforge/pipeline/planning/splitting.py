"""Sub-queries without a model: split two questions, comparisons and conjunctions by rules.

The query itself is searched for as well, so a part that is not a good query costs little. A part that has no
content words of its own is left out, and a query that no rule fits is not split.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from vectorforge.llm.providers.patterns import terms
from vectorforge.pipeline.step_types import MAX_SUB_QUERIES, MAX_SUB_QUERY_CHARS

_MAX_CHARS = 2_000
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
    if len(query) > _MAX_CHARS:
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
