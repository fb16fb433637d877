"""Valid request bodies of the API, and mutations of them.

Bodies generated from schemas alone are rarely accepted: they name missing models and invalid tools.
"""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

_QUESTION: Final = "How long does a refund take?"
_QUERY: Final[Mapping[str, Any]] = {"query": _QUESTION, "filters": {"kind": {"$in": ["first", 1]}}}
_PRECISELY: Final[Mapping[str, Any]] = {**_QUERY, "search_mode": "hybrid", "min_score": 0.1, "max_tokens": 50}
_MESSAGES: Final = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello to you."}]
_ATTRIBUTES: Final = {"type": "and", "filters": [{"type": "eq", "key": "kind", "value": "first"}]}
_PARTS: Final = [{"role": "user", "id": "m", "parts": [{"type": "text", "text": _QUESTION}]}]
_CHAT: Final[Mapping[str, Any]] = {
    "model": "{model}",
    "messages": [*_MESSAGES, {"role": "user", "content": _QUESTION}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "filters": {"kind": "first"},
}

_KNOWLEDGE_BASE: Final[Mapping[str, Any]] = {
    "input": {"text": _QUESTION},
    "retrieveAndGenerateConfiguration": {
        "type": "KNOWLEDGE_BASE",
        "knowledgeBaseConfiguration": {
            "knowledgeBaseId": "{collection_id}",
            "modelArn": "extractive",
            "generationConfiguration": {
                "inferenceConfig": {"textInferenceConfig": {"temperature": 0.5, "maxTokens": 50}},
                "promptTemplate": {"textPromptTemplate": "Use $search_results$ for $query$"},
            },
        },
    },
}
_RETRIEVAL: Final[Mapping[str, Any]] = {
    "numberOfResults": 3,
    "overrideSearchType": "HYBRID",
    "filter": {
        "orAll": [
            {"startsWith": {"key": "kind", "value": "fi"}},
            {"listContains": {"key": "tags", "value": "a"}},
        ]
    },
}


def _call(tool: str, **arguments: Any) -> Mapping[str, Any]:
    return _document_call(tool, query=_QUESTION, **arguments)


def _document_call(tool: str, **arguments: Any) -> Mapping[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _resource(uri: str) -> Mapping[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}


KNOWN: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "POST /v1/collections": [{"name": "made-{any}", "language": "german", "search_mode": "hybrid"}],
    "PATCH /v1/collections/{collection_id}": [{"search_mode": "lexical", "dense_weight": 0.5}],
    "POST /v1/collections/{collection_id}/embedding-switch": [
        {"embedding_provider": "other", "dry_run": True},
        {"embedding_provider": "other", "query_prefix": "q: ", "document_prefix": "d: "},
    ],
    "POST /v1/collections/{collection_id}/embedding-switch/switch": [
        {"skip_comparison": True},
        {"questions": [{"question": _QUESTION, "relevant": ["first.md"]}], "k": 3, "dry_run": True},
    ],
    "POST /v1/conversations": [{"title": "Refunds"}],
    "PATCH /v1/conversations/{conversation_id}": [{"title": "Refunds"}],
    "POST /v1/collections/{collection_id}/documents": [
        {
            "documents": [
                {"source": "{any}.md", "text": "# A\n\nOne more.", "title": "T", "metadata": {"n": 1}}
            ]
        }
    ],
    "POST /v1/collections/{collection_id}/documents/delete": [
        {"filters": {"kind": {"$ne": "first"}}, "dry_run": True},
        {"filters": {"n": {"$gte": 1}}},
    ],
    "POST /v1/collections/{collection_id}/uploads": [
        {"path": "a/{any}.pdf", "content_type": "application/pdf", "size_bytes": 1000}
    ],
    "POST /v1/search": [{"query": _QUESTION, "collection": "{collection_id}", "top_k": 3, "min_score": 0.1}],
    "POST /v1/rag/query": [
        {**_QUERY, "conversation_id": "{conversation_id}", "rewrite": True},
        {**_QUERY, "messages": _MESSAGES, "stream": True, "resumable": True, "provider": "extractive"},
        {"query": _QUESTION, "dry_run": True},
        {"query": _QUESTION, "effort": "medium", "intents": ["first", "second"]},
    ],
    "POST /v1/collections/{collection_id}/query": [
        {**_PRECISELY, "system_prompt": "Use {{context}}.", "llm_provider": "extractive"},
        {**_PRECISELY, "stream": True},
    ],
    "POST /v1/docrag/query": [
        {"query": _QUESTION, "conversation_history": _MESSAGES, "n_results": 3},
        {"query": _QUESTION, "stream": True, "collection": "{collection_id}"},
    ],
    "POST /v1/profiles/{profile_id}": [
        {"profile_summary": "Ada writes programs.", "experiences": [{"title": "Engineer"}], "skills": ["SQL"]}
    ],
    "PUT /v1/profiles/{profile_id}": [
        {"profile_summary": "Ada.", "documents": [{"text": "A letter.", "source_type": "project"}]}
    ],
    "POST /v1/profiles/{profile_id}/documents": [
        {"text": "# A letter\n\nShe came.", "source_type": "project", "source_id": "1", "title": "T"}
    ],
    "POST /v1/profiles/{profile_id}/search": [{"query": "programs", "top_k": 3, "max_length": 900}],
    "POST /v1/profiles/{profile_id}/query": [
        {"query": "What does Ada write?"},
        {"query": "Ada?", "stream": True},
    ],
    "POST /v1/chat/completions": [_CHAT, {**_CHAT, "stream": False, "stream_options": None}],
    "POST /v1/embeddings": [
        {"model": "hashing", "input": ["a", "b"], "encoding_format": "base64"},
        {"model": "hashing", "input": "a"},
    ],
    "POST /v1/responses": [
        {
            "model": "vectorforge",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": _QUESTION}]}],
            "tools": [
                {"type": "file_search", "vector_store_ids": ["{vector_store_id}"], "filters": _ATTRIBUTES}
            ],
            "include": ["file_search_call.results"],
        },
        {"model": "{model}", "input": _QUESTION, "stream": True, "instructions": "Be brief."},
    ],
    "POST /v1/vector_stores": [{"name": "store-{any}", "metadata": {}}],
    "POST /v1/vector_stores/{vector_store_id}/search": [
        {"query": [_QUESTION, "goods"], "filters": _ATTRIBUTES, "ranking_options": {"score_threshold": 0.1}}
    ],
    "POST /v1/vector_stores/{vector_store_id}": [{"name": "store-{any}", "metadata": {"team": "A"}}],
    "POST /v1/vector_stores/{vector_store_id}/files": [{"file_id": "{file_id}", "attributes": {"n": 1}}],
    "POST /v1/vector_stores/{vector_store_id}/files/{file_id}": [{"attributes": {"n": 1, "a.b": True}}],
    "POST /v1/vector_stores/{vector_store_id}/file_batches": [
        {"files": [{"file_id": "{file_id}", "attributes": {"n": 1}}]},
        {"file_ids": ["{file_id}"], "attributes": {"n": 1}},
    ],
    "POST /api/chat": [{"messages": _PARTS, "collection": "{collection_id}", "trigger": "submit-message"}],
    "POST /bedrock/knowledgebases/{knowledge_base_id}/retrieve": [
        {
            "retrievalQuery": {"text": _QUESTION},
            "retrievalConfiguration": {"vectorSearchConfiguration": _RETRIEVAL},
        }
    ],
    "POST /bedrock/retrieveAndGenerate": [
        _KNOWLEDGE_BASE,
        {**_KNOWLEDGE_BASE, "sessionId": "{conversation_id}"},
    ],
    "POST /bedrock/retrieveAndGenerateStream": [_KNOWLEDGE_BASE],
    "POST /mcp": [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        _call("semantic_search", top_k=3, filters='{"kind": "first"}'),
        _call("semantic_search_with_context", collection="{collection_id}", max_length=900),
        _call("ask", profile_id=7),
        _document_call("list_documents", collection="{collection_id}", filters={"kind": "first"}, offset=1),
        _document_call("read_document", document="{document_id}", page=1, start=5),
        _document_call("read_document", document="{document_id}", heading="Goods", max_chars=100),
        _document_call("find_in_document", document="{document_id}", text="goods", limit=2),
        {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"cursor": "1"}},
        _resource("vectorforge://documents/{document_id}"),
    ],
    "POST /v1/keys": [{"name": "fuzz", "scope": "write", "expires_in_days": 30}],
    "POST /v1/keys/{key_id}/rotate": [{"overlap_hours": 0.5}],
}
"""Bodies by operation; names in braces stand for ids, and ``{any}`` for a new text each time."""

_ODD: Final = (
    *("null", "true", "-1", "0", "1.5", "9223372036854775808", "1e400", "NaN", "-Infinity", "2147483648"),
    *(
        '""',
        '" "',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00x"',
        '"%s {0} {query} $1"',
        "[]",
        "{}",
        "[null]",
        '{"": 0}',
    ),
    *('"\u0661\u0662"', '"' + "\u0130" * 300 + '"', '"' + "a " * 60_000 + '"', "9" * 5000),
    *("[" * depth + "]" * depth for depth in (18, 250, 990, 3000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (18, 990)),
)
"""Unusual JSON, some of which exceeds parsers, columns or stacks."""
_MARK: Final = "\x01mark\x01"


def known_body(operation: str, ids: Mapping[str, Any], chance: random.Random) -> dict[str, Any] | None:
    """Return a valid body of the operation, or None without a body."""
    if operation not in KNOWN:
        return None
    names = {**ids, "any": f"{chance.getrandbits(64):x}"}
    filled: dict[str, Any] = _filled(chance.choice(KNOWN[operation]), names)
    return filled


def tampered(body: Mapping[str, Any], chance: random.Random) -> bytes:
    """Return the body as JSON with one part replaced by an odd value, or as invalid JSON."""
    marked = json.dumps(_with_mark(body, chance))
    text = marked.replace(json.dumps(_MARK), chance.choice(_ODD))
    sent = text.encode("utf-8")
    match chance.randrange(12):
        case 0:
            return sent[: chance.randrange(len(sent))]
        case 1:
            return sent.replace(b'"', b"\xff", 1)
        case 2:
            return text.encode(chance.choice(("utf-8-sig", "utf-16", "utf-32")))
        case _:
            return sent


def overlaid(known: Mapping[str, Any], generated: Any, chance: random.Random) -> dict[str, Any]:
    """Return the known body with up to two parts of the generated one."""
    others = list(generated) if isinstance(generated, dict) else []
    chosen = chance.sample(others, min(len(others), chance.randrange(3)))
    return {**known, **{name: generated[name] for name in chosen}}


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        for name, given in names.items():
            value = value.replace(f"{{{name}}}", str(given))
        return value
    if isinstance(value, Mapping):
        return {key: _filled(part, names) for key, part in value.items()}
    return [_filled(part, names) for part in value] if isinstance(value, list) else value


def _with_mark(value: Any, chance: random.Random) -> Any:
    """Return the value with one part replaced by a mark."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return _MARK
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [_with_mark(part, chance) if at == place else part for at, part in enumerate(value)]
    if chance.random() < 0.15:
        return {**value, "unknown": _MARK}
    name = chance.choice(list(value))
    return {**value, name: _with_mark(value[name], chance)}
