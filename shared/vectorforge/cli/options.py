"""Options that several commands share, and the values given for them."""

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import typer

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.step_types import Effort
from vectorforge.types import SearchMode

_everywhere = partial(typer.Option, rich_help_panel="Everywhere")

JsonOption: TypeAlias = Annotated[bool, _everywhere("--json", help="Print one JSON document for programs.")]
DebugOption: TypeAlias = Annotated[bool, _everywhere("--debug", help="Show the traceback of an error.")]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    _everywhere(
        "--data-dir",
        envvar="VECTORFORGE_DATA_DIR",
        help="Folder of the embedded database. Unused when VECTORFORGE_DATABASE_URL is set. "
        "Default: vectorforge in your data folder.",
        show_default=False,
    ),
]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of entries.", show_default="all of them")
]
OffsetOption: TypeAlias = Annotated[int, typer.Option(min=0, help="Entries to skip before the first one.")]
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
    int, typer.Option("--top-k", "-k", min=1, help="Maximum number of chunks to retrieve.")
]
AnswerTopKOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        "-k",
        min=1,
        help="Maximum number of chunks to retrieve.",
        show_default="10, or the variant's",
    ),
]
ModeOption: TypeAlias = Annotated[
    SearchMode | None,
    typer.Option(
        "--mode",
        help="Search by vectors and words, by vectors or by words; default: the collection's setting.",
        show_default=False,
    ),
]
MmrOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--mmr-lambda",
        min=0,
        max=1,
        help="Choose chunks that differ (maximal marginal relevance): 1 by relevance alone, 0 by "
        "difference alone; 0.7 avoids near-identical chunks.",
        show_default="not used",
    ),
]
TenantOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tenant", "-t", help="Tenant id.", metavar="TENANT", show_default="VECTORFORGE_LOCAL_TENANT"
    ),
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

EmbeddingProviderOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Embedding provider: local, openai, bedrock ...", show_default="the configured one"),
]
EmbeddingModelOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Model of that provider.", show_default="the provider's")
]


_rows = partial(typer.Option, rich_help_panel="From PostgreSQL")


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Options of ``vectorforge ingest`` for rows of another PostgreSQL database."""

    from_postgres: Annotated[
        str | None,
        _rows(
            metavar="DSN",
            help="Read rows of this database instead of files. [cyan]env:NAME[/cyan] reads the connection "
            "string from the environment, hidden from other users of the machine.",
            show_default=False,
        ),
    ] = field(default=None, repr=False)
    query: Annotated[str | None, _rows(metavar="SQL", help="A SELECT: each row is a document.")] = None
    table: Annotated[str | None, _rows(metavar="NAME", help="All rows of a table or view.")] = None
    profiles: Annotated[
        Path | None,
        _rows(
            metavar="FILE",
            help="TOML with the queries [cyan]summary[/cyan], [cyan]experiences[/cyan], "
            "[cyan]projects[/cyan], [cyan]skills[/cyan] and [cyan]education[/cyan], each with a column "
            "profile_id.",
            show_default=False,
        ),
    ] = None
    source_name: Annotated[
        str | None,
        _rows(
            metavar="NAME",
            help="Name of the rows in the collection; the same name again updates them. "
            "Default: the table, or the query's hash.",
            show_default=False,
        ),
    ] = None
    key: Annotated[str, _rows(metavar="COLUMN", help="Unique key of a row.")] = "id"
    text: Annotated[list[str] | None, _rows(metavar="COLUMN", help="Text column; may be repeated.")] = None
    updated: Annotated[
        str | None,
        _rows(
            metavar="COLUMN",
            help="Column with the time of the last change; unchanged rows are not read again.",
        ),
    ] = None
    title: Annotated[str | None, _rows(metavar="COLUMN", help="Column of the title.")] = None
    metadata_column: Annotated[
        list[str] | None,
        _rows(metavar="COLUMN", help="Column stored as metadata, for filters; may be repeated."),
    ] = None
    delete: Annotated[bool, _rows("--delete", help="Delete the documents of removed rows.")] = False
    everything: Annotated[bool, _rows("--everything", help="Read unchanged rows, too.")] = False


EffortOption = Annotated[
    Effort | None,
    typer.Option(
        help="Steps of the search: [cyan]minimal[/cyan] one, [cyan]low[/cyan] with sub-queries for several "
        "facts, [cyan]medium[/cyan] in up to three rounds, [cyan]auto[/cyan] low if words are not found.",
        show_default="minimal",
    ),
]
IntentOption = Annotated[
    list[str] | None,
    typer.Option("--intent", help="Sub-query to search for, too; up to four times.", show_default="none"),
]


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation.

    Raises:
        typer.Abort: The user declined.
        InvalidInputError: stdin is not a terminal, and ``--yes`` was not given.
    """
    check_confirmable(yes=yes)
    if not yes:
        typer.confirm(question, abort=True, err=True)


def check_confirmable(*, yes: bool) -> None:
    """Raise InvalidInputError if stdin is not a terminal, and ``--yes`` was not given."""
    if not yes and not sys.stdin.isatty():
        raise InvalidInputError("Confirmation needs a terminal; use --yes to skip it.", field="--yes")


_MAX_STDIN_CHARS = 1_000_000


def read_question(argument: str) -> str:
    """Return the question; ``-`` reads it from stdin.

    Raises:
        InvalidInputError: It is empty, or stdin has more than a million characters.
    """
    text = sys.stdin.read(_MAX_STDIN_CHARS + 1) if argument == "-" else argument
    if argument == "-" and len(text) > _MAX_STDIN_CHARS:
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


def source_name(file: Path) -> str:
    """Return the source of a file: its absolute path, without symbolic links.

    So the same file is replaced when it is ingested again from elsewhere, and two files of the same name in
    different folders never replace each other.
    """
    return file.resolve().as_posix()


def shown_source(source: str) -> str:
    """Shorten a source for display: files below the working directory as ``./docs/x.md``."""
    try:
        return f"./{PurePath(source).relative_to(Path.cwd()).as_posix()}"
    except ValueError:
        return source
