"""Startup of ``vectorforge up``, between the database and the first request."""

import asyncio
import gc
import json
import logging
import shlex
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI

from vectorforge.api.app import create_app
from vectorforge.api.middleware import context as access_log
from vectorforge.api.routers import QUERY_ROUTERS
from vectorforge.bootstrap import Application
from vectorforge.cli.commands.server import serve
from vectorforge.cli.ingest.files import SourceFile
from vectorforge.cli.session import Session, open_session
from vectorforge.cli.terminal import Terminal, printable
from vectorforge.db.repositories.document_repo import Document
from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.llm.types import ProviderCapability, ProviderInfo
from vectorforge.local.laptop import SAMPLE_PREFIX, LocalSetup, maintain_indexes, sample_documents
from vectorforge.patterns import compile_patterns
from vectorforge.types import EXACT_SCAN_LIMIT, Collection

_SAMPLE_QUESTION = "What is VectorForge?"
_SAMPLE_METADATA = {"sample": True}
_MAX_SAMPLE_DOCUMENTS = 100
"""Collections with more documents are not checked for the sample."""


async def serve_laptop(
    terminal: Terminal, setup: LocalSetup, bound: socket.socket, url: str, *, sample: bool
) -> None:
    """Prepare the default collection, serve until a signal, close everything."""
    server = setup.config.server
    async with open_session(setup, terminal) as session:
        # With API keys, only a key of the local tenant can access what the commands store; the commands can
        # create such a key, unless keys of other tenants are configured.
        configured = set(server.api_keys.values())
        reachable = server.auth == "local" or not configured or server.local_tenant in configured
        collection = await session.collection_or_new(None) if reachable else None
        app = create_app(session.application)
        await load_ahead(session.application, app)
        files = await _sample_to_ingest(session, collection) if sample and collection is not None else []
        started = asyncio.Event()

        async def announce() -> None:
            logging.getLogger().setLevel(logging.WARNING)
            logging.getLogger("psycopg").setLevel(logging.ERROR if setup.embedded else logging.WARNING)
            if server.auth == "api_key":  # several clients may send requests
                access_log.logger.setLevel(logging.INFO)
            infos = session.application.llm_registry.infos()
            provider = next((info for info in infos if info.is_default), None)
            _announce(terminal, setup, url, collection, provider, sample_files=len(files))
            started.set()

        async def ingest_sample() -> None:
            await started.wait()
            if collection is not None and files:
                await _ingest_sample(terminal, session, collection, files)

        async with (
            maintain_indexes(setup.migrator_url, larger_than=EXACT_SCAN_LIMIT),
            _in_background(ingest_sample()),
        ):
            await serve(app, bound, server, on_started=announce)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background of the block, and cancel it at the block's end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def load_ahead(application: Application, app: FastAPI) -> None:
    """Load drivers, default clients, query routers and patterns, and enable garbage collection from then on.

    Objects that live as long as the process are not scanned again
    (https://docs.python.org/3/library/gc.html#gc.freeze).
    """
    await application.preload()
    app.state.routers.include(*QUERY_ROUTERS)
    compile_patterns()
    gc.freeze()
    gc.enable()


async def _sample_to_ingest(session: Session, collection: Collection) -> list[SourceFile]:
    """Return the project's own documents; none if the collection has any others."""
    files = [SourceFile(source, path) for source, path in sample_documents()]
    documents, total = await session.services.documents.list(collection.id, limit=_MAX_SAMPLE_DOCUMENTS)
    return [] if total > len(documents) or not all(map(_is_sample, documents)) else files


async def _ingest_sample(
    terminal: Terminal, session: Session, collection: Collection, files: Sequence[SourceFile]
) -> None:
    """Ingest the sample while the server runs; unchanged documents are skipped."""
    from vectorforge.cli.ingest.run import ingest_files  # imports progress bars

    try:
        summary = await ingest_files(terminal, session, collection, files, metadata=_SAMPLE_METADATA)
    except VectorForgeError as exc:
        terminal.warn(f"The sample could not be ingested. {exc.message}")
        return
    if summary.stopped_by:
        terminal.warn(f"The sample could not be ingested. {summary.stopped_by.message}")
        return
    for result in summary.failures:
        terminal.warn(f"Sample {result.source}: {result.error.message if result.error else 'failed'}")
    if terminal.json_output:
        terminal.json({"sample": summary.as_json()})
    elif stored := summary.counts[DocumentStatus.SUCCEEDED]:
        terminal.note(f"The sample is ready: {stored} documents.")


def _is_sample(document: Document) -> bool:
    """Return True if ``up`` wrote it; the metadata tell it from a user's folder of the same name."""
    marked = all(document.metadata.get(name) == value for name, value in _SAMPLE_METADATA.items())
    return marked and document.source.startswith(SAMPLE_PREFIX)


def _announce(
    terminal: Terminal,
    setup: LocalSetup,
    url: str,
    collection: Collection | None,
    provider: ProviderInfo | None,
    *,
    sample_files: int,
) -> None:
    if terminal.json_output:
        terminal.json(
            {
                "url": url,
                "provider": provider.name if provider else None,
                "model": provider.default_model if provider else None,
                "auth": setup.config.server.auth,
                "collection": collection.name if collection else None,
                "documents": collection.document_count if collection else None,
                "chunks": collection.chunk_count if collection else None,
                "sample_files": sample_files,
                "data_dir": str(setup.config.database.data_dir) if setup.embedded else None,
            }
        )
        return
    with_keys = setup.config.server.auth == "api_key"
    rows = {
        "Page and API": url,
        "Answers": _describe(provider),
        **({"Collection": f"{collection.name}: {_count(collection, sample_files)}"} if collection else {}),
        **({"Login": "an API key (`vectorforge keys create NAME`)"} if with_keys else {}),
        "Data": f"{setup.config.database.data_dir}"
        if setup.embedded
        else "the database of VECTORFORGE_DATABASE_URL",
    }
    body = shlex.quote(json.dumps({"query": _SAMPLE_QUESTION}))
    login = "-H 'authorization: Bearer KEY' " if with_keys else ""
    example = f"curl -s {url}/v1/rag/query {login}-H 'content-type: application/json' -d {body}"
    _print_banner(terminal, rows, example)


def _print_banner(terminal: Terminal, rows: Mapping[str, str], example: str) -> None:
    terminal.line("VectorForge is running. Ctrl-C stops it.", style="bold green")
    if terminal.interactive:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in rows.items():
            table.add_row(name, Text(printable(value), style="cyan" if value.startswith("http") else ""))
        terminal.out.print(table)
    else:
        for name, value in rows.items():
            terminal.line(f"{name}: {value}")
    terminal.line(f"\n{example}\n", wrapped=False)


def _count(collection: Collection, sample_files: int) -> str:
    counted = f"{collection.document_count} documents, {collection.chunk_count} passages"
    if collection.document_count < sample_files:
        counted += f"; ingesting this project's README and docs as a sample ({sample_files} files)"
    return counted


def _describe(provider: ProviderInfo | None) -> str:
    if provider is None:
        return "none: no model is configured; search works"
    if ProviderCapability.EXTRACTIVE in provider.capabilities:
        return (
            "quoted from the documents; "
            "set VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY to generate them with a model"
        )
    return f"{provider.name} · {provider.default_model}"
