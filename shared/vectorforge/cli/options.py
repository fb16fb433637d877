"""Options that several commands share, and the values given for them."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import typer

from vectorforge.errors import InvalidInputError
from vectorforge.types import SearchMode

LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of entries.", show_default="all of them")
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
        help="Folder of the embedded database. Unused when VECTORFORGE_DATABASE_URL is set. "
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
    int, typer.Option("--top-k", "-k", min=1, help="Maximum number of passages to retrieve.")
]
ModeOption: TypeAlias = Annotated[
    SearchMode | None,
    typer.Option(
        "--mode",
        help="Search by vectors and words, by vectors or by words; default: the collection's setting.",
        show_default=False,
    ),
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_ROWS = "From PostgreSQL"

FromPostgresOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from-postgres",
        metavar="DSN",
        help="Read rows of this database instead of files. [cyan]env:NAME[/cyan] reads the connection "
        "string from the environment, hidden from other users of the machine.",
        show_default=False,
        rich_help_panel=_ROWS,
    ),
]
QueryOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--query", metavar="SQL", help="A SELECT: each row is a document.", rich_help_panel=_ROWS),
]
TableOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="All rows of a table or view.", rich_help_panel=_ROWS),
]
SourceNameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--source-name",
        metavar="NAME",
        help="Name of the rows in the collection; the same name again updates them. "
        "Default: the table, or the query's hash.",
        show_default=False,
        rich_help_panel=_ROWS,
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
        rich_help_panel=_ROWS,
    ),
]
KeyOption: TypeAlias = Annotated[
    str, typer.Option("--key", metavar="COLUMN", help="Unique key of a row.", rich_help_panel=_ROWS)
]
TextOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--text", metavar="COLUMN", help="Text column; may be repeated.", rich_help_panel=_ROWS),
]
UpdatedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--updated",
        metavar="COLUMN",
        help="Column with the time of the last change; unchanged rows are not read again.",
        rich_help_panel=_ROWS,
    ),
]
TitleOption: TypeAlias = Annotated[
    str | None, typer.Option("--title", metavar="COLUMN", help="Column of the title.", rich_help_panel=_ROWS)
]
MetadataColumnOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-column",
        metavar="COLUMN",
        help="Column stored as metadata, for filters; may be repeated.",
        rich_help_panel=_ROWS,
    ),
]
DeleteOption: TypeAlias = Annotated[
    bool,
    typer.Option("--delete", help="Delete the documents of removed rows.", rich_help_panel=_ROWS),
]
EverythingOption: TypeAlias = Annotated[
    bool,
    typer.Option("--everything", help="Read unchanged rows, too.", rich_help_panel=_ROWS),
]


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation.

    Raises:
        typer.Abort: The user declined.
        InvalidInputError: stdin is not a terminal, and ``--yes`` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInputError("Confirmation needs a terminal; use --yes to skip it.", field="--yes")
    typer.confirm(question, abort=True, err=True)


_MAX_STDIN_CHARS = 1_000_000


def read_question(argument: str) -> str:
    """Return the question; ``-`` reads it from stdin.

    Raises:
        InvalidInputError: It is empty, or stdin has more than a million characters.
    """
    if argument != "-":
        text = argument
    else:
        text = sys.stdin.read(_MAX_STDIN_CHARS + 1)
        if len(text) > _MAX_STDIN_CHARS:
            raise InvalidInputError(
                f"QUESTION on stdin is longer than {_MAX_STDIN_CHARS:,} characters.", field="QUESTION"
            )
    if not text.strip():
        raise InvalidInputError("QUESTION is empty.", field="QUESTION")
    return text.strip()


def conversation_id(text: str | None) -> UUID | Literal["new"] | None:
    """Parse ``--conversation``: an id, or "new" for a new conversation.

    Raises:
        InvalidInputError: It is neither an id nor "new".
    """
    if text is None or text == "new":
        return "new" if text else None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(
            f"--conversation must be a conversation id or 'new', not {text[:100]!r}.", field="--conversation"
        ) from None


def parse_filter(text: str | None) -> dict[str, Any] | None:
    """Parse a metadata filter, as in the HTTP API.

    Raises:
        InvalidInputError: The text is not a JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError('--filter must be a JSON object, e.g. \'{"lang": "en"}\'.', field="--filter")
    return value


def parse_metadata(pairs: list[str]) -> dict[str, str]:
    """Parse ``key=value`` pairs as metadata; the values stay text.

    Raises:
        InvalidInputError: A pair has no key or no "=".
    """
    metadata = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key.strip() and separator):
            raise InvalidInputError(f"--metadata must be key=value, not {pair!r}.", field="--metadata")
        metadata[key.strip()] = value
    return metadata
