"""Data of each server-sent event of a query.

Order: ``meta``, ``sources``, ``degraded`` where the full answer cannot be had, then ``token`` and
``citation`` mixed, ``usage``, and last exactly one of ``done`` or ``error``. A stream that ends without one
was cut off. A ``citation`` comes when the sentence of its label has ended, since its verdict needs the whole
of it: later than the label's own tokens, in the order of the labels, and before ``usage``.
"""

from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.native.answer_figures import DocRagQuality, Latency, Quality, RetrievalStats
from vectorforge.api.native.answer_schemas import AnswerDetails, CitationBody, SourceBody, Structured
from vectorforge.api.schemas import Problem
from vectorforge.pipeline.types import Degradation


class MetaData(BaseModel):
    """Event ``meta``: what is going to answer."""

    request_id: UUID = Field(description="Also the id of the query's log record.")
    collection_id: UUID
    provider: str | None
    model: str | None
    extractive: bool
    query_truncated: bool
    cached: bool
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None


class SourcesData(BaseModel):
    """Event ``sources``: the passages for the model, which gets the first ``funnel.used`` of them."""

    sources: list[SourceBody]
    retrieval_ms: float


class DegradedData(BaseModel):
    """Event ``degraded``: the full answer cannot be had; what comes instead."""

    step: Degradation
    reason: str = Field(description="Code of the error that led to it.")
    provider: str | None
    model: str | None
    extractive: bool


class TokenData(BaseModel):
    """Event ``token``: a piece of the answer; the pieces joined are the answer."""

    text: str


class CitationData(CitationBody):
    """Event ``citation``: a label in the text so far names a source; sent when its sentence has ended."""


class UsageData(BaseModel):
    """Event ``usage``: tokens, as the vendor counted them unless ``estimated``."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False


class DoneData(AnswerDetails):
    """Event ``done``: the query worked."""

    finish_reason: str
    outcome: str
    answer: str
    invalid_citations: int
    latency: Latency
    retrieval_stats: RetrievalStats
    quality: DocRagQuality | Quality | None = Field(description="Null without chunks to judge it by.")
    structured: Structured | None = Field(description="Null at doors that do not ask the model for JSON.")


class ErrorData(Problem):
    """Event ``error``: the query failed; a problem document with two members more."""

    stage: str = Field(description="preprocess | retrieve | context | generate")
    partial_answer: str = Field(description="What had been sent as tokens.")


EVENT_DATA: dict[str, type[BaseModel]] = {
    "meta": MetaData,
    "sources": SourcesData,
    "degraded": DegradedData,
    "token": TokenData,
    "citation": CitationData,
    "usage": UsageData,
    "done": DoneData,
    "error": ErrorData,
}
"""Name of each event -> model of its data."""
