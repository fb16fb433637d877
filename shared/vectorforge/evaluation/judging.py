"""Which passages of a ranking are relevant, by what a question set says."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.metrics import Hit
from vectorforge.evaluation.questions import Question, Relevant

_ENOUGH = 0.5
"""Of the shorter one of passage and span must be covered."""


class Passage(Protocol):
    """What is judged: a chunk, or a source of an answer."""

    @property
    def document_id(self) -> UUID:
        """Its document."""
        ...

    @property
    def start_offset(self) -> int:
        """Of its text in the document's, in characters."""
        ...

    @property
    def end_offset(self) -> int:
        """The character after its last."""
        ...

    @property
    def text(self) -> str:
        """The passage itself."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """A relevant item whose document has been looked up."""

    relevant: Relevant
    document_id: UUID | None
    """None: any document, or one that the collection does not hold."""
    missing: bool = False
    """The collection does not hold it: nothing hits it."""

    @property
    def is_document(self) -> bool:
        """Whether it is a whole document."""
        return self.relevant.start is None and self.relevant.text is None

    def is_hit(self, passage: Passage) -> bool:
        """Whether the passage counts as this item.

        A whole document is hit by each of its passages, a span by a passage that covers half of the shorter
        of the two, a text by a passage that holds it or is held by it (blanks do not matter).
        """
        wanted = self.relevant
        if self.missing or self.document_id not in (None, passage.document_id):
            return False
        if wanted.text is not None:
            gold, found = " ".join(wanted.text.split()), " ".join(passage.text.split())
            return gold in found or (found != "" and found in gold)
        if wanted.start is None or wanted.end is None:
            return True
        shared = min(passage.end_offset, wanted.end) - max(passage.start_offset, wanted.start)
        shorter = min(passage.end_offset - passage.start_offset, wanted.end - wanted.start)
        return shared >= _ENOUGH * shorter


class SourceIndex:
    """Finds documents by what a question set calls them.

    A name is the whole source, the id of a JSONL file's line (what follows ``.jsonl#``), or the end of a path
    from a slash on, the first of these that fits.

    Args:
        sources: Id and source of every document of the collection.
    """

    def __init__(self, sources: Iterable[tuple[UUID, str]]) -> None:
        self._whole: dict[str, UUID] = {}
        self._lines: defaultdict[str, set[UUID]] = defaultdict(set)
        self._ends: defaultdict[str, set[UUID]] = defaultdict(set)
        for document_id, source in sources:
            self._whole[source] = document_id
            _, is_line, line = source.partition(".jsonl#")
            if is_line:
                self._lines[line].add(document_id)
            for at in (i for i, character in enumerate(source) if character == "/"):
                self._ends[source[at + 1 :]].add(document_id)

    def find(self, name: str) -> UUID | None:
        """The document; None when there is none.

        Raises:
            InvalidInputError: The name fits several.
        """
        name = name.removeprefix("./")
        if name in self._whole:
            return self._whole[name]
        found = self._lines.get(name) or self._ends.get(name) or set()
        if len(found) > 1:
            raise InvalidInputError(
                f"{name} names {len(found)} documents of the collection; use their whole sources.",
                field="QUESTIONS",
            )
        return next(iter(found), None)

    def targets(self, question: Question) -> list[Target]:
        """The question's relevant items, each with its document."""
        found = []
        for relevant in question.relevant:
            document_id = None if relevant.source is None else self.find(relevant.source)
            missing = relevant.source is not None and document_id is None
            found.append(Target(relevant, document_id, missing))
        return found


def find_hits(ranking: Sequence[Passage], targets: Sequence[Target]) -> list[Hit]:
    """Where each target is first met, best rank first.

    When all targets are whole documents, documents are ranked, each by its best passage; else passages are.

    Args:
        ranking: Best passage first.
        targets: Each counts once, however many passages hit it.
    """
    per_document = all(target.is_document for target in targets)
    hits, met, seen = [], set[int](), set[UUID]()
    rank = 0
    for passage in ranking:
        if per_document and passage.document_id in seen:
            continue
        seen.add(passage.document_id)
        rank += 1
        for number, target in enumerate(targets):
            if number not in met and target.is_hit(passage):
                met.add(number)
                hits.append(Hit(rank, target.relevant.grade))
    return hits
