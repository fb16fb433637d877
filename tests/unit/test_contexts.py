"""Contexts of chunks: outlines, prompts of a document, answers of a model, and what hashes cover."""

from dataclasses import replace

import pytest

from vectorforge.ingestion.chunk import ChunkingConfig, ContextKind
from vectorforge.ingestion.contexts import WINDOW_CHARS, context_calls, read_contexts
from vectorforge.ingestion.drafts import draft_chunks, draft_document, embedded_text
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.locations import first_sentence
from vectorforge.ingestion.types import ExtractedDocument

PLAIN = ChunkingConfig(chunk_size=120, chunk_overlap=0)
OUTLINE, MODEL = (replace(PLAIN, context=kind) for kind in (ContextKind.OUTLINE, ContextKind.MODEL))
REPORT = ExtractedDocument(
    source="report.md",
    text=(
        "# Report\n\nAcme Incorporated reports its second quarter of 2023. All numbers are unaudited.\n\n"
        "## Revenue\n\nThe division for anvils earns most of the money. It has grown for ten years.\n\n"
        "It rose by three percent over the quarter before, which nobody had expected at all.\n\n"
        "## Staff\n\nNobody was hired, nobody was fired, and nobody left the company at all this time.\n"
    ),
    media_type=media.MARKDOWN,
    title="Report",
)
OPENING = "Acme Incorporated reports its second quarter of 2023."


def test_outline_is_first_sentence_of_document_and_section_unless_in_the_chunk() -> None:
    found = {chunk.text.split("\n")[-1][:20]: chunk.index_context for chunk in draft_chunks(REPORT, OUTLINE)}
    assert found == {
        "Acme Incorporated re": None,
        "The division for anv": OPENING,
        "It rose by three per": f"{OPENING}\nThe division for anvils earns most of the money.",
        "Nobody was hired, no": OPENING,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("# A heading of thirty characters\n\nShort.\n\n---\n", ""),
        ("2023-05-01\n\nThe committee met in Paris. It rained.", "The committee met in Paris."),
        (
            "Version 2.5 of the tool reads 3.5 million rows. More.",
            "Version 2.5 of the tool reads 3.5 million rows.",
        ),
        (
            "委員會在五月一日於巴黎開會,並且討論了下一年的預算以及其他重要事項。然後下雨了。",
            "委員會在五月一日於巴黎開會,並且討論了下一年的預算以及其他重要事項。",
        ),
        ("word " * 100, ("word " * 30).strip()),
        ("x" * 500, "x" * 150),
    ],
)
def test_first_sentence_skips_headings_and_labels_and_is_bounded(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_chunk_is_embedded_with_its_context_between_heading_and_text() -> None:
    assert embedded_text("Guide", "Install", "Run it.", "For Linux.") == "Guide\nInstall\nFor Linux.\nRun it."


def test_kind_of_contexts_changes_the_hashes_of_document_and_chunks() -> None:
    assert len({draft_document(REPORT, kind).content_hash for kind in (PLAIN, OUTLINE, MODEL)}) == 3
    plain, outline, model = (
        {chunk.content_hash for chunk in draft_chunks(REPORT, kind)} for kind in (PLAIN, OUTLINE, MODEL)
    )
    assert len(plain & outline) == 1  # the chunk without a context
    assert plain.isdisjoint(model)
    assert outline.isdisjoint(model)
    moved = replace(REPORT, source="moved.md")
    assert model.isdisjoint(chunk.content_hash for chunk in draft_chunks(moved, MODEL))


def test_only_chunk_of_a_document_is_the_same_with_and_without_contexts() -> None:
    short = replace(REPORT, text="Nothing happened this year.")
    plain, outline, model = (draft_chunks(short, kind) for kind in (PLAIN, OUTLINE, MODEL))
    assert plain == outline == model


def test_long_document_is_cut_into_windows_whose_calls_share_their_beginning() -> None:
    text = "\n\n".join(
        f"Paragraph {n} says what a paragraph says, in a hundred characters. {'x' * 40}" for n in range(1200)
    )
    document = ExtractedDocument(source="long.txt", text=text, media_type=media.PLAIN)
    chunks = draft_chunks(document, MODEL)
    wanted = frozenset(chunk.content_hash for chunk in chunks)
    calls = [*context_calls(None, text, chunks, wanted)]
    assert [chunk for call in calls for chunk in call.chunks] == chunks
    assert max(len(call.chunks) for call in calls) == 25
    beginnings = [tuple(message["content"] for message in call.messages[:2]) for call in calls]
    windows = [*dict.fromkeys(beginnings)]
    assert beginnings == sorted(beginnings, key=windows.index)
    assert len(windows) == -(-len(text) // WINDOW_CHARS)
    for call, (_, shown) in zip(calls, beginnings, strict=True):
        assert all(chunk.text in shown for chunk in call.chunks)
        assert len(shown) < WINDOW_CHARS * 1.5
    [one] = context_calls(None, text, chunks, frozenset([chunks[700].content_hash]))
    assert one.messages[2]["content"] == "Passages: 701"
    assert tuple(message["content"] for message in one.messages[:2]) in windows


def test_overlap_of_chunks_is_shown_once() -> None:
    document = ExtractedDocument(source="a", text="One sentence of many here. " * 40, media_type=media.PLAIN)
    chunks = draft_chunks(document, replace(MODEL, chunk_overlap=60))
    [call] = context_calls("T", document.text, chunks, frozenset([chunks[0].content_hash]))
    assert call.messages[1]["content"].count("One sentence of many here.") == 40


@pytest.mark.parametrize(
    "answer", ["", "[]", "null", '{"passage": 1}', '{"passage": 1, "context": " "}', '{"passage']
)
def test_answer_without_contexts_reads_as_none(answer: str) -> None:
    assert read_contexts(answer, draft_chunks(REPORT, MODEL)) == {}
