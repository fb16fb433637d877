"""Quality of reading: text, headings, tables and planted facts of generated documents.

Text similarity is the share of words in the same order (difflib) in the truth and in the text without tables.
A cell is in place if a row of the text has its value under the name of its column, with the row's first cell.
A fact is answered if the answer has its value, and cites a chunk with the page, slide, sheet or heading.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tests.support.formats.office import all_office
from tests.support.formats.others import all_others
from tests.support.formats.pdfs import all_pdfs
from tests.support.formats.truth import Fact, Made
from tests.support.http.live_api import settings_for
from tests.support.rag.ingested import ingest_bytes
from vectorforge.bootstrap import Application
from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.types import DocumentStatus, ExtractedDocument, SpanKind
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.presets import VECTORFORGE
from vectorforge.pipeline.types import QueryResult


@dataclass(slots=True)
class Figures:
    """Results of one document; shares are 0 to 1, None where there is nothing to find."""

    source: str
    seconds: float
    similarity: float | None
    cells: float | None
    headings: float | None
    extra_headings: int
    absent: bool
    """True if nothing is read that should be left out."""
    answered: int = 0
    facts: int = 0


def documents() -> list[Made]:
    """Return all generated documents."""
    return [*all_pdfs(), *all_office(), *all_others()]


def figures_of(made: Made) -> Figures:
    """Read a document and compare it with its truth."""
    begun = time.perf_counter()
    [document] = extract(made.content, source=made.source)
    seconds = time.perf_counter() - begun
    found = [*_spans(document, SpanKind.HEADING)]
    headings = {_words(text) for text in found}
    wanted = [_words(heading) for heading in made.headings]
    return Figures(
        made.source,
        seconds,
        _similarity(document, made.text) if made.text else None,
        _cells(document, made.tables) if made.tables else None,
        sum(heading in headings for heading in wanted) / len(wanted) if wanted else None,
        len(found) - len(wanted) if wanted else 0,
        not any(text in document.text for text in made.absent),
        facts=len(made.facts),
    )


def _spans(document: ExtractedDocument, kind: str) -> list[str]:
    return [document.text[span.start : span.end] for span in document.spans if span.kind == kind]


def _words(text: str) -> str:
    return " ".join(text.strip("# -•").split())


def _similarity(document: ExtractedDocument, truth: Sequence[str]) -> float:
    prose = list(document.text)
    for span in document.spans:
        if span.kind != SpanKind.TEXT:
            prose[span.start : span.end] = " " * (span.end - span.start)
    lines = "".join(prose).replace("\n- ", "\n").split()
    return SequenceMatcher(None, lines, " ".join(truth).split(), autojunk=False).ratio()


def _cells(document: ExtractedDocument, tables: Sequence[Sequence[Sequence[str]]]) -> float:
    rows = [f"; {text};" for text in _spans(document, SpanKind.ROW)]
    placed = total = 0
    for header, *body in tables:
        for cells in body:
            row = next((row for row in rows if f"; {header[0]}: {cells[0]};" in row), "")
            total += len(cells)
            placed += sum(
                f"; {name}: {' '.join(cell.split())};" in row
                for name, cell in zip(header, cells, strict=True)
            )
    return placed / total


def is_answered(fact: Fact, result: QueryResult) -> bool:
    """Return True if an answer has the fact's value, and a cited chunk has its place."""
    cited = {result.sources[citation.source_number - 1].chunk_id for citation in result.citations}
    places = [
        location
        for source in result.sources
        if source.chunk_id in cited and fact.answer in source.text
        for location in (source.locations or ({},))
    ]
    return fact.answer in result.answer and any(_is_at(fact, location) for location in places)


def _is_at(fact: Fact, location: object) -> bool:
    assert isinstance(location, dict)
    return all(str(value) in str(location.get(name, "")) for name, value in fact.place.items())


async def answer_facts(
    postgres: EmbeddedPostgres, made: Sequence[Made], figures: Sequence[Figures]
) -> list[str]:
    """Ingest the documents into one collection and ask for each fact; return the questions that failed."""
    missed: list[str] = []
    async with Application.build(settings_for(postgres.app_url)) as application:
        services = application.for_tenant(f"tenant-{uuid.uuid4().hex[:12]}")
        collection = await services.create_collection("formats")
        config = VECTORFORGE.config(services.choose_variant("default"), use_cache=False)
        for document in made:
            [stored] = await ingest_bytes(services.ingestion, collection, document.content, document.source)
            assert stored.status is DocumentStatus.SUCCEEDED, stored.error
        for document, figure in zip(made, figures, strict=True):
            for fact in document.facts:
                result = await services.query_service.query(fact.question, collection.id, config)
                if is_answered(fact, result):
                    figure.answered += 1
                else:
                    missed.append(f"{document.source}: {fact} -> {result.answer!r}")
    return missed


def report(figures: Sequence[Figures]) -> str:
    """Return the figures as a table."""
    lines = ["document              text  cells  headings (extra)  left out  facts      s"]
    for one in figures:
        shares = [
            "     -" if share is None else f"{share:6.3f}"
            for share in (one.similarity, one.cells, one.headings)
        ]
        lines.append(
            f"{one.source:20}{shares[0]} {shares[1]}    {shares[2]} ({one.extra_headings:+d})"
            f"{'yes' if one.absent else 'NO':>12}  {one.answered:2}/{one.facts:<3}  {one.seconds:6.2f}"
        )
    facts = sum(one.facts for one in figures)
    lines.append(
        f"facts answered with the right place: {sum(one.answered for one in figures) / facts:.3f} of {facts}"
    )
    return "\n".join(lines)
