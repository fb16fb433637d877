"""``vectorforge ingest --dry-run``."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from vectorforge.cli.ingest.files import FoundFiles
from vectorforge.cli.ingest.run import read_file
from vectorforge.cli.options import shown_source
from vectorforge.cli.session import CommandContext, Session
from vectorforge.cli.terminal import Terminal
from vectorforge.errors import ExtractionError, NotFoundError
from vectorforge.ingestion.estimate import IngestEstimate
from vectorforge.ingestion.group import DocumentItem, grouped
from vectorforge.types import Collection, DistanceMetric


def show_estimate(
    context: CommandContext, collection: str | None, files: FoundFiles, labels: Mapping[str, Any]
) -> None:
    """Print the estimated tokens and cost of ingesting files; stores nothing and calls no model."""

    async def work(session: Session) -> IngestEstimate:
        target = await _collection(session, collection)
        estimate = IngestEstimate(target.name)
        for source, file, name in files.files:
            try:
                content = read_file(file, session.config.ingestion.max_document_bytes)
                parts = await session.services.ingestion.split(content, source, None)
            except ExtractionError as exc:
                context.terminal.note(f"{shown_source(source)}: {exc.message}")
                estimate.documents += 1
                estimate.failed += 1
                continue
            if parts[0].parent_source is None:
                parts = [replace(part, fallback_title=name) for part in parts]
            for group in grouped(DocumentItem(part, None, labels) for part in parts):
                await session.services.ingestion_estimator.add(estimate, target, group)
        return estimate

    context.show(context.run(work), asdict, _print)


async def _collection(session: Session, name: str | None) -> Collection:
    """Return the collection, or one as the ingestion would create it."""
    requested = name or session.config.query.default_collection
    try:
        return await session.services.find_collection(requested)
    except NotFoundError:
        provider = session.services.embeddings.get()
        model = provider.default_model
        dimension = provider.dimension(model) or 0
        return Collection(
            uuid4(), requested, provider.provider_name(), model, dimension, DistanceMetric.COSINE
        )


def _print(terminal: Terminal, estimate: IngestEstimate) -> None:
    read = estimate.documents - estimate.unchanged - estimate.failed
    terminal.line(
        f"{estimate.collection}: {estimate.documents:,} documents, of which {read:,} are new or changed, "
        f"{estimate.unchanged:,} unchanged and {estimate.failed:,} unreadable."
    )
    terminal.line(
        f"Embedding: {estimate.chunks_to_embed:,} of {estimate.chunks:,} chunks, about "
        f"{estimate.embedding_tokens:,} tokens, {_cost(estimate.embedding_cost_usd)}."
    )
    if estimate.context_model is not None:
        terminal.line(
            f"Contexts by {estimate.context_model}: {estimate.context_calls:,} calls, about "
            f"{estimate.context_prompt_tokens:,} tokens of prompts and "
            f"{estimate.context_completion_tokens:,} of answers, {_cost(estimate.context_cost_usd)} "
            "before discounts for cached prompts."
        )


def _cost(cost_usd: float | None) -> str:
    return "unknown cost" if cost_usd is None else f"{cost_usd:,.2f} USD"
