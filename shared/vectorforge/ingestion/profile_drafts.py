"""Documents of a profile as they will be stored, without vectors."""

from collections.abc import Sequence

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document
from vectorforge.ingestion.extract.decode import clean, clean_json
from vectorforge.ingestion.profile_text import ProfileDocument
from vectorforge.ingestion.types import ExtractedDocument, ExtractionLimits
from vectorforge.profile_types import ChunkMetadata, SourceType, VectorChunk
from vectorforge.types import DocumentDraft

MAX_DOCUMENTS = 2_000
"""Rows and documents of one call: they are written in one transaction, which has to end within a minute."""
MAX_ID_CHARS = 1_000
"""Enough for a path."""

_ROW_TYPES = frozenset(
    {SourceType.SUMMARY, SourceType.EXPERIENCE, SourceType.PROJECT, SourceType.SKILL, SourceType.EDUCATION}
)

Drafted = tuple[DocumentDraft, list[VectorChunk]]


class ProfileDrafter:
    """Makes drafts of a profile's documents.

    Args:
        chunking: Sizes of the chunks.
        limits: Of each text, and of the chunks of all that are written together.
    """

    def __init__(self, chunking: ChunkingConfig, limits: ExtractionLimits) -> None:
        self._chunking = chunking
        self._limits = limits

    def draft_all(self, profile_id: int, documents: Sequence[ProfileDocument]) -> list[Drafted]:
        """Draft documents that are written together.

        Raises:
            ExtractionError: ``too_large``: a text is longer than the limit, or makes too many chunks.
            InvalidInputError: All together make too many chunks.
        """
        drafted, count = [], 0
        for document in documents:
            drafted.append(self.draft(profile_id, document))
            count += len(drafted[-1][1])
            if count > self._limits.max_request_chunks:
                raise InvalidInputError(
                    f"The texts of one request may make at most {self._limits.max_request_chunks:,} chunks; "
                    "send fewer, or use a larger chunk_size.",
                    field="documents",
                )
        return drafted

    def draft(self, profile_id: int, document: ProfileDocument) -> Drafted:
        """The document as it will be stored, and its passages without vectors.

        Raises:
            ExtractionError: ``too_large``: its text is longer than the limit, or makes too many chunks.
        """
        text, _ = clean(document.text)
        if len(text) > self._limits.max_chars:
            raise ExtractionError(
                f"The text is longer than {self._limits.max_chars:,} characters.", reason="too_large"
            )
        title = clean(document.title)[0].strip()[:500] if document.title else None
        source_id = clean(document.source_id)[0]
        extra, _ = clean_json(dict(document.metadata))
        metadata = ChunkMetadata(profile_id, document.source_type, source_id, title, extra)
        extracted = ExtractedDocument(
            source=f"profiles/{profile_id}/{document.source_type.value}/{source_id}",
            text=text,
            media_type=document.media_type,
            title=title,
            metadata=metadata.as_dict(),
            page_starts=document.page_starts,
            parent_source=parent_source(profile_id, of_rows=document.source_type in _ROW_TYPES),
        )
        drafts = draft_chunks(extracted, self._chunking)
        self._limits.check_chunks(len(drafts))
        return (
            draft_document(extracted, self._chunking),
            [VectorChunk(chunk, metadata) for chunk in drafts],
        )


def parent_source(profile_id: int, *, of_rows: bool) -> str:
    """What ``reingest_profile`` replaces together: the rows, and where asked the documents."""
    return f"profiles/{profile_id}/{'rows' if of_rows else 'documents'}"


def check_documents(documents: Sequence[ProfileDocument]) -> None:
    """See that one call can take these.

    Raises:
        InvalidInputError: There are more than 2,000, or a ``source_id`` is empty or over 1,000 characters.
    """
    if len(documents) > MAX_DOCUMENTS:
        raise InvalidInputError(
            f"A profile takes at most {MAX_DOCUMENTS:,} rows and documents at once.", field="documents"
        )
    for document in documents:
        if not len(document.source_id.strip()) >= 1 or len(document.source_id) > MAX_ID_CHARS:
            raise InvalidInputError(f"source_id must have 1 to {MAX_ID_CHARS} characters.", field="source_id")
