"""Verifiable claims of a sentence (numbers, dates, names, words) and their evidence in a chunk."""

import re
import unicodedata
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import TypeAlias

from vectorforge.llm.providers.quotations import Piece, split
from vectorforge.llm.providers.words import terms
from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations import names
from vectorforge.pipeline.citations.quantities import (
    Day,
    Quantities,
    Quantity,
    numbers_of_dates,
    parts_of_group,
    read_quantities,
)
from vectorforge.pipeline.citations.wording import NO_CONTENT, Agreement, Wording, compare
from vectorforge.types import Location, RetrievedChunk

_LIST_MARK = pattern_of(
    r"^[ \t]*(?:#{1,6}\s*)?(?:\*\*)?(?:(?:step|schritt|étape|paso)\s+)?\d{1,3}[.):](?=\s|\*)",
    re.IGNORECASE | re.MULTILINE,
)
_LONGEST_SENTENCE = 20_000
"""Characters of a sentence that are read: a model may never end one."""
_NAMED_SOURCE = pattern_of(r"\b(?:sources?|contexts?|passages?|documents?)\s+\d{1,3}\b", re.IGNORECASE)
_VERSION_MARK = pattern_of(r"\b[vV](?=\d)")
_CONTRACTION = pattern_of(r"n't\b")
_SHORTEST_QUOTATION = 8
"""Characters; a shorter text can occur anywhere."""
_MOST_PLACES = 20
"""Places of a repeated sentence that are compared."""
_RANGE = pattern_of(r"([A-Z]+)(\d+)(?::([A-Z]+)(\d+))?")
_NEARLY = 0.75
_ENOUGH_ADDED = 2
"""Words that a second sentence of a chunk must add to the first to be compared, too."""
_ANY = -1
"""Placeholder for any year or day of the month."""
_SUPERSCRIPTS = pattern_of(r"[⁰¹²³⁴-⁹₀-₉]+")


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Words of a sentence compared with those of a chunk."""

    words: frozenset[str]
    """Content words of the sentence, as ``terms`` writes them."""
    found: frozenset[str]
    """Those that the chunk contains, also with another ending."""
    near: frozenset[str]
    """Those that the one or two sentences of the chunk contain that share most words with it."""
    agreement: Agreement
    """Result of the comparison of these sentences with it; "unclear" in another language."""
    has_other_names: bool
    """True if these sentences contain a name that it does not."""


def read_claims(text: str, *, known: Container[str] = frozenset(), context: str = "") -> list[Claim]:
    """Return the claims of a sentence in no particular order; of one over 20,000 characters the first ones.

    Args:
        text: The sentence, without labels.
        known: Names that count where they open the sentence too; see ``names.KnownNames``.
        context: Text before it in the same language, which tells German better than one sentence.
    """
    if len(text) > _LONGEST_SENTENCE:
        text = "".join(text[:_LONGEST_SENTENCE].rsplit(maxsplit=1)[:1])
    text = _NAMED_SOURCE.sub(" ", _LIST_MARK.sub(" ", plain(text)))
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
    """Chunk with its title, heading and source, read once.

    Args:
        chunk: The chunk.
        known: Folded words that are names where they open a sentence, too.
    """

    def __init__(self, chunk: RetrievedChunk, known: Container[str] = frozenset()) -> None:
        above = (chunk.document_title, chunk.chunk.heading, chunk.document_source)
        self._above = "\n".join(part for part in above if part)
        self._text = plain(f"{self._above}\n{chunk.chunk.text}")
        self._chunk = chunk.chunk.text
        self._locations = chunk.chunk.locations
        self._in_one_line = " ".join(self._chunk.split())
        self._known = known
        self._windows: dict[tuple[int, ...], Wording] = {}
        self._compared: tuple[frozenset[str], list[frozenset[str]]] = frozenset(), []

    def holds(self, claim: Claim) -> bool:
        """Return True if the chunk contains the claim."""
        match claim:
            case Address():
                below = tuple(claim.text + mark for mark in "/?#")
                return any(a == claim.text or a.startswith(below) for a in self._addresses)
            case Identifier():
                forms = {claim.text, f"{claim.text}s"}  # "SDKs" speaks of the SDK
                if any(form in self._joined for form in forms):
                    return True
                return claim.text.isalpha() and claim.text in self._acronyms  # costly, and of letters only
            case Name():
                return self._holds_name(claim)
            case Date():
                return any(self._holds_day(day) for day in claim.readings)
            case Clock():
                return (claim.hour, claim.minute) in self._quantities.times
            case Quantity():
                same_things = self._numbers.of_same_noun(claim.noun) if claim.is_count else ()
                return any(numbers.has(claim) for numbers in same_things or (self._numbers.all,))

    def compare(self, sentence: str, claim: Wording) -> Comparison:
        """Compare a sentence of the answer, without labels, and its words with those of the chunk."""
        wanted = frozenset(word for word in claim.content if word.isalpha() and word not in NO_CONTENT)
        found = _found(wanted, self._terms)
        quoted = sentence.strip()
        if len(quoted) >= _SHORTEST_QUOTATION and quoted in self._chunk:
            return Comparison(wanted, found, found, "agrees", has_other_names=False)
        source = self._window(sentence)
        near = _found(wanted, names.Words(source.content | self._header))
        others = {text for _, _, text, is_number in source.slots if not is_number}
        has_others = not others.issubset(text for _, _, text, _ in claim.slots)
        agreement = compare(claim, source, self._words)
        if agreement == "contradicts" and self._agrees_elsewhere(sentence, claim):
            agreement = "unclear"
        return Comparison(wanted, found, near, agreement, has_others)

    def _agrees_elsewhere(self, sentence: str, claim: Wording) -> bool:
        """Return True if a sentence with nearly as many of the claim's words does not contradict it."""
        shared = self._shared(terms(sentence))
        most = max(map(len, shared), default=0)
        near = [i for i, words in enumerate(shared) if len(words) >= max(2, _NEARLY * most)]
        texts = (self._pieces[i][0].text for i in near) if len(near) > 1 else ()
        return any(
            compare(claim, Wording(plain(t), self._known), self._words) != "contradicts" for t in texts
        )

    def find_support(self, sentence: str, near: frozenset[str] = frozenset()) -> tuple[int, int]:
        """Return the offsets in the chunk of what a sentence of the answer rests on; all of it if unclear.

        A quotation is found as it is, of several places where the heading has most words of ``near``. Else it
        is the one sentence of the chunk with most of its words.
        """
        if places := self._quotations(sentence):
            return max(places, key=lambda place: len(near & self._headings(*place))) if near else places[0]
        wanted = terms(sentence)
        shared = [len(words) for words in self._shared(wanted)]
        most = max(shared, default=0)
        if 2 * most < len(wanted) or shared.count(most) != 1:
            return 0, len(self._chunk)
        piece = self._pieces[shared.index(most)][0]
        return piece.start, piece.end

    def is_quoted(self, sentence: str) -> bool:
        """Return True if the chunk has a sentence word for word."""
        return bool(self._quotations(sentence))

    def _quotations(self, sentence: str) -> list[tuple[int, int]]:
        """Return the offsets of a sentence that the chunk has word for word; at most 20 places."""
        quoted = sentence.strip()
        if len(quoted) >= _SHORTEST_QUOTATION and " ".join(quoted.split()) in self._in_one_line:
            found = re.finditer(r"\s+".join(map(re.escape, quoted.split())), self._chunk)
            if places := [match.span() for match in islice(found, _MOST_PLACES)]:
                return places
        places = []
        for piece, _ in self._pieces:
            is_whole = quoted in (piece.text, piece.text.partition(" ")[2])  # without its markup or number
            if is_whole or (len(quoted) >= _SHORTEST_QUOTATION and quoted in piece.text):  # a part of a row
                places.append((piece.start, piece.end))
        return places[:_MOST_PLACES]

    def _headings(self, start: int, end: int) -> frozenset[str]:
        """Return the words of the headings above a part of the chunk."""
        found = locations_within(self._locations, start, end)
        return terms(" ".join(location.get("heading", "") for location in found))

    def has_another(self, claim: Claim) -> bool:
        """Return True if the chunk has another date, time or number with such a unit, in any language."""
        match claim:
            case Date():
                return bool(self._quantities.days)
            case Clock():
                return bool(self._quantities.times)
            case Quantity():
                return self._numbers.all.has_kind(claim.kind)
        return False

    def contradicts(self, count: Quantity) -> bool:
        """Return True if the chunk has another number of the same things, and not this one."""
        return bool(self._numbers.of_same_noun(count.noun)) and not self.holds(count)

    def _shared(self, wanted: frozenset[str]) -> list[frozenset[str]]:
        """Return the words that each sentence of the chunk shares with some."""
        if wanted != self._compared[0]:
            self._compared = wanted, [wanted & words for _, words in self._pieces]
        return self._compared[1]

    def _window(self, sentence: str) -> Wording:
        """Return the sentence of the chunk that shares most words, with the one that adds most to it."""
        shared = self._shared(terms(sentence))
        best = max(range(len(shared)), key=lambda i: len(shared[i]), default=0)
        added = [len(words - shared[best]) for words in shared]
        second = max(range(len(shared)), key=added.__getitem__, default=0)
        picked = sorted({best, second} if shared and added[second] >= _ENOUGH_ADDED else {best})
        if tuple(picked) not in self._windows:
            texts = [self._pieces[i][0].text for i in picked] if shared else [self._chunk]
            self._windows[tuple(picked)] = Wording(plain(". ".join(texts)), self._known)
        return self._windows[tuple(picked)]

    def _holds_name(self, name: Name) -> bool:
        if all(self._words.has_form_of(w) or self._words.has_people_or_place(w) for w in name.words):
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
    def language(self) -> str | None:
        """See ``names.language_of``."""
        return names.language_of(self._chunk)

    @cached_property
    def _header(self) -> frozenset[str]:
        return terms(self._above)

    @cached_property
    def _terms(self) -> names.Words:
        return names.Words(terms(self._text))

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
    def _joined(self) -> names.JoinedWords:
        return names.JoinedWords(self._text)

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
    """Amounts; the look-up time depends on their number for rounded ones only."""

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

    def has_kind(self, kind: str | None) -> bool:
        """Return True for a number with a unit of this kind."""
        return kind in self._scaled

    def has(self, amount: Quantity) -> bool:
        """Return True if one of them can be the same; a missing unit matches any."""
        if not amount.kind:
            return _has_any(self._bare, amount.bare, amount)
        same_kind = self._scaled.get(amount.kind, set())
        return _has_any(same_kind, amount.scaled, amount) or _has_any(self._unitless, amount.bare, amount)


def _has_any(numbers: Collection[Fraction], wanted: frozenset[Fraction], amount: Quantity) -> bool:
    if not wanted.isdisjoint(numbers) or not (amount.lower or amount.upper):
        return not wanted.isdisjoint(numbers)
    ranges = [(value * (1 - amount.lower), value * (1 + amount.upper)) for value in wanted]
    return any(low <= number <= high for number in numbers for low, high in ranges)


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


def _found(wanted: frozenset[str], words: names.Words) -> frozenset[str]:
    return frozenset(word for word in wanted if words.has_form_of(word))


def plain(text: str) -> str:
    """Normalise what looks alike: full-width forms, dashes, the v of versions, "n't"."""
    text = _SUPERSCRIPTS.sub(lambda match: f"^{match.group()}", text)
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    text = _VERSION_MARK.sub("", text)
    return _CONTRACTION.sub(" not", text.replace("can't", "can not")) if "'t" in text else text
