"""Pieces of chunks that can be quoted."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a chunk that can be quoted."""

    start: int
    end: int
    """``chunk[start:end]`` is the part with its markup."""
    text: str
    """Text without markup on one line, a row as "column: value; column: value"; code as it is, in a fence."""
    before: str
    """Heading above and preceding text of the same block, which often define what "it" refers to."""
    kind: str = "prose"
    """prose | item | step (of a numbered list) | code | row."""
    is_fragment: bool = False
    """True if the chunk's edge may have cut the sentence."""
    block: int = 0
    """Number of the paragraph, item or row."""
    part: int = 0
    """Number of the block's list, table or code with the paragraph that leads in to it."""
    subject: str = ""
    """First cell of a row, or what an item explains: "dev: ..."."""
    opens: str = ""
    """Heading right above it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Piece of a source, with its words."""

    source: int
    """Position in the list of sources, best source first."""
    piece: Piece
    terms: frozenset[str]
    before: frozenset[str]
    subject: frozenset[str]
    """Words of ``piece.subject``."""
    opens: frozenset[str]
    """Words of ``piece.opens``."""
    relevance: float = 0.0
    """Relevance of its source as a share of the best source's, 0 to 1; 0 if unknown."""


Scored: TypeAlias = tuple[float, Candidate]
Quote: TypeAlias = tuple[int, Piece]
"""A piece with the position of its source."""
Parts: TypeAlias = dict[tuple[int, int], list[Piece]]
"""Pieces by their source's position and their part, in their order."""
