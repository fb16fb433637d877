"""The two search tools of an agent on one profile, and the execution of a model's calls of them."""

import json
from collections.abc import Mapping
from typing import Any

from vectorforge.pipeline.presets import PROFILE_CONTEXT_CHARS
from vectorforge.pipeline.profile import RAGRetrievalPipeline, RetrievedChunk
from vectorforge.tools.schemas import ContextArguments, SearchArguments, check_arguments
from vectorforge.types import SearchMode

NOTHING_FOUND = "The profile says nothing about this."


async def semantic_search(
    query: str,
    profile_id: int,
    retrieval_pipeline: RAGRetrievalPipeline,
    top_k: int = 5,
    *,
    search_mode: SearchMode = SearchMode.DENSE,
    mmr_lambda: float | None = None,
) -> list[RetrievedChunk]:
    """Return the chunks of a profile for a query, best first, with their sources.

    Args:
        query: Text of the query.
        profile_id: The profile. Set it in the application, never from a model's output: a text that the model
            has read could name another profile.
        retrieval_pipeline: Runs the search.
        top_k: Maximum number of chunks.
        search_mode: Dense, lexical or hybrid.
        mmr_lambda: As for ``RAGRetrievalPipeline.retrieve``.

    Raises:
        VectorForgeError: As ``RAGRetrievalPipeline.retrieve``.
    """
    return await retrieval_pipeline.retrieve(
        query, profile_id, top_k, search_mode=search_mode, mmr_lambda=mmr_lambda
    )


async def semantic_search_with_context(
    query: str,
    profile_id: int,
    retrieval_pipeline: RAGRetrievalPipeline,
    top_k: int = 5,
    max_length: int = PROFILE_CONTEXT_CHARS,
    *,
    search_mode: SearchMode = SearchMode.DENSE,
    mmr_lambda: float | None = None,
) -> str:
    """Return the same chunks, with the same arguments, as one text for a model; empty if nothing was found.

    The text has whole chunks only, and at most ``max_length`` characters.

    Raises:
        VectorForgeError: As ``RAGRetrievalPipeline.retrieve``.
    """
    chunks = await semantic_search(
        query, profile_id, retrieval_pipeline, top_k, search_mode=search_mode, mmr_lambda=mmr_lambda
    )
    return await retrieval_pipeline.format_context(chunks, max_length)


class ProfileToolbox:
    """Runs a model's tool calls on one profile; no argument of a call can select another."""

    def __init__(self, retrieval_pipeline: RAGRetrievalPipeline, profile_id: int) -> None:
        self._pipeline = retrieval_pipeline
        self._profile_id = profile_id

    async def call(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Run a tool.

        Args:
            name: Name of the tool.
            arguments: A JSON text, as OpenAI sends it, or an object, as Anthropic does.

        Returns:
            The tool's result for the model: JSON, or the context.

        Raises:
            InvalidInputError: Unknown tool or invalid arguments. The message may be returned to the model,
                which can then correct the call.
            VectorForgeError: The search failed.
        """
        checked = check_arguments(name, arguments)
        assert isinstance(checked, SearchArguments)  # noqa: S101 - so are ``ContextArguments``
        chunks = await semantic_search(
            checked.query,
            self._profile_id,
            self._pipeline,
            checked.top_k,
            search_mode=checked.search_mode,
            mmr_lambda=checked.mmr_lambda,
        )
        if isinstance(checked, ContextArguments):
            return await self._pipeline.format_context(chunks, checked.max_length) or NOTHING_FOUND
        return json.dumps([_shown(chunk) for chunk in chunks], ensure_ascii=False)


def _shown(chunk: RetrievedChunk) -> dict[str, Any]:
    return {
        "text": chunk.text,
        "score": round(chunk.score, 4),
        "source_type": chunk.source_type.value,
        "source_id": chunk.source_id,
        "title": chunk.metadata.title,
        "chunk_id": str(chunk.id),
    }
