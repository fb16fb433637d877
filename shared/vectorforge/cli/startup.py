"""What ``vectorforge up`` does between the database and the first request."""

import gc
import json
import logging
import shlex
import socket
from collections.abc import Mapping

from fastapi import FastAPI

from vectorforge.api import access_log
from vectorforge.api.app import create_app
from vectorforge.api.doors import QUESTION_DOORS
from vectorforge.bootstrap import Application
from vectorforge.cli.addresses import reachable_url
from vectorforge.cli.server import serve
from vectorforge.cli.session import Session, open_session
from vectorforge.cli.terminal import Terminal, printable
from vectorforge.db.repositories.document_repo import Document
from vectorforge.errors import EmbeddingError
from vectorforge.llm.types import ProviderCapability, ProviderInfo
from vectorforge.local.index_keeper import indexes_kept
from vectorforge.local.laptop import SAMPLE_PREFIX, LocalSetup, sample_documents
from vectorforge.types import Collection
from vectorforge.vectorstore.search_nearest import EXACT_SCAN_LIMIT

_SAMPLE_QUESTION = "What is VectorForge?"
_SAMPLE_METADATA = {"sample": True}
_MAX_SAMPLE_DOCUMENTS = 100
"""A collection with more documents is in use for something else."""


async def serve_laptop(terminal: Terminal, setup: LocalSetup, bound: socket.socket, *, sample: bool) -> None:
    """Prepare the default collection, serve until a signal, close everything."""
    server = setup.config.server
    async with open_session(setup, terminal) as session:
        # With API keys, only a key of this tenant reaches what the commands on this machine store; they also
        # make keys of it, unless there are others.
        configured = set(server.api_keys.values())
        reachable = server.auth == "local" or not configured or server.local_tenant in configured
        collection = await session.collection_or_new(None) if reachable else None
        app = create_app(session.application)
        await load_ahead(session.application, app)
        if sample and collection is not None:
            await _ingest_sample(terminal, session, collection)
        url = reachable_url(bound)

        async def announce() -> None:
            logging.getLogger().setLevel(logging.WARNING)
            if server.auth == "api_key":  # there may be several who ask
                access_log.logger.setLevel(logging.INFO)
            found = await session.services.collections.list()  # with its counts
            chosen = next((c for c in found if collection is not None and c.id == collection.id), collection)
            _announce(terminal, setup, url, chosen, answering_provider(session))

        async with indexes_kept(setup.migrator_url, larger_than=EXACT_SCAN_LIMIT):
            await serve(app, bound, server, on_started=announce)


async def load_ahead(application: Application, app: FastAPI) -> None:
    """Load what the first question would load, and let garbage be looked for from then on.

    What stays for as long as the process runs is not looked through again
    (https://docs.python.org/3/library/gc.html#gc.freeze).

    Args:
        application: Its driver and its default providers' clients are imported.
        app: The door of the application; it gets the routes of questions.
    """
    await application.preload()
    app.state.doors.open(*QUESTION_DOORS)
    gc.freeze()
    gc.enable()


async def _ingest_sample(terminal: Terminal, session: Session, collection: Collection) -> None:
    """Put the project's own documents into the collection, unless it holds anything else."""
    files = sample_documents()
    found, total = await session.services.documents.list(collection.id, limit=_MAX_SAMPLE_DOCUMENTS)
    if not files or total > len(found) or not all(map(_is_sample, found)):
        return
    if not total:
        terminal.note(f"Ingesting the project's own documents as a sample ({len(files)} files) ...")
    from vectorforge.cli.ingest_run import ingest_files  # with the bars that show how far it is

    try:
        summary = await ingest_files(terminal, session, collection, files, metadata=_SAMPLE_METADATA)
    except EmbeddingError as exc:
        terminal.warn(f"The sample could not be ingested. {exc.message}")
        return
    for result in summary.failures:
        terminal.warn(f"Sample {result.source}: {result.error.message if result.error else 'failed'}")


def _is_sample(document: Document) -> bool:
    """Whether ``up`` wrote it; the mark is there because a folder of the user may have the same name."""
    marked = all(document.metadata.get(name) == value for name, value in _SAMPLE_METADATA.items())
    return marked and document.source.startswith(SAMPLE_PREFIX)


def answering_provider(session: Session) -> ProviderInfo | None:
    """The provider that answers questions which name none; None when there is none."""
    return next((info for info in session.application.llm_registry.infos() if info.is_default), None)


def _announce(
    terminal: Terminal,
    setup: LocalSetup,
    url: str,
    collection: Collection | None,
    provider: ProviderInfo | None,
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
                "data_dir": str(setup.config.database.data_dir) if setup.embedded else None,
            }
        )
        return
    with_keys = setup.config.server.auth == "api_key"
    rows = {
        "Page and API": url,
        "Answers": _describe(provider),
        **({"Collection": f"{collection.name}: {_count(collection)}"} if collection else {}),
        **({"Login": "an API key of VECTORFORGE_API_KEYS"} if with_keys else {}),
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


def _count(collection: Collection) -> str:
    return f"{collection.document_count} documents, {collection.chunk_count} passages"


def _describe(provider: ProviderInfo | None) -> str:
    if provider is None:
        return "none: no model is configured, search still works"
    if ProviderCapability.EXTRACTIVE in provider.capabilities:
        return (
            "quoted from the documents; "
            "set VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY to have a model write them"
        )
    return f"{provider.name} · {provider.default_model}"
