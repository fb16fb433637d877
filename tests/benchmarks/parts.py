"""The parts of the benchmark: their measurement, and the presentation of results on the page."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import scripts
from figures import million, selectivity
from figures.scale import Scale
from page import Section
from peers import comparison, documents, starting, storing
from peers.arena import Arena, arena
from peers.database import SERVICE_DATABASE, BenchmarkDatabase, benchmark_database
from peers.roster import OURS, ROSTER, Entry
from sections import comparison_section, quality_tables, scale_section, search_section, tables_section


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    names: Sequence[str]
    rounds: int
    chunks: int
    """Number of chunks in the contestants' collections."""
    questions: int
    """Number of queries of each kind, to collections of each size."""
    folder: Path
    data: Sequence[Path]
    """Folders with queries and judgments."""
    quick: bool


class Workshop:
    """Database, model and environments, started when a part first needs them and stopped at the end."""

    def __init__(self, options: Options, stack: ExitStack) -> None:
        self.options = options
        self._stack = stack
        self._database: BenchmarkDatabase | None = None
        self._arena: Arena | None = None

    @property
    def database(self) -> BenchmarkDatabase:
        """Return the PostgreSQL server."""
        if self._database is None:
            self._database = self._stack.enter_context(benchmark_database(self.options.folder))
        return self._database

    @property
    def arena(self) -> Arena:
        """Return database, model and environments."""
        if self._arena is None:
            wanted = [ROSTER[name] for name in self.options.names]
            self._arena = self._stack.enter_context(arena(self.options.folder, self.database, wanted))
        return self._arena

    @property
    def entries(self) -> list[Entry]:
        """Return the contestants that were named and can be run."""
        return [ROSTER[name] for name in self.options.names if self.arena.can_run(ROSTER[name])]

    def loaded(self) -> Arena:
        """Return the arena after every contestant has stored the chunks."""
        self.arena.load(self.entries, self.options.chunks)
        return self.arena


@dataclass(frozen=True)
class Part:
    """One independent measurement."""

    name: str
    what: str
    """Description in ``--help``."""
    minutes: int
    """Approximate minutes on two idle cores, without installing and storing."""
    measure: Callable[[Workshop], Any]
    section: Callable[[Any, Mapping[str, Any]], Section]
    """Builds the section from the figures and the settings of a result."""
    with_contestants: bool = False
    optional: bool = False
    """True if it runs only when named."""
    needs_data: bool = False


def _modules(workshop: Workshop) -> Any:
    place = workshop.loaded()
    return asyncio.run(comparison.measure_modules(place, workshop.entries, workshop.options.rounds))


def _servers(workshop: Workshop) -> Any:
    place = workshop.loaded()
    return asyncio.run(comparison.measure_servers(place, workshop.entries, workshop.options.rounds))


def _cold(workshop: Workshop) -> Any:
    return starting.measure_starts(workshop.loaded(), workshop.entries, workshop.options.rounds)


def _ingestion(workshop: Workshop) -> Any:
    workshop.database.migrated(SERVICE_DATABASE, OURS)
    workshop.database.drop_vector_indexes()  # the others' tables are new and have none
    chunks = max(1, workshop.options.chunks // 5)
    return storing.measure_storing(workshop.arena, workshop.entries, workshop.options.rounds, chunks)


def _documents(workshop: Workshop) -> Any:
    workshop.database.migrated(SERVICE_DATABASE, OURS)
    workshop.database.drop_vector_indexes()  # as above
    count = max(1, workshop.options.chunks // 5)
    return documents.measure_documents(workshop.arena, workshop.entries, workshop.options.rounds, count)


def _search(workshop: Workshop, scale: Scale) -> Any:
    return selectivity.measure(workshop.database, scale, workshop.options.questions)


def _script(workshop: Workshop, script: str, *arguments: str) -> Any:
    return scripts.run(script, *arguments, *(["--quick"] if workshop.options.quick else []), "--json")


def _quality(workshop: Workshop) -> Any:
    found = {}
    for folder in workshop.options.data:
        run_file = workshop.options.folder / f"run-{folder.name}.jsonl"
        figures = scripts.run("retrieval_quality.py", str(folder), "--run-file", str(run_file))
        found[folder.name] = {name: value for name, value in figures.items() if name != "run_file"}
    return found


def _index_kinds(workshop: Workshop) -> Any:
    sizes = ["5000"] if workshop.options.quick else ["100000", "500000"]
    return scripts.run("storage_figures.py", "--vectors", *sizes, "--json")


_JOB = (
    "The job: embed the query, find the ten nearest chunks by cosine among 10,000 with 1,536 dimensions, of "
    "which a metadata filter selects half, build the prompt, call the model. The model is a local server "
    "that answers 128 tokens at once in 0.1 ms, so the figures are the overhead of each contestant."
)
_OF_SCRIPTS = "`--help` of the script describes each table."
SIZES = {10_000: 40, 100_000: 40, 500_000: 0}
"""Numbers of chunks, and words in each; half a million have vectors only."""

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Part(
            "servers",
            "queries and streams over HTTP: `vectorforge up`, the others behind FastAPI",
            10,
            _servers,
            partial(comparison_section, "Queries over HTTP, compared with other frameworks", "servers", _JOB),
            with_contestants=True,
        ),
        Part(
            "modules",
            "the same in process: the library, the frameworks as they are",
            8,
            _modules,
            partial(comparison_section, "Questions in process", "modules", "The same job without HTTP."),
            with_contestants=True,
        ),
        Part(
            "cold",
            "start of each server's process to its first answer, and its memory then",
            5,
            _cold,
            tables_section(
                "Cold start",
                "Each process starts and answers one query; Python's bytecode exists, as in an image.",
                starting.tables,
            ),
            with_contestants=True,
        ),
        Part(
            "ingestion",
            "ready-made chunks per second: embedded by the benchmark's model and stored",
            15,
            _ingestion,
            tables_section(
                "Ingestion of chunks, compared with other frameworks",
                "Each stores its chunks again in every round; indexes that a contestant builds afterwards "
                "are not included.",
                storing.tables,
            ),
            with_contestants=True,
        ),
        Part(
            "documents",
            "documents of one chunk per second: through the REST API, the others by their modules",
            15,
            _documents,
            tables_section(
                "Ingestion of small documents, compared with other frameworks",
                "This service receives them over HTTP, 1,000 in a request, and is awaited until their jobs "
                "have succeeded; the others' modules are called with chunks.",
                documents.tables,
            ),
            with_contestants=True,
        ),
        Part(
            "service",
            "import, start, ingestion of documents: service_figures.py",
            8,
            partial(_script, script="service_figures.py"),
            tables_section("The service alone", _OF_SCRIPTS, scripts.tables),
        ),
        *(
            Part(
                f"search-{size}",
                f"recall and latency among {size:,} chunks, by filter and tenant",
                3,
                partial(_search, scale=Scale(size, words)),
                partial(search_section, size),
                optional=size > 100_000,
            )
            for size, words in SIZES.items()
        ),
        Part(
            "scale",
            "a million chunks, more than shared_buffers holds: build, recall, latency, random filters",
            60,
            lambda workshop: million.measure(workshop.database, workshop.options.questions),
            scale_section,
            optional=True,
        ),
        Part(
            "index-kinds",
            "full, half and binary vectors: build, size, latency and recall; storage_figures.py",
            60,
            _index_kinds,
            tables_section("Kinds of vector index", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
        Part(
            "quality",
            "nDCG and recall on the folders of --data, with the local embedding model",
            10,
            _quality,
            tables_section(
                "Retrieval quality", "The default configuration with the local model.", quality_tables
            ),
            needs_data=True,
        ),
        Part(
            "functions",
            "the Lambda functions: lambda_figures.py, without the billed resources",
            8,
            lambda workshop: _script(
                workshop, "lambda_figures.py", "--only", "first-byte", "chunks", "import", "functions"
            ),
            tables_section("Lambda functions", _OF_SCRIPTS, scripts.tables),
        ),
        Part(
            "bill",
            "AWS resources billed per query: lambda_figures.py; docs/operate/costs.md uses them",
            2,
            lambda workshop: _script(workshop, "lambda_figures.py", "--only", "bill"),
            tables_section("Resources billed by AWS", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
        Part(
            "capacity",
            "searches and log rows through PgBouncer, bytes on disk: database_capacity.py",
            30,
            lambda workshop: scripts.run("database_capacity.py", "--json"),
            tables_section("The database, by search and by chunk", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
    )
}
