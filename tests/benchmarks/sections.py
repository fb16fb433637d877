"""Sections of the results page, from the figures of a part."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from figures import million, selectivity
from figures.measuring import Table
from page import Plot, Section
from peers import report


def comparison_section(
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


def tables_section(heading: str, text: str, tables: Callable[[Any], Sequence[Table]]) -> Any:
    return lambda figures, settings: Section(heading, text, tables(figures))


def search_section(size: int, figures: Any, settings: Mapping[str, Any]) -> Section:
    text = (
        f"One search at a time through the vector store, {settings['questions']} of each kind; "
        "384 dimensions, generated vectors around 1,000 centers. The small tenants' vectors are clustered, "
        "among the large tenant's. Recall counts the nearest vectors by exact computation."
    )
    return Section(f"Search among {size:,} chunks", text, selectivity.tables(figures))


def scale_section(figures: Any, settings: Mapping[str, Any]) -> Section:
    text = (
        f"40 words and 384 dimensions a chunk, {settings['questions']} searches of each kind, 2 GB of "
        "shared_buffers. Random searches have up to three conditions, nine of ten as the large tenant. What "
        "it means for ten times as many chunks: [scaling](../operate/scaling.md)."
    )
    return Section("Search among a million chunks", text, million.tables(figures))


def quality_tables(figures: Any) -> list[Table]:
    names = list(next(iter(figures.values())))
    table = Table("Retrieval against human judgments", ("collection", *names))
    for folder, found in figures.items():
        table.add(folder, *(found.get(name, "") for name in names))
    return [table]
