"""``vectorforge ingest``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vectorforge.cli.ingest.files import FoundFiles, SkippedFile, find_files
from vectorforge.cli.options import CollectionOption, ProfileOption, RowOptions, parse_metadata
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode
from vectorforge.errors import InvalidInputError
from vectorforge.profile_types import SourceType

if TYPE_CHECKING:
    from vectorforge.cli.ingest.run import IngestSummary

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
    ocr: Annotated[
        bool | None,
        typer.Option(
            help="Read images and scanned PDFs by OCR, now and later in this collection.",
            show_default=False,
        ),
    ] = None,
    source_type: Annotated[
        SourceType, typer.Option(help="With --profile: type of the files.", show_default=True)
    ] = SourceType.CV,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only estimate the tokens and the cost of files.")
    ] = False,
    rows: RowOptions = RowOptions(),  # noqa: B008 - frozen
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

        vectorforge ingest scans/ --collection archive --ocr

        vectorforge ingest cv.pdf --profile 7

        vectorforge ingest handbook/ --collection handbook --dry-run

        vectorforge ingest --from-postgres env:SHOP_DSN --table articles --text body --updated changed_at
    """
    labels = parse_metadata(metadata or [])
    if dry_run and (rows.from_postgres is not None or profile is not None):
        raise InvalidInputError("Only files of a collection can be estimated.", field="--dry-run")
    if rows.from_postgres is not None:
        if paths or glob or ocr is not None or profile is not None:
            message = "--from-postgres cannot be combined with files, --ocr or --profile."
            raise InvalidInputError(message, field="PATH")
        _report(context, context.run(_rows_work(context, rows, rows.from_postgres, collection, labels)))
        return
    files = _find(paths or [], glob, images=bool(ocr))
    if profile is not None and collection is not None:
        raise InvalidInputError("Profiles have their own collection.", field="--collection")

    if dry_run:
        from vectorforge.cli.ingest.dry_run import show_estimate

        show_estimate(context, collection, files, labels)
        return

    async def work(session: Session) -> "IngestSummary":
        from vectorforge.cli.ingest.profiles import ingest_profile_files
        from vectorforge.cli.ingest.run import ingest_files

        if profile is not None:
            return await ingest_profile_files(
                session, profile, files.files, source_type, metadata=labels, ocr=ocr
            )
        target = await session.with_ocr(await session.collection_or_new(collection), ocr)
        return await ingest_files(context.terminal, session, target, files.files, metadata=labels)

    _report(context, context.run(work), files.skipped)


def _find(paths: Sequence[Path], glob: str | None, *, images: bool) -> FoundFiles:
    if not paths:
        raise InvalidInputError("Give files or folders, or a database with --from-postgres.", field="PATH")
    files = find_files(paths, glob=glob, images=images)
    if not files.files:
        reasons = "; ".join(sorted({file.reason.rstrip(".") for file in files.skipped})[:_MAX_REASONS])
        skipped = f" Skipped {len(files.skipped)}: {reasons}." if reasons else ""
        raise InvalidInputError(f"There is nothing to read: no file in PATH matches.{skipped}", field="PATH")
    return files


def _rows_work(
    context: CommandContext, rows: RowOptions, dsn: str, collection: str | None, labels: Mapping[str, Any]
) -> "Callable[[Session], Awaitable[IngestSummary]]":
    """Check the options of rows, and return the work that ingests them."""
    from vectorforge.cli.ingest.profiles import ProfileQueries, ingest_profile_rows
    from vectorforge.cli.ingest.rows import RowsToIngest, ingest_rows, resolved_dsn

    if rows.profiles is not None:
        if rows.query or rows.table or collection or labels:
            raise InvalidInputError("--profiles already defines what is read.", field="--profiles")
        queries, source = ProfileQueries.read(rows.profiles), resolved_dsn(dsn)
        return lambda session: ingest_profile_rows(context.terminal, session, source, queries)
    checked = RowsToIngest.of_options(dsn, rows)

    async def work(session: Session) -> "IngestSummary":
        target = await session.collection_or_new(collection)
        return await ingest_rows(context.terminal, session, target, checked, labels=labels)

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
