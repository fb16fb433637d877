"""The engine's numbers: what is stored, and how its questions of today went."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.query_filter import QueryFilter
from vectorforge.types import Collection

_SUCCEEDED = ("answered", "cached", "empty")


async def performance_stats(
    tenant: TenantServices, collection: Collection, *, model: str | None
) -> dict[str, Any]:
    """Numbers under the design's names; the day begins at midnight, UTC.

    Args:
        tenant: Whose collection it is.
        collection: As it is now.
        model: Who answers; None: nobody.

    Returns:
        ``cache_stats`` of the collection as ``CacheStatistics`` has it, with ``hit_rate_last_day`` (0 to 1;
        None without queries); ``vector_store_stats`` with ``collection_count`` (of the tenant),
        ``document_count`` and ``chunk_count`` (of the collection); ``embedding_stats`` with ``model``,
        ``dimension`` and ``daily_requests`` (queries that were searched for); ``generation_stats`` with
        ``model``, ``avg_response_time`` (seconds) and ``success_rate`` (share of queries that were answered,
        0 to 1, without those that were aborted). The last two are None on a day without queries.
    """
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    today = QueryFilter(since=midnight, collection_id=collection.id)
    usage = (await tenant.statistics.collect(today, "day")).totals
    mean_ms = await tenant.statistics.mean_latency_ms(today)
    cache = await tenant.caches.shared_answers.statistics(collection.id)
    hit_rate = cache.hits_last_day / cache.answered_last_day if cache.answered_last_day else None
    ended = sum(usage.outcomes.get(name, 0) for name in (*_SUCCEEDED, "error", "deadline"))
    succeeded = sum(usage.outcomes.get(name, 0) for name in _SUCCEEDED)
    return {
        "cache_stats": {**asdict(cache), "hit_rate_last_day": hit_rate},
        "vector_store_stats": {
            "collection_count": len(await tenant.collections.list()),
            "document_count": collection.document_count,
            "chunk_count": collection.chunk_count,
        },
        "embedding_stats": {
            "model": collection.embedding_model,
            "dimension": collection.dimension,
            "daily_requests": usage.queries - usage.cached,
        },
        "generation_stats": {
            "model": model,
            "avg_response_time": None if mean_ms is None else mean_ms / 1000,
            "success_rate": succeeded / ended if ended else None,
        },
    }
