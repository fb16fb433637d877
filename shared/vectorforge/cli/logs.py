"""``vectorforge logs``."""

from pathlib import Path
from typing import Annotated

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
