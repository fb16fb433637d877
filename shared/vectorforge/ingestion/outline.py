"""Contexts of chunks without a language model: the first sentences of their document and section."""

import re
from collections.abc import Sequence

from vectorforge.ingestion.types import TextChunk

_LONGEST_SENTENCE = 150
"""Characters: title, heading path, two sentences and a chunk are what a small embedding model reads."""
_SHORTEST_LINE = 25
"""Characters; shorter lines before the first sentence are headings, dates and labels."""
_READ = 4_000
"""Characters searched for a sentence."""
_END = re.compile(r"[.!?](?=\s|$)|[。！？।؟]")
_HEADING = re.compile(r"\s*(#{1,6}\s|[-=*_|]{3,})")


def outline_contexts(text: str, chunks: Sequence[TextChunk]) -> list[str | None]:
    """Return each chunk's context: first sentences of document and section that are not in the chunk.

    Title and heading path are not repeated, since they are embedded and indexed with every chunk.

    Args:
        text: Text of the document.
        chunks: Its chunks in their order. Consecutive ones with the same heading are a section.
    """
    opening = first_sentence(text[:_READ])
    contexts: list[str | None] = []
    heading: str | None = None
    section = ""
    for number, chunk in enumerate(chunks):
        if number == 0 or chunk.heading != heading:
            heading, section = chunk.heading, first_sentence(chunk.text)
        shown = " ".join(chunk.text.split())
        parts = dict.fromkeys(part for part in (opening, section) if part and part not in shown)
        contexts.append("\n".join(parts) or None)
    return contexts


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line of at most 150 characters; empty if there is none."""
    for line in text.split("\n"):
        plain = " ".join(line.split())
        if len(plain) < _SHORTEST_LINE or _HEADING.match(line):
            continue
        end = _END.search(plain, _SHORTEST_LINE)
        sentence = plain[: end.end()] if end else plain
        if len(sentence) <= _LONGEST_SENTENCE:
            return sentence
        return sentence[:_LONGEST_SENTENCE].rpartition(" ")[0] or sentence[:_LONGEST_SENTENCE]
    return ""
