"""Options of ``vectorforge ingest --from-postgres``."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

_PANEL = "From PostgreSQL"

FromPostgresOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from-postgres",
        metavar="DSN",
        help="Take rows of this database in place of files. [cyan]env:NAME[/cyan] takes the connection "
        "string from the environment, where other users of the machine do not see it.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
QueryOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--query", metavar="SQL", help="A SELECT: each row is a document.", rich_help_panel=_PANEL),
]
TableOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="All rows of a table or view.", rich_help_panel=_PANEL),
]
SourceNameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--source-name",
        metavar="NAME",
        help="What the rows are called in the collection; the same name again updates them. "
        "Default: the table, or the query's hash.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
ProfilesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="FILE",
        help="TOML with the queries [cyan]summary[/cyan], [cyan]experiences[/cyan], [cyan]projects[/cyan], "
        "[cyan]skills[/cyan] and [cyan]education[/cyan], each with a column profile_id.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
KeyOption: TypeAlias = Annotated[
    str, typer.Option("--key", metavar="COLUMN", help="Tells rows apart.", rich_help_panel=_PANEL)
]
TextOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--text", metavar="COLUMN", help="Makes the text; may be repeated.", rich_help_panel=_PANEL),
]
UpdatedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--updated",
        metavar="COLUMN",
        help="Time of the last change: rows where it is the same as before are not read again.",
        rich_help_panel=_PANEL,
    ),
]
TitleOption: TypeAlias = Annotated[
    str | None, typer.Option("--title", metavar="COLUMN", help="The title.", rich_help_panel=_PANEL)
]
MetadataColumnOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-column",
        metavar="COLUMN",
        help="Becomes metadata, for filters; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]
DeleteOption: TypeAlias = Annotated[
    bool,
    typer.Option("--delete", help="Delete documents of rows that are gone.", rich_help_panel=_PANEL),
]
EverythingOption: TypeAlias = Annotated[
    bool,
    typer.Option("--everything", help="Read rows that have not changed, too.", rich_help_panel=_PANEL),
]
