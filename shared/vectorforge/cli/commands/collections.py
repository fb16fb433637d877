"""``vectorforge collections``."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from vectorforge.cli.commands import reembed
from vectorforge.cli.options import (
    EmbeddingModelOption,
    EmbeddingProviderOption,
    LimitOption,
    OffsetOption,
    YesOption,
    confirm,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.errors import InvalidInputError
from vectorforge.types import Collection, DistanceMetric, SearchMode, SearchSettings, VectorIndex

app = typer.Typer(no_args_is_help=True, help="List, create, show, change and delete collections.")
app.add_typer(reembed.app, name="reembed")

LanguageOption = Annotated[
    str | None,
    typer.Option(
        help="Language of the texts: english, german ...; simple: no stemming; auto: each document's own.",
        show_default=False,
    ),
]
SearchModeOption = Annotated[
    SearchMode | None, typer.Option(help="Search mode of queries that name none.", show_default=False)
]
NameArgument = Annotated[str, typer.Argument(help="Name or id.")]
DenseWeightOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Weight of the vector score in hybrid search; the keyword score has the rest.",
        show_default=False,
    ),
]


ContextualOption = Annotated[
    bool | None,
    typer.Option(
        "--contextual/--no-contextual",
        help="Embed and index each chunk with a context that a model writes, or its outline.",
        show_default=False,
    ),
]


@app.command("list")
@session_command
def list_collections(context: CommandContext, limit: LimitOption = None, offset: OffsetOption = 0) -> None:
    """List the collections, by name."""
    collections = context.run(lambda session: session.services.collections.list(limit=limit, offset=offset))
    create = "There are no collections yet. `vectorforge ingest PATH` creates one."
    context.show_page(collections, offset, "collections", create, _as_body, _print_list)


@app.command()
@session_command
def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Unique name.")],
    description: Annotated[str, typer.Option(help="Description.")] = "",
    embedding_provider: EmbeddingProviderOption = None,
    embedding_model: EmbeddingModelOption = None,
    metric: Annotated[
        DistanceMetric, typer.Option(help="Distance metric of the vectors.")
    ] = DistanceMetric.COSINE,
    language: LanguageOption = None,
    search_mode: SearchModeOption = None,
    dense_weight: DenseWeightOption = None,
    vector_index: Annotated[
        VectorIndex, typer.Option(help="Type of the HNSW index, built above 10,000 vectors.")
    ] = VectorIndex.FULL,
    words: Annotated[bool, typer.Option(help="Also index words; without, only vector search works.")] = True,
    contextual: ContextualOption = None,
) -> None:
    """Create an empty collection; `collections reembed` changes its embedding model later.

    [bold]Example[/bold]

        vectorforge collections create handbook --embedding-provider openai
    """
    created = context.run(
        lambda session: session.services.create_collection(
            name,
            description=description,
            embedding_provider=embedding_provider,
            embedding_model=embedding_model,
            distance_metric=metric,
            search=SearchSettings(search_mode, dense_weight, language, keeps_words=words),
            vector_index=vector_index,
            contextual=bool(contextual),
        ),
        create=True,
    )
    context.show(
        created,
        _as_body,
        lambda terminal, made: terminal.line(
            f"Created {made.name}: {_model(made)}, {made.dimension} dimensions."
        ),
    )


@app.command("set")
@session_command
def set_collection(
    context: CommandContext,
    name: NameArgument,
    language: LanguageOption = None,
    search_mode: SearchModeOption = None,
    dense_weight: DenseWeightOption = None,
    contextual: ContextualOption = None,
) -> None:
    """Change how a collection is searched; options that are not given stay.

    After a language change, a server or `vectorforge migrate`
    indexes the words of its chunks again. --contextual applies to
    each document when it is ingested the next time.

    [bold]Example[/bold]

        vectorforge collections set handbook --language german --dense-weight 0.4
    """
    settings = SearchSettings(search_mode, dense_weight, language)
    if settings == SearchSettings() and contextual is None:
        raise InvalidInputError(
            "Nothing to set: give --language, --search-mode, --dense-weight or --contextual."
        )

    async def work(session: Session) -> Collection:
        target, repo = await session.collection(name), session.services.collections
        if contextual is not None:
            await repo.set_ingestion(target.id, contextual=contextual)
        if settings == SearchSettings():
            changed = await repo.find_by_id(target.id)
        else:
            changed = await repo.set_search(target.id, settings)
        return changed or target  # deleted concurrently

    context.show(context.run(work), _as_body, _print_search)


@app.command()
@session_command
def show(context: CommandContext, name: NameArgument) -> None:
    """Show one collection."""
    context.show(
        context.run(lambda session: session.collection(name)),
        _as_body,
        lambda terminal, collection: terminal.table(
            ["Setting", "Value"], list(_as_body(collection).model_dump(mode="json").items())
        ),
    )


@app.command()
@session_command
def delete(context: CommandContext, name: NameArgument, yes: YesOption = False) -> None:
    """Delete a collection with all its documents. This cannot be undone."""

    async def work(session: Session) -> Collection:
        target = await session.collection(name)
        confirm(f'Delete the collection "{name}" with all its documents?', yes=yes)
        await session.services.collections.delete(target.id)
        return target

    context.show(
        context.run(work),
        lambda deleted: {"id": deleted.id, "name": deleted.name, "deleted": True},
        lambda terminal, deleted: terminal.line(f"Deleted {deleted.name}."),
    )


def _as_body(collection: Collection) -> Any:
    from vectorforge.api.native.collections import CollectionBody

    return CollectionBody.of(collection)


def _print_list(terminal: Terminal, collections: Sequence[Collection]) -> None:
    rows = [(c.name, c.document_count, c.chunk_count, _model(c), c.dimension, c.id) for c in collections]
    terminal.table(["Name", "Documents#", "Chunks#", "Embedding", "Dimension#", "Id"], rows)


def _print_search(terminal: Terminal, collection: Collection) -> None:
    hybrid = collection.search_mode == SearchMode.HYBRID
    weight = f", weight of vectors {collection.dense_weight:g}" if hybrid else ""
    detected = ", or each document's own" if collection.detect_language else ""
    terminal.line(
        f"{collection.name}: {collection.search_mode.value} search{weight}, "
        f"language {collection.language}{detected}."
    )
    if collection.contextual:
        terminal.note("Chunks get a context when their documents are ingested the next time.")
    if not collection.terms_complete:
        terminal.note("The words of its chunks are not indexed yet; a running server indexes them.")


def _model(collection: Collection) -> str:
    return f"{collection.embedding_provider}/{collection.embedding_model}"
