"""Bodies of ``/v1/profiles``."""

import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from vectorforge.api.native.rag import CollectionQueryRequest
from vectorforge.api.native.search import SearchResult
from vectorforge.api.query_bodies import NO_SETTINGS, given, history
from vectorforge.api.schemas import MAX_QUERY_CHARS, Body, Filters, Metadata, RequestBody
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile_text import ProfileDocument
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS, PROFILE, PROFILE_CONTEXT_CHARS
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import Variant
from vectorforge.profile_types import SourceType
from vectorforge.retriever.profile import RetrievedChunk
from vectorforge.types import SearchMode

MAX_ROWS = 500
MAX_ROW_BYTES = 64 * 1024
MAX_TEXT_CHARS = 1_000_000
MAX_CONTEXT_CHARS = 100_000


def _small(row: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(row)) > MAX_ROW_BYTES:
        raise ValueError(f"a row must be at most {MAX_ROW_BYTES} bytes of JSON")
    return row


ProfileRow = Annotated[dict[str, Any], AfterValidator(_small)]
Rows = Annotated[list[ProfileRow], Field(max_length=MAX_ROWS)]


class Chunking(RequestBody):
    """Sizes of the chunks of this call."""

    chunk_size: int = Field(default=800, ge=50, le=20_000, description="Characters at most.")
    chunk_overlap: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="At most half of chunk_size; default 150, or half of a chunk_size below 300.",
    )

    def config(self) -> ChunkingConfig:
        """Return the validated sizes."""
        overlap = self.chunk_overlap
        if overlap is None:
            overlap = min(ChunkingConfig().chunk_overlap, self.chunk_size // 2)
        return ChunkingConfig(self.chunk_size, overlap)


class ProfileRequest(RequestBody):
    """Database rows of a profile."""

    profile_summary: str = Field(default="", max_length=MAX_TEXT_CHARS)
    experiences: Rows = Field(
        default_factory=list,
        description="Rows as they are; a row with the same `id` is replaced.",
        examples=[[{"id": 12, "title": "Engineer", "company": "Acme", "start_date": "2020-01"}]],
    )
    projects: Rows = Field(default_factory=list)
    skills: Annotated[list[ProfileRow | str], Field(max_length=MAX_ROWS)] = Field(
        default_factory=list, description="Names, or rows such as {name, category, level}."
    )
    education: Rows = Field(default_factory=list)
    chunking: Chunking | None = Field(default=None, description="Null: the server's sizes.")

    def rows(self) -> dict[str, Any]:
        """Return the arguments that both ingestion routes share."""
        return {
            "profile_summary": self.profile_summary,
            "experiences": self.experiences,
            "projects": self.projects,
            "skills": self.skills,
            "education": self.education,
        }


class NewProfileDocument(BaseModel):
    """A CV or another text."""

    model_config = {"extra": "forbid"}

    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    source_type: SourceType = SourceType.CV
    source_id: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)] = (
        Field(default="1", description="Which one of its type; sent again, it replaces the document.")
    )
    title: Annotated[str, Field(max_length=500)] | None = None
    media_type: str = Field(default="text/plain", max_length=200)
    metadata: Metadata = Field(default_factory=dict)

    def document(self) -> ProfileDocument:
        """Return the document for the pipeline."""
        return ProfileDocument(
            self.source_type, self.source_id, self.text, self.title, self.media_type, self.metadata
        )


class ProfileDocumentRequest(NewProfileDocument, RequestBody):
    """A CV or another text for a profile."""

    chunking: Chunking | None = Field(default=None, description="Null: the server's sizes.")


class WholeProfileRequest(ProfileRequest):
    """A profile that atomically replaces the stored one."""

    documents: Annotated[list[NewProfileDocument], Field(max_length=MAX_ROWS)] | None = Field(
        default=None, description="Null: the stored CVs and other texts stay; a list takes their place."
    )


class ProfileResult(Body):
    """Result of the ingestion of a profile."""

    profile_id: int
    documents: int = Field(description="Rows and texts of the request that say something.")
    documents_unchanged: int
    documents_removed: int
    chunks_added: int
    chunks_kept: int
    chunks_removed: int


class ProfileSearchRequest(RequestBody):
    """A search in one profile, without a language model."""

    query: str = Field(max_length=MAX_QUERY_CHARS)
    top_k: int = Field(default=5, ge=1, description="Passages to return; the server's max_top_k at most.")
    filters: Filters | None = None
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")
    search_mode: SearchMode = Field(
        default=SearchMode.DENSE,
        description="What passages are found by: vectors and words (hybrid), vectors only (dense) or words "
        "only (lexical), of which min_score drops none.",
    )
    max_length: int = Field(
        default=PROFILE_CONTEXT_CHARS,
        ge=MIN_CONTEXT_CHARS,
        le=MAX_CONTEXT_CHARS,
        description="Characters of `context` at most; it has whole passages only.",
    )


class ProfileSearchResult(SearchResult):
    """A chunk of a profile."""

    source_type: SourceType
    source_id: str

    @classmethod
    def of_profile(cls, found: RetrievedChunk) -> Self:
        """Return the body of a chunk."""
        return cls.of(found.found, source_type=found.source_type, source_id=found.source_id)


class ProfileSearchResponse(BaseModel):
    """Chunks of a profile, best first."""

    query: str
    profile_id: int
    results: list[ProfileSearchResult]
    context: str = Field(description="The best of them as one text for a language model.")
    latency_ms: float


class ProfileQueryRequest(CollectionQueryRequest):
    """A query to one profile."""

    top_k: int = Field(
        default=PROFILE.defaults["top_k"],
        ge=1,
        description="Passages to retrieve; the server's max_top_k at most.",
    )
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")

    def config_for(self, profile_id: int, variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant.

        Raises:
            InvalidInputError: The body names another profile than the path.
        """
        if self.profile_id not in (None, profile_id):
            raise InvalidInputError("`profile_id` differs from the one in the path.", field="profile_id")
        explicit = {**given(self, but=NO_SETTINGS), "profile_id": profile_id}
        return PROFILE.config(variant, **explicit, history=history(self.messages))
