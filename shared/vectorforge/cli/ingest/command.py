"""``vectorforge ingest``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vectorforge.cli.ingest.files import FoundFiles, SkippedFile, find_files
from vectorforge.cli.options import (
    CollectionOption,
    DeleteOption,
    EverythingOption,
    FromPostgresOption,
    KeyOption,
    MetadataColumnOption,
    ProfileOption,
    ProfilesOption,
    QueryOption,
    SourceNameOption,
    TableOption,
    TextOption,
    TitleOption,
    UpdatedOption,
    parse_metadata,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode
from vectorforge.errors import InvalidInputError
from vectorforge.profile_types import SourceType

if TYPE_CHECKING:
    from vectorforge.cli.ingest.rows import RowsToIngest
    from vectorforge.cli.ingest.run import IngestSummary

    Work: TypeAlias = Callable[[Session], Awaitable[IngestSummary]]

Labels: TypeAlias = Mapping[str, Any]

_MAX_REASONS = 5


@session_command
def ingest(
    context: CommandContext,
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
        typer.Option(help="In folders, read only these files, e.g. [cyan]'*.md'[/cyan].", show_default=False),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", "-m", help="key=value for every document; may be repeated.", show_default=False
        ),
    ] = None,
    profile: ProfileOption = None,
    source_type: Annotated[
        SourceType, typer.Option(help="With --profile: type of the files.", show_default=True)
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
) -> None:
    """Extract, chunk, embed and store documents; unchanged documents are skipped.

    Folders are searched recursively; hidden files and unsupported file types
    are skipped, each with a reason. The collection is created if it is missing.
    Works with and without a running `vectorforge up`.

    A document's source is the absolute path of its file, so ingesting the same
    file from any folder replaces its document. Other commands show files
    below the working directory as ./path, and accept that form.

    [bold]Examples[/bold]

        vectorforge ingest docs/ README.md

        vectorforge ingest handbook/ --collection handbook --glob '*.md' -m team=support

        vectorforge ingest corpus.jsonl -c corpus --json | jq .failed

        vectorforge ingest cv.pdf --profile 7

        vectorforge ingest --from-postgres env:SHOP_DSN --table articles --text body --updated changed_at
    """
    labels = parse_metadata(metadata or [])
    if from_postgres is None:
        found = _find(paths or [], glob)
        if profile is None:
            work = _files(context, found, collection, labels)
        elif collection is None:
            work = _profile(found, profile, source_type, labels)
        else:
            raise InvalidInputError("Profiles have their own collection.", field="--collection")
        _report(context, context.run(work), found.skipped)
    elif paths or glob or profile is not None:
        raise InvalidInputError("--from-postgres cannot be combined with files or --profile.", field="PATH")
    elif profiles is not None:
        if query or table or collection or labels:
            raise InvalidInputError("--profiles already defines what is read.", field="--profiles")
        _report(context, context.run(_profile_rows(context, from_postgres, profiles)))
    else:
        from vectorforge.cli.ingest.rows import RowsToIngest

        rows = RowsToIngest.of_options(
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
        _report(context, context.run(_rows(context, rows, collection, labels)))


def _find(paths: Sequence[Path], glob: str | None) -> FoundFiles:
    if not paths:
        raise InvalidInputError("Give files or folders, or a database with --from-postgres.", field="PATH")
    found = find_files(paths, glob=glob)
    if not found.files:
        reasons = "; ".join(sorted({file.reason.rstrip(".") for file in found.skipped})[:_MAX_REASONS])
        skipped = f" Skipped {len(found.skipped)}: {reasons}." if reasons else ""
        raise InvalidInputError(f"There is nothing to read: no file in PATH matches.{skipped}", field="PATH")
    return found


def _files(context: CommandContext, found: FoundFiles, collection: str | None, labels: Labels) -> "Work":
    from vectorforge.cli.ingest.run import ingest_files

    async def work(session: Session) -> "IngestSummary":
        target = await session.collection_or_new(collection)
        return await ingest_files(context.terminal, session, target, found.files, metadata=labels)

    return work


def _profile(found: FoundFiles, profile_id: int, source_type: SourceType, labels: Labels) -> "Work":
    from vectorforge.cli.ingest.profiles import ingest_profile_files

    async def work(session: Session) -> "IngestSummary":
        return await ingest_profile_files(session, profile_id, found.files, source_type, metadata=labels)

    return work


def _profile_rows(context: CommandContext, dsn: str, file: Path) -> "Work":
    from vectorforge.cli.ingest.profiles import ProfileQueries, ingest_profile_rows
    from vectorforge.cli.ingest.rows import resolved_dsn

    queries, source = ProfileQueries.read(file), resolved_dsn(dsn)

    async def work(session: Session) -> "IngestSummary":
        return await ingest_profile_rows(context.terminal, session, source, queries)

    return work


def _rows(context: CommandContext, rows: "RowsToIngest", collection: str | None, labels: Labels) -> "Work":
    from vectorforge.cli.ingest.rows import ingest_rows

    async def work(session: Session) -> "IngestSummary":
        target = await session.collection_or_new(collection)
        return await ingest_rows(context.terminal, session, target, rows, labels=labels)

    return work


def _report(context: CommandContext, summary: "IngestSummary", skipped: Sequence[SkippedFile] = ()) -> None:
    """Print a summary, and exit with the code that fits it."""
    from vectorforge.cli.ingest.run import print_summary

    summary.skipped_files = [*skipped]
    print_summary(context.terminal, summary)
    if summary.stopped_by:
        context.terminal.error(f"Stopped. {summary.stopped_by.message}", code=summary.stopped_by.code)
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if summary.failed:
        raise typer.Exit(ExitCode.INCOMPLETE)
