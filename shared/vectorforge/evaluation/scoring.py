"""Scoring of one question: relevance of its chunks, and numbers for chunks and answer, refusals included."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TypeAlias
from uuid import UUID

from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.embedding_switch.service import NearChunk
from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.metrics import (
    Hit,
    citation_precision,
    contains_answer,
    ndcg,
    recall,
    reciprocal_rank,
)
from vectorforge.evaluation.questions import Question, Relevant
from vectorforge.pipeline.types import QueryResult, SourceCitation
from vectorforge.types import Chunk, RetrievedChunk

_PAGE = 1000
_ENOUGH = 0.5
"""Share of the shorter of chunk and span that must overlap."""


AnyChunk: TypeAlias = Chunk | SourceCitation | NearChunk
"""A chunk to judge: one that was retrieved, a source of an answer, or one near a query."""


@dataclass(frozen=True, slots=True)
class Target:
    """A relevant item whose document has been looked up."""

    relevant: Relevant
    document_id: UUID | None
    """None: any document, or one that is not in the collection."""
    missing: bool = False
    """True if the document is not in the collection: nothing matches it."""

    @property
    def is_document(self) -> bool:
        """True for a whole document."""
        return self.relevant.start is None and self.relevant.text is None

    def is_hit(self, chunk: AnyChunk) -> bool:
        """Return True if the chunk counts as this item.

        A whole document matches each of its chunks, a span a chunk that covers half of the shorter
        of the two, a text a chunk that contains it or is contained in it (ignoring whitespace).
        """
        judgement = self.relevant
        if self.missing or self.document_id not in (None, chunk.document_id):
            return False
        if judgement.text is not None:
            gold, text = " ".join(judgement.text.split()), " ".join(chunk.text.split())
            return gold in text or (text != "" and text in gold)
        if judgement.start is None or judgement.end is None:
            return True
        shared = min(chunk.end_offset, judgement.end) - max(chunk.start_offset, judgement.start)
        shorter = min(chunk.end_offset - chunk.start_offset, judgement.end - judgement.start)
        return shared >= _ENOUGH * shorter


class SourceIndex:
    """Finds documents by what a question set calls them.

    A name is the whole source, the id of a JSONL file's line (what follows ``.jsonl#``), or the end of a path
    from a slash on, the first of these that fits.
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

    @classmethod
    async def of_collection(cls, documents: DocumentRepository, collection_id: UUID) -> "SourceIndex":
        """Read the sources of a collection."""
        sources: list[tuple[UUID, str]] = []
        while True:
            page, _ = await documents.list(collection_id, limit=_PAGE, offset=len(sources))
            sources += [(document.id, document.source) for document in page]
            if len(page) < _PAGE:
                return cls(sources)

    def find(self, name: str) -> UUID | None:
        """Return the document; None if there is none.

        Raises:
            InvalidInputError: The name fits several.
        """
        name = name.removeprefix("./")
        if name in self._whole:
            return self._whole[name]
        documents = self._lines.get(name) or self._ends.get(name) or set()
        if len(documents) > 1:
            raise InvalidInputError(
                f"{name} names {len(documents)} documents of the collection; use their whole sources.",
                field="QUESTIONS",
            )
        return next(iter(documents), None)

    def targets(self, question: Question) -> list[Target]:
        """The question's relevant items, each with its document."""
        targets = []
        for relevant in question.relevant:
            document_id = None if relevant.source is None else self.find(relevant.source)
            missing = relevant.source is not None and document_id is None
            targets.append(Target(relevant, document_id, missing))
        return targets


def find_hits(ranking: Sequence[AnyChunk], targets: Sequence[Target]) -> list[Hit]:
    """Return the first occurrence of each target in a ranking, best chunk first.

    When all targets are whole documents, documents are ranked, each by its best chunk; otherwise chunks.
    """
    per_document = all(target.is_document for target in targets)
    hits, matched, seen = [], set[int](), set[UUID]()
    rank = 0
    for chunk in ranking:
        if per_document and chunk.document_id in seen:
            continue
        seen.add(chunk.document_id)
        rank += 1
        for number, target in enumerate(targets):
            if number not in matched and target.is_hit(chunk):
                matched.add(number)
                hits.append(Hit(rank, target.relevant.grade))
    return hits


_SHOWN_PASSAGES = 3
_SNIPPET_CHARS = 240


@dataclass(frozen=True, slots=True)
class ShownChunk:
    """A retrieved chunk, for the report."""

    source: str
    heading: str
    snippet: str
    score: float
    relevant: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """One question under one variant."""

    question: Question
    values: Mapping[str, float]
    """Value by column of ``measures``; columns that do not apply are missing."""
    chunks: Sequence[ShownChunk] = ()
    """The first chunks."""
    answer: str | None = None
    error: str | None = None
    """Error of a failed question; its measures are 0."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores answers to one question by its relevant items among the first ``k`` ranks."""

    question: Question
    targets: Sequence[Target]
    k: int

    def search(self, chunks: Sequence[RetrievedChunk], latency_ms: float) -> Scored:
        """Score a search."""
        values = {**self._ranking(chunks), "failed": 0.0, "latency_ms": latency_ms}
        return Scored(self.question, values, self._shown(chunks))

    def answer(self, result: QueryResult) -> Scored:
        """Score an answer."""
        values = {**self._ranking(result.retrieved_chunks), "failed": 0.0}
        values["latency_ms"] = result.total_latency_ms
        values["degraded"] = float(bool(result.degraded))
        values |= grounding_scores(self.question, result)
        if self.targets and result.outcome != "empty":
            cited = [self._is_relevant(result.sources[c.source_number - 1]) for c in result.citations]
            values["citation_precision"] = citation_precision(cited, result.invalid_citations)
        if self.question.answers and self.question.expect == "answer":
            values["answer_containment"] = float(contains_answer(result.answer, self.question.answers))
        if result.llm_response is not None:
            values["tokens"] = float(result.llm_response.total_tokens)
        if result.cost_usd is not None:
            values["cost_usd"] = result.cost_usd
        return Scored(self.question, values, self._shown(result.retrieved_chunks), result.answer)

    def failure(self, message: str, *, answers: bool) -> Scored:
        """Score a failed question: no chunks, and no answer if there should be one."""
        expect = self.question.expect
        names = ["recall", "mrr", "ndcg"] if self.targets else []
        names += ["answer_in_passages"] if self.question.answers else []
        if answers:
            names += ["citation_precision"] if self.targets else []
            names += ["answer_containment"] if self.question.answers and expect == "answer" else []
            names += [expect] if expect != "answer" else []
        return Scored(self.question, {**dict.fromkeys(names, 0.0), "failed": 1.0}, error=message)

    def _ranking(self, chunks: Sequence[RetrievedChunk]) -> dict[str, float]:
        values = {}
        if self.targets:
            hits = find_hits([chunk.chunk for chunk in chunks], self.targets)
            values["recall"] = recall(hits, len(self.targets), self.k)
            values["mrr"] = reciprocal_rank(hits, self.k)
            values["ndcg"] = ndcg(hits, [target.relevant.grade for target in self.targets], self.k)
        if self.question.answers:
            texts = (chunk.chunk.text for chunk in chunks[: self.k])
            contained = any(contains_answer(text, self.question.answers) for text in texts)
            values["answer_in_passages"] = float(contained)
        return values

    def _is_relevant(self, chunk: AnyChunk) -> bool:
        return any(target.is_hit(chunk) for target in self.targets)

    def _shown(self, chunks: Sequence[RetrievedChunk]) -> tuple[ShownChunk, ...]:
        return tuple(
            ShownChunk(
                source=chunk.document_source,
                heading=chunk.chunk.heading or chunk.document_title or "",
                snippet=shorten(chunk.chunk.text, _SNIPPET_CHARS, placeholder=" …"),
                score=chunk.score,
                relevant=self._is_relevant(chunk.chunk),
            )
            for chunk in chunks[:_SHOWN_PASSAGES]
        )


_SOURCES = r"(?:contexts?|passages?|documents?|documentation|sources?|excerpts?|texts?|information|material)"
_CANNOT = r"(?:can(?:not| not|['’]t)|could(?:n['’]t| not))"
_IS_NOT = r"(?:do|does|did|is|are|was|were)(?:n['’]t| not)"
_DECLINES = re.compile(
    rf"\bI(?: do(?:n['’]t| not)| {_CANNOT}|(?: am|['’]m| was) (?:unable|not able) to)\b[^.]{{0,40}}"
    r"\b(?:answer|information|find|determine|tell|know|say|confirm|verify)\b"
    rf"|\bthe (?:\w+ )?{_SOURCES}\b[^.]{{0,60}}\b{_IS_NOT}\b[^.]{{0,40}}"
    r"\b(?:mention|state|say|specify|specified|provide|contain|describe|cover|address|include|answer|give"
    r"|discuss|available|sufficient|enough)"
    r"|\b(?:is|are|contains?|provides?|gives?|has|have|found|find|makes?) no (?:relevant |such |specific )?"
    r"(?:information|mention|answer)\b"
    r"|\b(?:not enough|insufficient) (?:information|context|evidence)\b"
    rf"|\b{_CANNOT} be (?:answered|found|determined|confirmed)\b",
    re.IGNORECASE,
)
"""English wordings of a refusal, among them the sentences that the built-in prompts request."""
_SENTENCE = re.compile(r"[^.!?]*[.!?]+(?:\s|$)|[^.!?]+$")
_OPENING = 2
"""Sentences at the beginning of an answer in which it declines; later ones qualify an answer."""


def declines(answer: str) -> bool:
    """Return True if the first two sentences say that the documents do not answer the query."""
    opening = "".join(match[0] for match in list(_SENTENCE.finditer(answer))[:_OPENING])
    return _DECLINES.search(opening) is not None


def grounding_scores(question: Question, result: QueryResult) -> Mapping[str, float]:
    """Return the score of the question's expectation, 0 or 1, by its column of ``measures_at``.

    A refusal is recognized by its English wording, or contains one of the question's ``answers``. A
    correction declines, or contains one of the ``answers``. A disagreement is reported by an answer with all
    ``answers`` that cites at least two documents. A question with an answer has the column ``false_refusal``.
    """
    declined = result.outcome == "empty" or declines(result.answer)
    right = contains_answer(result.answer, question.answers)
    if question.expect in ("refusal", "correction"):
        return {question.expect: float(declined or right)}
    if question.expect == "disagreement":
        complete = all(contains_answer(result.answer, [text]) for text in question.answers)
        return {
            "disagreement": float(
                complete and len({citation.document_id for citation in result.citations}) > 1
            )
        }
    return {"false_refusal": float(declined)}
