"""What the tools are called with. Limits are those of the profile tools (``vectorforge.tools``)."""

import json
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from vectorforge.api.schemas import CollectionReference, Filters, ProfileId, RequestBody, SearchModeName
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS
from vectorforge.tools.schemas import MAX_CONTEXT_CHARS, MAX_QUERY_CHARS, MAX_TOP_K

CONTEXT_CHARS = 6_000
"""Characters of a context, unless the caller says otherwise: about 1,500 tokens."""

T = TypeVar("T")


def _object_in_a_text(value: Any) -> Any:
    """Some hosts send objects as a text of JSON."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # which the next check refuses by its type
    return value


# Null means the default, and the schema does not say so: some hosts cannot read a choice of types.
Optional: TypeAlias = T | SkipJsonSchema[None]


class _WhereArguments(RequestBody):
    collection: Optional[CollectionReference] = Field(
        default=None,
        description="Name or id of the collection to search. Left out: the default one. An unknown name is "
        "answered with the names there are.",
    )
    filters: Optional[Annotated[Filters, BeforeValidator(_object_in_a_text)]] = None
    profile_id: Optional[ProfileId] = Field(
        default=None,
        description="Only passages of the profile (a person's CV and the like) with this number. Without a "
        "collection, that of the profiles is searched.",
    )
    search_mode: Optional[SearchModeName] = None


class SearchArguments(_WhereArguments):
    """What to search for, and where."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="What to look for: a whole question, or words that the answer would hold. It is compared "
        "by meaning, so say it in full and in any language; operators such as AND or quotation marks mean "
        "nothing.",
    )
    top_k: int = Field(
        default=5,
        ge=1,
        le=MAX_TOP_K,
        description="Passages at most. 3 to 8 suit most questions; take more to compare or to collect.",
    )


class ContextArguments(SearchArguments):
    """What to search for, where, and how much of it to return."""

    max_length: int = Field(
        default=CONTEXT_CHARS,
        ge=MIN_CONTEXT_CHARS,
        le=MAX_CONTEXT_CHARS,
        description="Characters of the context at most; whole passages only, best first.",
    )


class AskArguments(_WhereArguments):
    """What to ask, and of which documents."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="The question, in full: nothing of your conversation is known here, so put names where "
        "it has pronouns.",
    )
    top_k: Optional[Annotated[int, Field(ge=1, le=MAX_TOP_K)]] = Field(
        default=None,
        description="Passages that the answer may rest on, at most. Left out: as the server is set.",
    )
