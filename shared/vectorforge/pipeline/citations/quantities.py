"""Numbers, times and dates in a text, comparable across languages and spellings."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

from vectorforge.patterns import pattern_of
from vectorforge.pipeline.citations.word_lists import COUNTS, MAGNITUDES, MONTHS, UNITS

BLANK = "\x00"
"""Placeholder for text read already; not a word, space or punctuation."""

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_ISO = pattern_of(r"(?<![\d.-])(?P<y>\d{4})[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})(?!\d|-\d)(?:T(?=\d))?")
_NUMERIC = pattern_of(r"(?<![\d./])(?P<a>\d{1,2})(?P<sep>[./])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4})(?![\d/])")
_IDEOGRAPHIC = pattern_of(r"(?P<y>\d{4})[年년]\s?(?P<m>\d{1,2})[月월](?:\s?(?P<d>\d{1,2})[日일])?")
_DAY_FIRST = pattern_of(
    r"(?<![\d.,])(?P<d>[0-3]?\d)(?:st|nd|rd|th|er|º|\.)?\s+(?:of\s+|de\s+)?"
    rf"(?P<m>{_MONTH})\b\.?(?:,?\s+(?:de\s+)?(?P<y>\d{{4}})\b)?",
    re.IGNORECASE,
)
_MONTH_FIRST = pattern_of(
    rf"\b(?P<m>{_MONTH})\b\.?\s+(?P<d>[0-3]?\d)(?:st|nd|rd|th)?\b(?![.,:]?\d|\s?%)(?:,?\s+(?P<y>\d{{4}})\b)?",
    re.IGNORECASE,
)
_MONTH_ONLY = pattern_of(rf"\b(?P<m>{_MONTH})\b\.?(?:,?\s+(?:de\s+)?(?P<y>\d{{4}})\b)?", re.IGNORECASE)
_CLOCK = pattern_of(
    r"(?=\d)(?<![\d:.])(?:(?P<h>[01]?\d|2[0-3]):(?P<min>[0-5]\d)(?::[0-5]\d)?(?![\d:])\s?(?P<half>[ap]\.?m\b\.?)?"
    r"|(?P<h12>1[0-2]|0?[1-9])\s?(?P<half12>[ap]\.?m\b\.?))",
    re.IGNORECASE,
)
_UNSPACED = "[\u2e80-\ud7ff]"
"""Scripts without a space between a word and a number."""
_SPACE = " \u00a0\u2009\u202f"
_NUMBER = pattern_of(
    rf"(?=[\d$€£¥₹UEGCJ{_SPACE}−-])(?P<currency>US\$|[$€£¥₹]|\b(?:USD|EUR|GBP|CHF|JPY)(?=[{_SPACE}]?\d))?[{_SPACE}]?"
    rf"(?:(?<![\w.])|(?<={_UNSPACED}))(?P<sign>(?<![\w)\]{BLANK}])[-−])?"
    rf"(?P<digits>\d{{1,3}}(?:,\d{{2}})+,\d{{3}}|\d{{1,3}}(?P<sep>[,.'’_{_SPACE}])\d{{3}}(?:(?P=sep)\d{{3}})*(?:[.,]\d+)?"
    r"|\d+(?:[.,]\d+)?)(?!\d|[.,]\d)"
    rf"(?=(?:st\b|nd\b|rd\b|th\b)?[{_SPACE}-]?(?P<word>[%°€£¥$][CF]?|[^\W\d_]+\.?)?"
    rf"(?:[{_SPACE}](?P<next>[^\W\d_]+|[%€£¥$]))?)"
)
_COUNT = "|".join(sorted(COUNTS, key=len, reverse=True))
_LARGE = "hundred|thousand|million|billion"
_SPELLED = pattern_of(
    rf"(?<![\w-])(?P<words>(?:{_COUNT}|an?(?=\s(?:{_LARGE})\b))(?:(?:\s|-|\sand\s)(?:{_COUNT}|{_LARGE}))*)"
    r"(?!\w)(?:[\s-](?P<word>[^\W\d_]+))?",
    re.IGNORECASE,
)
_WORD = pattern_of(r"\w+")
_BY_MONTH = (_MONTH_FIRST, _MONTH_ONLY)
_FIRST_OF_SPELLED = {*COUNTS, "a", "an"}
_ROUNDED = pattern_of(
    r"\b(?:(?P<about>about|around|roughly|approximately|some|circa|etwa|rund|ungefähr)"
    r"|(?P<over>over|above|more than|at least|über|mehr als)"
    r"|(?P<under>nearly|almost|under|below|fewer than|less than|fast|knapp|beinahe|weniger als))\s+[$€£¥₹]?$",
    re.IGNORECASE,
)
_ROUNDING = Fraction(25, 1000)
"""Share by which a rounded number may differ."""
_SHARES = {
    "half of": 50,
    "quarter of": 25,
    "tenth of": 10,
    "hälfte der": 50,
    "viertel der": 25,
    "zehntel der": 10,
}
"""Shares in words, in percent."""
_COMMON_WORDS = ("may", "march", "mar")
_LONGEST_NUMBER = 1000
"""Longest number in digits; Python's own limit is 4,300 (``sys.get_int_max_str_digits``)."""
_COMMON_COUNT = 12
"""Largest spelled-out number that may only count the answer's points, and is not a claim on its own."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Number with every reading that its spelling allows."""

    values: frozenset[Fraction]
    """As written: "1,234" is 1234 and 1.234."""
    kind: str | None = None
    """Kind of quantity; None without a known unit."""
    factor: Fraction = Fraction(1)
    """Factor from its unit to the kind's base unit."""
    noun: str = ""
    """Following word."""
    is_count: bool = False
    """Spelled out, small and without a unit."""
    lower: Fraction = Fraction(0)
    upper: Fraction = Fraction(0)
    """Shares by which the number meant may be smaller and larger: "about 40", "over 40"."""

    @property
    def scaled(self) -> frozenset[Fraction]:
        """Return the readings in the base unit of its kind."""
        return frozenset(value * self.factor for value in self.values)

    @property
    def bare(self) -> frozenset[Fraction]:
        """Return the readings to compare with a number without a unit; percentages also as fractions of 1."""
        if self.kind == "percent":
            return self.values | {value / 100 for value in self.values}
        return self.values


@dataclass(frozen=True, slots=True)
class Day:
    """Date, or a part of one."""

    year: int | None
    month: int
    day: int | None


@dataclass(frozen=True, slots=True)
class Quantities:
    """Numbers, dates and times of a text."""

    numbers: tuple[Quantity, ...]
    days: tuple[frozenset[Day], ...]
    """Each with every reading that its spelling allows."""
    times: frozenset[tuple[int, int]]
    """Hour (0 to 23) and minute."""
    rest: str
    """Text with all these blanked; of the same length."""


def read_quantities(text: str) -> Quantities:
    """Find numbers, dates and times of day. Digits of any script count."""
    days: list[frozenset[Day]] = []
    for pattern in (_ISO, _NUMERIC, _IDEOGRAPHIC, _DAY_FIRST, _MONTH_FIRST, _MONTH_ONLY):
        matches = (
            _from_words(pattern, MONTHS.keys(), text) if pattern in _BY_MONTH else pattern.finditer(text)
        )
        for match in list(matches):
            if found := _days(match):
                days.append(found)
                text = _blanked(text, match.start(), match.end())
    times: set[tuple[int, int]] = set()
    for match in list(_CLOCK.finditer(text)):
        times.add(_time(match))
        text = _blanked(text, match.start(), match.end())
    numbers: list[Quantity] = []
    for match in list(_NUMBER.finditer(text)):
        quantity, end = _quantity(match)
        numbers.append(quantity)
        text = _blanked(text, match.start(), end)
    for match in list(_from_words(_SPELLED, _FIRST_OF_SPELLED, text)):
        if spelled := _spelled(match):
            numbers.append(spelled)
            text = _blanked(text, match.start("words"), match.end("words"))
    for phrase, share in _SHARES.items():
        if phrase in text.lower():
            numbers.append(Quantity(frozenset({Fraction(share)}), "percent"))
    return Quantities(tuple(numbers), tuple(days), frozenset(times), text)


def _from_words(
    pattern: re.Pattern[str], first_words: AbstractSet[str], text: str
) -> Iterator[re.Match[str]]:
    """Yield what ``pattern.finditer`` does, for a pattern that begins with one of many words.

    Trying each of them at each word of a text takes ten times as long.
    """
    if first_words.isdisjoint(_WORD.findall(text.casefold())):
        return
    end = 0
    for word in _WORD.finditer(text):
        if word.start() < end or word.group().casefold() not in first_words:
            continue
        if match := pattern.match(text, word.start()):
            end = match.end()
            yield match


def numbers_of_dates(days: tuple[frozenset[Day], ...]) -> Iterator[Quantity]:
    """Return years and days of dates as numbers, for texts with only these."""
    for readings in days:
        for day in readings:
            for part in (day.year, day.day):
                if part is not None:
                    yield Quantity(frozenset({Fraction(part)}))


def parts_of_group(text: str) -> Iterator[Quantity]:
    """Return neighbouring numbers that could be one with a space for thousands."""
    for match in re.finditer(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?![\d.,])", text):
        for part in match.group().split():
            yield Quantity(frozenset({Fraction(part)}))


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + BLANK * (end - start) + text[end:]


def _days(match: re.Match[str]) -> frozenset[Day]:
    named = match.groupdict()
    year = int(named["y"]) if named.get("y") else None
    if "sep" in named:
        a, b = int(named["a"]), int(named["b"])
        orders = [(b, a)] if named["sep"] == "." else [(b, a), (a, b)]
        return frozenset(Day(year, m, d) for m, d in orders if 1 <= m <= 12 and 1 <= d <= 31)
    word = named["m"]
    day = int(named["d"]) if named.get("d") else None
    if word[0].islower() and (day is None or word in _COMMON_WORDS):
        return frozenset()
    if not word.isdigit() and day is None and year is None and _opens_sentence(match):
        return frozenset()
    month = int(word) if word.isdigit() else MONTHS[word.casefold()]
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return frozenset()
    return frozenset({Day(year, month, day)})


def _opens_sentence(match: re.Match[str]) -> bool:
    before = match.string[: match.start()].rstrip()
    return not before or before[-1] in ".!?:\n"


def _time(match: re.Match[str]) -> tuple[int, int]:
    hour = int(match["h"] or match["h12"])
    half = (match["half"] or match["half12"] or "").casefold()
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    return hour, int(match["min"] or 0)


def _quantity(match: re.Match[str]) -> tuple[Quantity, int]:
    """Return the number, and its end with the unit."""
    values = _readings(match["digits"])
    word, next_word, end = match["word"] or "", match["next"] or "", match.end("digits")
    if magnitude := _magnitude(word):
        values = frozenset(value * magnitude for value in values)
        word, next_word, end = next_word, "", match.end("word")
        unit_end = match.end("next")
    else:
        unit_end = match.end("word")
    if match["sign"]:
        values = frozenset(-value for value in values)
    kind, factor = _unit(word)
    if kind:
        end = unit_end
    if match["currency"]:
        kind, factor = _unit(match["currency"])
    rounded = _ROUNDED.search(match.string, max(0, match.start() - 20), match.start("digits"))
    lower = _ROUNDING if rounded and not rounded["over"] else Fraction(0)
    upper = _ROUNDING if rounded and not rounded["under"] else Fraction(0)
    noun = word.casefold().rstrip(".")
    return Quantity(values, kind, factor, noun, lower=lower, upper=upper), end


def _readings(digits: str) -> frozenset[Fraction]:
    """Return the readings of digits: "1,234" is 1234 or 1.234, "1,234.5" one number; very long ones none."""
    for space in _SPACE + "'’_":
        digits = digits.replace(space, "")
    if len(digits) > _LONGEST_NUMBER:
        return frozenset()
    separators = [char for char in digits if char in ",."]
    if not separators:
        return frozenset({Fraction(digits)})
    last = separators[-1]
    whole, _, decimals = digits.rpartition(last)
    joined = Fraction(digits.replace(",", "").replace(".", ""))
    as_decimal = Fraction(f"{whole.replace(',', '').replace('.', '')}.{decimals}")
    if separators.count(last) > 1:
        return frozenset({joined})
    if len(separators) == 1 and len(decimals) == 3 and len(whole) <= 3 and whole != "0":
        return frozenset({joined, as_decimal})
    return frozenset({as_decimal})


def _magnitude(word: str) -> int | None:
    word = word.rstrip(".")
    return MAGNITUDES.get(word) or (MAGNITUDES.get(word.casefold()) if len(word) > 1 else None)


def _unit(word: str) -> tuple[str | None, Fraction]:
    word = word.rstrip(".")
    found = UNITS.get(word) or (UNITS.get(word.casefold()) if len(word) > 1 else None)
    if not found and re.match(_UNSPACED, word):
        found = UNITS.get(word[:2]) or UNITS.get(word[:1])
    return (found[0], Fraction(found[1])) if found else (None, Fraction(1))


def _spelled(match: re.Match[str]) -> Quantity | None:
    total = current = 0
    for word in re.split(r"[\s-]+", match["words"].casefold()):
        if word in ("and", "a", "an"):
            continue
        if word == "hundred":
            current = (current or 1) * 100
        elif word in MAGNITUDES:
            total += (current or 1) * MAGNITUDES[word]
            current = 0
        else:
            current += COUNTS[word]
    value = total + current
    noun = match["word"] or ""
    kind, factor = _unit(noun)
    if value == 1 and kind is None:
        return None  # "one of them"
    is_count = kind is None and value <= _COMMON_COUNT
    return Quantity(frozenset({Fraction(value)}), kind, factor, noun.casefold(), is_count)
