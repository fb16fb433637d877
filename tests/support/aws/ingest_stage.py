"""A tenant, the ingestion queue and the application of the ingest function."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import settings_for
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.aws.handlers.ingest import handle
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_types import IngestionJob, NewJobItem
from vectorforge.deadline import Deadline
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import EmbeddingRateLimitError
from vectorforge.ingestion.group import SMALL_BYTES
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.types import Vector

TENANT = "acme"
LONG = "word " * (SMALL_BYTES // 5)
"""Text of a document too large to be embedded together with others."""
EVENTS = Path(__file__).parents[3] / "events"


@dataclass
class Stage:
    """A tenant's documents, the queue, and the function's application."""

    queue: Queue
    application: Application
    embedder: HashingEmbedder
    url: str

    @property
    def tenant(self) -> TenantServices:
        return self.application.for_tenant(TENANT)

    async def job(self, *texts: str, collection: str = "default", tenant: str = TENANT) -> UUID:
        """Store and enqueue a job as an upload over HTTP does."""
        services = self.application.for_tenant(tenant)
        found = await services.collections.find_by_name(collection)
        found = found or await services.create_collection(collection)
        items = [NewJobItem(f"{n}.txt", None, text.encode()) for n, text in enumerate(texts)]
        job = await services.jobs.create(found.id, items)
        await self.application.background.announce_job(tenant, job.id)
        return job.id

    async def deliver(self, *, seconds: float = 60.0, most: int = 10) -> tuple[int, list[str]]:
        """Invoke the function with the visible messages; return their number and the failed ids."""
        records = self.queue.receive(most=most)
        if not records:
            return 0, []
        answer = await handle(self.application, {"Records": records}, Deadline.after(seconds))
        assert answer is not None
        failed = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        self.queue.delete([record for record in records if record["messageId"] not in failed])
        return len(records), failed

    async def look(self, job_id: UUID, tenant: str = TENANT) -> IngestionJob:
        job = await self.application.for_tenant(tenant).jobs.find_by_id(job_id)
        assert job is not None
        return job

    async def attempts(self, job_id: UUID) -> list[int]:
        return [item.attempts for item in await self.tenant.jobs.items(job_id)]


def build(url: str, queue: str | None, *embedders: HashingEmbedder, **ingestion: Any) -> Application:
    embeddings, models = EmbeddingProviderRegistry(), LLMProviderRegistry()
    for embedder in embedders:
        embeddings.register(embedder)
    models.register(ExtractiveProvider(embed=embedders[0].embed_documents))
    config = settings_for(
        url,
        [TENANT],
        aws=AwsSettings(ingestion_queue_url=queue),
        ingestion=IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0, **ingestion),
    )
    return Application(
        config, database=Database(url, pool_size=5), embedding_registry=embeddings, llm_registry=models
    )


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


class FailingOnce(HashingEmbedder):
    """Fails its first call."""

    calls = 0

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.calls += 1
        if self.calls == 1:
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)
