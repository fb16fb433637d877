"""``vectorforge documents``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vectorforge.cli.confirmation import confirm
from vectorforge.cli.files import shown_source, source_name
from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption, JsonOption, YesOption
from vectorforge.cli.terminal import command
from vectorforge.errors import NotFoundError

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="List and delete documents.")


@app.command("list")
def list_documents(
    collection: CollectionOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Documents at most.")] = 50,
    offset: Annotated[int, typer.Option(min=0, help="Documents to skip.")] = 0,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """List the documents of a collection."""
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import Session, run_in_session

        async def work(session: Session) -> Any:
            wanted = await session.collection(collection)
            return await session.services.documents.list(wanted.id, limit=limit, offset=offset)

        found, total = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            from vectorforge.api.schemas.documents import DocumentBody, DocumentList

            bodies = [DocumentBody.of(document) for document in found]
            terminal.json(DocumentList(documents=bodies, total=total, limit=limit, offset=offset))
            return
        rows = [
            (shown_source(d.source), d.title, d.media_type, d.version, d.chunk_count, d.size_chars)
            for d in found
        ]
        terminal.table(["Source", "Title", "Type", "Version#", "Chunks#", "Characters#"], rows)
        terminal.note(f"{len(found)} of {total} documents")


@app.command()
def delete(
    source: Annotated[str, typer.Argument(help="Source, as `documents list` shows it.")],
    collection: CollectionOption = None,
    yes: YesOption = False,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Delete one document with its chunks."""
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import Session, run_in_session

        confirm(f'Delete the document "{source}"?', yes=yes)

        async def work(session: Session) -> Any:
            wanted = await session.collection(collection)
            documents = session.services.documents
            document = await documents.find_by_source(wanted.id, source)
            document = document or await documents.find_by_source(wanted.id, source_name(Path(source)))
            if document is None:
                raise NotFoundError(f'There is no document "{source}" in the collection "{wanted.name}".')
            await session.services.vector_store.delete_document(document.id)
            return document

        gone = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            terminal.json({"id": gone.id, "source": gone.source, "deleted": True})
        else:
            terminal.line(f"Deleted {shown_source(gone.source)}.")
