"""Question set made of feedback: rated queries with the chunks that they should find as judgments."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.feedback_repo import FeedbackRepository, Passage, RatedQuery
from vectorforge.pipeline.citations.labels import find_labels

_PAGE = 500


@dataclass(slots=True)
class FeedbackQuestions:
    """Rated queries as lines of a question set."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    unjudged: int = 0
    """Lines without a judgment, for a person to add."""
    without_text: int = 0
    """Queries left out because the query log has no text of theirs."""

    def add(self, query: RatedQuery, passages: Mapping[UUID, Passage]) -> None:
        """Add a query with its judgments."""
        if not query.query_text or query.query_text.startswith("sha256:"):
            self.without_text += 1
            return
        relevant = [_judgment(passages[id_]) for id_ in _wanted(query) if id_ in passages]
        self.unjudged += not relevant
        self.lines.append({"id": str(query.id), "question": query.query_text, "relevant": relevant})


async def read_feedback(repo: FeedbackRepository, collection_id: UUID) -> FeedbackQuestions:
    """Return the rated queries to a collection with their judgments.

    The chunks that should be cited if anyone named some, else the cited ones if all ratings are "up".
    """
    questions = FeedbackQuestions()
    after: UUID | None = None
    while page := await repo.rated(collection_id, after=after, limit=_PAGE):
        passages = await repo.passages([id_ for query in page for id_ in _wanted(query)])
        for query in page:
            questions.add(query, passages)
        after = page[-1].id
    return questions


def _wanted(query: RatedQuery) -> Sequence[UUID]:
    if query.should_cite or query.down:
        return query.should_cite
    return list(dict.fromkeys(_cited(query)))


def _cited(query: RatedQuery) -> Iterator[UUID]:
    """Yield the chunks whose labels the answer has: ``[Source 1]`` is the first of those in its prompt."""
    for label in find_labels(query.generated_response, 0, len(query.generated_response)):
        for number in label.numbers:
            if 1 <= number <= len(query.used_chunk_ids):
                yield query.used_chunk_ids[number - 1]


def _judgment(passage: Passage) -> dict[str, Any]:
    """Return the chunk as a span, or by its text if the document has changed since."""
    if passage.retired or passage.start_offset == passage.end_offset:
        return {"source": passage.source, "text": passage.text}
    return {"source": passage.source, "start": passage.start_offset, "end": passage.end_offset}
