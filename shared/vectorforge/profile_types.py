"""Types of profiles: sources and metadata of their chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from vectorforge.types import ChunkDraft, Vector


class SourceType(StrEnum):
    """Kind of a profile's document. A new source of data needs a member here and a method that ingests it."""

    SUMMARY = "summary"
    EXPERIENCE = "experience"
    PROJECT = "project"
    SKILL = "skill"
    EDUCATION = "education"
    CV = "cv"
    DOCUMENT = "document"
    """Other text: a cover letter, a reference, notes."""


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """Metadata of every chunk of a profile."""

    profile_id: int
    source_type: SourceType
    source_id: str
    """Key of the row, or id given to the document."""
    title: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further metadata; filters apply to all of it."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any], title: str | None) -> Self:
        """Read the metadata of a stored chunk.

        Raises:
            KeyError: It is not a chunk of a profile.
        """
        own = ("profile_id", "source_type", "source_id")
        return cls(
            profile_id=metadata["profile_id"],
            source_type=SourceType(metadata["source_type"]),
            source_id=metadata["source_id"],
            title=title,
            extra={key: value for key, value in metadata.items() if key not in own},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the metadata to store; ``extra`` cannot replace the other fields."""
        return {
            **self.extra,
            "profile_id": self.profile_id,
            "source_type": self.source_type.value,
            "source_id": self.source_id,
        }


@dataclass(frozen=True, slots=True)
class VectorChunk:
    """Chunk of a profile to be stored."""

    draft: ChunkDraft
    metadata: ChunkMetadata

    @property
    def text(self) -> str:
        """Text of the chunk."""
        return self.draft.text

    @property
    def embedding(self) -> Vector | None:
        """Vector; None: the stored one is reused."""
        return self.draft.vector
