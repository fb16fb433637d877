"""Judged set of quotations: the expected first sentence or row of an answer about the documentation.

``sentences.jsonl`` has for each query the texts of which one should be in the first quotation, as on the page
(``wanted``); none: the query should be refused. Every second query, from the second on, was first tried after
quoting had been tuned with the others; ``docs/use/extractive-answers.md`` says what was changed afterwards.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.pipeline.citations.labels import find_labels

_FILE = Path(__file__).with_name("sentences.jsonl")
_TARGET = re.compile(r"\]\([^)\s]*\)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query and the alternatives of its first quotation; none if it should be refused."""

    id: str
    question: str
    wanted: Sequence[str]

    def is_first_in(self, answer: str) -> bool:
        """Return True if the answer begins with a wanted sentence, or refuses what it should."""
        if not self.wanted:
            return answer == NO_ANSWER
        ends = [label.start for label in find_labels(answer, 0, len(answer))] or [len(answer)]
        leads_in = answer[: ends[0]].rstrip().endswith(":")  # "In this order:"
        first = f" {_words(answer[: ends[1 if leads_in and len(ends) > 1 else 0]])} "
        return any(f" {_words(text)} " in first for text in self.wanted)


def read_wanted() -> list[Wanted]:
    """Return the set in the order of the file."""
    return [Wanted(**json.loads(line)) for line in _FILE.read_text(encoding="utf-8").splitlines()]


def share(found: Sequence[tuple[Wanted, str]]) -> float:
    """Return the share of queries whose answer begins with a wanted sentence.

    Args:
        found: Queries with their answers.
    """
    return sum(wanted.is_first_in(answer) for wanted, answer in found) / len(found)


def _words(text: str) -> str:
    """Return the words alone: markup and wrapped lines make no difference."""
    return " ".join(re.findall(r"\w+", _TARGET.sub("]", text).casefold()))
