"""``vectorforge logs``: import of query logs from log files, and how the log stores texts."""

import asyncio
import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast

import typer

from vectorforge.aws.database_login import database_password
from vectorforge.aws.query_log_lines import find_records, names_records
from vectorforge.aws.query_log_record import QueryLogRecord, parse_message
from vectorforge.cli.options import TenantOption
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.login import log_writer_url
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.db.schema.migrate import migrate
from vectorforge.errors import InvalidInputError, RefusedRowError
from vectorforge.local.laptop import local_setup

app = typer.Typer(no_args_is_help=True, help="Manage the query log.")

_BATCH_RECORDS = 500
_BATCH_BYTES = 16 * 1024 * 1024
_MAX_REPORTED = 100
_GZIP = b"\x1f\x8b"


@app.command()
@session_command
def replay(
    context: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Log files, also gzipped; - (default) reads stdin.", show_default=False
        ),
    ] = None,
) -> None:
    """Import query logs that the queue rejected from the function's log.

    When SQS does not accept a record in time, the query function logs it. This
    command finds those lines in CloudWatch output: lines as they were
    printed, with or without the prefix of `aws logs tail`, JSON with a message
    in it (filter-log-events, Logs Insights, subscriptions), exports to S3.
    Everything else is skipped.

    It can be repeated: stored queries are not changed. Needs
    VECTORFORGE_LOG_WRITER_DATABASE_URL, unless the database is the embedded one.

    [bold]Examples[/bold]

        aws logs tail /aws/lambda/query --since 2h | vectorforge logs replay

        vectorforge logs replay export/*.gz

        vectorforge logs replay events.json --json | jq .refused
    """
    summary = _replay_files(context, paths or [Path("-")])
    _print_summary(context.terminal, summary)
    if summary.refused:
        raise typer.Exit(ExitCode.INCOMPLETE)


@app.command()
@session_command
def text(
    context: CommandContext,
    policy: Annotated[
        Literal["full", "redacted", "hash", "off", "default"] | None,
        typer.Argument(help="New policy; without it, the current one is shown.", show_default=False),
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Show or set how the query log stores a tenant's queries and answers.

    [bold]full[/bold]: the texts as they are. [bold]redacted[/bold]: e-mail addresses,
    phone and card numbers, IBANs, IP addresses and keys are masked.
    [bold]hash[/bold]: a SHA-256 of each text. [bold]off[/bold]: no texts.
    [bold]default[/bold]: the value of VECTORFORGE_LOG_TEXT (redacted, unless set).

    Times, models, tokens, costs and outcomes are always stored. Running processes
    apply a change within a minute; stored queries are not changed.

    [bold]Examples[/bold]

        vectorforge logs text --tenant acme

        vectorforge logs text off --tenant acme
    """

    async def work(session: Session) -> tuple[str, str | None]:
        settings = session.services.caches.settings
        if policy is not None:
            await settings.set_log_text(None if policy == "default" else policy)
        return session.services.tenant_id, await settings.log_text()

    context.show(
        context.run(work, tenant=tenant),
        lambda stored: {"tenant": stored[0], "log_text": stored[1]},
        lambda terminal, stored: terminal.line(f"{stored[0]}: {stored[1] or 'default'}"),
    )


@dataclass(slots=True)
class ReplaySummary:
    """Counts of one run."""

    lines: int = 0
    records: int = 0
    """Records in the lines, including rejected ones."""
    added: int = 0
    """Queries added to the table, or completed in it."""
    refused: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    """File, line and reason of the first hundred rejected records."""

    unread: int = 0
    """Lines that name the type of query logs but contain no complete record."""
    unread_places: list[str] = field(default_factory=list)
    """File and line of the first hundred."""

    @property
    def already_there(self) -> int:
        """Records that changed nothing: stored before, or a duplicate."""
        return self.records - self.refused - self.added

    def refuse(self, place: "_Place", reason: str) -> None:
        """Count a record that cannot be stored."""
        self.refused += 1
        if len(self.problems) < _MAX_REPORTED:
            self.problems.append({"file": place.file, "line": place.line, "reason": reason})

    def pass_over(self, place: "_Place") -> None:
        """Count a line that may have contained a record."""
        self.unread += 1
        if len(self.unread_places) < _MAX_REPORTED:
            self.unread_places.append(f"{place.file}, line {place.line}")

    def as_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        names = ("lines", "records", "added", "already_there", "refused", "problems", "unread")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    line: int


_Batch = list[tuple[_Place, QueryLogRecord]]


def _replay_files(context: CommandContext, paths: Sequence[Path]) -> ReplaySummary:
    """Store the query logs in these files; ``-`` is standard input. What is stored stays after a failure."""
    for path in paths:
        if path != Path("-") and not path.is_file():
            raise InvalidInputError(f"{path} does not exist or is not a file.", field="FILE")
    config = VectorForgeConfig.from_environment()
    if config.database.log_writer_database_url is not None:
        return asyncio.run(_replay(context.terminal, paths, config.database))
    with local_setup(config, data_dir=context.data_dir, create=True) as setup:
        if setup.embedded and setup.migrator_url is not None:
            asyncio.run(migrate(setup.migrator_url))
        return asyncio.run(_replay(context.terminal, paths, setup.config.database))


def _print_summary(terminal: Terminal, summary: ReplaySummary) -> None:
    """Print the counts, and the reasons of rejected records."""
    for unread in summary.unread_places:
        terminal.warn(f"{unread}: names the type of query logs, but contains no complete record.")
    if summary.unread > len(summary.unread_places):
        terminal.warn(f"... and {summary.unread - len(summary.unread_places)} more.")
    if terminal.json_output:
        terminal.json(summary.as_json())
        return
    row = (summary.lines, summary.records, summary.added, summary.already_there, summary.refused)
    terminal.table(["Lines#", "Records#", "Added#", "Already there#", "Refused#"], [row])
    for problem in summary.problems:
        terminal.error(f"{problem['file']}, line {problem['line']}: {problem['reason']}")
    unreported = summary.refused - len(summary.problems)
    if unreported:
        terminal.error(f"... and {unreported} more.")


async def _replay(terminal: Terminal, paths: Sequence[Path], settings: DatabaseSettings) -> ReplaySummary:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    summary = ReplaySummary()
    async with Database(
        log_writer_url(settings),
        pool_size=1,
        timeout_s=settings.database_timeout_s,
        password=database_password(settings),
    ) as database:
        writer = QueryLogWriter(database)
        counts = TextColumn("{task.fields[records]} records in {task.fields[lines]} lines")
        with terminal.progress(SpinnerColumn(), counts, TimeElapsedColumn()) as progress:
            task = progress.add_task("Replay", total=None, records=0, lines=0)
            for batch in _batches(paths, summary):
                await _store(writer, batch, summary)
                progress.update(task, records=summary.records, lines=summary.lines)
    return summary


async def _store(writer: QueryLogWriter, batch: _Batch, summary: ReplaySummary) -> None:
    """Store a batch in one statement; one by one if the database rejects a record."""
    try:
        written = await writer.write([(record.tenant_id, record.query_log()) for _, record in batch])
        summary.added += written.stored
    except (InvalidInputError, RefusedRowError) as exc:
        if len(batch) == 1:
            summary.refuse(batch[0][0], exc.message)
            return
        for item in batch:
            await _store(writer, [item], summary)


def _batches(paths: Sequence[Path], summary: ReplaySummary) -> Iterator[_Batch]:
    """Yield the records of all files in batches; the last one may be empty."""
    batch: _Batch = []
    size = 0
    for place, line in _lines(paths):
        summary.lines += 1
        texts = list(find_records(line))
        if not texts and names_records(line):
            summary.pass_over(place)
        for text in texts:
            summary.records += 1
            try:
                record = parse_message(text)
            except InvalidInputError as exc:
                summary.refuse(place, exc.message)
                continue
            if isinstance(record, QueryLogRecord):  # find_records returns nothing else
                batch.append((place, record))
                size += len(text)
            if len(batch) == _BATCH_RECORDS or size > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    yield batch


def _lines(paths: Sequence[Path]) -> Iterator[tuple[_Place, str]]:
    for path in paths:
        name = "standard input" if path == Path("-") else str(path)
        try:
            with nullcontext(sys.stdin.buffer) if path == Path("-") else path.open("rb") as file:
                for number, line in enumerate(_unpacked(file), start=1):
                    yield _Place(name, number), line.decode("utf-8", "replace")
        except (OSError, EOFError, zlib.error) as exc:  # OSError: also an invalid gzip file
            raise InvalidInputError(f"{name} cannot be read ({type(exc).__name__}).", field="FILE") from exc


def _unpacked(file: BinaryIO) -> BinaryIO:
    """Unpack a file if its first bytes are those of gzip."""
    head = cast("io.BufferedReader", file).peek(2)[:2]
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if head == _GZIP else file
