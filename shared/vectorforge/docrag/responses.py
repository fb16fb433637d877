"""The engine's errors. Each is the pipeline's error of the same kind, too, so either can be caught.

The engine's answers as dictionaries.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from vectorforge import errors
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.citations.quality import LOW_RELEVANCE, completeness, relevance
from vectorforge.pipeline.presets import UNAVAILABLE_ANSWER, accuracy_indicators, history_of
from vectorforge.pipeline.types import HistoryMessage, QueryResult, StructuredAnswer
from vectorforge.types import RetrievedChunk


class RAGError(errors.VectorForgeError):
    """The engine failed."""


class EmbeddingError(RAGError, errors.EmbeddingError):
    """A text could not be embedded."""


class RetrievalError(RAGError, errors.RetrievalError):
    """The search failed."""


class GenerationError(RAGError, errors.LLMError):
    """The answer could not be generated."""


def rag_error(error: errors.VectorForgeError) -> errors.VectorForgeError:
    """The engine's error for one of the pipeline's; what the caller has to change stays as it is."""
    if isinstance(error, RAGError) or not error.is_fault:
        return error
    own: RAGError
    if isinstance(error, errors.EmbeddingError):
        own = EmbeddingError(f"Failed to generate embedding: {error.message}")
    elif isinstance(error, errors.LLMError):
        own = GenerationError(f"Failed to generate response: {error.message}")
    elif isinstance(error, errors.RetrievalError | errors.DatabaseError):
        own = RetrievalError(f"Failed to retrieve documents: {error.message}")
    else:
        return error
    own.retryable, own.retry_after_s = error.retryable, error.retry_after_s
    own.__cause__ = error
    return own


logger = logging.getLogger(__name__)


def as_history(exchanges: Iterable[Mapping[str, str]] | None) -> tuple[HistoryMessage, ...]:
    """Earlier exchanges, oldest first.

    Raises:
        InvalidInputError: One has no ``user_query`` or no ``ai_response``.
    """
    pairs = []
    for exchange in exchanges or ():
        pair = (exchange.get("user_query"), exchange.get("ai_response"))
        if not isinstance(pair[0], str) or not isinstance(pair[1], str):
            raise InvalidInputError(
                "Each exchange needs the texts user_query and ai_response.", field="conversation_history"
            )
        pairs.append((pair[0], pair[1]))
    return history_of(pairs)


def as_response(result: QueryResult) -> dict[str, Any]:
    """What a caller gets of an answer."""
    said = result.structured or StructuredAnswer()
    return {
        "answer": result.answer,
        "examples": list(said.examples),
        "sources": list(said.source_urls),
        "confidence": said.confidence,
        "dropped_sources": said.dropped_source_urls,
        "response_time": result.total_latency_ms / 1000,
        "cached": result.cached,
        "degraded": list(result.degraded),
        "variant": result.variant,
        "request_id": str(result.request_id),
        "passages": [as_chunk(chunk) for chunk in result.retrieved_chunks],
        "quality": _as_quality(result, said),
        **({"error": "service_unavailable"} if "template" in result.degraded else {}),
    }


def unavailable(response_time: float) -> dict[str, Any]:
    """The fixed answer when nobody can answer, ``response_time`` in seconds."""
    return {
        "answer": UNAVAILABLE_ANSWER,
        "examples": [],
        "sources": [],
        "confidence": "low",
        "dropped_sources": 0,
        "response_time": response_time,
        "cached": False,
        "degraded": ["template"],
        "variant": None,
        "request_id": None,
        "passages": [],
        "quality": None,
        "error": "service_unavailable",
    }


def as_chunk(found: RetrievedChunk) -> dict[str, Any]:
    """A passage under the design's names."""
    return {
        "content": found.chunk.text,
        "metadata": dict(found.chunk.metadata),
        "similarity_score": found.score,
        "source_url": found.document_source,
        "title": found.document_title or "",
    }


def assess_response_quality(
    query: str, response: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Judge an answer by its words; see ``RAGEngine.assess_response_quality``."""
    answer, texts = response.get("answer") or "", [chunk.get("content") or "" for chunk in chunks]
    share = relevance(answer, texts)
    if share < LOW_RELEVANCE:
        logger.warning("Low answer quality: relevance %.2f", share)
    return {
        "relevance_score": share,
        "completeness_score": completeness(query, answer, texts),
        "accuracy_indicators": accuracy_indicators(
            response.get("examples") or (), response.get("sources") or ()
        ),
    }


def _as_quality(result: QueryResult, said: StructuredAnswer) -> dict[str, Any] | None:
    """The quality under the design's names, and under those of ``AnswerQuality``."""
    quality = result.quality
    if quality is None:
        return None
    return {
        "relevance_score": quality.relevance,
        "completeness_score": quality.completeness,
        "accuracy_indicators": accuracy_indicators(said.examples, said.source_urls),
        **quality.as_dict(),
    }


def log_analytics(query: str, response: Mapping[str, Any], processing_time: float) -> dict[str, Any]:
    """Log sizes and qualities of a query, none of its words; returns what was logged.

    Args:
        query: The question.
        response: As ``RAGEngine.query`` returns it.
        processing_time: Seconds.
    """
    analytics = {
        "query_length": len(query),
        "response_length": len(response.get("answer", "")),
        "sources_count": len(response.get("sources", ())),
        "examples_count": len(response.get("examples", ())),
        "processing_time": processing_time,
        "confidence_level": response.get("confidence", "unknown"),
        "cached": response.get("cached", False),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    logger.info(f"Query analytics: {json.dumps(analytics)}")  # exact text: D-042
    return analytics
