"""Step 5 of a query: which labels in the answer name which passages."""

import re
from collections.abc import Iterator, Sequence

from vectorforge.pipeline.types import Citation
from vectorforge.types import RetrievedChunk

# "[Source 2]", "[Context 2]", "[2]", "[Source 1, 3]", "[Source 1, Source 3]", "[1][2]"; not "array[2]".
_LABEL = re.compile(
    r"(?:\[(?:source|context|sources)\s+(?P<named>\d{1,3}(?:\s*(?:,|;|and|&)\s*(?:source\s+|context\s+)?\d{1,3})*)\]"
    r"|(?<!\w)\[(?P<bare>\d{1,2}(?:\s*,\s*\d{1,2})*)\])",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_LONGEST_LABEL = 200
"""Characters that an unfinished label can hold; what is older is text."""


class CitationParser:
    """Finds labels in an answer while it is being written.

    Args:
        chunks: The passages in the order of their labels: the first is ``[Source 1]``.
    """

    def __init__(self, chunks: Sequence[RetrievedChunk]) -> None:
        self._chunks = chunks
        self._pending = ""
        self._offset = 0
        self.citations: list[Citation] = []
        """Found so far, in the order of the answer."""
        self.invalid = 0
        """Numbers that name no passage."""

    def feed(self, text: str) -> list[Citation]:
        """Citations completed by the next piece of the answer."""
        self._pending += text
        found: list[Citation] = []
        consumed = 0
        for match in _LABEL.finditer(self._pending):
            # "[1]" at the very start of the buffer may follow a word: the buffer keeps what precedes it.
            found.extend(self._resolve(match))
            consumed = match.end()
        opening = self._pending.rfind("[", max(consumed, len(self._pending) - _LONGEST_LABEL))
        # One character before the bracket stays, so that "array[2]" is told from "[2]".
        keep_from = max(consumed, opening - 1) if opening >= 0 else max(consumed, len(self._pending) - 1)
        self._offset += keep_from
        self._pending = self._pending[keep_from:]
        self.citations.extend(found)
        return found

    def _resolve(self, match: re.Match[str]) -> Iterator[Citation]:
        numbers = _NUMBER.findall(match.group("named") or match.group("bare"))
        for number in dict.fromkeys(map(int, numbers)):
            if not 1 <= number <= len(self._chunks):
                self.invalid += 1
                continue
            chunk = self._chunks[number - 1].chunk
            yield Citation(
                source_number=number,
                start=self._offset + match.start(),
                end=self._offset + match.end(),
                chunk_id=chunk.id,
                document_id=chunk.document_id,
            )
