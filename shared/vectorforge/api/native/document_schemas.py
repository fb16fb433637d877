"""Bodies of documents and chunks."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api.schemas import VERSION, Body, Filters, Locations, Metadata, ProfileId, RequestBody
from vectorforge.db.repositories.document_repo import CitedChunk, Document

MAX_SOURCE_CHARS = 2000


class NewDocument(BaseModel):
    """A document as text."""

    model_config = {"extra": "forbid"}

    source: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_SOURCE_CHARS)
    ] = Field(
        description="Identity within the collection: path, URL or key. Sent again, it is a new version."
    )
    text: str
    title: Annotated[str, Field(max_length=1000)] | None = None
    media_type: str = Field(default="text/plain", max_length=200)
    metadata: Metadata = Field(default_factory=dict)


class DocumentsRequest(RequestBody):
    """Documents to be ingested."""

    documents: list[NewDocument] = Field(min_length=1, max_length=10_000)


class DocumentsDeletion(RequestBody):
    """Selection of documents to delete."""

    filters: Annotated[Filters, Field(min_length=1)]
    profile_id: ProfileId | None = None
    dry_run: bool = Field(default=False, description="Count them only.")


class DeletedDocuments(BaseModel):
    """Result of a deletion."""

    matched: int = Field(description="Documents that matched before.")
    deleted: int = Field(description="Documents deleted, with their passages; in a dry run none.")
    remaining: int = Field(description="Documents that still match; above 0, send the request again.")
    version: int | None = Field(default=None, description=VERSION)


class DocumentBody(Body):
    """A stored document, without its text."""

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


class DocumentList(BaseModel):
    """A page of documents."""

    documents: list[DocumentBody]
    total: int
    limit: int
    offset: int
    language_note: str | None = Field(
        default=None,
        description="Languages of these documents that the embedding model hardly understands, and a remedy.",
    )


class DocumentText(Body):
    """A document's extracted text; the offsets of chunks and citations point into it."""

    id: UUID
    source: str
    title: str | None
    media_type: str
    text: str


class ChunkBody(Body):
    """A chunk of a document."""

    id: UUID
    index: int
    text: str
    start_offset: int
    end_offset: int
    heading: str | None
    token_count: int
    locations: Locations
    metadata: dict[str, Any]


class ChunkList(BaseModel):
    """A page of a document's chunks, in order."""

    chunks: list[ChunkBody]
    total: int
    limit: int
    offset: int


class ChunkDocument(Body):
    """The document a chunk is from."""

    id: UUID
    source: str
    title: str | None


class ChunkWithDocument(ChunkBody):
    """A chunk and where it is from."""

    retired: bool = Field(description="True: from an earlier version, in whose text the offsets are.")
    document_version: int = Field(description="Version of the document whose text the offsets count in.")
    document: ChunkDocument

    @classmethod
    def of_document(cls, cited: CitedChunk, document: Document) -> Self:
        """Return the body of a chunk with its document."""
        return cls.of(
            cited.chunk, retired=cited.retired, document_version=cited.document_version, document=document
        )
