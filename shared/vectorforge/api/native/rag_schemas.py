"""Bodies of ``/v1/rag/query`` and ``/v1/collections/{id}/query``."""

from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, Field, ValidationInfo

from vectorforge.api.native.answers import (
    AnswerDetails,
    ChatMessage,
    CitationBody,
    ContextEntry,
    Latency,
    RetrievalStats,
    SourceBody,
    Usage,
)
from vectorforge.api.schemas import (
    MAX_QUERY_CHARS,
    CollectionReference,
    Filters,
    ModelName,
    ProfileId,
    ProviderName,
    RequestBody,
    SearchModeName,
)
from vectorforge.pipeline.presets import RAG_QUERY, VECTORFORGE
from vectorforge.pipeline.types import HistoryMessage, QueryConfig, QueryResult
from vectorforge.pipeline.variants import Variant

MAX_MESSAGES = 100
MAX_SYSTEM_PROMPT_CHARS = 50_000
NO_SETTINGS = frozenset({"dry_run", "resumable"})
"""Fields of every door that say nothing about the answer."""
ALLOW_UNGROUNDED = "When the search fails, a model may answer without any passage."


def _with_placeholder(template: str) -> str:
    if "{context}" not in template:
        raise ValueError("must contain {context}")
    return template


SystemPrompt = Annotated[str, Field(max_length=MAX_SYSTEM_PROMPT_CHARS), AfterValidator(_with_placeholder)]
Temperature = Annotated[float, Field(ge=0, le=2)]
VariantReference = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        description="Named set of settings: default, precise, comprehensive or one of the server's. What the "
        "request says itself wins. Null: the server's split decides, if it has one.",
    ),
]
Messages = Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES)]
ConversationReference = Annotated[
    UUID,
    Field(
        description="A stored conversation (`POST /v1/conversations`), in place of messages: what was said "
        "is part of the prompt, and the exchange is added when it is finished."
    ),
]
Rewrite = Annotated[
    bool,
    Field(
        description="A model may first make a question that follows up one that stands alone; what was "
        "searched for is `rewritten_query`. One more call of the model; none without a conversation."
    ),
]
DryRunFlag = Annotated[
    bool,
    Field(
        description="Return the request that the model would get, with its tokens and cost, and ask no model."
    ),
]


def _resumable_streams(value: bool, info: ValidationInfo) -> bool:
    if value and not info.data.get("stream"):
        raise ValueError("needs stream: true")
    return value


ResumableFlag = Annotated[
    bool,
    AfterValidator(_resumable_streams),
    Field(
        description="With `stream`: the events are kept for a while, so that a client that was cut off goes "
        "on with `GET /v1/queries/{id}/events`; the answer goes on without it."
    ),
]
"""A field behind ``stream``, without which there is nothing to resume."""


class RAGQueryRequest(RequestBody):
    """A question to the default collection."""

    query: str = Field(max_length=MAX_QUERY_CHARS, description="Query text")
    k: int = Field(default=5, ge=1, le=20, description="Top-k results")
    filters: Filters | None = None
    messages: Messages | None = Field(default=None, description="The conversation so far, oldest first.")
    temperature: Temperature | None = 0.7
    top_p: Annotated[float, Field(ge=0, le=1)] | None = 0.9
    max_tokens: Annotated[int, Field(ge=1)] | None = 2048
    include_context: bool | None = Field(default=True, description="Whether the passages found are returned.")
    stream: bool = Field(default=False, description="True: the answer comes as server-sent events.")
    resumable: ResumableFlag = False
    collection: CollectionReference | None = None
    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None
    provider: ProviderName | None = None
    model: ModelName | None = None
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite = False
    dry_run: DryRunFlag = False
    allow_ungrounded: bool = Field(default=False, description=ALLOW_UNGROUNDED)

    def config(self, variant: Variant | None = None) -> QueryConfig:
        """How the question is to be answered: what the request says goes over the variant."""
        explicit = given(self, but={"collection", "include_context", *NO_SETTINGS})
        for own, field in (("k", "top_k"), ("provider", "llm_provider"), ("model", "llm_model")):
            if own in explicit:
                explicit[field] = explicit.pop(own)
        if self.max_tokens is None:  # null means the default
            explicit.pop("max_tokens", None)
        return RAG_QUERY.config(variant, **explicit, history=history(self.messages))

    @property
    def wants_context(self) -> bool:
        """Null means the default."""
        return self.include_context is not False


class RAGQueryResponse(AnswerDetails):
    """The answer and the passages it rests on."""

    id: str
    object: Literal["rag.query.completion"] = "rag.query.completion"
    created: int = Field(description="Unix time in seconds.")
    query: str
    context: list[ContextEntry] | None = Field(description="Best first; null when include_context was false.")
    response: str
    usage: Usage
    retrieval_stats: RetrievalStats
    citations: list[CitationBody]
    provider: str | None
    model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents and is written by no model.")
    finish_reason: str
    outcome: str

    @classmethod
    def of(cls, result: QueryResult, *, created: int, extractive: bool, with_context: bool) -> Self:
        """The body for the result."""
        labels = {id_: f"[Context {n}]" for n, id_ in enumerate(result.used_chunk_ids, start=1)}
        context = [ContextEntry.of(chunk, labels.get(chunk.chunk.id)) for chunk in result.retrieved_chunks]
        response = result.llm_response
        return cls(
            id=f"ragq_{result.request_id}",
            created=created,
            query=result.query,
            context=context if with_context else None,
            response=result.answer,
            usage=Usage.of(result),
            retrieval_stats=RetrievalStats.of(result),
            citations=[CitationBody.of(citation) for citation in result.citations],
            provider=response.provider if response else None,
            model=response.model if response else None,
            extractive=extractive,
            finish_reason=result.finish_reason,
            outcome=result.outcome,
            **cls.fields_of(result),
        )


class CollectionQueryRequest(RequestBody):
    """A question to one collection."""

    query: str = Field(max_length=MAX_QUERY_CHARS)
    top_k: int = Field(default=10, ge=1, description="Passages to retrieve; the server's max_top_k at most.")
    min_score: float | None = Field(default=0.0, description="Passages below are dropped; null drops none.")
    filters: Filters | None = None
    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = None
    embedding_provider: ProviderName | None = None
    temperature: Temperature | None = 0.7
    max_tokens: int = Field(default=1024, ge=1)
    include_sources: bool = True
    stream: bool = Field(default=False, description="True: the answer comes as server-sent events.")
    resumable: ResumableFlag = False
    messages: Messages | None = Field(default=None, description="The conversation so far, oldest first.")
    system_prompt: SystemPrompt | None = Field(
        default=None, description="Template of the system message; must contain {context}."
    )
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite = False
    dry_run: DryRunFlag = False
    allow_ungrounded: bool = Field(default=False, description=ALLOW_UNGROUNDED)

    def config(self, variant: Variant | None = None) -> QueryConfig:
        """How the question is to be answered: what the request says goes over the variant."""
        return VECTORFORGE.config(variant, **given(self, but=NO_SETTINGS), history=history(self.messages))


class CollectionQueryResponse(AnswerDetails):
    """The answer and its sources."""

    id: UUID
    query: str
    answer: str
    sources: list[SourceBody] = Field(description="In the order of the labels; empty when not wanted.")
    citations: list[CitationBody]
    provider: str | None
    model: str | None
    extractive: bool
    usage: Usage
    latency: Latency
    finish_reason: str
    outcome: str
    invalid_citations: int = Field(description="Labels in the answer that name no source.")

    @classmethod
    def of(cls, result: QueryResult, *, extractive: bool) -> Self:
        """The body for the result."""
        response = result.llm_response
        return cls(
            id=result.request_id,
            query=result.query,
            answer=result.answer,
            sources=[SourceBody.of(n, source) for n, source in enumerate(result.sources, start=1)],
            citations=[CitationBody.of(citation) for citation in result.citations],
            provider=response.provider if response else None,
            model=response.model if response else None,
            extractive=extractive,
            usage=Usage.of(result),
            latency=Latency.of(result),
            finish_reason=result.finish_reason,
            outcome=result.outcome,
            invalid_citations=result.invalid_citations,
            **cls.fields_of(result),
        )


def given(body: RequestBody, *, but: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """The fields that the request says, which win over a variant: not those left at their defaults.

    Args:
        body: The request.
        but: Fields that are not the configuration's, beside the question, its messages and the variant.
    """
    return body.model_dump(exclude_unset=True, exclude={"query", "messages", "variant", *but})


def history(messages: list[ChatMessage] | None) -> tuple[HistoryMessage, ...]:
    """The conversation so far, in the pipeline's words."""
    return tuple(HistoryMessage(message.role, message.content) for message in messages or ())
