"""Choice among the chunks of a search: at most so many of a document, and none that repeats another one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from vectorforge.types import RetrievedChunk
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.validation import MAX_TOP_K

_WIDER: Final = 10
"""Factor by which the search is widened if it does not return enough chunks to choose from."""

_FIRST_WORDS: Final = 8


async def search_chosen(
    search: Callable[[int], Awaitable[NearestChunks]],
    top_k: int,
    *,
    per_document: int = 0,
    distinct: bool = False,
    enough: int = MAX_TOP_K,
) -> NearestChunks:
    """Return the best chunks of those that pass.

    If enough of the best pass, it is one search; else the search is widened, up to ``MAX_TOP_K``.

    Args:
        search: Returns so many chunks, or all matching ones.
        top_k: Number of chunks.
        per_document: Chunks of one document at most, while others match: chunks beyond the cap fill the rest.
            0: no cap.
        distinct: Leave out chunks that repeat a better one, also if fewer than ``top_k`` remain.
        enough: Number of chunks that suffice, so that the search is not widened.

    Returns:
        The chunks in the order of ``search``.
    """
    searched = top_k
    while True:
        chunks = await search(searched)
        chosen, beyond_cap = _choose(chunks, top_k, per_document, distinct=distinct)
        if len(chosen) >= min(top_k, enough) or len(chunks) < searched or searched >= MAX_TOP_K:
            break
        searched = min(searched * _WIDER, MAX_TOP_K)
    chosen += beyond_cap[: top_k - len(chosen)]
    return NearestChunks(
        [chunks[place] for place in sorted(chosen)],
        chunks.matched,
        matched_is_at_least=chunks.matched_is_at_least,
        scan=chunks.scan,
        version=chunks.version,
    )


def _choose(
    chunks: Sequence[RetrievedChunk], top_k: int, per_document: int, *, distinct: bool
) -> tuple[list[int], list[int]]:
    """Return the places of at most ``top_k`` chunks, and of those that only the cap excludes."""
    of_document: Counter[UUID] = Counter()
    kept: list[str] = []
    chosen: list[int] = []
    beyond_cap: list[int] = []
    for place, found in enumerate(chunks):
        if len(chosen) == top_k:
            break
        if distinct:
            text = found.chunk.text.lower()
            if _repeats(text, kept):
                continue
            kept.append(text)
        of_document[found.chunk.document_id] += 1
        if per_document and of_document[found.chunk.document_id] > per_document:
            beyond_cap.append(place)
        else:
            chosen.append(place)
    return chosen, beyond_cap


def _repeats(text: str, others: Sequence[str]) -> bool:
    """Return True if another text has the same words, in any order: another word may be "not".

    Most lack the longest of the first words. Reading all words of each takes 3 % of a query's CPU time.
    """
    first = sorted(text.split(None, _FIRST_WORDS)[:_FIRST_WORDS], key=len, reverse=True)
    similar = [other for other in others if all(map(other.__contains__, first))]
    return bool(similar) and set(text.split()) in [set(other.split()) for other in similar]
