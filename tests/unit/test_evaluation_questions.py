"""Question sets and their relevant chunks."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.metrics import Hit
from vectorforge.evaluation.questions import Question, Relevant, read_questions, sample
from vectorforge.evaluation.scoring import SourceIndex, Target, find_hits
from vectorforge.types import Chunk


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


class TestReadQuestions:
    def test_jsonl_file_yields_questions(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "own.jsonl",
            {"question": "Who?", "relevant": ["a.md", {"source": "b.md", "start": 3, "end": 9, "grade": 2}]},
            "",
            {"id": "two", "question": "How long?", "answers": ["two hours"], "relevant": [{"text": "rise"}]},
        )
        read = read_questions(path)
        span = Relevant(source="b.md", start=3, end=9, grade=2)
        assert read.name == "own"
        assert read.questions == (
            Question("1", "Who?", (Relevant(source="a.md"), span)),
            Question("two", "How long?", (Relevant(text="rise"),), ("two hours",)),
        )

    def test_folder_with_judgements_yields_questions(self, tmp_path: Path) -> None:
        write(
            tmp_path / "queries.jsonl",
            {"query_id": 1, "text": "Who?", "answers": ["Ann"], "kind": "x"},
            {"query_id": 2, "text": "Where?"},
            {"query_id": 3, "text": "Why?", "reference_answer": "Because."},
        )
        write(
            tmp_path / "qrels.jsonl",
            {"query_id": "1", "doc_id": "d1", "relevance": 1, "start": 5, "end": 8, "para_start": 0},
            {"query_id": 1, "doc_id": "d2", "relevance": 0},
            {"query_id": 3, "doc_id": 7, "relevance": 3},
        )
        read = read_questions(tmp_path)
        assert read.unjudged == 1
        assert read.questions == (
            Question("1", "Who?", (Relevant(source="d1", start=5, end=8),), ("Ann",)),
            Question("3", "Why?", (Relevant(source="7", grade=3),), (), "Because."),
        )

    @pytest.mark.parametrize(
        ("rows", "why"),
        [
            (['{"question": "a'], "line 1: not valid JSON"),
            ([{"questions": "a"}], "line 1: question: Field required"),
            ([{"question": "a", "answer": "b"}], "line 1: answer: Extra inputs"),
            ([{"question": "a", "answers": ["b"]}, {"question": "", "answers": ["b"]}], "line 2: question"),
            ([{"question": "a", "relevant": [{}]}], "line 1: relevant.*needs a source or a text"),
            ([{"question": "a", "relevant": [{"source": "s", "start": 9, "end": 9}]}], "end is after start"),
            (
                [{"question": "a", "relevant": [{"text": "s", "start": 1, "end": 9}]}],
                "a span needs a source",
            ),
            ([{"question": "a", "relevant": [{"source": "s", "grade": 0}]}], "greater than 0"),
            ([{"question": "a"}], "has no question with relevant passages or answers"),
            ([{"id": 1, "question": "a", "answers": ["b"]}] * 2, "has the question 1 twice"),
        ],
    )
    def test_invalid_line_is_rejected_with_its_number(
        self, tmp_path: Path, rows: list[Any], why: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=why) as caught:
            read_questions(write(tmp_path / "q.jsonl", *rows))
        assert caught.value.field == "QUESTIONS"

    def test_folder_without_judgements_is_rejected(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_questions(tmp_path)

    def test_sample_is_independent_of_file_order(self, tmp_path: Path) -> None:
        rows = [{"id": f"q{n}", "question": "Who?", "answers": ["x"]} for n in range(50)]
        one = sample(read_questions(write(tmp_path / "a.jsonl", *rows)), 10)
        other = sample(read_questions(write(tmp_path / "b.jsonl", *reversed(rows))), 10)
        assert len(one.questions) == 10
        assert {q.id for q in one.questions} == {q.id for q in other.questions}
        assert [q.id for q in one.questions] != [f"q{n}" for n in range(10)]

    def test_fingerprint_changes_with_fields_that_affect_scores(self) -> None:
        base = Question("1", "Who?", (Relevant(source="a"),), ("x",))
        same = Question("2", "Who?", (Relevant(source="a"),), ("x",), "Ann did.")
        assert base.fingerprint == same.fingerprint
        for other in (
            Question("1", "Why?", (Relevant(source="a"),), ("x",)),
            Question("1", "Who?", (Relevant(source="a", grade=2),), ("x",)),
            Question("1", "Who?", (Relevant(source="a"),), ("y",)),
        ):
            assert other.fingerprint != base.fingerprint


SOURCES = (
    "/data/corpus.jsonl#1",
    "/data/corpus.jsonl#https://example.com/docs/a#b",
    "/home/x/handbook/refunds.md",
    "/home/x/archive/refunds.md",
    "https://example.com/guide",
    "notes.md",
)
IDS = tuple(uuid4() for _ in SOURCES)
INDEX = SourceIndex(zip(IDS, SOURCES, strict=True))


class TestSources:
    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("1", 0),
            ("https://example.com/docs/a#b", 1),
            ("handbook/refunds.md", 2),
            ("./archive/refunds.md", 3),
            ("/home/x/archive/refunds.md", 3),
            ("https://example.com/guide", 4),
            ("notes.md", 5),
            ("otes.md", None),  # not from a slash on
            ("b", None),
            ("2", None),
        ],
    )
    def test_name_resolves_to_its_document(self, name: str, place: int | None) -> None:
        assert INDEX.find(name) == (None if place is None else IDS[place])

    def test_ambiguous_name_is_rejected(self) -> None:
        with pytest.raises(InvalidInputError, match=r"refunds\.md names 2 documents"):
            INDEX.find("refunds.md")


DOCUMENT, OTHER = uuid4(), uuid4()


def passage(start: int, end: int, document: UUID = DOCUMENT, text: str = "") -> Chunk:
    return Chunk(uuid4(), document, 0, text, start, end, 1)


class TestHits:
    @pytest.mark.parametrize(
        ("start", "end", "hit"),
        [
            (0, 800, True),  # contains the span
            (105, 800, True),  # half of the span
            (106, 800, False),
            (102, 106, True),  # is within it
            (0, 105, True),
            (0, 104, False),
            (200, 300, False),
        ],
    )
    def test_span_is_hit_by_overlap_of_half_the_shorter(self, start: int, end: int, hit: bool) -> None:
        target = Target(Relevant(source="x", start=100, end=110), DOCUMENT)
        assert target.is_hit(passage(start, end)) is hit
        assert not target.is_hit(passage(start, end, OTHER))

    @pytest.mark.parametrize(
        ("text", "hit"),
        [("Let the dough  rise\nfor two hours.", True), ("dough rise", True), ("bake", False)],
    )
    def test_text_is_hit_by_containing_or_contained_chunk(self, text: str, hit: bool) -> None:
        target = Target(Relevant(text="the dough rise for\ttwo hours"), None)
        assert target.is_hit(passage(0, 1, OTHER, text)) is hit

    def test_document_targets_rank_by_best_chunk(self) -> None:
        third = uuid4()
        ranking = [passage(0, 9), passage(9, 20), passage(0, 9, OTHER), passage(0, 9, third)]
        targets = [Target(Relevant(source="t", grade=2), third), Target(Relevant(source="d"), DOCUMENT)]
        assert find_hits(ranking, targets) == [Hit(1), Hit(3, 2)]

    def test_span_targets_rank_by_chunk_and_count_once(self) -> None:
        ranking = [passage(0, 9, OTHER), passage(0, 60), passage(40, 100)]
        targets = [
            Target(Relevant(source="d", start=45, end=55), DOCUMENT),
            Target(Relevant(source="d", start=80, end=90), DOCUMENT),
        ]
        assert find_hits(ranking, targets) == [Hit(2), Hit(3)]

    def test_missing_document_is_never_hit(self) -> None:
        target = Target(Relevant(source="gone"), None, missing=True)
        assert find_hits([passage(0, 9)], [target]) == []
