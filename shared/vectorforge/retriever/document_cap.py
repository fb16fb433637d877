"""A cap of passages of one document, so that one with many alike does not push out what others say."""

from collections import Counter
from collections.abc import Awaitable, Callable

from vectorforge.types import RetrievedChunk
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.validation import MAX_TOP_K

_WIDER = 10
"""Times as many passages are looked at where one document has too many."""


async def search_capped(
    search: Callable[[int], Awaitable[NearestChunks]], top_k: int, per_document: int
) -> NearestChunks:
    """The best passages, of each document ``per_document`` at most as long as others match.

    Where no document has too many among the best, it is one search. Else more passages are looked at, up to
    ``MAX_TOP_K``. What the cap leaves out comes back where there is nothing else: never fewer come than
    without it.

    Args:
        search: Finds so many passages, or all that match where those are fewer.
        top_k: Passages wanted.
        per_document: 1 or more.

    Returns:
        As ``search``, in its order.
    """
    looked_at = top_k
    while True:
        found = await search(looked_at)
        within = _within_cap(found, per_document)
        if len(within) >= top_k or len(found) < looked_at or looked_at >= MAX_TOP_K:
            break
        looked_at = min(looked_at * _WIDER, MAX_TOP_K)
    chosen = within[:top_k]
    if len(chosen) < top_k:
        taken = set(chosen)
        chosen += [place for place in range(len(found)) if place not in taken][: top_k - len(chosen)]
    return NearestChunks(
        [found[place] for place in sorted(chosen)],
        found.matched,
        matched_is_at_least=found.matched_is_at_least,
        scan=found.scan,
    )


def _within_cap(found: list[RetrievedChunk], per_document: int) -> list[int]:
    """Places of the passages that are among the first of their document."""
    seen: Counter[object] = Counter()
    places = []
    for place, chunk in enumerate(found):
        seen[chunk.chunk.document_id] += 1
        if seen[chunk.chunk.document_id] <= per_document:
            places.append(place)
    return places
