"""Progress of ``vectorforge ingest`` and of the sample of ``vectorforge up``."""

import time
from collections.abc import Callable
from typing import Self

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from vectorforge.cli.terminal import Terminal, printable

_LINE_EVERY_S = 5.0


class _Bars:
    """Bars on stderr, each with a description and a count."""

    def __init__(self, terminal: Terminal, *details: ProgressColumn) -> None:
        description = TextColumn("{task.description:<9}")
        columns = (SpinnerColumn(), description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = terminal.progress(*columns, *details)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class IngestDisplay(_Bars):
    """Bars on stderr for files read, chunks embedded and documents done; in a pipe, a line every 5 s."""

    def __init__(self, terminal: Terminal, files: int) -> None:
        super().__init__(terminal, TextColumn("[dim]{task.fields[detail]}"))
        self._terminal = terminal
        self._lines = not terminal.err.is_terminal
        self._last_line = time.monotonic()
        self._finished, self._files = 0, files
        self._read = self._progress.add_task("Read", total=files, detail="")
        self._embedded = self._progress.add_task("Embedded", total=0, detail="passages")
        self._done = self._progress.add_task("Done", total=0, detail="documents")
        self._passages = 0
        self._documents = 0

    def read(self, source: str, documents: int) -> None:
        """Count a file that was read, and the documents in it."""
        self._documents += documents
        self._progress.update(self._read, advance=1, detail=escape(printable(source)[-50:]))
        self._progress.update(self._done, total=self._documents)

    def done(self) -> None:
        """Count a document that was stored or failed."""
        self._progress.advance(self._done)
        self._finished += 1
        if self._lines and time.monotonic() - self._last_line > _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._terminal.note(f"{self._finished} of {max(self._documents, self._files)} documents done ...")

    def embedding(self) -> Callable[[int, int], None]:
        """Follow the embedding of one document."""
        before, announced = 0, 0

        def follow(embedded: int, total: int) -> None:
            nonlocal before, announced
            self._passages += total - announced
            self._progress.update(self._embedded, advance=embedded - before, total=self._passages)
            before, announced = embedded, total

        return follow


class RowBars(_Bars):
    """Bars on stderr: rows compared, rows ingested. Silent off a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self._compared = self._progress.add_task("Compared", total=None)
        self._done = self._progress.add_task("Ingested", total=0)

    def compared(self) -> None:
        """Count a key that was read."""
        self._progress.advance(self._compared)

    def total(self, rows: int) -> None:
        """Set the number of rows to ingest."""
        self._progress.update(self._done, total=rows)

    def done(self) -> None:
        """Count a row that was ingested."""
        self._progress.advance(self._done)
