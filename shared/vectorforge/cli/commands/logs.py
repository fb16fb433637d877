"""``vectorforge logs``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Manage the query log.")


@app.callback()
def logs() -> None:
    """Manage the query log."""


@app.command()
@session_command
def replay(
    context: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Log files, also gzipped; - (default) reads stdin.",
            show_default=False,
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
        typer.Argument(help="New policy; without it, the current one is shown.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Tenant; default: the local tenant.", show_default=False),
    ] = None,
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
