"""OTLP spans of a query's log record, described by the semantic conventions for GenAI.

The JSON encoding is stable and needs no package: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
Attributes: https://github.com/open-telemetry/semantic-conventions-genai.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vectorforge import __version__
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.db.tenant_database import storable_text
from vectorforge.telemetry import SpanName

_INTERNAL, _KINDS = 1, {"query": 2, "retrieve": 3, "generate": 3}  # 2 is a server's span, 3 a client's
_ERROR: Final = 2  # status
_MAX_TEXT_CHARS: Final = 12_000
"""CloudWatch rejects spans above 200 KB; escaped twice, a character may take seven bytes."""
_PROVIDERS: Final = {
    "azure_openai": "azure.ai.openai", "bedrock": "aws.bedrock", "google": "gcp.gemini",
    "mistral": "mistral_ai", "vertex": "gcp.vertex_ai", "xai": "x_ai",
}  # fmt: skip
"""Names of the conventions that differ from ours."""


def encode_trace(tenant_id: str, log: QueryLog, *, with_texts: bool) -> str:
    """Return the spans of a record as JSON objects separated by commas; empty without a trace.

    Args:
        tenant_id: Tenant of the record.
        log: Record of a query's end.
        with_texts: Include query and answer, at most 12,000 characters of each, as the record has them.
    """
    if log.trace is None:
        return ""
    trace_id, parent_id, spans = log.trace
    root_id, encoded = spans[0][1], list[str]()
    for name, span_id, start_ns, end_ns, error in spans:
        failure = log.error_code if name == "query" and log.outcome == "error" else error
        attributes = _attributes(name, tenant_id, log) | (_texts(name, log) if with_texts else {})
        span = {
            "traceId": trace_id,
            "spanId": span_id,
            "parentSpanId": parent_id or "" if span_id == root_id else root_id,
            "name": name,
            "kind": _KINDS.get(name, _INTERNAL),
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(end_ns),
            "attributes": _encode_attributes({**attributes, "error.type": failure}),
            "status": {"code": _ERROR} if failure else {},
        }
        encoded.append(_json(span))
    return ",".join(encoded)


def encode_request(resource: Mapping[str, str], traces: Sequence[str]) -> bytes:
    """Return the body of an export: traces of ``encode_trace`` of one resource."""
    attributes, scope = _encode_attributes(resource), {"name": "vectorforge", "version": __version__}
    head = f'{{"resource":{{"attributes":{_json(attributes)}}},"scopeSpans":[{{"scope":{_json(scope)}'
    return f'{{"resourceSpans":[{head},"spans":[{",".join(traces)}]}}]}}]}}'.encode()


def _attributes(name: SpanName, tenant_id: str, log: QueryLog) -> dict[str, Any]:
    match name:
        case "query":
            names = ("outcome", "error_stage", "preset", "variant", "cached", "first_token_ms", "cost_usd")
            return {
                "gen_ai.conversation.id": log.conversation_id,
                "vectorforge.tenant": tenant_id,
                "vectorforge.query.id": log.id,
                "vectorforge.collection.id": log.collection_id,
                "vectorforge.degraded": list(log.degraded) or None,
                **{f"vectorforge.{name}": getattr(log, name) for name in names},
            }
        case "retrieve":
            return {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.data_source.id": log.collection_id,
                "vectorforge.chunks.retrieved": len(log.retrieved_chunk_ids),
            }
        case "context":
            return {"vectorforge.chunks.used": len(log.used_chunk_ids)}
        case "generate" if log.request is not None:  # None: no model was called
            settings = ("model", "temperature", "top_p", "max_tokens")
            return {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _PROVIDERS.get(log.provider or "", log.provider),
                "gen_ai.conversation.id": log.conversation_id,
                "gen_ai.response.model": log.model,
                "gen_ai.usage.input_tokens": log.prompt_tokens or None,
                "gen_ai.usage.output_tokens": log.completion_tokens or None,
                **{f"gen_ai.request.{name}": log.request.get(name) for name in settings},
            }
    return {}


def _texts(name: SpanName, log: QueryLog) -> dict[str, str]:
    query, answer = log.query_text[:_MAX_TEXT_CHARS], log.generated_response[:_MAX_TEXT_CHARS]
    if name == "retrieve":
        return {"gen_ai.retrieval.query.text": query}
    texts = {"input": ("user", query), "output": ("assistant", answer)} if name == "generate" else {}
    return {
        f"gen_ai.{kind}.messages": _json([{"role": role, "parts": [{"type": "text", "content": text}]}])
        for kind, (role, text) in texts.items()
    }


def _encode_attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}  # 64-bit integers are strings
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": storable_text(str(value))}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
