"""``/v1/docrag/query``: answers from documentation with examples, sources and the model's confidence."""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from vectorforge.api.answers import (
    AnswerDetails,
    CitationBody,
    DocRagQuality,
    DryRunResponse,
    RetrievalStats,
    SourceBody,
    Structured,
    Usage,
    numbered_sources,
)
from vectorforge.api.dependencies import ApplicationDep
from vectorforge.api.querying import QueryRoute, answer_request, answer_responses, requested_collection
from vectorforge.api.schemas import (
    NO_SETTINGS,
    CollectionReference,
    ModelName,
    ProviderName,
    QueryRequest,
    Temperature,
    given,
)
from vectorforge.pipeline.presets import DEFAULT_COLLECTION, DOCRAG, history_of
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import Variant

MAX_EXCHANGES = 50
_NAMES = {"top_k": "n_results", "llm_provider": "provider", "llm_model": "model"}


class Exchange(BaseModel):
    """An earlier query and its answer."""

    model_config = {"extra": "forbid"}

    user_query: str = Field(max_length=100_000)
    ai_response: str = Field(max_length=100_000)


class DocRagQueryRequest(QueryRequest):
    """A query to the documentation."""

    conversation_history: Annotated[list[Exchange], Field(max_length=MAX_EXCHANGES)] | None = Field(
        default=None, description="Oldest first; the last three are used, 200 characters of each answer."
    )
    n_results: int = Field(default=5, ge=1, description="Passages to retrieve; max_top_k at most.")
    min_score: float | None = Field(default=None, description="Minimum score of a passage; null: none.")
    temperature: Temperature | None = 0.3
    max_tokens: int = Field(default=1000, ge=1)
    collection: CollectionReference | None = Field(
        default=None, description="Default: `docrag_embeddings` if there is one, else the default collection."
    )
    provider: ProviderName | None = None
    model: ModelName | None = None

    def config(self, variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant."""
        explicit = given(self, but={"collection", "conversation_history", *NO_SETTINGS}, names=_NAMES)
        exchanges = [(e.user_query, e.ai_response) for e in self.conversation_history or ()]
        return DOCRAG.config(variant, **explicit, history=history_of(exchanges))


class DocRagQueryResponse(AnswerDetails):
    """The answer with the model's structured output."""

    id: UUID
    query: str
    answer: str
    examples: list[str] = Field(description="Code examples.")
    sources: list[str] = Field(description="Sources named by the model, limited to those in the prompt.")
    dropped_sources: int = Field(description="Sources named by the model that are not in the prompt.")
    confidence: Literal["high", "medium", "low"] = Field(description="As stated by the model, else low.")
    response_time: float = Field(description="Seconds.")
    passages: list[SourceBody] = Field(description="Passages in the prompt, best first.")
    citations: list[CitationBody]
    quality: DocRagQuality | None
    provider: str | None
    model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents; no model wrote it.")
    usage: Usage
    retrieval_stats: RetrievalStats
    finish_reason: str
    outcome: str
    error: Literal["service_unavailable"] | None = Field(description="No model is available: fixed answer.")

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``QueryResult`` with structured output."""
        structured = Structured.of(source.structured)
        return super().of(
            source,
            id=source.request_id,
            **structured.model_dump(),
            response_time=source.total_latency_ms / 1000,
            passages=numbered_sources(source.sources),
            error="service_unavailable" if "template" in source.degraded else None,
            **given,
        )


router = APIRouter(prefix="/v1", tags=["query"], route_class=QueryRoute)


@router.post(
    "/docrag/query", response_model=DocRagQueryResponse | DryRunResponse, responses=answer_responses()
)
async def docrag_query(
    request: Request, body: DocRagQueryRequest, application: ApplicationDep
) -> Response | DocRagQueryResponse | DryRunResponse:
    """Answer a query from documentation. The model returns JSON; a stream has its answer as text."""
    collection = requested_collection(application, body.collection, preferred=DEFAULT_COLLECTION)
    return await answer_request(request, body, collection, body.config, DocRagQueryResponse.of, names=_NAMES)
