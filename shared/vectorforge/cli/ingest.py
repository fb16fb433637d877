"""``vectorforge ingest``."""

from pathlib import Path
from typing import Annotated

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.files import find_files, source_name
from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption, JsonOption
from vectorforge.cli.question import parse_metadata
from vectorforge.cli.terminal import command
from vectorforge.errors import InvalidInputError


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files and folders. A .jsonl holds one document a line; a .csv is one document."),
    ],
    collection: CollectionOption = None,
    glob: Annotated[
        str | None,
        typer.Option(help="In folders, take only these files, e.g. [cyan]'*.md'[/cyan].", show_default=False),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", "-m", help="key=value for every document; may be repeated.", show_default=False
        ),
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Read, chunk, embed and store documents; what has not changed costs nothing.

    Folders are walked, without hidden files and files that hold no text. The
    collection is made when it is missing. Works while `vectorforge up` runs,
    and without it.

    A document's source is the absolute path of its file, from wherever it is
    ingested: the same file again replaces its document. Other commands show
    files below the working directory as ./path, and take them so.

    [bold]Examples[/bold]

        vectorforge ingest docs/ README.md

        vectorforge ingest handbook/ --collection handbook --glob '*.md' -m team=support

        vectorforge ingest corpus.jsonl -c corpus --json | jq .failed
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.ingest_run import IngestSummary, ingest_files, print_summary
        from vectorforge.cli.session import Session, run_in_session

        files = list({source_name(file): file for file in find_files(paths, glob=glob)}.items())
        if not files:
            raise InvalidInputError("There is nothing to read: no file in PATH matches.", field="PATH")
        labels = parse_metadata(metadata or [])

        async def work(session: Session) -> IngestSummary:
            target = await session.collection_or_new(collection)
            return await ingest_files(terminal, session, target, files, metadata=labels)

        summary = run_in_session(terminal, data_dir, work)
        print_summary(terminal, summary)
        if summary.stopped_by:
            terminal.error(f"Stopped. {summary.stopped_by.message}", code=summary.stopped_by.code)
            raise typer.Exit(ExitCode.UNAVAILABLE)
        if summary.failed:
            raise typer.Exit(ExitCode.INCOMPLETE)
