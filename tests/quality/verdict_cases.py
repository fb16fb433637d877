"""Labeled pairs of a sentence and the chunk it cites: true ones, and ones with a single fact changed.

The changes use words of their own, not the lists of the check. Everything is drawn with a fixed seed.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.rag.chunks import make_chunk
from vectorforge.llm.providers.quotations import split
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.types import CitationVerdict

SEED = 20261127
PARAPHRASES = Path(__file__).parent / "paraphrases.jsonl"

_NUMBER = re.compile(
    r"(?<![\w.,:/-])\d{1,3}(?:,\d{3})+(?![\w.,:/-])|(?<![\w.,:/-])\d+(?:\.\d+)?(?![\w:/-]|[.,]\d)"
)
_SPELLED = re.compile(r"\b(two|three|four|five|six|seven|eight|nine|ten|twelve|twenty)\b")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b(?= \d)|(?<=\d )(?:{'|'.join(_MONTHS)})\b")
_YEAR = re.compile(r"(?<![\w.,-])(?:1[5-9]|20)\d\d(?![\w-]|[.,]\d)")
_NAME = re.compile(r"(?<=[a-z,] )(?:[A-Z][a-z]{2,}|[A-Z]{2,})(?: (?:[A-Z][a-z]{2,}|[A-Z]{2,}))*(?![\w-])")
_CODE = re.compile(r"`[a-z_]{4,}`")
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|can|will|does|do|did|has|have|had|may|must|should|could|would)\b(?! not\b)(?= [a-z])"
)
_NOT = re.compile(r" not\b(?! only| just| necessarily)|(?<=\w)n't\b")
_GERMAN_AUXILIARY = re.compile(
    r"\b(ist|sind|war|waren|wird|werden|wurde|wurden|kann|können)\b(?! nicht)(?= \w)"
)
_GERMAN_NOT = re.compile(r" nicht\b(?! nur)")
_QUANTIFIERS = {
    "all": "few", "every": "no", "each": "no", "always": "never", "both": "neither", "most": "few",
    "many": "few", "some": "all", "several": "all", "few": "most", "usually": "never", "often": "never",
    "sometimes": "always", "never": "always", "at most": "at least", "at least": "at most", "no": "every",
    "up to": "at least", "any": "no", "only": "rarely",
}  # fmt: skip
_RELATIONS = {
    "before": "after", "after": "before", "more than": "less than", "less than": "more than", "more": "less",
    "less": "more", "higher": "lower", "lower": "higher", "larger": "smaller", "smaller": "larger",
    "largest": "smallest", "increased": "decreased", "increase": "decrease", "increases": "decreases",
    "decreased": "increased", "decrease": "increase", "decreases": "increases", "longer": "shorter",
    "shorter": "longer", "first": "last", "last": "first", "north": "south", "south": "north", "east": "west",
    "west": "east", "northern": "southern", "southern": "northern", "western": "eastern",
    "eastern": "western", "above": "below", "below": "above", "later": "earlier", "earlier": "later",
    "early": "late", "late": "early", "won": "lost", "lost": "won", "began": "ended", "ended": "began",
    "began to": "ceased to", "old": "new", "new": "old", "until": "after", "faster": "slower",
    "older": "younger", "best": "worst", "high": "low", "low": "high", "rejected": "accepted",
    "accepted": "rejected", "allows": "forbids", "allowed": "forbidden", "inside": "outside",
    "outside": "inside", "with": "without", "without": "with", "same": "different", "public": "private",
    "greater": "smaller", "maximum": "minimum", "minimum": "maximum", "deletes": "adds",
    "internal": "external", "external": "internal", "enabled": "disabled", "disabled": "enabled",
}  # fmt: skip
_GERMAN_RELATIONS = {
    "vor": "nach", "mehr": "weniger", "weniger": "mehr", "größer": "kleiner", "größten": "kleinsten",
    "größte": "kleinste", "höher": "niedriger", "ersten": "letzten", "erste": "letzte", "letzten": "ersten",
    "mit": "ohne", "alle": "wenige", "viele": "wenige", "immer": "nie", "früher": "später", "ohne": "mit",
    "nördlich": "südlich", "westlich": "östlich", "mindestens": "höchstens", "älteste": "jüngste",
}  # fmt: skip

Change = Callable[[random.Random, str, str, Sequence[str]], str | None]
"""Changes a sentence of a chunk, with names of other documents at hand; None if it has nothing to change."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence of an answer and the chunk it cites."""

    kind: str
    is_true: bool
    text: str
    chunk: str

    def verdict(self) -> CitationVerdict:
        """Return the verdict of the check."""
        checker = CitationChecker("", [make_chunk(self.chunk)])
        checker.feed(f"{self.text} [Source 1]\n")
        checker.finish()
        return checker.citations[0].verdict


def _replaced(text: str, match: re.Match[str], by: str) -> str:
    return text[: match.start()] + by + text[match.end() :]


def _pick(rng: random.Random, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return rng.choice(found) if found else None


def change_number(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Replace a number: half of the time by another of the chunk."""
    match = _pick(rng, _NUMBER, text) or _pick(rng, _SPELLED, text)
    if match is None or _YEAR.fullmatch(match.group()):
        return None
    old = match.group()
    if not old[0].isdigit():
        return _replaced(
            text, match, rng.choice([w for w in ("two", "three", "five", "seven", "nine") if w != old])
        )
    others = [n for n in set(_NUMBER.findall(chunk)) if n not in text and not _YEAR.fullmatch(n)]
    if others and rng.random() < 0.5:
        return _replaced(text, match, rng.choice(sorted(others)))
    plain = old.replace(",", "")
    new = (
        f"{float(plain) * 1.5:.{len(plain.partition('.')[2])}f}"
        if "." in plain
        else f"{int(plain) * 2 + 1:,}"
    )
    return None if new in chunk else _replaced(text, match, new)


def change_date(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Replace a month or a year, a year half of the time by another of the chunk."""
    if match := _pick(rng, _MONTH, text):
        return _replaced(text, match, rng.choice([month for month in _MONTHS if month != match.group()]))
    if (match := _pick(rng, _YEAR, text)) is None:
        return None
    others = sorted(set(_YEAR.findall(chunk)) - set(_YEAR.findall(text)))
    if others and rng.random() < 0.5:
        return _replaced(text, match, rng.choice(others))
    new = str(int(match.group()) + rng.choice((-11, -3, 2, 7)))
    return None if new in chunk else _replaced(text, match, new)


def change_name(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Replace a name: half of the time by another of the chunk, else by one of another document."""
    for pattern in (_CODE, _NAME):
        if match := _pick(rng, pattern, text):
            others = sorted({n for n in pattern.findall(chunk) if n not in text and match.group() not in n})
            foreign = [name for name in names if name not in chunk]
            if others and (pattern is _CODE or rng.random() < 0.5):
                return _replaced(text, match, rng.choice(others))
            if pattern is _NAME and foreign:
                return _replaced(text, match, rng.choice(foreign))
    return None


def change_negation(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Remove a "not", or add one behind an auxiliary verb."""
    if match := _pick(rng, _NOT, text):
        return _replaced(text, match, "")
    match = _pick(rng, _AUXILIARY, text)
    return _replaced(text, match, f"{match.group()} not") if match else None


def change_german_negation(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Remove a "nicht", or add one behind an auxiliary verb."""
    if match := _pick(rng, _GERMAN_NOT, text):
        return _replaced(text, match, "")
    match = _pick(rng, _GERMAN_AUXILIARY, text)
    return _replaced(text, match, f"{match.group()} nicht") if match else None


def _change_word(words: Mapping[str, str]) -> Change:
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(words, key=len, reverse=True))})\b")

    def change(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
        match = _pick(rng, pattern, text)
        return _replaced(text, match, words[match.group()]) if match else None

    return change


def swap_names(rng: random.Random, text: str, chunk: str, names: Sequence[str]) -> str | None:
    """Exchange the names or numbers on both sides of at least two other words."""
    for pattern in (_NAME, _CODE):
        found = list(pattern.finditer(text))
        for one, two in pairwise(found):
            between = text[one.end() : two.start()]
            is_list = re.fullmatch(r"[\s,]*(?:and|or|&|,)?[\s,]*(?:[a-z]+ )?", between)
            if one.group() != two.group() and not is_list and len(re.findall(r"[a-z]{2,}", between)) >= 2:
                return f"{text[: one.start()]}{two.group()}{between}{one.group()}{text[two.end() :]}"
    return None


CHANGES: Mapping[str, Change] = {
    "number": change_number,
    "date": change_date,
    "name": change_name,
    "negation": change_negation,
    "quantifier": _change_word(_QUANTIFIERS),
    "relation": _change_word(_RELATIONS),
    "swapped names": swap_names,
}
GERMAN_CHANGES: Mapping[str, Change] = {
    "number": change_number,
    "name": change_name,
    "negation": change_german_negation,
    "relation": _change_word(_GERMAN_RELATIONS),
}
_RESPELLED = [
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"\btwo\b"), "2"), (re.compile(r"\bthree\b"), "3"), (re.compile(r"\bten\b"), "10"),
    (re.compile(r"(?<=\d)%"), " percent"), (re.compile(r" percent\b"), "%"),
    (re.compile(r"\b(January|March|June|July|October) (\d{1,2}), (\d{4})"), r"\2 \1 \3"),
    (re.compile(r" \([^()]*\)"), ""),
    (re.compile(r"\bdoes not\b"), "doesn't"), (re.compile(r"\bcannot\b"), "can't"),
    (re.compile(r"\bis not\b"), "isn't"), (re.compile(r"^However, "), ""),
    (re.compile(r"^In addition, "), "Also, "),
]  # fmt: skip


def respelled(text: str) -> str:
    """Return a sentence with numbers and dates spelled otherwise, contractions and without parentheses."""
    for pattern, by in _RESPELLED:
        text = pattern.sub(by, text)
    return text[:1].upper() + text[1:]


def sentences(chunk: str) -> list[str]:
    """Return the whole sentences of a chunk, in order."""
    return [
        " ".join(piece.text.split())
        for piece in split(chunk)
        if piece.kind == "prose" and not piece.is_fragment and 40 <= len(piece.text) <= 320
    ]


def changed_cases(
    documents: Sequence[Sequence[str]], changes: Mapping[str, Change], per_kind: int
) -> Iterator[Case]:
    """Yield cases of chunks: verbatim, spelled otherwise, changed, of a wrong chunk, with added content."""
    rng = random.Random(SEED)
    chunks = [(number, chunk) for number, document in enumerate(documents) for chunk in document]
    names = sorted({name for _, chunk in chunks for name in _NAME.findall(chunk)})
    pairs = [(number, chunk, text) for number, chunk in chunks for text in sentences(chunk)]
    rng.shuffle(pairs)
    counts = dict.fromkeys([*changes, "verbatim", "respelled", "wrong chunk", "added content"], 0)

    def case(kind: str, text: str | None, chunk: str, *, is_true: bool = False) -> Iterator[Case]:
        if text is not None and counts[kind] < per_kind:
            counts[kind] += 1
            yield Case(kind, is_true, text, chunk)

    for position, (number, chunk, text) in enumerate(pairs):
        yield from case("verbatim", text, chunk, is_true=True)
        other = respelled(text)
        yield from case("respelled", other if other != text else None, chunk, is_true=True)
        for kind, change in changes.items():
            if counts[kind] < per_kind and position % 2:
                yield from case(kind, change(rng, text, chunk, names), chunk)
        if counts["wrong chunk"] < per_kind:
            same = [c for n, c in chunks if n == number and text not in sentences(c)]
            foreign = [c for n, c in chunks if n != number]
            yield from case("wrong chunk", text, rng.choice(same if same and rng.random() < 0.5 else foreign))
        if counts["added content"] < per_kind:
            added = rng.choice([t for n, _, t in rng.sample(pairs, 40) if n != number])
            yield from case("added content", f"{text.rstrip('.')}, and {added[0].lower()}{added[1:]}", chunk)


def paraphrase_cases(*sets: str) -> Iterator[Case]:
    """Yield the paraphrases written by hand, true and false, of some sets: "tuning", "unseen", "fresh"."""
    for row in map(json.loads, PARAPHRASES.read_text(encoding="utf-8").splitlines()):
        if row["set"] in sets:
            yield from (Case("paraphrase", True, text, row["passage"]) for text in row["paraphrases"])
            yield from (
                Case("false paraphrase", False, text, row["passage"]) for text in row["false_paraphrases"]
            )
