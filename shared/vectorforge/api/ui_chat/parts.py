"""Parts of a UI message stream: https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol (``ai`` 7).

Names within our own data and metadata are in camel case, as those of the AI SDK.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from pydantic.alias_generators import to_camel

from vectorforge.api.native.answer_figures import Latency, RetrievalStats
from vectorforge.api.native.answer_schemas import AnswerDetails, Structured
from vectorforge.api.schemas import Problem
from vectorforge.pipeline.types import (
    Citation,
    DegradedEvent,
    MetaEvent,
    QueryResult,
    SourceCitation,
    SourcesEvent,
    UsageEvent,
)

Part: TypeAlias = dict[str, Any]

_FINISH_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "empty": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "deadline": "interrupted",
}
_UNKNOWN_FINISH = "other"
_MEDIA_TYPES: Mapping[str, str] = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".csv": "text/csv",
    ".jsonl": "application/x-ndjson",
}
"""By the extension: a source keeps its name only. Others are text, as all passages are."""


def start(event: MetaEvent) -> Part:
    """The message's id and what is going to answer."""
    metadata = {
        "requestId": str(event.request_id),
        "collectionId": str(event.collection_id),
        "provider": event.provider,
        "model": event.model,
        "extractive": event.extractive,
        "cached": event.cached,
        "variant": event.variant,
        "conversationId": str(event.conversation_id) if event.conversation_id else None,
        "rewrittenQuery": event.rewritten_query,
        "queryTruncated": event.query_truncated,
    }
    return {"type": "start", "messageId": str(event.request_id), "messageMetadata": metadata}


def retrieval(event: SourcesEvent) -> Part:
    """How the search went; not kept in the message."""
    data = {
        "found": len(event.retrieved_chunks),
        "used": len(event.sources),
        "retrievalMs": event.retrieval_latency_ms,
    }
    return {"type": "data-retrieval", "data": data, "transient": True}


def source(number: int, passage: SourceCitation) -> Part:
    """A passage the model is given, as ``source-url`` or ``source-document``; its id is the passage's.

    Args:
        number: The n of its label ``[n]``, from 1.
        passage: The passage.
    """
    described = _described(passage)
    ours = {
        "number": number,
        "documentId": str(passage.document_id),
        "documentSource": passage.document_source,
        "heading": passage.heading,
        "score": passage.score,
        "snippet": passage.snippet,
        "startOffset": passage.start_offset,
        "endOffset": passage.end_offset,
    }
    kind = "source-url" if passage.source_url else "source-document"
    return {
        "type": kind,
        "sourceId": str(passage.chunk_id),
        **described,
        "providerMetadata": {"vectorforge": ours},
    }


def judged(found: Citation) -> Part:
    """A citation while the text is still coming in, for ``onData``; not kept in the message."""
    data = {"number": found.source_number, "sourceId": str(found.chunk_id), "verdict": found.verdict}
    return {"type": "data-citation", "data": data, "transient": True}


def citation(found: Citation, passage: SourceCitation, span: tuple[int, int]) -> Part:
    """A member of a text part's ``citations``.

    Args:
        found: The citation.
        passage: What it cites.
        span: Where its label is in the text, in UTF-16 code units: as JavaScript counts.
    """
    cited = {
        "type": "source",
        "sourceType": "url" if passage.source_url else "document",
        "id": str(passage.chunk_id),
        **_described(passage),
        "providerMetadata": {"vectorforge": {"number": found.source_number, "verdict": found.verdict}},
    }
    return {"source": cited, "startIndex": span[0], "endIndex": span[1], "citedText": passage.text}


def degraded(event: DegradedEvent) -> Part:
    """A step down from the full answer; kept in the message."""
    data = {
        "step": event.step,
        "reason": event.reason,
        "provider": event.provider,
        "model": event.model,
        "extractive": event.extractive,
    }
    return {"type": "data-degraded", "data": data}


def problem_data(problem: Problem, stage: str) -> Part:
    """What programs need of a failure, before ``error``, which has a text only; not kept in the message."""
    data = {**problem.model_dump(mode="json", exclude_none=True), "stage": stage}
    return {"type": "data-problem", "data": camel_case(data), "transient": True}


def finish(result: QueryResult, usage: UsageEvent | None) -> Part:
    """Why the answer ends, its tokens, and where it came from."""
    details = AnswerDetails(**AnswerDetails.fields_of(result))
    structured = Structured.of(result)
    metadata = {
        **details.model_dump(mode="json"),
        "outcome": result.outcome,
        "invalid_citations": result.invalid_citations,
        "latency": Latency.of(result).model_dump(),
        "retrieval_stats": RetrievalStats.of(result).model_dump(),
        "structured": structured.model_dump() if structured else None,
    }
    counted = {"usage": _usage(usage)} if usage else {}
    return {
        "type": "finish",
        "finishReason": _FINISH_REASONS.get(result.finish_reason, _UNKNOWN_FINISH),
        "messageMetadata": {**camel_case(metadata), **counted},
    }


def camel_case(value: Any) -> Any:
    """The JSON value with the keys of its objects in camel case."""
    if isinstance(value, Mapping):
        return {to_camel(key): camel_case(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [camel_case(item) for item in value]
    return value


def _usage(event: UsageEvent) -> Part:
    return {
        "inputTokens": event.prompt_tokens,
        "outputTokens": event.completion_tokens,
        "totalTokens": event.total_tokens,
        "estimated": event.estimated,
    }


def _described(passage: SourceCitation) -> Part:
    title = passage.title or passage.document_source
    if passage.source_url:
        return {"url": passage.source_url, "title": title}
    extension = PurePosixPath(passage.document_source).suffix.lower()
    media_type = _MEDIA_TYPES.get(extension, "text/plain")
    return {"mediaType": media_type, "title": title, "filename": passage.document_source}
