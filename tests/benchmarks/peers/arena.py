"""Everything that a comparison needs: database, model, environments, and data stored by every contestant."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from figures.measuring import progress

from peers.database import SERVICE_DATABASE, BenchmarkDatabase
from peers.environments import REQUIREMENTS, InstallationError, interpreter, versions
from peers.processes import FOLDER, ServerProcess, WorkerProcess, environment
from peers.roster import DENSE, HYBRID, OURS, Entry

CHUNKS = 10_000
"""Number of chunks that queries search."""


class Arena:
    """Starts contestants against one database and one model.

    Args:
        database: Database of all contestants.
        model_url: Base URL of the OpenAI-shaped server.
        interpreters: Interpreters by environment.
        logs: Folder for the contestants' output.
    """

    def __init__(
        self, database: BenchmarkDatabase, model_url: str, interpreters: dict[str, Path], logs: Path
    ) -> None:
        self.database = database
        self._model_url = model_url
        self._interpreters = interpreters
        self._logs = logs

    def can_run(self, entry: Entry) -> bool:
        """Return whether the contestant's environment exists."""
        return entry.environment is None or entry.environment in self._interpreters

    @contextmanager
    def worker(self, entry: Entry, suffix: str = "") -> Iterator[WorkerProcess]:
        """Start the contestant's module in a separate process; see ``job.Place`` for the suffix."""
        variables = self._variables(entry, suffix)
        process = WorkerProcess(entry, entry.python(self._interpreters), variables, self._logs)
        try:
            yield process
        finally:
            process.close()

    @contextmanager
    def server(self, entry: Entry) -> Iterator[ServerProcess]:
        """Start the contestant's server; it may not answer yet."""
        process = ServerProcess(entry, entry.python(self._interpreters), self._variables(entry), self._logs)
        try:
            yield process
        finally:
            process.close()

    def load(self, entries: Sequence[Entry], chunks: int = CHUNKS) -> None:
        """Let every contestant store the chunks in its own way, unless it has already."""
        self.database.migrated(SERVICE_DATABASE, OURS)
        for entry in entries:
            facts = {"chunks": chunks, "versions": self.versions(entry)}
            table = _table(entry)
            if self.database.loaded.has(table, facts):
                continue
            progress.print(f"  {entry.title}: storing {chunks:,} passages")
            with self.worker(entry) as worker:
                worker.run("ingest", count=chunks)
                worker.run("index")
            self.database.loaded.put(table, facts)
        for collection, mode in ((DENSE, "dense"), (HYBRID, "hybrid")):
            self.database.set_search_mode(collection, mode)
        self.database.settle()
        self.database.forget_answers()

    def versions(self, entry: Entry) -> dict[str, str]:
        """Return the requested packages of the contestant's environment with their installed versions."""
        if entry.environment is None:
            return {}
        found = versions(self._interpreters[entry.environment])
        names = [requirement.partition("[")[0] for requirement in REQUIREMENTS[entry.environment]]
        return {name: found[name] for name in names if name in found}

    def _variables(self, entry: Entry, suffix: str = "") -> dict[str, str]:
        own = entry.variables(self.database.app_url, self._model_url)
        return {**self.database.place(self._model_url, suffix).environment(), **own}


def _table(entry: Entry) -> str:
    """Return the owner of the chunks it searches: contestants without a framework share a table."""
    return "by_hand" if entry.environment == "raw" else entry.name


@contextmanager
def arena(folder: Path, database: BenchmarkDatabase, entries: Sequence[Entry]) -> Iterator[Arena]:
    """Create environments and start the model, which is stopped at the end.

    Args:
        folder: Folder that persists between runs.
        database: Database of the same folder.
        entries: Contestants; optional ones whose environment cannot be created are omitted.

    Raises:
        InstallationError: A required environment cannot be created.
    """
    interpreters = _interpreters(folder / "environments", entries)
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    with _model(interpreters["raw"]) as url:
        yield Arena(database, url, interpreters, logs)


def _interpreters(folder: Path, entries: Sequence[Entry]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    needed = {"raw"} | {e.environment for e in entries if e.environment and not e.optional}
    wanted = needed | {e.environment for e in entries if e.environment}
    for name in sorted(wanted):
        try:
            found[name] = interpreter(folder, name, lambda text: progress.print(f"  {text}"))
        except InstallationError as exc:
            if name in needed:
                raise
            progress.print(f"  [yellow]Left out: {name}. {exc}[/yellow]")
    return found


@contextmanager
def _model(python: Path) -> Iterator[str]:
    command = [str(python), "-m", "peers.model"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=FOLDER, env=environment({})
    ) as process:
        try:
            assert process.stdout
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("The benchmark's model did not start.")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
