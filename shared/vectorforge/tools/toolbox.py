"""Calls of tools as a model sends them, bound to one profile."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS, PROFILE_CONTEXT_CHARS
from vectorforge.pipeline.profile import RAGRetrievalPipeline, RetrievedChunk
from vectorforge.tools.schemas import (
    MAX_CONTEXT_CHARS,
    MAX_QUERY_CHARS,
    MAX_TOP_K,
    PARAMETERS,
    SEMANTIC_SEARCH,
    SEMANTIC_SEARCH_WITH_CONTEXT,
)
from vectorforge.tools.semantic_search_tools import semantic_search, semantic_search_with_context
from vectorforge.types import SearchMode

NOTHING_FOUND = "The profile says nothing about this."


class _SearchArguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 5
    search_mode: Annotated[SearchMode, Field(strict=False)] = SearchMode.DENSE


class _ContextArguments(_SearchArguments):
    max_length: Annotated[int, Field(ge=MIN_CONTEXT_CHARS, le=MAX_CONTEXT_CHARS)] = PROFILE_CONTEXT_CHARS


_ARGUMENTS: Mapping[str, type[_SearchArguments]] = {
    SEMANTIC_SEARCH: _SearchArguments,
    SEMANTIC_SEARCH_WITH_CONTEXT: _ContextArguments,
}


class ProfileToolbox:
    """Answers a model's tool calls from one profile, and from no other whatever the model asks for.

    Args:
        retrieval_pipeline: Searches.
        profile_id: The profile of this conversation.
    """

    def __init__(self, retrieval_pipeline: RAGRetrievalPipeline, profile_id: int) -> None:
        self._pipeline = retrieval_pipeline
        self._profile_id = profile_id

    async def call(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Run a tool.

        Args:
            name: The tool's name.
            arguments: As OpenAI sends them (a JSON text) or as Anthropic does (an object).

        Returns:
            What goes back to the model as the tool's result: JSON, or the context.

        Raises:
            InvalidInputError: There is no such tool, or its arguments do not fit its schema. The text may go
                back to the model, which can then correct itself.
            VectorForgeError: The search failed.
        """
        asked = check_arguments(name, arguments)
        if isinstance(asked, _ContextArguments):
            context = await semantic_search_with_context(
                asked.query,
                self._profile_id,
                self._pipeline,
                asked.top_k,
                asked.max_length,
                search_mode=asked.search_mode,
            )
            return context or NOTHING_FOUND
        found = await semantic_search(
            asked.query, self._profile_id, self._pipeline, asked.top_k, search_mode=asked.search_mode
        )
        return json.dumps([_shown(chunk) for chunk in found], ensure_ascii=False)


def check_arguments(name: str, arguments: str | Mapping[str, Any]) -> _SearchArguments:
    """The arguments of a call, as the model wrote them (JSON) or as an object.

    Raises:
        InvalidInputError: There is no tool of this name, or they do not fit it.
    """
    model = _ARGUMENTS.get(name)
    if model is None:
        raise InvalidInputError(f"There is no such tool; there are: {', '.join(PARAMETERS)}.", field="name")
    try:
        if isinstance(arguments, str):
            return model.model_validate_json(arguments)
        return model.model_validate(dict(arguments))
    except ValidationError as exc:
        places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise InvalidInputError(f"The arguments of {name} do not fit: {places}.", field="arguments") from exc


def _shown(chunk: RetrievedChunk) -> dict[str, Any]:
    return {
        "text": chunk.text,
        "score": round(chunk.score, 4),
        "source_type": chunk.source_type.value,
        "source_id": chunk.source_id,
        "title": chunk.metadata.title,
        "chunk_id": str(chunk.id),
    }
