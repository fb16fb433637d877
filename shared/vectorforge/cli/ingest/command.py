"""``vectorforge ingest``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from vectorforge.cli.ingest.files import FoundFiles, SkippedFile, find_files
from vectorforge.cli.ingest.missing import check_prune, prune_missing
from vectorforge.cli.ingest.run import read_parts
from vectorforge.cli.options import (
    CollectionOption,
    ProfileOption,
    RowOptions,
    YesOption,
    parse_metadata,
    shown_source,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    ExtractionError,
    InvalidInputError,
    NotFoundError,
)
from vectorforge.ingestion.estimate import IngestEstimate
from vectorforge.ingestion.group import DocumentItem, grouped
from vectorforge.profile_types import SourceType
from vectorforge.types import Collection, DistanceMetric

if TYPE_CHECKING:
    from vectorforge.cli.ingest.run import IngestSummary


_MAX_REASONS = 5
_UNAVAILABLE = DatabaseUnavailableError.code


@session_command
def ingest(
    context: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files and folders. A .jsonl holds one document a line; a .csv is one document.",
            show_default=False,
            readable=False,  # one that cannot be read fails alone
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
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete documents of the folders whose files no longer exist."),
    ] = False,
    yes: YesOption = False,
    rows: RowOptions = RowOptions(),  # noqa: B008 - frozen
) -> None:
    """Extract, chunk, embed and store documents; unchanged documents are skipped.

    Folders are searched recursively; hidden files and unsupported file types
    are skipped, each with a reason. The collection is created if it is missing.
    Works with and without a running `vectorforge up`.

    A document's source is the absolute path of its file, so ingesting the same
    file from any folder replaces its document. Other commands show files
    below the working directory as ./path, and accept that form.

    Documents of deleted files stay. --prune counts those below the given
    folders, and deletes them after confirmation. Do not use it where another
    machine ingests folders of the same path into the same collection.

    [bold]Examples[/bold]

        vectorforge ingest docs/ README.md

        vectorforge ingest handbook/ --collection handbook --glob '*.md' -m team=support

        vectorforge ingest corpus.jsonl -c corpus --json | jq .failed

        vectorforge ingest handbook/ --collection handbook --prune

        vectorforge ingest scans/ --collection archive --ocr

        vectorforge ingest cv.pdf --profile 7

        vectorforge ingest handbook/ --collection handbook --dry-run

        vectorforge ingest --from-postgres env:SHOP_DSN --table articles --text body --updated changed_at
    """
    labels = parse_metadata(metadata or [])
    if dry_run and (rows.from_postgres is not None or profile is not None):
        raise InvalidInputError("Only files of a collection can be estimated.", field="--dry-run")
    if rows.from_postgres is not None:
        if paths or glob or ocr is not None or profile is not None or prune:
            message = "--from-postgres cannot be combined with files, --ocr, --profile or --prune."
            raise InvalidInputError(message, field="PATH")
        rows_work = _rows_work(context, rows, rows.from_postgres, collection, labels)
        _report(context, context.run(rows_work, create=True))
        return
    files = _find(paths or [], glob, images=bool(ocr))
    folders = [path for path in paths or [] if path.is_dir()]
    if prune:
        check_prune(folders, in_collection=profile is None and not dry_run, yes=yes)
    if profile is not None and collection is not None:
        raise InvalidInputError("Profiles have their own collection.", field="--collection")

    if dry_run:
        show_estimate(context, collection, files, labels)
        return

    async def work(session: Session) -> "IngestSummary":
        from vectorforge.cli.ingest.profiles import ingest_profile_files
        from vectorforge.cli.ingest.run import ingest_files

        if profile is not None:
            return await ingest_profile_files(
                session, profile, files.files, source_type, metadata=labels, ocr=ocr
            )
        async with session.ingest_target(collection) as target:
            target = await session.with_ocr(target, ocr)
            summary = await ingest_files(context.terminal, session, target, files.files, metadata=labels)
            if prune and summary.stopped_by is None:
                await prune_missing(session, summary, folders, yes=yes)
            return summary

    _report(context, context.run(work, create=True), files.skipped)


def _find(paths: Sequence[Path], glob: str | None, *, images: bool) -> FoundFiles:
    if not paths:
        raise InvalidInputError("Give files or folders, or a database with --from-postgres.", field="PATH")
    files = find_files(paths, glob=glob, images=images)
    if not files.files:
        reasons = "; ".join(sorted({file.reason.rstrip(".") for file in files.skipped})[:_MAX_REASONS])
        skipped = f" Skipped {len(files.skipped)}: {reasons}." if reasons else ""
        searched = ", ".join(map(str, paths)) + (f" matches --glob {glob!r}" if glob else "")
        raise InvalidInputError(
            f"No file to read in {searched}.{skipped} docs/use/file-types.md lists the supported types.",
            field="PATH",
        )
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
        async with session.ingest_target(collection) as target:
            return await ingest_rows(context.terminal, session, target, checked, labels=labels)

    return work


def _report(context: CommandContext, summary: "IngestSummary", skipped: Sequence[SkippedFile] = ()) -> None:
    """Print a summary, and exit with the code that fits it."""
    from vectorforge.cli.ingest.run import print_summary

    summary.skipped_files = [*skipped]
    print_summary(context.terminal, summary)
    if summary.stopped_by:
        code = summary.stopped_by.code
        hint = " `vectorforge doctor` checks database and disk." if code == _UNAVAILABLE else ""
        context.terminal.error(f"Stopped. {summary.stopped_by.message}{hint}", code=code)
        raise typer.Exit(ExitCode.USAGE if code == ConfigurationError.code else ExitCode.UNAVAILABLE)
    if summary.failed:
        raise typer.Exit(ExitCode.INCOMPLETE)


def show_estimate(
    context: CommandContext, collection: str | None, files: FoundFiles, labels: Mapping[str, Any]
) -> None:
    """Print the estimated tokens and cost of ingesting files; stores nothing and calls no model."""

    async def work(session: Session) -> IngestEstimate:
        target = await _collection(session, collection)
        estimate = IngestEstimate(target.name)
        for file in files.files:
            try:
                parts = await read_parts(session, file)
            except ExtractionError as exc:
                estimate.documents += 1
                estimate.add_failure(file.source, exc)
                continue
            for group in grouped(DocumentItem(part, None, labels) for part in parts):
                await session.services.ingestion_estimator.add(estimate, target, group)
        return estimate

    estimate = context.run(work, create=True)
    for skipped in files.skipped:
        context.terminal.note(f"skipped {shown_source(skipped.source)}: {skipped.reason}")
    for failure in estimate.failures:
        context.terminal.note(f"{shown_source(failure['source'])}: {failure['error']}")
    context.show(estimate, asdict, _print)


async def _collection(session: Session, name: str | None) -> Collection:
    """Return the collection, or one as the ingestion would create it."""
    requested = session.collection_name(name)
    try:
        return await session.services.find_collection(requested)
    except NotFoundError:
        provider = session.services.embeddings.get()
        model = provider.default_model
        dimension = provider.dimension(model) or 0
        return Collection(uuid4(), requested, provider.name, model, dimension, DistanceMetric.COSINE)


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
