"""Generated documents with the text, tables and facts that a reader should find; filler is invented."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_NAMES = (
    "Aldervale", "Borrowick", "Calderfell", "Dunmarrow", "Elsingby", "Fenwither", "Garrowmere",
    "Hollinbeck", "Istrafell", "Jorvendale", "Kestwick", "Lindermoor", "Marrowgate", "Nethersby",
    "Ostrander", "Pellworth", "Quarrington", "Ravensholm", "Silverdale", "Thornbury", "Umberleigh",
    "Venloway", "Wexcombe", "Yarrowfield", "Zellbridge", "Ambersett", "Brackenford", "Corriedale",
    "Drumlanrig", "Eskmouth", "Farnborough", "Glaisdale", "Hathersage", "Inverallan", "Kirkstall",
    "Lanercost", "Mossdale", "Norham", "Oakhampton", "Penrose",
)  # fmt: skip
_KINDS = (
    ("reservoir", "water level", "metres"),
    ("bakery", "oven temperature", "degrees"),
    ("museum", "ticket price", "crowns"),
    ("library", "number of manuscripts", "volumes"),
    ("lighthouse", "beam range", "miles"),
    ("orchard", "yearly harvest", "tonnes"),
)
_WORDS = (
    "committee", "review", "schedule", "material", "regional", "service", "annual", "budget", "project",
    "measure", "supply", "report", "transport", "building", "storage", "planning", "repair", "survey",
    "meeting", "office", "general", "public", "notice", "record", "safety", "training", "quality",
    "contract", "partner", "season", "morning", "district", "council", "archive", "equipment",
    "delivery", "workshop", "garden", "harbour", "station",
)  # fmt: skip


_CONSONANTS = "bcdfgklmnprstvz"


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted fact."""

    question: str
    answer: str
    """Text that an answer must have."""
    place: Mapping[str, Any]
    """Fields that a location of the cited chunk must have."""


@dataclass(frozen=True, slots=True)
class Made:
    """A generated document."""

    source: str
    content: bytes
    text: Sequence[str] = ()
    """Paragraphs and list items, in reading order."""
    headings: Sequence[str] = ()
    tables: Sequence[Sequence[Sequence[str]]] = ()
    """Rows of cells; the first row is the header."""
    absent: Sequence[str] = ()
    """Texts that must not be read, such as running heads."""
    facts: Sequence[Fact] = field(default=())


class Writer:
    """Invents text, tables and facts; equal seeds give equal ones.

    Args:
        seed: A number per document, so that facts differ between documents.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = iter(self._random.sample(_NAMES, len(_NAMES)))
        self._seed = seed
        self._stations: set[str] = set()

    def sentence(self) -> str:
        """Return a sentence of 12 to 18 words."""
        words = [self._random.choice(_WORDS) for _ in range(self._random.randint(12, 18))]
        return " ".join(words).capitalize() + "."

    def paragraph(self, sentences: int = 5) -> str:
        """Return filler."""
        return " ".join(self.sentence() for _ in range(sentences))

    def heading(self, number: int) -> str:
        """Return a heading."""
        words = self._random.sample(_WORDS, 3)
        return f"{number}. {' '.join(words).title()}"

    def fact(self, place: Mapping[str, Any]) -> tuple[str, Fact]:
        """Return a sentence with an invented fact, and the fact."""
        name = f"{next(self._names)}{chr(97 + self._seed % 26)}"
        kind, measure, unit = self._random.choice(_KINDS)
        value = f"{self._random.randint(101, 989)} {unit}"
        return (
            f"The {measure} of the {name} {kind} is {value}.",
            Fact(f"What is the {measure} of the {name} {kind}?", value, place),
        )

    def _station(self) -> str:
        """Return an invented name that no other row has."""
        while True:
            syllables = (self._random.choice(_CONSONANTS) + self._random.choice("aeiou") for _ in range(4))
            name = "".join(syllables).capitalize()
            if name not in self._stations:
                self._stations.add(name)
                return name

    def table(self, rows: int, columns: int = 4) -> list[list[str]]:
        """Return a table with a header, names in the first column and numbers in the others."""
        header = ["Station", "Visits", "Revenue", "Staff", "Rating", "Area"][:columns]
        return [
            header,
            *(
                [
                    self._station(),
                    *(str(self._random.randint(100, 99_999)) for _ in range(columns - 1)),
                ]
                for _ in range(rows)
            ),
        ]

    def table_fact(self, table: Sequence[Sequence[str]], row: int, place: Mapping[str, Any]) -> Fact:
        """Return the fact of a cell in the second column of a table made by ``table``."""
        station, value = table[row][0], table[row][1]
        return Fact(f"How many {table[0][1].lower()} did station {station} have?", value, place)
