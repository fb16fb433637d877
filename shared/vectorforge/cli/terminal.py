"""Output and exit codes of commands.

Results go to stdout; progress, notes and errors go to stderr. In a pipe nothing is colored, boxed or wrapped,
and tables are tab-separated. ``NO_COLOR`` is honored (https://no-color.org).
"""

import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import typer
from pydantic_core import to_jsonable_python

from vectorforge import errors
from vectorforge.extras import not_installed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    INCOMPLETE = 1
    """Completed, but some part failed."""
    USAGE = 2
    """The command line or a setting is wrong; a retry fails again."""
    UNAVAILABLE = 3
    """A service is unavailable; a retry may succeed."""
    BUG = 4
    """Unexpected error."""
    INTERRUPTED = 130


EXIT_CODE_HELP = (
    "[bold]Exit codes:[/bold] "
    "[bold]0[/bold] done · "
    "[bold]1[/bold] done, but with failures (a document failed, no results, a check failed, "
    "migrations are pending, an evaluation found a regression) · "
    "[bold]2[/bold] the command line or a setting is wrong · "
    "[bold]3[/bold] the database or a model is unavailable · "
    "[bold]4[/bold] a bug · "
    "[bold]130[/bold] interrupted"
)

_SETUP_ERRORS = (errors.MigrationError, errors.UnsafeRoleError)
"""Errors of services that need another setup; waiting does not help."""
_SERVICE_ERRORS = (
    errors.DatabaseError,
    errors.DeadlineExceededError,
    errors.EmbeddingError,
    errors.LimitExceededError,
    errors.LLMError,
    errors.RetrievalError,
    errors.SecretsUnavailableError,
)


def exit_code_for(error: errors.VectorForgeError) -> ExitCode:
    """Return the exit code for an error."""
    unavailable = isinstance(error, _SERVICE_ERRORS) and not isinstance(error, _SETUP_ERRORS)
    return ExitCode.UNAVAILABLE if unavailable else ExitCode.USAGE


def text_of(error: errors.VectorForgeError) -> str:
    """Return the message and its notes, such as the host of a database."""
    return " ".join([error.message, *getattr(error, "__notes__", ())])


_CONTROL = {
    code: None
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}
"""Control characters, also those that reorder the text around them."""
_ESCAPED = {code: f"\\u{code:04x}" for code in _CONTROL}


def printable(text: str) -> str:
    """Remove control characters, so that a document cannot control the reader's terminal."""
    return text.translate(_CONTROL)


def _json_line(value: object, *, ascii_only: bool = False) -> str:
    """Return JSON with control characters as escapes; `json` escapes those of ASCII only."""
    text = json.dumps(value, ensure_ascii=ascii_only, default=_as_json)
    return text.translate(_ESCAPED) + "\n"


def _as_json(value: object) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    return to_jsonable_python(value, by_alias=False)


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "utf-8").lower().startswith(("utf", "u8"))


class Terminal:
    """Output of one command."""

    def __init__(self, *, json_output: bool = False) -> None:
        self.json_output = json_output
        if not _is_unicode(sys.stdout) and isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # "›" and names of files, in a locale without them

    @cached_property
    def out(self) -> "Console":
        """Rich console on stdout."""
        from rich.console import Console

        return Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    @cached_property
    def err(self) -> "Console":
        """Rich console on stderr."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())

    def progress(self, *columns: "ProgressColumn | str") -> "Progress":
        """Return a progress display on stderr; it is disabled in a pipe and with ``--json``."""
        from rich.progress import Progress

        hidden = self.json_output or not self.err.is_terminal
        return Progress(*columns, console=self.err, transient=True, disable=hidden)

    @property
    def interactive(self) -> bool:
        """Return True if stdout is a terminal."""
        return _is_terminal(sys.stdout)

    def json(self, value: object) -> None:
        """Print one JSON document, on one line; dataclasses and pydantic models become objects."""
        sys.stdout.write(_json_line(value, ascii_only=not _is_unicode(sys.stdout)))
        sys.stdout.flush()

    def line(
        self, text: str = "", *, style: str = "", label: tuple[str, str] = ("", ""), wrapped: bool = True
    ) -> None:
        """Print a line of the result, after a label with its style; not ``wrapped`` for text to copy."""
        self._print(sys.stdout, text, style=style, label=label, soft_wrap=None if wrapped else True)

    def note(self, text: str) -> None:
        """Print a note about the run on stderr; nothing with ``--json``."""
        if not self.json_output:
            self._print(sys.stderr, text, style="dim")

    def warn(self, text: str) -> None:
        """Warn, on stderr."""
        if self.json_output:
            sys.stderr.write(_json_line({"warning": text}))
        else:
            self._print(sys.stderr, text, label=("warning: ", "yellow"))

    def error(self, text: str, *, code: str = "error") -> None:
        """Print an error as one line on stderr."""
        if self.json_output:
            sys.stderr.write(_json_line({"error": {"code": code, "message": text}}))
        else:
            self._print(sys.stderr, " ".join(printable(text).split()), label=("error: ", "bold red"))

    def write(self, text: str) -> None:
        """Print a piece of text as it arrives, without a line break."""
        sys.stdout.write(printable(text))
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
        """Print a table; tab-separated with a header in a pipe. Columns ending in "#" are numeric."""
        names = [column.removesuffix("#") for column in columns]
        cells = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
        if not self.interactive:
            for row in ([name.lower().replace(" ", "_") for name in names], *cells):
                sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False
        )
        for column, name in zip(columns, names, strict=True):
            table.add_column(name, justify="right" if column.endswith("#") else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        self.out.print(table)

    def _print(
        self,
        stream: TextIO,
        text: str,
        *,
        style: str = "",
        label: tuple[str, str] = ("", ""),
        soft_wrap: bool | None = None,
    ) -> None:
        if not _is_terminal(stream):
            stream.write(printable(label[0] + text) + "\n")
            stream.flush()
            return
        from rich.text import Text

        console = self.out if stream is sys.stdout else self.err
        console.print(Text.assemble(label, (printable(text), style)), soft_wrap=soft_wrap)


def _is_terminal(stream: TextIO) -> bool:
    """Detect a terminal as rich does: https://rich.readthedocs.io/en/stable/console.html#terminal-detection."""
    compatible = os.environ.get("TTY_COMPATIBLE", "")
    if compatible in ("0", "1"):
        return compatible == "1"
    forced = os.environ.get("FORCE_COLOR")
    return stream.isatty() if forced is None else forced != ""


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C in the block, so that started processes are stopped."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def command(*, json_output: bool, debug: bool) -> Iterator[Terminal]:
    """Provide a command's terminal, and turn its errors into one line and an exit code.

    Raises:
        typer.Exit: The command failed; the code is one of ``ExitCode``.
    """
    terminal = Terminal(json_output=json_output)
    # Results and errors are printed by the terminal; the log is for debugging.
    level = logging.INFO if debug else logging.ERROR
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("psycopg").setLevel(level)  # its default is WARNING
    try:
        with stop_on_sigterm():
            yield terminal
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        terminal.error("Interrupted.", code="interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except errors.VectorForgeError as exc:
        if debug:
            traceback.print_exc()
        terminal.error(text_of(exc), code=exc.code)
        raise typer.Exit(exit_code_for(exc)) from None
    except Exception as exc:  # noqa: BLE001 - no traceback without --debug
        if debug:
            traceback.print_exc()
        raise typer.Exit(_unexpected(terminal, exc, debug=debug)) from None


def _unexpected(terminal: Terminal, exc: Exception, *, debug: bool) -> ExitCode:
    if isinstance(exc, ModuleNotFoundError) and not (exc.name or "").startswith("vectorforge"):
        terminal.error(not_installed(exc), code="configuration_error")
        return ExitCode.USAGE
    hint = "" if debug else " Run it again with --debug to see where."
    text = f"Unexpected {type(exc).__name__}. This is a bug in VectorForge.{hint}"
    terminal.error(text, code="internal_error")
    return ExitCode.BUG
