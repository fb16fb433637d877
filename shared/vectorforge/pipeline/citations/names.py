"""Names in a text: proper nouns, identifiers, code, addresses; found by spelling, in any language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from itertools import accumulate, chain

from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations.quantities import BLANK
from vectorforge.pipeline.citations.word_lists import FREQUENT, PLACES, UNITS

# Possessive, and from the beginning of a word only: long runs of letters without an @ are read once, not once
# from each of their letters (an answer of 60,000 took minutes).
_ADDRESS = pattern_of(
    r"(?:https?://|www\.)[^\s<>()\[\]\"'`\x00]+|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
_CODE = pattern_of(r"```[^\n`]*\n(?P<block>.*?)(?:```|\Z)|`(?P<span>[^`\n]+)`", re.DOTALL)
_IDENTIFIER = pattern_of(
    r"(?<![\w.])(?!\d{1,2}\.\d{1,2}\.\d{4}\b|\d{1,3}(?:\.\d{3})+\b(?!\.\d))"  # no date, no thousands
    r"\d+(?:\.\d+){2,}(?!\w)"  # 3.11.2
    r"|(?<![\w<])--[A-Za-z][\w-]*"  # --dry-run
    r"|(?<![\w/<])/[A-Za-z][\w.{}-]*(?:/[\w.{}-]+)+"  # /etc/hosts
    r"|(?<![\w.])(?:"
    r"[A-Za-z]\w*_\w+(?:\.\w+)*"  # snake_case
    r"|[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w+)+"  # dotted.name, Name::part
    r"|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+"  # camelCase, CamelCase
    r"|(?=[a-z]*[A-Z])[A-Za-z]++-?\d(?:[\w.-]*\w)?|[a-z]+\d\w*"  # GPT-4, S3, x86
    r"|[A-Z]{2,}(?:s\b)?(?![\w$])"  # AWS, APIs
    r")"
)
_TOKEN = pattern_of(r"\d+(?:\.\d+)+|[^\W_]+")
_LETTERS = pattern_of(r"[^\W\d_]+")
_WORD = pattern_of(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_LEADING = pattern_of(r"[\s*_\"'“”‘’„«»(\[{|>#•–—-]*$")
_NO_ACRONYMS = frozenset(
    "not no all and or only must never always yes ok any both may can do is are the true false am pm".split()  # noqa: SIM905
)
_NO_NAMES = frozenset("the a an der die das ein eine le la les un une el los las i".split())  # noqa: SIM905
_LONGEST_OPENING = 200
"""Characters before a word that show whether it opens a sentence."""
_LONGEST_ACRONYM = 10
"""Letters."""
_SHORTEST_STEM = 4
"""Letters before an ending."""
_JOINED = 6
"""Largest number of words that form one identifier."""


def fold(text: str) -> str:
    """Return the text in lower case without accents."""
    if text.isascii():  # the common case, and much quicker
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    marks = [char for char in set(decomposed) if unicodedata.combining(char)]
    return decomposed.translate(dict.fromkeys(map(ord, marks))) if marks else decomposed


def joined(identifier: str) -> str:
    """Return an identifier without case and separators: ``max_retries`` and ``maxRetries`` are the same."""
    return "".join(_TOKEN.findall(fold(identifier)))


def address(text: str) -> str:
    """Return an address without scheme and closing punctuation."""
    bare = re.sub(r"^(?:https?://)?(?:www\.)?", "", text.casefold())
    return bare.rstrip(".,;:!?*_/")


def take_addresses(text: str) -> tuple[set[str], str]:
    """Return the addresses, and the text with them blanked."""
    if "@" not in text and "://" not in text and "www." not in text.lower():
        return set(), text
    found = {address(match.group()) for match in _ADDRESS.finditer(text)}
    return found, _blank(_ADDRESS, text)


def take_code(text: str) -> tuple[set[str], str]:
    """Return words and numbers of code spans and blocks, and the text with them blanked."""
    found: set[str] = set()
    for match in _CODE.finditer(text):
        found.update(_TOKEN.findall(fold(match["block"] or match["span"] or "")))
    return found, _blank(_CODE, text)


def take_identifiers(text: str) -> tuple[set[str], str]:
    """Return identifiers as ``joined`` writes them, without units, and the text with them blanked."""
    found: set[str] = set()

    def blanked(match: re.Match[str]) -> str:
        word = match.group()
        if word in UNITS or word.casefold() in UNITS or word.casefold() in _NO_ACRONYMS:
            return word
        found.add(joined(word.removesuffix("s") if word[:-1].isupper() else word))
        return BLANK * len(word)

    return found, _IDENTIFIER.sub(blanked, text)


def names(text: str, *, known: Container[str], noun_capitals: bool) -> list[tuple[str, ...]]:
    """Return proper nouns, neighbors together, each word folded.

    Args:
        text: What is left when code, addresses, identifiers and numbers are taken.
        known: Folded words that are names also where they open a sentence.
        noun_capitals: Whether the language writes every noun with a capital; then only neighbors are names.
    """
    found = []
    for run in _runs(text):
        words = [word for word, opens in run if not opens or fold(word) in known]
        if len(words) < (2 if noun_capitals else 1):
            continue
        parts = chain.from_iterable(_parts(word) for word in words)
        if proper := tuple(part for part in parts if part not in _NO_NAMES):
            found.append(proper)
    return found


class KnownNames:
    """Words that texts capitalize within a sentence, and everywhere; only the lines with a word are read.

    Args:
        texts: May be long; most words are in few of their lines.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self._found: dict[str, bool] = {}
        self._spellings: dict[str, tuple[set[str], set[str]]] = {}

    def __contains__(self, word: object) -> bool:
        if not isinstance(word, str):
            return False
        if word not in self._found:
            lines = [self._read(line) for folded, line in self._lines if word in folded]
            is_small = any(word in small for _, small in lines)
            self._found[word] = not is_small and any(word in capital for capital, _ in lines)
        return self._found[word]

    def _read(self, line: str) -> tuple[set[str], set[str]]:
        if line not in self._spellings:
            self._spellings[line] = _capital_and_small(line)
        return self._spellings[line]

    @cached_property
    def _lines(self) -> list[tuple[str, str]]:
        # line by line: one of combining marks folds to nothing
        return [(fold(line), line) for text in self._texts for line in text.splitlines()]


def _capital_and_small(line: str) -> tuple[set[str], set[str]]:
    """Return the words that a line capitalizes within a sentence, and those that it does not capitalize."""
    small = {fold(word) for word in _WORD.findall(line) if word[0].islower()}
    is_title = line.lstrip().startswith("#") or not re.search(r"[.!?。]", line)
    if is_title or writes_nouns_with_capitals(line):
        return set(), small
    inside = [word for run in _runs(line) for word, opens in run if not opens]
    return {part for word in inside for part in _parts(word)}, small


def acronyms(text: str) -> set[str]:
    """Return the acronyms of neighbouring capitalised words."""
    found: set[str] = set()
    for run in _runs(text):
        initials = "".join(fold(word)[:1] for word, _ in run)
        found.update(
            initials[i:j]
            for i in range(len(initials))
            for j in range(i + 2, min(i + _LONGEST_ACRONYM, len(initials)) + 1)
        )
    return found


def words_of(text: str) -> set[str]:
    """Return folded words and numbers of a text; of mixed ones like ``2FA`` also the letters."""
    tokens = _TOKEN.findall(fold(text))
    mixed = (token for token in tokens if not token.isalpha())
    return {*tokens, *(run for token in mixed for run in _LETTERS.findall(token))}


class JoinedWords:
    """Up to six neighboring words of a text written as one, for the look-up of ``joined`` identifiers."""

    def __init__(self, text: str) -> None:
        tokens = _TOKEN.findall(fold(text))
        self._letters = "".join(tokens)
        self._bounds = {
            offset: number for number, offset in enumerate(accumulate(map(len, tokens), initial=0))
        }
        """Offset in the letters -> number of the word that begins there."""

    def __contains__(self, identifier: str) -> bool:
        start = self._letters.find(identifier)
        while start >= 0:
            first, last = self._bounds.get(start), self._bounds.get(start + len(identifier))
            if first is not None and last is not None and first < last <= first + _JOINED:
                return True
            start = self._letters.find(identifier, start + 1)
        return False


_PEOPLE = ("n", "ns", "an", "ans", "ian", "ians", "ese", "ish")
"""Endings of people after the name of their place, or after this without its last letter."""


class Words:
    """Words of a text, looked up in this form or with another ending of at most two letters.

    Args:
        words: Folded.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._shortened = {word[:-1] for word in self._words if len(word) > _SHORTEST_STEM}
        self._shortened |= {word[:-2] for word in self._words if len(word) > _SHORTEST_STEM + 1}

    def __contains__(self, name: object) -> bool:
        return name in self._words

    def has_form_of(self, name: str) -> bool:
        """Return True if the word occurs, in a time that does not depend on the number of words."""
        if name in self._words or name in self._shortened:
            return True
        return any(short in self._words for short in shortened(name))

    def has_people_or_place(self, name: str) -> bool:
        """Return True if the place of some people occurs, or the people of a place: Paris and Parisians."""
        if not PLACES.get(name, frozenset()).isdisjoint(self._words):
            return True
        place = name.removesuffix("s").removesuffix("an").removesuffix("ese").removesuffix("i")
        if place != name and len(place) >= _SHORTEST_STEM and (place in self or place in self._shortened):
            return True
        stems = (name, *shortened(name)[:1])
        return any(one + ending in self._words for one in stems for ending in _PEOPLE)


def shortened(word: str) -> tuple[str, ...]:
    """Return a folded word without its last letter and its last two, if four letters are left."""
    return tuple(word[:-cut] for cut in (1, 2) if len(word) - cut >= _SHORTEST_STEM)


def language_of(text: str) -> str | None:
    """Return the language of a text or the name of its script, if it is not Latin; None if unknown."""
    if not text.isascii():
        letters = _LETTERS.findall(text)
        others = [run for run in letters if run[0] > "\u024f"]
        if 2 * sum(map(len, others)) > sum(map(len, letters)):
            return unicodedata.name(others[0][0], "").partition(" ")[0]
    words = _WORD.findall(text.casefold())
    counts = Counter(FREQUENT[word] for word in words if word in FREQUENT).most_common(2)
    return (
        counts[0][0]
        if counts and counts[0][1] >= 2 and counts[0][1] > counts[-1][1] * (len(counts) - 1)
        else None
    )


def writes_nouns_with_capitals(text: str) -> bool:
    """Return True if the text looks like German."""
    return language_of(text) == "german"


def _runs(text: str) -> Iterator[list[tuple[str, bool]]]:
    """Return neighbouring capitalised words, each with True if it opens a sentence."""
    run: list[tuple[str, bool]] = []
    end = -1
    for match in _WORD.finditer(text):
        word = match.group()
        if not (word[0].isupper() and len(word) > 1 and not word.isupper()):
            continue
        if run and text[end : match.start()] != " ":
            yield run
            run = []
        run.append((word, _opens_sentence(text, match.start())))
        end = match.end()
    if run:
        yield run


def _opens_sentence(text: str, start: int) -> bool:
    begin = max(0, start - _LONGEST_OPENING)
    line = text[max(begin, text.rfind("\n", begin, start) + 1) : start]
    before = line[: leading.start()] if (leading := _LEADING.search(line)) else line
    return not before or before[-1] in ".!?…:;。！？：" or re.fullmatch(r"\s*\d+[.)]", before) is not None


def _parts(word: str) -> Iterator[str]:
    """Return capitalised parts of a compound, without a possessive."""
    for part in re.split(r"[-'’]", word):
        if len(part) > 1 and part[0].isupper():
            yield fold(part)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: BLANK * len(match.group()), text)
