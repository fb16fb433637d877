"""Citations as chat completions know them."""

from collections.abc import Iterable, Sequence

from vectorforge.api.schemas.openai_chat import Annotation, UrlCitation
from vectorforge.pipeline.types import Citation, SourceCitation


def url_citations(
    citations: Iterable[Citation], sources: Sequence[SourceCitation], base_url: str
) -> list[Annotation]:
    """One annotation for each citation, in the order of the answer.

    ``url_citation`` is the only kind that clients take: some refuse an answer with another one. A source
    without a web address therefore gets that of its text on this server.

    Args:
        citations: With the offsets of ``[n]`` in the text that the client gets.
        sources: In the order of their labels.
        base_url: Of this server, as the client asked it; without a slash at the end.
    """
    return [_annotation(citation, sources[citation.source_number - 1], base_url) for citation in citations]


def _annotation(citation: Citation, source: SourceCitation, base_url: str) -> Annotation:
    cited = UrlCitation(
        start_index=citation.start,
        end_index=citation.end,
        title=source.title or source.document_source,
        url=source.source_url or f"{base_url}/v1/documents/{source.document_id}/text",
        source_number=citation.source_number,
        document_id=citation.document_id,
        chunk_id=citation.chunk_id,
        verdict=citation.verdict,
    )
    return Annotation(url_citation=cited)
