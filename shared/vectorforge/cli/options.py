"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from vectorforge.types import SearchMode

LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Most entries of the list.", show_default="all of them")
]
OffsetOption: TypeAlias = Annotated[int, typer.Option(min=0, help="Entries to skip before the first one.")]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs.", rich_help_panel="Everywhere")
]
DebugOption: TypeAlias = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel="Everywhere")
]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="VECTORFORGE_DATA_DIR",
        help="Where the embedded database lives. Unused when VECTORFORGE_DATABASE_URL is set. "
        "Default: vectorforge in your data folder.",
        rich_help_panel="Everywhere",
        show_default=False,
    ),
]
CollectionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--collection", "-c", help="Name or id of the collection.", show_default="default", metavar="NAME"
    ),
]
ProfileOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--profile", min=0, help="Only this profile.", metavar="NUMBER", show_default=False),
]
FilterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--filter",
        help='Metadata filter as JSON, e.g. [cyan]\'{"lang": "en"}\'[/cyan].',
        metavar="JSON",
        show_default=False,
    ),
]
TopKOption: TypeAlias = Annotated[
    int, typer.Option("--top-k", "-k", min=1, help="Passages to retrieve at most.")
]
ModeOption: TypeAlias = Annotated[
    SearchMode | None,
    typer.Option(
        "--mode",
        help="Find passages by vectors and words, by vectors or by words; default: as the collection is set.",
        show_default=False,
    ),
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
