"""``vectorforge logs``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Take care of the query log.")


@app.callback()
def logs() -> None:
    """Take care of the query log."""


@app.command()
@session_command
def replay(
    context: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Log files, also gzipped; - or nothing: standard input.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Store query logs that the queue did not take, out of the function's own log.

    When SQS does not take a record in time, the query function prints it. This
    command finds those lines in what CloudWatch gives: lines as they were
    printed, with or without the prefix of `aws logs tail`, JSON with a message
    in it (filter-log-events, Logs Insights, subscriptions), exports to S3.
    Everything else is passed over.

    It can be repeated: a query that is stored already stays as it is. Needs
    VECTORFORGE_LOG_WRITER_DATABASE_URL, unless the database is the embedded one.

    [bold]Examples[/bold]

        aws logs tail /aws/lambda/query --since 2h | vectorforge logs replay

        vectorforge logs replay export/*.gz

        vectorforge logs replay events.json --json | jq .refused
    """
    from vectorforge.cli.commands.logs_replay import print_summary, replay_files

    summary = replay_files(context.terminal, paths or [Path("-")], context.data_dir)
    print_summary(context.terminal, summary)
    if summary.refused:
        raise typer.Exit(ExitCode.INCOMPLETE)


@app.command()
@session_command
def text(
    context: CommandContext,
    policy: Annotated[
        Literal["full", "redacted", "hash", "off", "default"] | None,
        typer.Argument(help="What to keep from now on; nothing: show what is kept.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Whose queries; default: the local tenant.", show_default=False),
    ] = None,
) -> None:
    """Show or set what the query log keeps of a tenant's questions and answers.

    [bold]full[/bold]: the texts as they are. [bold]redacted[/bold]: e-mail addresses,
    phone and card numbers, IBANs, IP addresses and keys are masked.
    [bold]hash[/bold]: a SHA-256 of each text. [bold]off[/bold]: no texts.
    [bold]default[/bold]: what VECTORFORGE_LOG_TEXT says, which is redacted.

    Times, models, tokens, costs and outcomes are kept in any case. Processes that
    run know a change within a minute; what is stored already stays as it is.

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
        lambda kept: {"tenant": kept[0], "log_text": kept[1]},
        lambda terminal, kept: terminal.line(f"{kept[0]}: {kept[1] or 'default'}"),
    )
