"""A custom store needs three methods for ingestion, queries and profiles. C-006, C-023."""

import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4, uuid5

import httpx2
import pytest

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    build_application,
    finished_job,
    new_collection,
    settings_for,
)
from tests.support.http.live_server import serve
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.errors import ConflictError
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.types import Chunk, ChunkDraft, DistanceMetric, DocumentDraft, RetrievedChunk, StoredDocument
from vectorforge.vectorstore.base import NearestChunks, VectorStore


class DictStore(VectorStore):
    """Chunks of one tenant in a dict, searched by cosine."""

    tenants: dict[str, "DictStore"] = {}  # noqa: RUF012 - the test's own

    def __init__(self, tenant_id: str) -> None:
        self.documents: dict[tuple[UUID, str], list[tuple[ChunkDraft, DocumentDraft]]] = {}
        self.tenants[tenant_id] = self

    async def upsert_chunks(
        self, collection_id: UUID, document: DocumentDraft, chunks: Sequence[ChunkDraft]
    ) -> StoredDocument:
        before = self.documents.get((collection_id, document.source), [])
        self.documents[collection_id, document.source] = [(chunk, document) for chunk in chunks]
        return StoredDocument(uuid5(collection_id, document.source), 1, len(chunks), 0, len(before))

    async def delete_profile_chunks(self, collection_id: UUID, profile_id: int) -> int:
        gone = [
            key
            for key, chunks in self.documents.items()
            if key[0] == collection_id and any(_profile(*chunk) == profile_id for chunk in chunks)
        ]
        return sum(len(self.documents.pop(key)) for key in gone)

    async def search(
        self,
        *,
        query_vector: Sequence[float] | None,
        top_k: int,
        collection_id: UUID,
        metric: DistanceMetric,
        filters: Mapping[str, Any] | None = None,
        profile_id: int | None = None,
        query_text: str | None = None,
        context_text: str | None = None,
        dense_weight: float = 0.5,
        space: str | None = None,
        with_vectors: bool = False,
    ) -> NearestChunks:
        found = [
            _found(collection_id, chunk, document, query_vector or [])
            for (collection, _), chunks in self.documents.items()
            for chunk, document in chunks
            if collection == collection_id and profile_id in (None, _profile(chunk, document))
        ]
        return NearestChunks(sorted(found, key=lambda one: -one.score)[:top_k], len(found))


def _profile(chunk: ChunkDraft, document: DocumentDraft) -> Any:
    return {**document.metadata, **chunk.metadata}.get("profile_id")


def _found(
    collection_id: UUID, chunk: ChunkDraft, document: DocumentDraft, query: Sequence[float]
) -> RetrievedChunk:
    vector = chunk.vector or []
    score = sum(map(operator.mul, vector, query))
    document_id = uuid5(collection_id, document.source)
    stored = Chunk(
        uuid5(document_id, str(chunk.index)),
        document_id,
        chunk.index,
        chunk.text,
        chunk.start_offset,
        chunk.end_offset,
        chunk.token_count,
        chunk.heading,
        {**document.metadata, **chunk.metadata},
    )
    return RetrievedChunk(stored, score, 1 - score, document.source, document.title)


@pytest.fixture
async def client(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    parts = build_application(
        settings_for(postgres_server.app_url, [tenant]), ScriptedLLM(["Blue. [Source 1]"])
    )
    application = Application(
        parts.config,
        database=parts.database,
        embedding_registry=parts.embedding_registry,
        llm_registry=parts.llm_registry,
        vector_store=DictStore,
    )
    async with serve(create_app(application)) as url, LiveApi(url, application).client(tenant) as client:
        yield client


async def test_three_method_store_ingests_and_answers(client: httpx2.AsyncClient, tenant: str) -> None:
    collection = await new_collection(client)
    job = await add_documents(client, collection, widgets="Widgets are blue.", gadgets="Gadgets are round.")
    assert (job["status"], job["documents_done"]) == ("succeeded", 2)
    assert len(DictStore.tenants[tenant].documents) == 2
    query = {"query": "What color are widgets?", "top_k": 1}
    answer = (await client.post(f"/v1/collections/{collection}/query", json=query)).json()
    assert [source["document_source"] for source in answer["sources"]] == ["widgets.md"]


async def test_three_method_store_replaces_and_deletes_profiles(
    client: httpx2.AsyncClient, tenant: str
) -> None:
    for summary in ("Builds bridges.", "Builds tunnels."):
        (await client.put("/v1/profiles/7", json={"profile_summary": summary})).raise_for_status()
    (await client.put("/v1/profiles/8", json={"profile_summary": "Bakes bread."})).raise_for_status()
    found = await client.post("/v1/profiles/7/search", json={"query": "builds"})
    assert [result["text"] for result in found.json()["results"]] == ["Builds tunnels."]
    store = DictStore.tenants[tenant]
    collection, _ = next(iter(store.documents))
    assert await store.delete_profile_chunks(collection, 7) == 1
    assert (await client.post("/v1/profiles/7/search", json={"query": "builds"})).json()["results"] == []
    others = (await client.post("/v1/profiles/8/search", json={"query": "bread"})).json()["results"]
    assert [result["text"] for result in others] == ["Bakes bread."]


async def test_rows_left_out_of_a_profile_in_a_store_of_three_methods_are_gone(
    client: httpx2.AsyncClient, tenant: str
) -> None:
    row = {"id": 1, "title": "Pilot", "description": "Flies mail planes."}
    whole = {"profile_summary": "Builds bridges.", "experiences": [row]}
    (await client.put("/v1/profiles/7", json=whole)).raise_for_status()
    store = DictStore.tenants[tenant]
    assert {source for _, source in store.documents} == {
        "profiles/7/summary/1",
        "profiles/7/experience/1",
    }
    (await client.put("/v1/profiles/7", json={**whole, "experiences": []})).raise_for_status()
    assert {source for _, source in store.documents} == {"profiles/7/summary/1"}


async def test_file_of_several_documents_is_kept_in_a_store_of_three_methods(
    client: httpx2.AsyncClient, tenant: str
) -> None:
    collection = await new_collection(client)
    lines = b'{"id": "a", "text": "Alpha."}\n{"id": "b", "text": "Beta."}\n'
    files = [("files", ("letters.jsonl", lines))]
    posted = await client.post(f"/v1/collections/{collection}/documents", files=files)
    job = await finished_job(client, posted.raise_for_status().json()["id"])
    assert (job["status"], job["error"]) == ("succeeded", None)
    assert sorted(source for _, source in DictStore.tenants[tenant].documents) == [
        "letters.jsonl#a",
        "letters.jsonl#b",
    ]


def test_built_application_with_a_store_makes_it_once_for_each_tenant(
    postgres_server: EmbeddedPostgres,
) -> None:
    application = Application.build(settings_for(postgres_server.app_url), vector_store=DictStore)
    acme, beta = (application.for_tenant(name).vector_store for name in ("acme", "beta"))
    assert [acme, beta] == [DictStore.tenants["acme"], DictStore.tenants["beta"]]
    assert application.for_tenant("acme", uuid4()).vector_store is acme  # with request limits


async def test_three_method_store_rejects_single_document_deletion() -> None:
    with pytest.raises(ConflictError, match="cannot delete single documents"):
        await DictStore("nobody").delete_document(uuid4())


async def test_profile_store_with_embedding_provider_alone_retrieves_chunks() -> None:  # C-006
    provider = HashingEmbedder()
    store = ProfileVectorStore(provider)
    await RAGIngestionPipeline(store, provider).reingest_profile(7, "Builds bridges.", [], [])
    found = await RAGRetrievalPipeline(store, provider).retrieve("builds", 7)
    assert [chunk.text for chunk in found] == ["Builds bridges."]
    assert await RAGRetrievalPipeline(store, provider).retrieve("builds", 8) == []
