"""How passages of a profile are written for a model."""

from dataclasses import dataclass, replace
from typing import Final

from vectorforge.pipeline.context import ContextFormat
from vectorforge.types import RetrievedChunk

PROFILE_CONTEXT_CHARS: Final = 2_000
"""Characters of a profile's context, unless a caller says otherwise."""
MIN_CONTEXT_CHARS: Final = 200
"""Room for a label, a header and the start of a passage."""
_LONGEST_HEADER = 100


@dataclass(frozen=True, slots=True)
class ProfileContextFormat(ContextFormat):
    """As any passage, with a line that says what it is from: ``experience 12: Senior Engineer, Acme``."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """The passage under its label and its origin."""
        metadata = chunk.chunk.metadata
        origin = " ".join(str(metadata.get(key, "")) for key in ("source_type", "source_id")).strip()
        header = ": ".join(part for part in (origin, chunk.document_title) if part)[:_LONGEST_HEADER]
        text = f"{header}\n{chunk.chunk.text}" if header else chunk.chunk.text
        # not super(): a dataclass with slots is another class than the one that the compiler saw
        return ContextFormat.write(
            self, number, replace(chunk, chunk=replace(chunk.chunk, text=text)), include_score=include_score
        )
