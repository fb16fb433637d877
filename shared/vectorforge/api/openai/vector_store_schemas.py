"""Bodies of ``/v1/vector_stores`` and its search: a vector store is a collection."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from vectorforge.api.native.search import SEARCH_DEGRADED
from vectorforge.api.openai.chat_schemas import OpenAIBody
from vectorforge.api.openai.file_schemas import (
    AttributeFilter,
    ChunkingStrategy,
    CursorList,
    SearchResultBody,
    refused,
    unix_time,
)
from vectorforge.api.schemas import MAX_NAME_CHARS, MAX_QUERY_CHARS, ProfileId, SearchModeName
from vectorforge.db.repositories.collection_listing import ListedCollection

MAX_QUERIES = 8
"""Questions of one search."""
MAX_RESULTS = 50
"""Of OpenAI's own search: ``max_num_results``."""


class VectorStoreRequest(OpenAIBody):
    """A vector store to be made: a collection with the server's embedding model."""

    name: (
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]
        | None
    ) = Field(default=None, description="Unique within the tenant; without one, it is made up.")
    description: Annotated[str, Field(max_length=2000)] | None = None
    file_ids: (
        Annotated[list[str], refused("a document is added with POST /v1/collections/{id}/documents")] | None
    ) = None
    metadata: Annotated[dict[str, Any], refused("no metadata is kept of a vector store")] | None = None
    expires_after: Annotated[dict[str, Any], refused("vector stores do not expire")] | None = None
    chunking_strategy: ChunkingStrategy | None = None


class RankingOptions(OpenAIBody):
    """How passages are chosen."""

    ranker: Literal["none", "auto"] = Field(default="auto", description="Both: by similarity alone.")
    score_threshold: float | None = Field(default=None, description="Passages below are dropped.")
    hybrid_search: Annotated[Any, refused("there is no keyword search to weigh")] = None


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class VectorStoreSearchRequest(OpenAIBody):
    """A search without an answer."""

    query: Annotated[
        list[Annotated[str, Field(max_length=MAX_QUERY_CHARS)]],
        Field(min_length=1, max_length=MAX_QUERIES),
        BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    ] = Field(
        description="A question, or several: each is searched for, and a passage has the best of its scores."
    )
    filters: AttributeFilter | None = None
    max_num_results: int = Field(default=10, ge=1, le=MAX_RESULTS)
    ranking_options: RankingOptions | None = None
    rewrite_query: Annotated[bool, refused("questions are searched for as they are")] | None = None
    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None


class FileCounts(BaseModel):
    """Documents by what has become of them; those that failed are told by their jobs."""

    in_progress: int
    completed: int
    failed: Literal[0] = 0
    cancelled: Literal[0] = 0
    total: int


class VectorStoreBody(BaseModel):
    """A collection."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int = Field(description="Unix time in seconds.")
    name: str
    description: str
    status: Literal["in_progress", "completed"] = Field(
        description="in_progress: documents are on their way."
    )
    usage_bytes: int = Field(description="Of the documents' texts as UTF-8.")
    file_counts: FileCounts
    last_active_at: None = None
    expires_after: None = None
    expires_at: None = None
    metadata: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, found: ListedCollection) -> Self:
        """The body for the collection."""
        collection, waiting = found.collection, found.documents_waiting
        stored = collection.document_count
        return cls(
            id=str(collection.id),
            created_at=unix_time(collection.created_at),
            name=collection.name,
            description=collection.description,
            status="in_progress" if waiting else "completed",
            usage_bytes=found.text_bytes,
            file_counts=FileCounts(in_progress=waiting, completed=stored, total=stored + waiting),
        )


class VectorStoreList(CursorList):
    """A page of collections."""

    data: list[VectorStoreBody]

    @classmethod
    def of(cls, data: list[VectorStoreBody], *, has_more: bool) -> Self:
        """The page with these."""
        first_id, last_id = (data[0].id, data[-1].id) if data else (None, None)
        return cls(data=data, has_more=has_more, first_id=first_id, last_id=last_id)


class VectorStoreDeleted(BaseModel):
    """A collection that was deleted with its documents."""

    id: str
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: Literal[True] = True


class SearchResultsPage(BaseModel):
    """Passages, best first; always one page."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchResultBody]
    degraded: list[str] = Field(description=f"{SEARCH_DEGRADED} Not in OpenAI's own object.")
    has_more: Literal[False] = False
    next_page: None = None
