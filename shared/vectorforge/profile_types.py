"""Words of profiles: where a passage of a profile comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from vectorforge.types import ChunkDraft, Vector


class SourceType(StrEnum):
    """What a document of a profile is. A new source of data is a new member and a method that ingests it."""

    SUMMARY = "summary"
    EXPERIENCE = "experience"
    PROJECT = "project"
    SKILL = "skill"
    EDUCATION = "education"
    CV = "cv"
    DOCUMENT = "document"
    """Any other text: a cover letter, a reference, notes."""


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """What every passage of a profile carries."""

    profile_id: int
    source_type: SourceType
    source_id: str
    """Which one: the key of the row, or the id given to the document."""
    title: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is stored with it; filters look at all of it."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any], title: str | None) -> Self:
        """From what a store has.

        Raises:
            KeyError: It is no passage of a profile.
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
        """What is stored; ``extra`` cannot take the place of the others."""
        return {
            **self.extra,
            "profile_id": self.profile_id,
            "source_type": self.source_type.value,
            "source_id": self.source_id,
        }


@dataclass(frozen=True, slots=True)
class VectorChunk:
    """A passage of a profile on its way into a store."""

    draft: ChunkDraft
    metadata: ChunkMetadata

    @property
    def text(self) -> str:
        """The passage."""
        return self.draft.text

    @property
    def embedding(self) -> Vector | None:
        """Its vector; None: one is stored already and is kept."""
        return self.draft.vector
