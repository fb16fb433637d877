"""Documents and chunks as they are stored: embedded text, content hashes, page numbers."""

import hashlib
import json
from bisect import bisect_right
from collections import Counter
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.chunk import ChunkingConfig, chunk_text
from vectorforge.ingestion.types import ExtractedDocument, TextChunk
from vectorforge.tokens import estimate_tokens
from vectorforge.types import ChunkDraft, DocumentDraft

_MAX_HEADER_CHARS = 200
"""Maximum length of title and heading path: small models read about 1,200 characters in total."""


def embedded_text(title: str | None, heading: str | None, text: str) -> str:
    """Join title, heading path and text, a line each; the title is dropped if the heading starts with it.

    Chunks seldom repeat their topic; titles add it. ``vectorforge.add_terms`` of the database
    indexes the words of the same three, without a limit on the first two.

    Args:
        title: Title of the document; the first 200 characters are used.
        heading: Heading path of the chunk, "Install > Linux"; the last 200 characters are used.
        text: Text of the chunk.
    """
    named = title if title and not (heading or "").startswith(title) else ""
    header = (named[:_MAX_HEADER_CHARS], (heading or "")[-_MAX_HEADER_CHARS:])
    return "\n".join([*filter(None, header), text])


FORMAT = "3"
"""Part of every document's hash. Change it when the stored form of documents changes."""


def draft_document(document: ExtractedDocument, chunking: ChunkingConfig) -> DocumentDraft:
    """Return the document with a hash over everything that affects its stored form.

    The embedding model is not part of it: a model change replaces no document.
    """
    decisive: list[Any] = [
        FORMAT,
        document.text,
        document.title,
        document.media_type,
        document.metadata,
        document.page_starts,
        document.parent_source,
        chunking.chunk_size,
        chunking.chunk_overlap,
    ]
    if document.chunks is not None:
        decisive.append([[c.index, c.start_offset, c.end_offset, c.metadata] for c in document.chunks])
    return DocumentDraft(
        source=document.source,
        text=document.text,
        media_type=document.media_type,
        content_hash=_hash(decisive),
        title=document.title,
        metadata=document.metadata,
        parent_source=document.parent_source,
    )


def draft_chunks(document: ExtractedDocument, chunking: ChunkingConfig) -> list[ChunkDraft]:
    """Cut a document into chunks without vectors, in about a second per million characters.

    A chunk's hash covers what is embedded (``embedded_text``) and how many equal chunks came before it in
    the document, so that hashes are unique and each identifies one stored embedding.

    Returns:
        Chunks in the order of the text, with metadata ``{"page": n}`` (from 1) where the document has pages.
    """
    seen: Counter[str] = Counter()
    drafts = []
    chunks = document.chunks
    if chunks is None:
        chunks = tuple(chunk_text(document.text, chunking, media_type=document.media_type))
    for chunk in chunks:
        embedded = embedded_text(document.title, chunk.heading, chunk.text)
        drafts.append(
            ChunkDraft(
                index=chunk.index,
                text=chunk.text,
                start_offset=chunk.start_offset,
                end_offset=chunk.end_offset,
                token_count=estimate_tokens(chunk.text),
                content_hash=_hash([embedded, seen[embedded]]),
                heading=chunk.heading,
                metadata={**_page(document, chunk), **chunk.metadata},
            )
        )
        seen[embedded] += 1
    if not drafts:
        raise ExtractionError("The document contains no text.", reason="empty")
    return drafts


def _page(document: ExtractedDocument, chunk: TextChunk) -> dict[str, Any]:
    if not document.page_starts:
        return {}
    return {"page": bisect_right(document.page_starts, chunk.start_offset)}


def _hash(decisive: list[Any]) -> bytes:
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=dict).encode()).digest()
