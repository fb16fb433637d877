"""Arguments and results of the MCP tools.

Results are objects of a published schema for programs, and the same as text for a model.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.answers import CitationBody, ResultBody, StepBody, Usage, link_to
from vectorforge.api.native.search import SEARCH_DEGRADED
from vectorforge.api.schemas import (
    Body,
    CollectionReference,
    EffortLevel,
    Filters,
    Intents,
    Locations,
    LocationText,
    MinVersion,
    MmrLambda,
    ProfileId,
    RequestBody,
    SearchModeName,
)
from vectorforge.pipeline.citations.labels import neutralise_labels
from vectorforge.pipeline.context import ContextFormat, ContextPayload, cite
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS
from vectorforge.pipeline.types import QueryResult, cited_heading, cited_locations
from vectorforge.tools.document_schemas import ObjectInText, Optional
from vectorforge.tools.schemas import MAX_CONTEXT_CHARS, MAX_QUERY_CHARS, MAX_TOP_K
from vectorforge.types import Collection, RetrievedChunk, location_text

CONTEXT_CHARS = 6_000
"""Default characters of a context: about 1,500 tokens."""


class _WhereArguments(RequestBody):
    collection: Optional[CollectionReference] = Field(
        default=None,
        description="Name or id of the collection to search. Left out: the default one. An unknown name is "
        "answered with the names there are.",
    )
    filters: Optional[Annotated[Filters, ObjectInText]] = None
    profile_id: Optional[ProfileId] = Field(
        default=None,
        description="Only passages of the profile (a person's CV and the like) with this number. Without a "
        "collection, that of the profiles is searched.",
    )
    search_mode: Optional[SearchModeName] = None
    mmr_lambda: Optional[MmrLambda] = None
    min_version: Optional[MinVersion] = None


class SearchArguments(_WhereArguments):
    """Arguments of ``semantic_search``."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="What to look for: a whole question, or words that the answer would hold. It is compared "
        "by meaning, so say it in full and in any language; operators such as AND or quotation marks mean "
        "nothing.",
    )
    top_k: int = Field(
        default=5,
        ge=1,
        le=MAX_TOP_K,
        description="Passages at most. 3 to 8 suit most questions; take more to compare or to collect.",
    )


class ContextArguments(SearchArguments):
    """Arguments of ``semantic_search_with_context``."""

    max_length: int = Field(
        default=CONTEXT_CHARS,
        ge=MIN_CONTEXT_CHARS,
        le=MAX_CONTEXT_CHARS,
        description="Characters of the context at most; whole passages only, best first.",
    )


class AskArguments(_WhereArguments):
    """Arguments of ``ask``."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="The question, in full: nothing of your conversation is known here, so put names where "
        "it has pronouns.",
    )
    top_k: Optional[Annotated[int, Field(ge=1, le=MAX_TOP_K)]] = Field(
        default=None,
        description="Passages that the answer may rest on, at most. Left out: as the server is set.",
    )
    effort: Optional[EffortLevel] = None
    intents: Optional[Intents] = Field(
        default=None,
        description="Up to four further queries to search for, one for each fact needed.",
    )


NOTHING_FOUND = (
    "Nothing was found. Ask in other words, with fewer filters, or in another collection; if that finds "
    "nothing either, the documents do not say it."
)
BY_WORDS_ONLY = "(The question could not be embedded: these were found by its words only.)"
_LONGEST_ORIGIN = 150


class NamedPassages(ContextFormat):
    """Each chunk under its label and its origin: ``[Source 1] handbook.md › Refunds``."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """Return the chunk with neutralized labels."""
        heading = chunk.chunk.heading or chunk.document_title
        origin = _origin(chunk.document_source, heading, location_text(chunk.chunk.locations))
        relevance = f" (score {chunk.score:.2f})" if include_score else ""
        head = f"{self.label_of(number)} {origin}{relevance}"
        return f"{head}\n{neutralise_labels(chunk.chunk.text)}"


class FoundSource(Body):
    """Source of a chunk."""

    number: int = Field(description="The N of its label [Source N], from 1.")
    source: str = Field(description="Path, address or key of the document.")
    url: str | None = Field(description="The source, when it is a web address.")
    title: str | None
    heading: str | None = Field(description="Headings above the passage, outermost first.")
    score: float = Field(description="Nearness to the question; higher is nearer.")
    document_id: UUID
    chunk_id: UUID
    locations: Locations
    location_text: LocationText

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``SourceCitation``, whose number is given."""
        url = link_to(source, source.locations)
        return super().of(source, source=source.document_source, url=url, **given)


class FoundPassage(FoundSource):
    """A chunk, whole."""

    text: str
    metadata: dict[str, Any] = Field(description="Of the document and the passage; what filters look at.")


class QuotedSource(FoundSource):
    """A chunk that an answer was made from, by its beginning."""

    snippet: str


class SearchResult(BaseModel):
    """Result of ``semantic_search``."""

    collection: str = Field(description="Name of the collection searched.")
    passages: list[FoundPassage] = Field(description="Best first; empty when nothing was found.")
    degraded: list[str] = Field(description=SEARCH_DEGRADED)

    @classmethod
    def of(cls, collection: Collection, chunks: Sequence[RetrievedChunk], degraded: list[str]) -> Self:
        """Return the result for these chunks, best first."""
        passages = [
            FoundPassage.of(cite(chunk), number=number, metadata=chunk.chunk.metadata)
            for number, chunk in enumerate(chunks, start=1)
        ]
        return cls(collection=collection.name, passages=passages, degraded=degraded)


class ContextResult(BaseModel):
    """Result of ``semantic_search_with_context``."""

    collection: str = Field(description="Name of the collection searched.")
    context: str = Field(description="The passages as one text; empty when nothing was found.")
    sources: list[FoundSource] = Field(description="What the labels in the context name, in their order.")
    left_out: int = Field(description="Passages found that max_length had no room for.")
    degraded: list[str] = Field(description=SEARCH_DEGRADED)

    @classmethod
    def of(cls, collection: Collection, context: ContextPayload, degraded: list[str]) -> Self:
        """Return the result for a context within ``max_length``."""
        return cls(
            collection=collection.name,
            context=context.assembled_context if context.used else "",
            sources=[
                FoundSource.of(source, number=number)
                for number, source in enumerate(context.sources, start=1)
            ],
            left_out=context.chunks_truncated,
            degraded=degraded,
        )


class AskResult(ResultBody):
    """Result of ``ask``."""

    query_id: UUID = Field(description="Names the question in the query log.")
    collection: str = Field(description="Name of the collection asked.")
    answer: str = Field(description="With labels such as [Source 1] where it rests on a source.")
    citations: list[CitationBody] = Field(description="The labels in the answer, in its order.")
    sources: list[QuotedSource] = Field(description="The passages that the answering model was given.")
    usage: Usage
    degraded: list[str] = Field(description="Steps down from the full answer, in order; empty: all is well.")
    extractive: bool = Field(description="True: the answer quotes the documents and is written by no model.")
    cached: bool
    provider: str | None
    model: str | None
    finish_reason: str
    steps: list[StepBody] = Field(
        default_factory=list,
        exclude_if=lambda steps: not steps,
        description="Steps of a search with effort or intents; left out without.",
    )
    outcome: str = Field(description='How it ended; "empty": the documents hold nothing about it.')

    @classmethod
    def of_answer(cls, collection: Collection, result: QueryResult) -> Self:
        """Return the tool result of an answer."""
        return cls.of(
            result,
            query_id=result.request_id,
            collection=collection.name,
            sources=[QuotedSource.of(source, number=n) for n, source in enumerate(result.sources, start=1)],
        )


def answer_text(result: AskResult) -> str:
    """Return the answer and its cited sources as text (all sources, if it cites none)."""
    cited = {citation.source_number for citation in result.citations}
    shown = [source for source in result.sources if source.number in cited or not cited]
    parts = [result.answer]
    if shown:
        parts.append("Sources:" if cited else "Passages read, none of them cited:")
        parts.append("\n".join(_source_line(source, result.citations) for source in shown))
    parts += _cautions(result)
    return "\n\n".join(parts)


def _cautions(result: AskResult) -> Sequence[str]:
    unsupported = {c.source_number for c in result.citations if c.verdict == "unsupported"}
    cautions = []
    if unsupported:
        numbers = ", ".join(map(str, sorted(unsupported)))
        cautions.append(f"Caution: by its words, source {numbers} does not say what cites it.")
    if result.degraded:
        cautions.append(f"Caution: this is less than the full answer ({', '.join(result.degraded)}).")
    if result.finish_reason == "length":
        cautions.append("Caution: the answer was cut at its longest allowed length.")
    return cautions


def _source_line(source: FoundSource, citations: Sequence[CitationBody]) -> str:
    place = location_text(cited_locations(source.number, source.locations, citations))
    heading = cited_heading(source.number, source.heading, citations) or source.title
    origin = _origin(source.source, heading, place)
    return f"[Source {source.number}] {origin}"


def headline(*names: str | None) -> str:
    """Return names that callers chose on one line and without labels, so that they forge no other line."""
    return neutralise_labels(" ".join(" › ".join(filter(None, names)).splitlines()))


def _origin(source: str, heading: str | None, place: str) -> str:
    """Return source, heading and place for a headline; a long one keeps its end."""
    origin = headline(source, heading)
    origin = f"{origin}, {place}" if place else origin
    return origin if len(origin) <= _LONGEST_ORIGIN else f"…{origin[1 - _LONGEST_ORIGIN :]}"
