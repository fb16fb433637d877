"""The two search tools of an agent, on one profile."""

from vectorforge.pipeline.presets import PROFILE_CONTEXT_CHARS
from vectorforge.pipeline.profile import RAGRetrievalPipeline, RetrievedChunk
from vectorforge.types import SearchMode


async def semantic_search(
    query: str,
    profile_id: int,
    retrieval_pipeline: RAGRetrievalPipeline,
    top_k: int = 5,
    *,
    search_mode: SearchMode = SearchMode.DENSE,
) -> list[RetrievedChunk]:
    """Return the chunks of a profile for a query, best first, with their sources.

    Args:
        query: Text of the query.
        profile_id: The profile. Set it in the application, never from a model's output: a text that the model
            has read could name another profile.
        retrieval_pipeline: Runs the search.
        top_k: Maximum number of chunks.
        search_mode: Dense, lexical or hybrid.

    Raises:
        VectorForgeError: As ``RAGRetrievalPipeline.retrieve``.
    """
    return await retrieval_pipeline.retrieve(query, profile_id, top_k, search_mode=search_mode)


async def semantic_search_with_context(
    query: str,
    profile_id: int,
    retrieval_pipeline: RAGRetrievalPipeline,
    top_k: int = 5,
    max_length: int = PROFILE_CONTEXT_CHARS,
    *,
    search_mode: SearchMode = SearchMode.DENSE,
) -> str:
    """Return the same chunks as one text for a model; empty if nothing was found.

    Args:
        query: Text of the query.
        profile_id: The profile; see ``semantic_search``.
        retrieval_pipeline: Runs the search.
        top_k: Maximum number of chunks.
        max_length: Maximum number of characters; whole chunks only.
        search_mode: Search by vectors, words, or both.

    Raises:
        VectorForgeError: As ``RAGRetrievalPipeline.retrieve``.
    """
    found = await semantic_search(query, profile_id, retrieval_pipeline, top_k, search_mode=search_mode)
    return await retrieval_pipeline.format_context(found, max_length)
