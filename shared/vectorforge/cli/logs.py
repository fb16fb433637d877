"""``vectorforge logs``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import command

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Take care of the query log.")


@app.callback()
def logs() -> None:
    """Take care of the query log."""


@app.command()
def replay(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Log files, also gzipped; - or nothing: standard input.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
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
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.logs_replay import print_summary, replay_files

        summary = replay_files(terminal, paths or [Path("-")], data_dir)
        print_summary(terminal, summary)
        if summary.refused:
            raise typer.Exit(ExitCode.INCOMPLETE)


@app.command()
def text(
    policy: Annotated[
        Literal["full", "redacted", "hash", "off", "default"] | None,
        typer.Argument(help="What to keep from now on; nothing: show what is kept.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Whose queries; default: the local tenant.", show_default=False),
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
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
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import Session, run_in_session

        async def work(session: Session) -> tuple[str, str | None]:
            name = tenant or session.services.tenant_id
            settings = session.application.for_tenant(name).caches.settings
            if policy is not None:
                await settings.set_log_text(None if policy == "default" else policy)
            return name, await settings.log_text()

        name, own = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            terminal.json({"tenant": name, "log_text": own})
        else:
            terminal.line(f"{name}: {own or 'default'}")
