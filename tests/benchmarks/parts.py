"""The parts of the benchmark: how each is measured, and what its result says on the page."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import scripts
from figures import selectivity
from figures.measuring import Table
from figures.scale import Scale
from page import Plot, Section
from peers import comparison, report, starting, storing
from peers.arena import Arena, arena
from peers.database import SERVICE_DATABASE, BenchmarkDatabase, benchmark_database
from peers.roster import OURS, ROSTER, Entry


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    names: Sequence[str]
    rounds: int
    chunks: int
    """Passages that contestants are asked about."""
    questions: int
    """Of each kind, to collections of each size."""
    folder: Path
    data: Sequence[Path]
    """Folders with questions and judgements."""
    quick: bool


class Workshop:
    """Database, model and environments, made when a part first needs them and stopped at the end."""

    def __init__(self, options: Options, stack: ExitStack) -> None:
        self.options = options
        self._stack = stack
        self._database: BenchmarkDatabase | None = None
        self._arena: Arena | None = None

    @property
    def database(self) -> BenchmarkDatabase:
        """The PostgreSQL."""
        if self._database is None:
            self._database = self._stack.enter_context(benchmark_database(self.options.folder))
        return self._database

    @property
    def arena(self) -> Arena:
        """Database, model and environments."""
        if self._arena is None:
            wanted = [ROSTER[name] for name in self.options.names]
            self._arena = self._stack.enter_context(arena(self.options.folder, self.database, wanted))
        return self._arena

    @property
    def entries(self) -> list[Entry]:
        """Who takes part: who was named and can be run."""
        return [ROSTER[name] for name in self.options.names if self.arena.can_run(ROSTER[name])]

    def loaded(self) -> Arena:
        """The arena, in which every contestant has stored the passages."""
        self.arena.load(self.entries, self.options.chunks)
        return self.arena


@dataclass(frozen=True)
class Part:
    """One thing that can be measured by itself."""

    name: str
    what: str
    """In ``--help``."""
    minutes: int
    """About, on two quiet cores, without installing and storing."""
    measure: Callable[[Workshop], Any]
    section: Callable[[Any, Mapping[str, Any]], Section]
    """Given the figures and the settings of a result."""
    with_contestants: bool = False
    optional: bool = False
    """Only when it is named."""
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
    workshop.database.drop_vector_indexes()  # the others' tables are new ones and have none
    chunks = max(1, workshop.options.chunks // 5)
    return storing.measure_storing(workshop.arena, workshop.entries, workshop.options.rounds, chunks)


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


def _comparison_section(
    heading: str, prefix: str, text: str, figures: Any, settings: Mapping[str, Any]
) -> Section:
    plots = [
        Plot(f"{prefix}-{case}.svg", title, unit, rows)
        for case, figure, title, unit in (
            ("query", "cpu_ms", "CPU per query", "ms"),
            ("query_parallel", "per_s", "Queries per second, 16 concurrent", "1/s"),
            ("stream", "cpu_ms", "CPU per stream", "ms"),
        )
        if (rows := [(result["title"], result["cases"][case][figure]) for result in figures.values()])
    ]
    text = f"{text} {_taking_part(settings)} Interleaved rounds: {settings['rounds']}."
    return Section(heading, text, report.tables(figures), plots)


def _taking_part(settings: Mapping[str, Any]) -> str:
    """The versions of the frameworks, as a sentence."""
    packages = ("openai", "langchain", "langchain-postgres", "llama-index-core", "haystack-ai")
    found = {
        name: version
        for versions in settings["versions"].values()
        for name, version in versions.items()
        if name in packages
    }
    return f"Versions: {', '.join(f'{name} {version}' for name, version in found.items())}."


def _tables_section(heading: str, text: str, tables: Callable[[Any], Sequence[Table]]) -> Any:
    return lambda figures, settings: Section(heading, text, tables(figures))


def _search_section(size: int, figures: Any, settings: Mapping[str, Any]) -> Section:
    text = (
        f"One search at a time through the vector store, {settings['questions']} of each kind; "
        "384 dimensions, generated vectors around 1,000 centers. The small tenants' vectors are clustered, "
        "among the large tenant's. Recall counts the nearest vectors by exact computation."
    )
    return Section(f"Search among {size:,} chunks", text, selectivity.tables(figures))


def _quality_tables(figures: Any) -> list[Table]:
    names = list(next(iter(figures.values())))
    table = Table("Retrieval against human judgments", ("collection", *names))
    for folder, found in figures.items():
        table.add(folder, *(found.get(name, "") for name in names))
    return [table]


_JOB = (
    "The job: embed the query, find the ten nearest chunks by cosine among 10,000 with 1,536 dimensions, of "
    "which a metadata filter selects half, build the prompt, call the model. The model is a local server "
    "that answers 128 tokens at once in 0.1 ms, so the figures are the overhead of each contestant."
)
_OF_SCRIPTS = "`--help` of the script describes each table."
SIZES = {10_000: 40, 100_000: 40, 500_000: 0}
"""Chunks, and words in each: of half a million, vectors only."""

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Part(
            "servers",
            "queries and streams over HTTP: `vectorforge up`, the others behind FastAPI",
            10,
            _servers,
            partial(
                _comparison_section, "Queries over HTTP, compared with other frameworks", "servers", _JOB
            ),
            with_contestants=True,
        ),
        Part(
            "modules",
            "the same in process: the library, the frameworks as they are",
            8,
            _modules,
            partial(_comparison_section, "Questions in process", "modules", "The same job without HTTP."),
            with_contestants=True,
        ),
        Part(
            "cold",
            "start of each server's process to its first answer, and its memory then",
            5,
            _cold,
            _tables_section(
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
            _tables_section(
                "Ingestion of chunks, compared with other frameworks",
                "Each stores its chunks again in every round; indexes that a contestant builds afterwards "
                "are not included.",
                storing.tables,
            ),
            with_contestants=True,
        ),
        Part(
            "service",
            "import, start, ingestion of documents: service_figures.py",
            8,
            partial(_script, script="service_figures.py"),
            _tables_section("The service alone", _OF_SCRIPTS, scripts.tables),
        ),
        *(
            Part(
                f"search-{size}",
                f"recall and latency among {size:,} chunks, by filter and tenant",
                3,
                partial(_search, scale=Scale(size, words)),
                partial(_search_section, size),
                optional=size > 100_000,
            )
            for size, words in SIZES.items()
        ),
        Part(
            "index-kinds",
            "full, half and binary vectors: build, size, latency and recall; storage_figures.py",
            60,
            _index_kinds,
            _tables_section("Kinds of vector index", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
        Part(
            "quality",
            "nDCG and recall on the folders of --data, with the local embedding model",
            10,
            _quality,
            _tables_section(
                "Retrieval quality", "The default configuration with the local model.", _quality_tables
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
            _tables_section("Lambda functions", _OF_SCRIPTS, scripts.tables),
        ),
        Part(
            "bill",
            "AWS resources billed per query: lambda_figures.py; docs/operate/costs.md uses them",
            2,
            lambda workshop: _script(workshop, "lambda_figures.py", "--only", "bill"),
            _tables_section("Resources billed by AWS", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
        Part(
            "capacity",
            "searches and log rows through PgBouncer, bytes on disk: database_capacity.py",
            30,
            lambda workshop: scripts.run("database_capacity.py", "--json"),
            _tables_section("The database, by search and by chunk", _OF_SCRIPTS, scripts.tables),
            optional=True,
        ),
    )
}
