"""Verifiable claims of a sentence (numbers, dates, names) and their evidence in a chunk."""

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise
from typing import TypeAlias

from vectorforge.llm.providers.quotations import Piece, split, terms
from vectorforge.pipeline.citations import names
from vectorforge.pipeline.citations.quantities import (
    Day,
    Quantities,
    Quantity,
    numbers_of_dates,
    parts_of_group,
    read_quantities,
)
from vectorforge.types import Location, RetrievedChunk

_LIST_MARK = re.compile(
    r"^[ \t]*(?:#{1,6}\s*)?(?:\*\*)?(?:(?:step|schritt|étape|paso)\s+)?\d{1,3}[.):](?=\s|\*)",
    re.IGNORECASE | re.MULTILINE,
)
_LONGEST_SENTENCE = 20_000
"""Characters of a sentence that are read: a model may never end one."""
_NAMED_SOURCE = re.compile(r"\b(?:sources?|contexts?|passages?|documents?)\s+\d{1,3}\b", re.IGNORECASE)
_VERSION_MARK = re.compile(r"\b[vV](?=\d)")
_SHORTEST_QUOTATION = 8
"""Characters; a shorter text can occur anywhere."""
_RANGE = re.compile(r"([A-Z]+)(\d+)(?::([A-Z]+)(\d+))?")
_ANY = -1
"""Placeholder for any year or day of the month."""
_SUPERSCRIPTS = re.compile(r"[⁰¹²³⁴-⁹₀-₉]+")


@dataclass(frozen=True, slots=True)
class Address:
    """URL or e-mail address, as ``names.address`` writes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Identifier:
    """Name of code or a product, as ``names.joined`` writes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """Proper noun; its words folded, in order."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Date:
    """Date with all its readings."""

    readings: frozenset[Day]


@dataclass(frozen=True, slots=True)
class Clock:
    """Time of day."""

    hour: int
    minute: int


Claim: TypeAlias = Address | Identifier | Name | Date | Clock | Quantity


def read_claims(text: str, *, known: Container[str] = frozenset(), context: str = "") -> list[Claim]:
    """Return the claims of a sentence in no particular order; of one over 20,000 characters the first ones.

    Args:
        text: The sentence, without labels.
        known: Names that count where they open the sentence too; see ``names.KnownNames``.
        context: Text before it in the same language, which tells German better than one sentence.
    """
    if len(text) > _LONGEST_SENTENCE:
        text = "".join(text[:_LONGEST_SENTENCE].rsplit(maxsplit=1)[:1])
    text = _NAMED_SOURCE.sub(" ", _LIST_MARK.sub(" ", _plain(text)))
    addresses, text = names.take_addresses(text)
    code, text = names.take_code(text)
    identifiers, text = names.take_identifiers(text)
    quantities = read_quantities(text)
    german = names.writes_nouns_with_capitals(f"{context} {text}")
    proper = names.names(quantities.rest, known=known, noun_capitals=german)
    return [
        *map(Address, sorted(addresses)),
        *map(Identifier, sorted(code | identifiers)),
        *map(Name, proper),
        *map(Date, quantities.days),
        *(Clock(*time) for time in sorted(quantities.times)),
        *quantities.numbers,
    ]


class Evidence:
    """Chunk with its title, heading and source, read once."""

    def __init__(self, chunk: RetrievedChunk) -> None:
        parts = (chunk.document_title, chunk.chunk.heading, chunk.document_source, chunk.chunk.text)
        self._text = _plain("\n".join(part for part in parts if part))
        self._chunk = chunk.chunk.text

    def holds(self, claim: Claim) -> bool:
        """Return True if the chunk contains the claim."""
        match claim:
            case Address():
                below = tuple(claim.text + mark for mark in "/?#")
                return any(a == claim.text or a.startswith(below) for a in self._addresses)
            case Identifier():
                forms = {claim.text, f"{claim.text}s"}  # "SDKs" speaks of the SDK
                return not forms.isdisjoint(self._joined) or claim.text in self._acronyms
            case Name():
                return self._holds_name(claim)
            case Date():
                return any(self._holds_day(day) for day in claim.readings)
            case Clock():
                return (claim.hour, claim.minute) in self._quantities.times
            case Quantity():
                same_things = self._numbers.of_same_noun(claim.noun) if claim.is_count else ()
                return any(numbers.has(claim) for numbers in same_things or (self._numbers.all,))

    def find_support(self, sentence: str) -> tuple[int, int]:
        """Return the offsets in the chunk of what a sentence of the answer rests on; all of it if unclear.

        A quotation is found as it is. Else it is the one sentence of the chunk with most of its words.
        """
        quoted = sentence.strip()
        if len(quoted) >= _SHORTEST_QUOTATION and (start := self._chunk.find(quoted)) >= 0:
            return start, start + len(quoted)
        wanted = terms(sentence)
        shared = [len(wanted & words) for _, words in self._pieces]
        most = max(shared, default=0)
        if 2 * most < len(wanted) or shared.count(most) != 1:
            return 0, len(self._chunk)
        piece = self._pieces[shared.index(most)][0]
        return piece.start, piece.end

    def contradicts(self, count: Quantity) -> bool:
        """Return True if the chunk has another number of the same things, and not this one."""
        return bool(self._numbers.of_same_noun(count.noun)) and not self.holds(count)

    def _holds_name(self, name: Name) -> bool:
        if all(self._words.has_form_of(word) for word in name.words):
            return True
        return len(name.words) > 1 and "".join(word[0] for word in name.words) in self._words

    def _holds_day(self, claim: Day) -> bool:
        day = _ANY if claim.day is None else claim.day
        if claim.year is None:
            return (_ANY, claim.month, day) in self._days
        if (claim.year, claim.month, day) in self._days:
            return True
        without_year = (None, claim.month, day) in self._days
        return without_year and self.holds(Quantity(frozenset({Fraction(claim.year)})))

    @cached_property
    def _pieces(self) -> list[tuple[Piece, frozenset[str]]]:
        return [(piece, terms(piece.text)) for piece in split(self._chunk)]

    @cached_property
    def _days(self) -> set[tuple[int | None, int, int | None]]:
        """Return year, month and day of each date; also with ``_ANY`` for the year, the day or both."""
        found: set[tuple[int | None, int, int | None]] = set()
        for day in chain.from_iterable(self._quantities.days):
            found.update((year, day.month, of) for year in (day.year, _ANY) for of in (day.day, _ANY))
        return found

    @cached_property
    def _words(self) -> names.Words:
        return names.Words(names.words_of(self._text))

    @cached_property
    def _joined(self) -> set[str]:
        return names.joined_words(self._text)

    @cached_property
    def _acronyms(self) -> set[str]:
        return names.acronyms(self._text)

    @cached_property
    def _addresses(self) -> set[str]:
        return names.take_addresses(self._text)[0]

    @cached_property
    def _numbers_text(self) -> str:
        return names.take_identifiers(names.take_addresses(self._text)[1].replace("`", " "))[1]

    @cached_property
    def _quantities(self) -> Quantities:
        return read_quantities(self._numbers_text)

    @cached_property
    def _numbers(self) -> "_Numbers":
        numbers = (
            *self._quantities.numbers,
            *numbers_of_dates(self._quantities.days),
            *parts_of_group(self._numbers_text),
        )
        return _Numbers(numbers)


def locations_within(locations: Sequence[Location], start: int, end: int) -> list[Location]:
    """Return the pages, slides and cells of ``text[start:end]`` of a chunk, cut to its lines and rows.

    Without ``offsets`` the text of a location is unknown: then all are returned.
    """
    if not locations or not all("offsets" in location for location in locations):
        return list(locations)
    found: list[Location] = []
    begins = [location["offsets"][0] for location in locations]
    for location, stop in zip(locations, [*begins[1:], end], strict=True):
        parts = pairwise([*location["offsets"], stop])
        covered = [n for n, (first, last) in enumerate(parts) if first < end and last > start]
        if covered:
            found.append(_part(location, covered))
    return found or [_part(location, range(len(location["offsets"]))) for location in locations]


def _part(location: Location, parts: Sequence[int]) -> Location:
    """Return some rectangles or rows of a location, which are in the order of ``offsets``."""
    count = len(location["offsets"])
    part = {name: value for name, value in location.items() if name != "offsets"}
    if len(part.get("rects", ())) == count:
        part["rects"] = [part["rects"][n] for n in parts]
    if cells := _RANGE.fullmatch(part.get("range", "")):
        left, first, right, last = cells.groups()
        if right and int(last) - int(first) + 1 == count:
            rows = int(first) + parts[0], int(first) + parts[-1]
            is_cell = left == right and rows[0] == rows[1]
            part["range"] = f"{left}{rows[0]}" if is_cell else f"{left}{rows[0]}:{right}{rows[1]}"
    return part


class _Amounts:
    """Amounts with a look-up time that does not depend on their number."""

    def __init__(self) -> None:
        self._scaled: dict[str, set[Fraction]] = {}
        self._unitless: set[Fraction] = set()
        self._bare: set[Fraction] = set()

    def add(self, amount: Quantity) -> None:
        self._bare |= amount.bare
        if amount.kind:
            self._scaled.setdefault(amount.kind, set()).update(amount.scaled)
        else:
            self._unitless |= amount.values

    def has(self, amount: Quantity) -> bool:
        """Return True if one of them can be the same; a missing unit matches any."""
        if not amount.kind:
            return not amount.bare.isdisjoint(self._bare)
        same_kind = self._scaled.get(amount.kind, set())
        return not (amount.scaled.isdisjoint(same_kind) and amount.bare.isdisjoint(self._unitless))


class _Numbers:
    """Numbers of a chunk, and those of the same things."""

    def __init__(self, numbers: Iterable[Quantity]) -> None:
        self.all = _Amounts()
        self._by_noun: dict[str, _Amounts] = {}
        self._by_short: dict[str, _Amounts] = {}
        for number in numbers:
            self.all.add(number)
            if number.noun:
                self._by_noun.setdefault(number.noun, _Amounts()).add(number)
                for short in names.shortened(number.noun):
                    self._by_short.setdefault(short, _Amounts()).add(number)

    def of_same_noun(self, noun: str) -> list[_Amounts]:
        """Return the numbers of things named by a noun, also with another ending of up to two letters."""
        forms = (self._by_noun.get(form) for form in (noun, *names.shortened(noun)))
        return [amounts for amounts in (*forms, self._by_short.get(noun)) if amounts is not None]


def _plain(text: str) -> str:
    """Normalise what looks alike: full-width forms, dashes and the v of versions."""
    text = _SUPERSCRIPTS.sub(lambda match: f"^{match.group()}", text)
    text = unicodedata.normalize("NFKC", text)
    return _VERSION_MARK.sub("", text)
