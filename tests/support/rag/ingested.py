"""Ingestion of one file or one document, for tests: its documents together, and their results in order."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.group import DocumentItem, grouped
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentPart, DocumentResult, OnProgress, OnStage
from vectorforge.types import Collection


async def ingest_bytes(
    pipeline: IngestionPipeline,
    collection: Collection,
    content: bytes,
    source: str,
    media_type: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    on_stage: OnStage | None = None,
    on_progress: OnProgress | None = None,
) -> list[DocumentResult]:
    """Read a file and store what is in it; return one result for each of its documents, in order."""
    try:
        parts = await pipeline.split(content, source, media_type)
    except VectorForgeError as exc:
        return [DocumentResult.of_failure(source, exc)]
    results: list[DocumentResult] = []
    for group in grouped(DocumentItem(part, title, metadata or {}) for part in parts):
        ingested = pipeline.ingest_parts(collection, group, on_stage=on_stage, on_progress=on_progress)
        by_place = [one async for results_ in ingested for one in results_]
        results.extend(result for _, result in sorted(by_place, key=itemgetter(0)))
    try:
        await pipeline.delete_left_out(collection, parts, results)
    except VectorForgeError as exc:
        results.append(DocumentResult.of_failure(source, exc))
    return results


async def ingest_part(
    pipeline: IngestionPipeline, collection: Collection, part: DocumentPart
) -> DocumentResult:
    """Read and store one document; a failure is a result."""
    ingested = pipeline.ingest_parts(collection, [DocumentItem(part, None, {})])
    [[(_, result)]] = [results async for results in ingested]
    return result
