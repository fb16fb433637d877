"""Text cut at the coarsest separator that makes the pieces small enough, as DocRag's design cuts it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vectorforge.ingestion.chunk import ChunkingConfig

SEPARATORS = ("\n\n", "\n", ".", "!", "?", ",", " ", "")
MIN_CHARS = 50
"""Shorter chunks, without the blanks around them, are left out by ``chunk_document``."""

_Span = tuple[int, int]


class RecursiveSplitter:
    """Cuts a text at paragraphs; a paragraph that is too long at lines, a line at sentences, and so on.

    Args:
        chunk_size: Characters of a chunk at most.
        chunk_overlap: Characters repeated from the chunk before at most; they begin where a piece begins.
        separators: Coarsest first; "" cuts anywhere. Each stays at the end of its piece.

    Raises:
        InvalidInputError: A size is not usable.
    """

    def __init__(
        self, chunk_size: int = 800, chunk_overlap: int = 150, separators: Sequence[str] = SEPARATORS
    ) -> None:
        ChunkingConfig(chunk_size, chunk_overlap)
        self._size = chunk_size
        self._overlap = chunk_overlap
        self._separators = tuple(separators)

    def split_text(self, text: str) -> list[str]:
        """The chunks, in the order of the text."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> list[_Span]:
        """Start and end of each chunk in the text, in characters.

        Together they cover the text; none but one of a text without separators is longer than ``chunk_size``.
        """
        chunks: list[_Span] = []
        pieces: list[_Span] = []
        for piece in self._pieces(text, 0, len(text), self._separators):
            if pieces and piece[1] - pieces[0][0] > self._size:
                chunks.append((pieces[0][0], pieces[-1][1]))
                pieces = self._repeated(pieces, piece)
            pieces.append(piece)
        return [*chunks, (pieces[0][0], pieces[-1][1])] if pieces else []

    def _repeated(self, pieces: list[_Span], following: _Span) -> list[_Span]:
        """The last pieces of a chunk that its successor repeats."""
        end = pieces[-1][1]
        room = min(self._overlap, self._size - (following[1] - following[0]))
        return [piece for piece in pieces if end - piece[0] <= room]

    def _pieces(self, text: str, start: int, end: int, separators: Sequence[str]) -> Iterator[_Span]:
        if end - start <= self._size or not separators:
            if end > start:
                yield start, end
            return
        separator, *finer = separators
        for piece in self._cut(text, start, end, separator):
            yield from self._pieces(text, *piece, finer)

    def _cut(self, text: str, start: int, end: int, separator: str) -> Iterator[_Span]:
        if not separator:
            step = max(1, self._overlap // 3) if self._overlap else self._size
            yield from ((at, min(at + step, end)) for at in range(start, end, step))
            return
        while (at := text.find(separator, start, end)) >= 0:
            yield start, at + len(separator)
            start = at + len(separator)
        if start < end:
            yield start, end


def chunk_document(
    content: str, metadata: Mapping[str, Any], splitter: RecursiveSplitter | None = None
) -> list[dict[str, Any]]:
    """A text as chunks that know where they came from.

    Args:
        content: The text.
        metadata: Goes into every chunk, e.g. ``source_url``, ``title`` and ``doc_type``.
        splitter: Default: 800 characters, 150 overlapping.

    Returns:
        Of each chunk ``content`` without the blanks around it, the metadata, ``chunk_index`` (from 0; chunks
        shorter than 50 characters are left out, but counted) and ``chunk_size`` (characters with the blanks);
        the last three under ``metadata``, too.
    """
    chunks = []
    for index, text in enumerate((splitter or RecursiveSplitter()).split_text(content)):
        if len(text.strip()) >= MIN_CHARS:
            own = {**metadata, "chunk_index": index, "chunk_size": len(text)}
            chunks.append({**own, "content": text.strip(), "metadata": own})
    return chunks
