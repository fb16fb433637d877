"""Profiles through the library: rows and documents in, chunks of one profile out."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from tests.integration.profiles.conftest import Profiles
from vectorforge.errors import (
    ExtractionError,
    FilterError,
    InvalidInputError,
)
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.ingestion.profile_text import ProfileDocument
from vectorforge.ingestion.types import ExtractionLimits
from vectorforge.profile_types import SourceType

EXPERIENCES = [
    {
        "id": 11,
        "title": "Data engineer",
        "company": "Acme",
        "start_date": date(2020, 1, 1),
        "end_date": date(2023, 5, 31),
        "description": "Moved the warehouse to Postgres.",
        "technologies": ["Python", "Postgres"],
        "profile_id": 7,
    },
    {"id": 12, "title": "Baker", "company": "Bread and Sons", "description": "Baked rye bread at dawn."},
]
PROJECTS = [{"id": 3, "name": "Weather station", "description": "Measures rain on a roof in Graz."}]
SKILLS: list[Mapping[str, Any] | str] = [
    {"name": "Python", "category": "Languages", "level": "expert"},
    "Baking",
]
EDUCATION = [{"id": 5, "degree": "MSc", "institution": "TU Graz", "end_date": date(2019, 6, 30)}]


# C-001 C-002 C-007 C-008 C-012 C-013 C-021: from rows to chunks with their sources
async def test_profile_rows_become_chunks_with_source_types(profiles: Profiles) -> None:
    done = await profiles.ingestion.ingest_profile_data(
        7, "Likes data and bread.", EXPERIENCES, PROJECTS, SKILLS, EDUCATION
    )
    assert (done.documents, done.chunks_added, done.chunks_removed) == (6, 6, 0)
    found = await profiles.retrieval.retrieve("Who moved the warehouse to Postgres?", 7, 2)
    best = found[0]
    assert (best.profile_id, best.source_type, best.source_id) == (7, SourceType.EXPERIENCE, "11")  # C-005
    assert best.metadata.title == "Data engineer, Acme"
    assert best.text == (
        "# Data engineer, Acme\n\n2020-01-01 to 2023-05-31\n\nMoved the warehouse to Postgres.\n\n"
        "Technologies: Python, Postgres"
    )
    assert best.score > found[1].score
    everything = await profiles.retrieval.retrieve("x", 7, 100)
    assert {(chunk.source_type, chunk.source_id) for chunk in everything} == {
        (SourceType.SUMMARY, "1"),
        (SourceType.EXPERIENCE, "11"),
        (SourceType.EXPERIENCE, "12"),
        (SourceType.PROJECT, "3"),
        (SourceType.SKILL, "all"),
        (SourceType.EDUCATION, "5"),
    }


# C-009: documents in addition to rows; the same id replaces
async def test_profile_documents_are_stored_and_replaced(profiles: Profiles) -> None:
    cv = "Curriculum vitae. " + "Sailed around the world in a small boat. " * 40
    done = await profiles.ingestion.ingest_document(
        7, cv, SourceType.CV, title="CV 2026", metadata={"language": "en", "profile_id": 8}
    )
    assert done.chunks_added > 1
    assert all(text.startswith("CV 2026\n") for text in profiles.embedder.texts)
    chunks = await profiles.retrieval.retrieve("boat", 7, 100, {"language": "en"})
    assert len(chunks) == done.chunks_added
    assert {(c.profile_id, c.source_type, c.source_id, c.metadata.title) for c in chunks} == {
        (7, SourceType.CV, "1", "CV 2026")  # a caller's own profile_id is ignored
    }
    await profiles.ingestion.ingest_document(7, "Dear Sirs", SourceType.DOCUMENT, source_id="letter")
    await profiles.ingestion.ingest_document(7, "A short life.", SourceType.CV)
    assert sorted(await profiles.texts(7)) == ["A short life.", "Dear Sirs"]
    with pytest.raises(ExtractionError):
        await profiles.ingestion.ingest_document(7, " \n", SourceType.CV)


# C-010 C-020 C19: idempotent, and unchanged rows are not embedded again
async def test_reingestion_removes_missing_rows(profiles: Profiles) -> None:
    await profiles.ingestion.reingest_profile(7, "Old summary.", EXPERIENCES, PROJECTS, SKILLS, EDUCATION)
    await profiles.ingestion.ingest_document(7, "The CV.", SourceType.CV)
    ids = {chunk.text: chunk.id for chunk in await profiles.retrieval.retrieve("x", 7, 100)}
    profiles.embedder.texts.clear()

    again = await profiles.ingestion.reingest_profile(
        7, "Old summary.", EXPERIENCES, PROJECTS, SKILLS, EDUCATION
    )
    assert (again.documents_unchanged, again.chunks_added, again.chunks_removed) == (6, 0, 0)
    assert profiles.embedder.texts == []

    done = await profiles.ingestion.reingest_profile(7, "New summary.", EXPERIENCES[:1], [])
    assert (done.documents_removed, done.chunks_added) == (4, 1)
    assert profiles.embedder.texts == ["New summary."]
    after = {chunk.text: chunk.id for chunk in await profiles.retrieval.retrieve("x", 7, 100)}
    unchanged = [text for text in after if text.startswith("# Data engineer")]
    assert sorted(after) == sorted(["New summary.", "The CV.", *unchanged])
    assert after[unchanged[0]] == ids[unchanged[0]]

    letter = ProfileDocument(SourceType.DOCUMENT, "letter", "Dear Sirs")
    await profiles.ingestion.reingest_profile(7, "", [], [], documents=[letter])
    assert await profiles.texts(7) == ["Dear Sirs"]
    await profiles.ingestion.reingest_profile(7, "A summary.", [], [], documents=[])  # C-010
    assert await profiles.texts(7) == ["A summary."]


# C-011 C-022
async def test_chunking_config_of_caller_sets_chunk_size(profiles: Profiles) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    small = RAGIngestionPipeline(profiles.store, profiles.embedder, chunking=ChunkingConfig(100, 20))
    await small.ingest_document(7, text, SourceType.CV)
    texts = await profiles.texts(7)
    assert len(texts) > 10
    assert max(map(len, texts)) <= 100
    await profiles.ingestion.ingest_document(7, text, SourceType.CV)
    assert len(await profiles.texts(7)) < 5


async def test_invalid_profile_input_is_rejected_without_writes(profiles: Profiles) -> None:
    ingest = profiles.ingestion.ingest_profile_data
    with pytest.raises(InvalidInputError, match=r"experiences\[1\]\.id is not unique"):
        await ingest(7, "", [{"id": 1, "title": "a"}, {"id": 1, "title": "b"}], [])
    with pytest.raises(InvalidInputError, match="profile_id"):
        await ingest(-1, "x", [], [])
    with pytest.raises(InvalidInputError, match="at most 2,000"):
        await ingest(7, "", [{"id": n, "title": "a"} for n in range(2001)], [])
    with pytest.raises(InvalidInputError, match="source_id"):
        await profiles.ingestion.ingest_document(7, "x", SourceType.CV, source_id=" ")
    short = RAGIngestionPipeline(profiles.store, profiles.embedder, limits=ExtractionLimits(max_chars=10))
    with pytest.raises(ExtractionError, match="longer than 10"):
        await short.ingest_document(7, "x" * 11, SourceType.CV)
    for query, profile_id, top_k in (("", 7, 5), ("x", -1, 5), ("x", 7, 0), ("x", 7, 101)):
        with pytest.raises(InvalidInputError):
            await profiles.retrieval.retrieve(query, profile_id, top_k)
    profiles.embedder.texts.clear()
    with pytest.raises(FilterError):
        await profiles.retrieval.retrieve("x", 7, filters={"a": {"$near": 1}})
    assert profiles.embedder.texts == []
    assert await profiles.texts(7) == []


# C-015 C-025 C32: retrieval and tools load neither a model's SDK nor a driver of databases
def test_retrieval_import_loads_no_model_or_database_driver() -> None:
    code = (
        "import sys, vectorforge.pipeline.profile, vectorforge.tools.semantic_search_tools\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'openai', 'anthropic', 'psycopg', 'boto3'}, loaded\n"
        "assert not [name for name in sys.modules if name.startswith('vectorforge.llm.providers')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# C-014
async def test_formatted_context_names_source_and_row(profiles: Profiles) -> None:
    await profiles.ingestion.reingest_profile(7, "Mine.", [], [])
    context = await profiles.retrieval.format_context(await profiles.retrieval.retrieve("mine", 7))
    assert context == "[Source 1]\nsummary 1\nMine."
    assert await profiles.retrieval.format_context([]) == ""
