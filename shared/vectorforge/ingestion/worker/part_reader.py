"""Files to documents: cut into their parts, each read off the event loop."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vectorforge.ingestion.extract import extract, media, split
from vectorforge.ingestion.extract.decode import clean, clean_json
from vectorforge.ingestion.types import Cancellation, DocumentPart, ExtractedDocument, ExtractionLimits

_MAX_TITLE_CHARS = 500
"""Longer titles are cut."""


class PartReader:
    """Reads files within limits.

    Args:
        limits: Of each file.
    """

    def __init__(self, limits: ExtractionLimits) -> None:
        self.limits = limits

    async def split(self, content: bytes, source: str, media_type: str | None) -> list[DocumentPart]:
        """Cut a file into its documents; see ``IngestionPipeline.split``."""
        return await asyncio.to_thread(
            split, content, source=source, media_type=media_type, limits=self.limits
        )

    async def read(
        self, part: DocumentPart, title: str | None, metadata: Mapping[str, Any]
    ) -> ExtractedDocument:
        """The text of a document, with its title and metadata as they can be stored.

        Args:
            part: The document.
            title: Goes before the title found in it, but not before a JSONL record's; cut to 500 characters.
            metadata: Added to its own. Those given here win, except over a JSONL record's.

        Raises:
            ExtractionError: It cannot be read.
        """
        cancellation = Cancellation()
        try:
            [document] = await asyncio.to_thread(
                extract,
                part.content,
                source=part.source,
                media_type=part.media_type,
                limits=self.limits,
                cancellation=cancellation,
            )
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        if part.media_type == media.RECORD:
            found, fields = document.title or title, {**metadata, **document.metadata}
        else:
            found, fields = title or document.title, {**document.metadata, **metadata}
        chosen, in_title = clean(found or part.fallback_title or "")
        cleaned, in_metadata = clean_json(fields)
        replaced = in_title + in_metadata
        warning = f"Replaced {replaced} characters of title and metadata that cannot be stored."
        warnings = (*document.warnings, warning) if replaced else document.warnings
        return replace(
            document,
            title=chosen.strip()[:_MAX_TITLE_CHARS] or None,
            metadata=cleaned,
            warnings=warnings,
            parent_source=part.parent_source,
        )
