"""The two tools of an agent. Whether a search is needed is the agent's decision; how it is done is not."""

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
    """Passages of a profile for a question, best first, with where they come from.

    Args:
        query: The question.
        profile_id: The profile. It is for the application to say, never for the model: a text that a model
            has read could ask for another one.
        retrieval_pipeline: Searches.
        top_k: Passages at most.
        search_mode: What passages are found by.

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
    """The same passages as one text for a model; empty when nothing was found.

    Args:
        query: The question.
        profile_id: The profile; see ``semantic_search``.
        retrieval_pipeline: Searches.
        top_k: Passages at most.
        max_length: Characters at most; whole passages only.
        search_mode: What passages are found by.

    Raises:
        VectorForgeError: As ``RAGRetrievalPipeline.retrieve``.
    """
    found = await semantic_search(query, profile_id, retrieval_pipeline, top_k, search_mode=search_mode)
    return await retrieval_pipeline.format_context(found, max_length)
