"""What commands print: for a person at a terminal, for a pipe, or as JSON.

Results go to stdout; progress, notes and errors go to stderr. Off a terminal nothing is coloured, boxed
or wrapped, and tables are tab-separated. ``NO_COLOR`` is honoured (https://no-color.org).
"""

import dataclasses
import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any
from uuid import UUID

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vectorforge.cli.exit_codes import ExitCode, exit_code_for
from vectorforge.errors import VectorForgeError

_CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """The text without control characters: a document must not be able to drive the reader's terminal."""
    return text.translate(_CONTROL)


def _as_json(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Terminal:
    """Where one command prints."""

    def __init__(self, *, json_output: bool = False) -> None:
        self.json_output = json_output
        self.out = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self.err = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

    @property
    def interactive(self) -> bool:
        """Whether a person reads stdout."""
        return self.out.is_terminal

    def json(self, value: object) -> None:
        """Print one JSON document, on one line; dataclasses and pydantic models become objects."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_as_json) + "\n")
        sys.stdout.flush()

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """Print a line of the result."""
        self.out.print(Text(printable(text), style=style or ""))

    def note(self, text: str) -> None:
        """Say something about the run, on stderr; silent when JSON was asked for."""
        if not self.json_output:
            self.err.print(Text(printable(text), style="dim"))

    def warn(self, text: str) -> None:
        """Warn, on stderr."""
        if self.json_output:
            sys.stderr.write(json.dumps({"warning": text}, ensure_ascii=False) + "\n")
        else:
            self.err.print(Text.assemble(("warning: ", "yellow"), printable(text)))

    def error(self, text: str, *, code: str = "error") -> None:
        """Print an error as one line on stderr."""
        if self.json_output:
            sys.stderr.write(
                json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False) + "\n"
            )
        else:
            self.err.print(Text.assemble(("error: ", "bold red"), " ".join(printable(text).split())))

    def write(self, text: str) -> None:
        """Print a piece of text as it arrives, without a line break."""
        sys.stdout.write(printable(text))
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
        """Print a table; tab-separated with a header off a terminal. Columns ending in "#" hold numbers."""
        names = [column.removesuffix("#") for column in columns]
        cells = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
        if not self.interactive:
            for row in ([name.lower().replace(" ", "_") for name in names], *cells):
                sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")
            return
        table = Table(
            title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False
        )
        for column, name in zip(columns, names, strict=True):
            table.add_column(name, justify="right" if column.endswith("#") else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        self.out.print(table)


@contextmanager
def command(*, json_output: bool, debug: bool) -> Iterator[Terminal]:
    """Everything around a command's work: its terminal, and every error as one line and an exit code.

    Raises:
        typer.Exit: The command failed; the code is one of ``ExitCode``.
    """
    terminal = Terminal(json_output=json_output)
    # What a person should know is printed above; the log is for whoever looks for a fault.
    logging.basicConfig(
        level=logging.INFO if debug else logging.ERROR, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        yield terminal
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        terminal.error("Interrupted.", code="interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except VectorForgeError as exc:
        _traceback(debug)
        terminal.error(exc.message, code=exc.code)
        raise typer.Exit(exit_code_for(exc)) from None
    except Exception as exc:  # noqa: BLE001 - the last line of defence: no traceback unless asked for
        _traceback(debug)
        raise typer.Exit(_unexpected(terminal, exc, debug=debug)) from None


def _unexpected(terminal: Terminal, exc: Exception, *, debug: bool) -> ExitCode:
    if isinstance(exc, ModuleNotFoundError) and not (exc.name or "").startswith("vectorforge"):
        extras = "Install what a laptop needs: 'vectorforge[cli,local,ingest]'."
        terminal.error(f"{exc.name} is not installed. {extras}", code="configuration_error")
        return ExitCode.USAGE
    hint = "" if debug else " Run it again with --debug to see where."
    text = f"Unexpected {type(exc).__name__}. This is a bug in VectorForge.{hint}"
    terminal.error(text, code="internal_error")
    return ExitCode.BUG


def _traceback(debug: bool) -> None:
    if debug:
        traceback.print_exc()
