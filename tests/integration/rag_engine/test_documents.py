"""The DocRag engine's documents: added, replaced, rejected, removed."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.rag_engine.conftest import INSTALL_TEXT, RUN_TEXT, URL
from vectorforge.docrag.engine import RAGEngine


def test_repeated_document_is_unchanged_or_replaced(
    filled: RAGEngine, caplog: pytest.LogCaptureFixture
) -> None:  # D-012, D-014, C19
    same = {"content": INSTALL_TEXT, "source_url": URL, "title": "Install", "doc_type": "guide"}
    with caplog.at_level(logging.INFO):
        (unchanged,) = filled.add_documents([same])
    assert unchanged["status"] == "unchanged"
    assert "Skipping duplicate document: Install" in caplog.messages
    (elsewhere,) = filled.add_documents([{**same, "source_url": "https://docs.example/copy"}])
    assert (elsewhere["status"], elsewhere["chunks_added"]) == ("succeeded", 1)  # filters find it, too
    (replaced,) = filled.add_documents([{**same, "content": RUN_TEXT}])
    assert (replaced["chunks_added"], replaced["chunks_removed"]) == (1, 1)


def test_prechunked_document_is_stored_and_updated_by_chunk(engine: RAGEngine) -> None:  # D-008, D-012, C19
    content = "\n\n".join(f"Paragraph {n}. " + "It says something of its own. " * 20 for n in range(4))
    chunks = engine.chunk_document(content, {"source_url": URL, "title": "Install", "doc_type": "guide"})
    assert [chunk["chunk_index"] for chunk in chunks] == [0, 1, 2, 3]
    for chunk in chunks:
        assert chunk["metadata"] == {
            "source_url": URL, "title": "Install", "doc_type": "guide",
            "chunk_index": chunk["chunk_index"], "chunk_size": chunk["chunk_size"],
        }  # fmt: skip
    stored = engine.add_documents(chunks)
    assert [document["chunks_added"] for document in stored] == [4, 4, 4, 4]
    found = engine.retrieve_relevant_chunks(chunks[2]["content"], n_results=1)
    assert found[0]["content"] == chunks[2]["content"]
    assert found[0]["metadata"]["external_id"] == f"{URL}#2"
    (again, *_) = engine.add_documents(chunks)
    assert again["status"] == "unchanged"
    changed = [*chunks[:3], {**chunks[3], "content": "Another end of this page, long enough to be kept."}]
    (unchanged_result, *_) = engine.add_documents(changed)
    assert (
        unchanged_result["chunks_kept"],
        unchanged_result["chunks_added"],
        unchanged_result["chunks_removed"],
    ) == (3, 1, 1)


def test_one_invalid_document_of_ten_leaves_nine_ingested(
    engine: RAGEngine, caplog: pytest.LogCaptureFixture
) -> None:  # D-016, C33
    documents: list[dict[str, Any]] = [
        {
            "content": f"Page {n} of the handbook tells about the number {n} at length.",
            "source_url": f"{URL}/{n}",
        }
        for n in range(10)
    ]
    documents[3] = {"content": "", "source_url": f"{URL}/3"}
    with caplog.at_level(logging.INFO):
        stored = engine.add_documents_batch(documents, batch_size=5)
    assert [document["status"] for document in stored].count("succeeded") == 9
    assert stored[3]["status"] == "failed"
    assert "content" in stored[3]["error"]["message"]
    assert [document["source_url"] for document in stored] == [f"{URL}/{n}" for n in range(10)]
    assert engine.collection.document_count == 9
    assert [m for m in caplog.messages if m.startswith("Added batch")] == [
        "Added batch 1: 5 documents",
        "Added batch 2: 4 documents",
    ]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"content": "x" * 60}, "source_url"),
        ({"source_url": URL}, "content"),
        ({"content": "x" * 60, "source_url": "u" * 2001}, "source_url"),
        ({"content": "x" * 60, "source_url": URL, "title": 5}, "title"),
        ({"content": "x" * 60, "source_url": URL, "chunk_index": -1}, "chunk_index"),
        ({"content": "x" * 60, "source_url": URL, "metadata": "m"}, "metadata"),
        ({"content": "too short", "source_url": URL}, "50 characters"),
        ("no dictionary", "dictionary"),
    ],
)
def test_unusable_document_fails_naming_the_field(
    engine: RAGEngine, document: Any, named: str
) -> None:  # D-012, C33
    (outcome,) = engine.add_documents([document])
    assert outcome["status"] == "failed"
    assert named in outcome["error"]["message"]


def test_remove_existing_documents_deletes_chunks_of_the_url(
    filled: RAGEngine, caplog: pytest.LogCaptureFixture
) -> None:  # D-015, C19
    with caplog.at_level(logging.INFO):
        assert filled.remove_existing_documents(URL) == 1
        assert filled.remove_existing_documents(URL) == 0
    assert f"Removed 1 existing chunks for {URL}" in caplog.messages
    assert filled.collection.document_count == 1


def test_document_replacement_is_atomic_for_readers(filled: RAGEngine) -> None:  # D-015, C19
    texts = [INSTALL_TEXT + f" This is edition {n % 2} of the page." for n in range(20)]
    seen, stop = list[int](), threading.Event()

    def read() -> None:
        while not stop.is_set():
            found = filled.retrieve_relevant_chunks(INSTALL_TEXT, n_results=5)
            seen.append(sum(chunk["source_url"] == URL for chunk in found))

    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(read)
        for text in texts:
            (outcome,) = filled.add_documents([{"content": text, "source_url": URL}])
            assert outcome["status"] == "succeeded"
        stop.set()
        reading.result()
    assert set(seen) == {1}
