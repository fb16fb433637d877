"""Bodies of ``/v1/vector_stores``: a vector store is a collection.

Unknown fields of requests are ignored, as OpenAI's clients send more than is used here; unsupported options
that would change the result are rejected by name.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from vectorforge.api.native.search import SEARCH_DEGRADED
from vectorforge.api.openai.ids import FILE, VECTOR_STORE, prefixed
from vectorforge.api.openai.request_schemas import (
    MAX_RESULTS,
    AttributeFilter,
    OneOrMoreTexts,
    OpenAIBody,
    RankingOptions,
    unsupported,
)
from vectorforge.api.schemas import MAX_NAME_CHARS, MAX_QUERY_CHARS, Body, Locations, SearchOptions
from vectorforge.db.repositories.collection_listing import ListedCollection
from vectorforge.types import RetrievedChunk

Attributes = dict[str, str | int | float | bool]


def _no_chunking(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type") != "auto":
        raise ValueError("only auto is supported; chunking is a setting of the server")
    return value


ChunkingStrategy = Annotated[dict[str, Any], AfterValidator(_no_chunking)]


class CursorList(BaseModel):
    """A page of a list, with the cursors of its neighbors."""

    object: Literal["list"] = "list"
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, data: Sequence[Any], *, has_more: bool) -> Self:
        """Return the page of these objects, which have an ``id``."""
        first_id, last_id = (data[0].id, data[-1].id) if data else (None, None)
        return cls.model_validate(
            {"data": data, "has_more": has_more, "first_id": first_id, "last_id": last_id}
        )


class TextContent(BaseModel):
    """A text."""

    type: Literal["text"] = "text"
    text: str


class FoundPassage(Body):
    """A chunk in the prompt."""

    file_id: str
    filename: str = Field(description="The document's source.")
    score: float
    attributes: Attributes
    text: str
    chunk_id: str
    locations: Locations


class SearchResultBody(BaseModel):
    """A retrieved chunk; several may come from the same file."""

    file_id: str
    filename: str = Field(description="The document's source.")
    score: float
    attributes: Attributes
    content: list[TextContent]
    chunk_id: str = Field(description="For GET /v1/chunks/{id}. Not in OpenAI's own object.")
    locations: Locations

    @classmethod
    def of(cls, retrieved: RetrievedChunk) -> Self:
        """Return the body of a chunk."""
        chunk = retrieved.chunk
        return cls(
            file_id=prefixed(FILE, chunk.document_id),
            filename=retrieved.document_source,
            score=retrieved.score,
            attributes=attributes_of(chunk.metadata),
            content=[TextContent(text=chunk.text)],
            chunk_id=str(chunk.id),
            locations=list(chunk.locations),
        )


def unix_time(moment: datetime | None) -> int:
    """Return whole seconds; 0 for an unknown time."""
    return int(moment.timestamp()) if moment else 0


def attributes_of(metadata: Mapping[str, Any], prefix: str = "") -> Attributes:
    """Return metadata in the form that OpenAI's clients read: strings, numbers and booleans.

    A nested object becomes dotted keys, which filters accept; a list becomes its JSON; nulls are omitted.
    """
    flat: Attributes = {}
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            flat.update(attributes_of(value, f"{prefix}{name}."))
        elif isinstance(value, str | int | float):
            flat[prefix + name] = value
        elif value is not None:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat


MAX_QUERIES = 8  # of one search


MAX_BATCH_FILES = 500
"""Files that one request attaches."""
FileReference = Annotated[str, Field(min_length=1, max_length=200)]
_StoreName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]
StoreMetadata = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]
_Expiry = Annotated[dict[str, Any], unsupported("vector stores do not expire")]


class VectorStoreRequest(OpenAIBody):
    """A new vector store: a collection with the server's embedding model."""

    name: _StoreName | None = Field(
        default=None, description="Unique within the tenant; without one, it is made up."
    )
    description: Annotated[str, Field(max_length=2000)] | None = None
    file_ids: Annotated[list[FileReference], Field(max_length=MAX_BATCH_FILES)] | None = Field(
        default=None, description="Uploaded files to attach."
    )
    metadata: StoreMetadata | None = None
    expires_after: _Expiry | None = None
    chunking_strategy: ChunkingStrategy | None = None


class VectorStoreUpdate(OpenAIBody):
    """New name or metadata of a vector store; what is missing or null stays."""

    name: _StoreName | None = Field(default=None, description="Unique within the tenant.")
    metadata: StoreMetadata | None = Field(default=None, description="In place of all that it has.")
    expires_after: _Expiry | None = None


class VectorStoreSearchRequest(OpenAIBody, SearchOptions):
    """A search without an answer."""

    query: Annotated[
        list[Annotated[str, Field(max_length=MAX_QUERY_CHARS)]],
        Field(min_length=1, max_length=MAX_QUERIES),
        OneOrMoreTexts,
    ] = Field(
        description="A question, or several: each is searched for, and a passage has the best of its scores."
    )
    filters: AttributeFilter | None = None
    max_num_results: int = Field(default=10, ge=1, le=MAX_RESULTS)
    ranking_options: RankingOptions | None = None
    rewrite_query: Annotated[bool, unsupported("query rewriting is not supported")] | None = None


class FileCounts(BaseModel):
    """Files by status; documents that were not attached as files and failed are in their jobs only."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class VectorStoreBody(BaseModel):
    """A collection."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int = Field(description="Unix time in seconds.")
    name: str
    description: str
    status: Literal["in_progress", "completed"] = Field(description="in_progress: documents are ingested.")
    usage_bytes: int = Field(description="Of the documents' texts as UTF-8.")
    file_counts: FileCounts
    last_active_at: None = None
    expires_after: None = None
    expires_at: None = None
    metadata: dict[str, str]

    @classmethod
    def of(cls, listed: ListedCollection) -> Self:
        """Return the body of a collection."""
        collection, waiting = listed.collection, listed.documents_waiting
        stored, failed, cancelled = collection.document_count, listed.files_failed, listed.files_cancelled
        return cls(
            id=prefixed(VECTOR_STORE, collection.id),
            created_at=unix_time(collection.created_at),
            name=collection.name,
            description=collection.description,
            status="in_progress" if waiting else "completed",
            usage_bytes=listed.text_bytes,
            file_counts=FileCounts(
                in_progress=waiting,
                completed=stored,
                failed=failed,
                cancelled=cancelled,
                total=stored + waiting + failed + cancelled,
            ),
            metadata=dict(listed.metadata),
        )


class VectorStoreList(CursorList):
    """A page of collections."""

    data: list[VectorStoreBody]


class VectorStoreDeleted(BaseModel):
    """A collection that was deleted with its documents."""

    id: str
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: Literal[True] = True


class SearchResultsPage(BaseModel):
    """Chunks, best first; always one page."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchResultBody]
    degraded: list[str] = Field(description=f"{SEARCH_DEGRADED} Not in OpenAI's own object.")
    has_more: Literal[False] = False
    next_page: None = None
