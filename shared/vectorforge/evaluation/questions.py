"""Question sets: questions, relevance judgments and expected answers.

Two shapes are read. A file of JSON lines:

    {"question": "Who approves refunds?", "relevant": ["handbook.md"], "answers": ["finance team"]}

with, in ``relevant``, names of sources or objects ``{"source", "start"?, "end"?, "text"?, "grade"?}``. And a
folder as retrieval collections have it (BEIR's shape, https://github.com/beir-cellar/beir/wiki):
``queries.jsonl`` with ``query_id``, ``text``, ``answers``?, and ``qrels.jsonl`` with ``query_id``,
``doc_id``, ``relevance``?, ``start``?, ``end``?.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from vectorforge.db.repositories.feedback_repo import FeedbackRepository, Passage, RatedQuery
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.citations.labels import find_labels

MAX_QUESTIONS = 100_000
_MAX_LINES = 10_000_000
_FIELD = "QUESTIONS"

Grade = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]
Expectation: TypeAlias = Literal["answer", "refusal", "correction", "disagreement"]
"""Right reaction: an answer, a refusal because the documents have none, a correction of the question's
premise, or a report that documents disagree."""
T = TypeVar("T", bound=BaseModel)


class Relevant(BaseModel):
    """A relevance judgment: a document, a span of it, or a chunk by its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Text | None = None
    """The document's source, the end of it from a slash on, or the id of a line of a JSONL file."""
    start: int | None = Field(default=None, ge=0)
    """First character of the span in the document's text."""
    end: int | None = Field(default=None, ge=1)
    """The character after its last."""
    text: Text | None = None
    """Text of the chunk; without a source, in any document."""
    grade: Grade = 1.0
    """Grade for nDCG."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.source is None and self.text is None:
            raise ValueError("needs a source or a text")
        if (self.start is None) != (self.end is None) or (self.end or 1) <= (self.start or 0):
            raise ValueError("start and end belong together, and end is after start")
        if self.start is not None and (self.source is None or self.text is not None):
            raise ValueError("a span needs a source and excludes a text")
        return self


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its judgments."""

    id: str
    text: str
    relevant: tuple[Relevant, ...] = ()
    answers: tuple[str, ...] = ()
    """Expected answers; one of them must occur in the answer, all of them if documents disagree."""
    reference: str | None = None
    """Reference answer, shown in the report only."""
    expect: Expectation = "answer"

    @property
    def is_judged(self) -> bool:
        """True if an answer or a search can be scored."""
        return bool(self.relevant or self.answers) or self.expect == "refusal"

    @property
    def fingerprint(self) -> str:
        """Hash of everything that affects scores; runs are compared on questions with equal fingerprints."""
        content = [self.text, [r.model_dump() for r in self.relevant], self.answers]
        content += [] if self.expect == "answer" else [self.expect]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with unique ids."""

    name: str
    questions: tuple[Question, ...]
    unjudged: int = 0
    """Questions skipped because they have no judgments."""


def _of_name(value: Any) -> Any:
    """Read a source's name alone as a judgment of the whole document."""
    return {"source": value} if isinstance(value, str) else value


RelevantOrName = Annotated[Relevant, BeforeValidator(_of_name)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    question: Text
    id: str | int | None = None
    relevant: list[RelevantOrName] = Field(default_factory=list, max_length=10_000)
    answers: list[Text] = Field(default_factory=list, max_length=1_000)
    reference_answer: str | None = None
    expect: Expectation = "answer"

    @model_validator(mode="after")
    def _has_answers(self) -> Self:
        least = {"correction": 1, "disagreement": 2}.get(self.expect, 0)
        if len(self.answers) < least:
            raise ValueError(f"a {self.expect} needs at least {least} of answers")
        return self

    def judged(self, number: int) -> Question:
        return Question(
            str(number if self.id is None else self.id),
            self.question,
            tuple(self.relevant),
            tuple(self.answers),
            self.reference_answer,
            self.expect,
        )


class _Query(BaseModel):
    query_id: str | int
    text: Text
    answers: list[Text] = Field(default_factory=list)
    reference_answer: str | None = None


class _Judgement(BaseModel):
    query_id: str | int
    doc_id: str | int
    relevance: float = 1.0
    start: int | None = None
    end: int | None = None


def read_questions(path: Path, *, unjudged_too: bool = False) -> QuestionSet:
    """Read a file or a folder; without ``unjudged_too``, questions without judgments are left out.

    Raises:
        InvalidInputError: It cannot be read, has no (judged) question, more than 100,000, or one
            twice; the text names file, line and field.
    """
    try:
        if path.is_dir():
            read = _read_folder(path)
        else:
            read = [line.judged(number) for number, line in _lines(path, _Line)]
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be read ({type(exc).__name__}).", field=_FIELD) from exc
    judged = tuple(question for question in read if unjudged_too or question.is_judged)
    if len(judged) > MAX_QUESTIONS:
        raise InvalidInputError(f"{path} has more than {MAX_QUESTIONS:,} questions.", field=_FIELD)
    if not judged:
        missing = "" if unjudged_too else " with relevant passages or answers"
        raise InvalidInputError(f"{path} has no question{missing}.", field=_FIELD)
    seen: set[str] = set()
    for question in judged:
        if question.id in seen:
            raise InvalidInputError(f"{path} has the question {question.id} twice.", field=_FIELD)
        seen.add(question.id)
    return QuestionSet(path.resolve().stem, judged, unjudged=len(read) - len(judged))


def sample(questions: QuestionSet, limit: int | None) -> QuestionSet:
    """Return a fixed sample (None: all), chosen by a hash of the ids, independent of their order."""
    if limit is None or limit >= len(questions.questions):
        return questions
    chosen = sorted(questions.questions, key=lambda q: hashlib.sha256(q.id.encode()).digest())[:limit]
    ids = {question.id for question in chosen}
    return replace(questions, questions=tuple(q for q in questions.questions if q.id in ids))


def _read_folder(folder: Path) -> list[Question]:
    judgements: defaultdict[str, list[Relevant]] = defaultdict(list)
    for number, row in _lines(folder / "qrels.jsonl", _Judgement):
        if row.relevance <= 0:  # judged, and not relevant
            continue
        judged = {"source": str(row.doc_id), "start": row.start, "end": row.end, "grade": row.relevance}
        try:
            judgements[str(row.query_id)].append(Relevant.model_validate(judged))
        except ValidationError as exc:
            raise _refused(folder / "qrels.jsonl", number, exc) from None
    return [
        Question(
            str(row.query_id),
            row.text,
            tuple(judgements.get(str(row.query_id), ())),
            tuple(row.answers),
            row.reference_answer,
        )
        for _, row in _lines(folder / "queries.jsonl", _Query)
    ]


def _lines(path: Path, model: type[T]) -> Iterator[tuple[int, T]]:
    """The rows of a JSONL file with their line numbers, from 1."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if number > _MAX_LINES:
                raise InvalidInputError(f"{path} has more than {_MAX_LINES:,} lines.", field=_FIELD)
            if not line.strip():
                continue
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError):
                raise InvalidInputError(f"{path}, line {number}: not valid JSON.", field=_FIELD) from None
            try:
                yield number, model.model_validate(row)
            except ValidationError as exc:
                raise _refused(path, number, exc) from None


def _refused(path: Path, number: int, error: ValidationError) -> InvalidInputError:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the line"
    return InvalidInputError(f"{path}, line {number}: {place}: {first['msg']}.", field=_FIELD)


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
