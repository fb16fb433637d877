"""Stored objects of the HTTP API: collections, documents, jobs, erasures and feedback."""

from datetime import datetime
from typing import Any
from uuid import UUID

from vectorforge.http_client.models import Model


class Collection(Model):
    """A set of documents that share one embedding model."""

    id: UUID
    name: str
    description: str
    embedding_provider: str
    embedding_model: str
    dimension: int
    distance_metric: str
    vector_index: str
    by_profile: bool
    search_mode: str
    dense_weight: float
    language: str
    detect_language: bool
    languages: list[str]
    keeps_words: bool
    keep_originals: bool
    contextual: bool
    ocr: bool
    terms_complete: bool
    document_count: int
    chunk_count: int
    version: int
    created_at: datetime | None


class CollectionPage(Model):
    """Collections, by name."""

    collections: list[Collection]
    limit: int
    offset: int


class Document(Model):
    """A document without its text."""

    id: UUID
    collection_id: UUID
    source: str
    title: str | None
    media_type: str
    metadata: dict[str, Any]
    version: int
    chunk_count: int
    size_chars: int
    created_at: datetime | None
    updated_at: datetime | None


class DocumentPage(Model):
    """Documents of a collection; ``total`` counts all."""

    documents: list[Document]
    total: int
    limit: int
    offset: int
    language_note: str | None = None


class JobFailure(Model):
    """Reason of a failure."""

    code: str
    message: str


class JobDocument(Model):
    """A document of a job."""

    source: str
    media_type: str | None
    status: str
    stage: str | None
    error: JobFailure | None
    document_id: UUID | None
    warnings: list[str]
    chunks_added: int
    chunks_kept: int
    chunks_removed: int


class Job(Model):
    """An ingestion, its progress and its first 1,000 documents."""

    id: UUID
    collection_id: UUID
    status: str
    stage: str | None
    documents_total: int
    documents_done: int
    documents_failed: int
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    error: JobFailure | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    version: int | None
    documents: list[JobDocument]

    @property
    def is_finished(self) -> bool:
        """True if it has succeeded, failed, or both in part (``partial``)."""
        return self.status not in ("queued", "running")


class Erasure(Model):
    """An erasure; ``certificate`` names the erased objects once ``status`` is "done"."""

    id: UUID
    kind: str
    status: str
    stage: str
    erased: dict[str, int]
    requested_by: str
    begun_at: datetime
    finished_at: datetime | None
    certificate: dict[str, Any] | None
    sha256: str | None
    version: int | None = None


class Feedback(Model):
    """A stored rating."""

    query_id: UUID
    rating: str
    reasons: list[str]
    comment: str
    should_cite: list[UUID]
    created_at: datetime
    updated_at: datetime
