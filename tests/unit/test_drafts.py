"""The embedded text of a chunk, and the hashes that detect changes."""

from dataclasses import replace
from typing import Any

import pytest

from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document, embedded_text
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import ExtractedDocument

CHUNKING = ChunkingConfig(chunk_size=60, chunk_overlap=0)
GUIDE = ExtractedDocument(
    source="guide.md",
    text="# Guide\n\n## Install\n\nRun the script.\n\n## Remove\n\nRun the script.",
    media_type=media.MARKDOWN,
    title="The guide",
)


@pytest.mark.parametrize(
    ("title", "heading", "header"),
    [
        (None, None, ""),
        ("", "", ""),
        ("Guide", None, "Guide\n"),
        (None, "Install > Linux", "Install > Linux\n"),
        ("Guide", "Install > Linux", "Guide\nInstall > Linux\n"),
        ("Guide", "Guide > Install", "Guide > Install\n"),
        ("Guide", "Guide", "Guide\n"),
        ("t" * 500, "h" * 500 + "!", "t" * 200 + "\n" + "h" * 199 + "!\n"),
    ],
)
def test_chunk_is_embedded_with_title_and_heading(
    title: str | None, heading: str | None, header: str
) -> None:
    assert embedded_text(title, heading, "Run the script.") == header + "Run the script."


# D-012
@pytest.mark.parametrize(
    "change", [{"title": "Another"}, {"text": GUIDE.text.replace("# Guide", "# Manual")}]
)
def test_changed_title_or_heading_changes_chunk_hash(change: dict[str, Any]) -> None:
    before, after = draft_chunks(GUIDE, CHUNKING), draft_chunks(replace(GUIDE, **change), CHUNKING)
    assert {chunk.content_hash for chunk in before}.isdisjoint(chunk.content_hash for chunk in after)
    assert (
        draft_document(GUIDE, CHUNKING).content_hash
        != draft_document(replace(GUIDE, **change), CHUNKING).content_hash
    )


# D-015
def test_repeated_text_has_distinct_chunk_hashes() -> None:
    hashes = [chunk.content_hash for chunk in draft_chunks(GUIDE, CHUNKING)]
    assert len(set(hashes)) == len(hashes) > 1
    plain = replace(
        GUIDE, media_type=media.PLAIN, text="\n\n".join(["The very same sentence, again." * 2] * 3)
    )
    hashes = [chunk.content_hash for chunk in draft_chunks(plain, CHUNKING)]
    assert len(set(hashes)) == len(hashes) == 3
