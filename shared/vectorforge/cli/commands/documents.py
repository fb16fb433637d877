"""``vectorforge documents``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import (
    CollectionOption,
    FilterOption,
    ProfileOption,
    YesOption,
    confirm,
    parse_filter,
    shown_source,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.db.repositories.document_repo import Document
from vectorforge.errors import InvalidInputError
from vectorforge.vectorstore.filters.documents import condition_on_documents

if TYPE_CHECKING:  # loaded when a command runs
    from vectorforge.api.native.document_schemas import DeletedDocuments

app = typer.Typer(no_args_is_help=True, help="List and delete documents.")


@app.command("list")
@session_command
def list_documents(
    context: CommandContext,
    collection: CollectionOption = None,
    where: FilterOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of documents.")] = 50,
    offset: Annotated[int, typer.Option(min=0, help="Documents to skip.")] = 0,
) -> None:
    """List the documents of a collection."""
    condition = condition_on_documents(parse_filter(where))

    async def work(session: Session) -> tuple[Sequence[Document], int]:
        target = await session.collection(collection)
        return await session.services.documents.list(
            target.id, limit=limit, offset=offset, condition=condition
        )

    def as_json(page: tuple[Sequence[Document], int]) -> object:
        from vectorforge.api.native.document_schemas import DocumentBody, DocumentList

        documents, total = page
        bodies = [DocumentBody.of(document) for document in documents]
        return DocumentList(documents=bodies, total=total, limit=limit, offset=offset)

    context.show(context.run(work), as_json, _print_list)


@app.command()
@session_command
def delete(
    context: CommandContext,
    source: Annotated[
        str | None, typer.Argument(help="Source, as `documents list` shows it.", show_default=False)
    ] = None,
    collection: CollectionOption = None,
    where: FilterOption = None,
    profile: ProfileOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --filter: only count the documents.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Delete one document with its chunks, or all documents whose metadata match a filter.

    [bold]Examples[/bold]

        vectorforge documents delete ./handbook.md

        vectorforge documents delete --filter '{"year": {"$lt": 2020}}' --dry-run
    """
    if (source is None) is (where is None):
        raise InvalidInputError("Give either SOURCE or --filter.", field="SOURCE")
    if source is not None:
        _delete_one(context, collection, source, yes=yes)
    else:
        _delete_matching(context, collection, where, profile_id=profile, dry_run=dry_run, yes=yes)


def _print_list(terminal: Terminal, page: tuple[Sequence[Document], int]) -> None:
    documents, total = page
    rows = [
        (
            shown_source(d.source),
            d.title,
            d.media_type,
            d.metadata.get("language"),
            d.version,
            d.chunk_count,
            d.size_chars,
        )
        for d in documents
    ]
    terminal.table(["Source", "Title", "Type", "Language", "Version#", "Chunks#", "Characters#"], rows)
    terminal.note(f"{len(documents)} of {total} documents")


def _delete_one(context: CommandContext, collection: str | None, source: str, *, yes: bool) -> None:
    async def work(session: Session) -> Document:
        document = await session.document(collection, source)
        confirm(f'Delete the document "{source}"?', yes=yes)
        await session.services.vector_store.delete_document(document.id)
        return document

    context.show(
        context.run(work),
        lambda removed: {"id": removed.id, "source": removed.source, "deleted": True},
        lambda terminal, removed: terminal.line(f"Deleted {shown_source(removed.source)}."),
    )


def _delete_matching(
    context: CommandContext,
    collection: str | None,
    where: str | None,
    *,
    profile_id: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    filters = parse_filter(where) or {}

    async def work(session: Session) -> "DeletedDocuments":
        from vectorforge.api.native.document_schemas import DeletedDocuments

        target = await session.collection(collection, profile_id=profile_id)
        store, deleted = session.services.vector_store, 0
        matched = await store.count_documents(target.id, filters, profile_id=profile_id)
        if matched and not dry_run:
            confirm(f"Delete {_documents(matched)}?", yes=yes)
            while removed := await store.delete_documents(target.id, filters, profile_id=profile_id):
                deleted += removed
        remaining = matched if dry_run else 0
        return DeletedDocuments(matched=matched, deleted=deleted, remaining=remaining)

    def as_text(terminal: Terminal, done: "DeletedDocuments") -> None:
        if dry_run:
            terminal.line(f"{_documents(done.matched)} would be deleted.")
        else:
            terminal.line(f"Deleted {_documents(done.deleted)}.")

    context.show(context.run(work), lambda done: done, as_text)


def _documents(number: int) -> str:
    return "1 document" if number == 1 else f"{number} documents"
