"""Query log records for tests."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from vectorforge.aws.query_log_record import record_fields, to_json
from vectorforge.db.repositories.query_log_repo import QueryLog


def make_log(**changes: Any) -> QueryLog:
    """Return the record of an answered query with every field set."""
    log = QueryLog(
        id=uuid4(),
        collection_id=uuid4(),
        query_text="How long must the dough rise?",
        retrieved_chunk_ids=[uuid4(), uuid4()],
        generated_response="Two hours. [Source 1]",
        latency_ms=812.25,
        used_chunk_ids=[uuid4()],
        provider="openai",
        model="gpt-4o",
        prompt_tokens=900,
        completion_tokens=12,
        retrieval_ms=31.125,
        generation_ms=700.5,
        created_at=datetime.now(UTC),
        preset="vectorforge",
        variant="precise",
        conversation_id=uuid4(),
        cached=True,
        degraded=("provider", "stale"),
        quality={"relevance": 0.75, "completeness": 0.5, "low": False},
        context_ms=1.5,
        first_token_ms=250.25,
        cost_usd=0.00125,
        request={"sha256": "0" * 64, "model": "gpt-4o", "temperature": 0.5, "top_p": None, "history": 2},
        steps=({"kind": "plan", "round": 1, "origin": "model", "queries": 2, "tokens": 140, "error": None},),
    )
    return replace(log, **changes)


def started(log: QueryLog) -> QueryLog:
    """Return the start record of the same query."""
    return replace(log, outcome="started", generated_response="", retrieved_chunk_ids=[], used_chunk_ids=[])


def message(tenant: str, log: QueryLog) -> str:
    """Return the record as its queue message."""
    return to_json(record_fields(tenant, log))
