"""``vectorforge ingest``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vectorforge.cli.commands.ask import parse_metadata
from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.ingest.files import FoundFiles, find_files
from vectorforge.cli.ingest.row_options import (
    DeleteOption,
    EverythingOption,
    FromPostgresOption,
    KeyOption,
    MetadataColumnOption,
    ProfilesOption,
    QueryOption,
    SourceNameOption,
    TableOption,
    TextOption,
    TitleOption,
    UpdatedOption,
)
from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption, JsonOption, ProfileOption
from vectorforge.cli.terminal import Terminal, command
from vectorforge.errors import InvalidInputError
from vectorforge.profile_types import SourceType

if TYPE_CHECKING:
    from vectorforge.cli.ingest.rows import RowsToIngest
    from vectorforge.cli.ingest.run import IngestSummary


def ingest(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files and folders. A .jsonl holds one document a line; a .csv is one document.",
            show_default=False,
        ),
    ] = None,
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
    profile: ProfileOption = None,
    source_type: Annotated[
        SourceType, typer.Option(help="With --profile: what the files are.", show_default=True)
    ] = SourceType.CV,
    from_postgres: FromPostgresOption = None,
    query: QueryOption = None,
    table: TableOption = None,
    profiles: ProfilesOption = None,
    source_name: SourceNameOption = None,
    key: KeyOption = "id",
    text: TextOption = None,
    updated: UpdatedOption = None,
    title: TitleOption = None,
    metadata_column: MetadataColumnOption = None,
    delete: DeleteOption = False,
    everything: EverythingOption = False,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Read, chunk, embed and store documents; what has not changed costs nothing.

    Folders are walked; hidden files and files of types that cannot be read
    are skipped, each with a reason. The collection is made when it is missing.
    Works while `vectorforge up` runs, and without it.

    A document's source is the absolute path of its file, from wherever it is
    ingested: the same file again replaces its document. Other commands show
    files below the working directory as ./path, and take them so.

    [bold]Examples[/bold]

        vectorforge ingest docs/ README.md

        vectorforge ingest handbook/ --collection handbook --glob '*.md' -m team=support

        vectorforge ingest corpus.jsonl -c corpus --json | jq .failed

        vectorforge ingest cv.pdf --profile 7

        vectorforge ingest --from-postgres env:SHOP_DSN --table articles --text body --updated changed_at
    """
    with command(json_output=json_output, debug=debug) as terminal:
        labels = parse_metadata(metadata or [])
        if from_postgres is None:
            files = _find(paths or [], glob)
            if profile is None:
                summary = _ingest_files(terminal, data_dir, collection, files, labels)
            elif collection is not None:
                raise InvalidInputError("Profiles have their own collection.", field="--collection")
            else:
                summary = _ingest_profile(terminal, data_dir, profile, files, source_type, labels)
        elif paths or glob or profile is not None:
            raise InvalidInputError("--from-postgres takes no files and no --profile.", field="PATH")
        elif profiles is not None:
            if query or table or collection or labels:
                raise InvalidInputError("--profiles says by itself what is read.", field="--profiles")
            summary = _ingest_profile_rows(terminal, data_dir, from_postgres, profiles)
        else:
            from vectorforge.cli.ingest.rows import RowsToIngest

            wanted = RowsToIngest.of_options(
                from_postgres,
                query=query,
                table=table,
                name=source_name,
                key=key,
                text=text or [],
                updated=updated,
                title=title,
                metadata=metadata_column or [],
                delete=delete,
                everything=everything,
            )
            summary = _ingest_rows(terminal, data_dir, collection, wanted, labels)
        if summary.stopped_by:
            terminal.error(f"Stopped. {summary.stopped_by.message}", code=summary.stopped_by.code)
            raise typer.Exit(ExitCode.UNAVAILABLE)
        if summary.failed:
            raise typer.Exit(ExitCode.INCOMPLETE)


_MAX_REASONS = 5


def _find(paths: Sequence[Path], glob: str | None) -> FoundFiles:
    if not paths:
        raise InvalidInputError("Name files or folders, or a database with --from-postgres.", field="PATH")
    found = find_files(paths, glob=glob)
    if not found.files:
        reasons = "; ".join(sorted({file.reason.rstrip(".") for file in found.skipped})[:_MAX_REASONS])
        skipped = f" Skipped {len(found.skipped)}: {reasons}." if reasons else ""
        raise InvalidInputError(f"There is nothing to read: no file in PATH matches.{skipped}", field="PATH")
    return found


def _ingest_files(
    terminal: Terminal,
    data_dir: Path | None,
    collection: str | None,
    found: FoundFiles,
    labels: Mapping[str, Any],
) -> "IngestSummary":
    from vectorforge.cli.ingest.run import IngestSummary, ingest_files, print_summary
    from vectorforge.cli.session import Session, run_in_session

    async def work(session: Session) -> IngestSummary:
        target = await session.collection_or_new(collection)
        return await ingest_files(terminal, session, target, found.files, metadata=labels)

    summary = run_in_session(terminal, data_dir, work)
    summary.skipped_files = found.skipped
    print_summary(terminal, summary)
    return summary


def _ingest_profile(
    terminal: Terminal,
    data_dir: Path | None,
    profile_id: int,
    found: FoundFiles,
    source_type: SourceType,
    labels: Mapping[str, Any],
) -> "IngestSummary":
    from vectorforge.cli.ingest.profiles import ingest_profile_files
    from vectorforge.cli.ingest.run import IngestSummary, print_summary
    from vectorforge.cli.session import Session, run_in_session

    async def work(session: Session) -> IngestSummary:
        return await ingest_profile_files(session, profile_id, found.files, source_type, metadata=labels)

    summary = run_in_session(terminal, data_dir, work)
    summary.skipped_files = found.skipped
    print_summary(terminal, summary)
    return summary


def _ingest_profile_rows(terminal: Terminal, data_dir: Path | None, dsn: str, file: Path) -> "IngestSummary":
    from vectorforge.cli.ingest.profiles import ProfileQueries, ingest_profile_rows
    from vectorforge.cli.ingest.rows import resolved_dsn
    from vectorforge.cli.ingest.run import IngestSummary, print_summary
    from vectorforge.cli.session import Session, run_in_session

    queries, source = ProfileQueries.read(file), resolved_dsn(dsn)

    async def work(session: Session) -> IngestSummary:
        return await ingest_profile_rows(terminal, session, source, queries)

    summary = run_in_session(terminal, data_dir, work)
    print_summary(terminal, summary)
    return summary


def _ingest_rows(
    terminal: Terminal,
    data_dir: Path | None,
    collection: str | None,
    wanted: "RowsToIngest",
    labels: Mapping[str, Any],
) -> "IngestSummary":
    from vectorforge.cli.ingest.rows import RowsSummary, ingest_rows, note_rows
    from vectorforge.cli.ingest.run import print_summary
    from vectorforge.cli.session import Session, run_in_session

    async def work(session: Session) -> RowsSummary:
        target = await session.collection_or_new(collection)
        return await ingest_rows(terminal, session, target, wanted, labels=labels)

    summary = run_in_session(terminal, data_dir, work)
    print_summary(terminal, summary)
    note_rows(terminal, summary)
    return summary
