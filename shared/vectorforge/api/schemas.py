"""Base classes and field types of all bodies, and the request fields that all query surfaces share."""

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from vectorforge.db.repositories.query_lookup_repo import as_uuid
from vectorforge.db.tenant_database import storable_text
from vectorforge.pipeline.step_types import MAX_SUB_QUERIES, MAX_SUB_QUERY_CHARS, Effort
from vectorforge.pipeline.types import HistoryMessage, RewriteMode
from vectorforge.types import Location, SearchMode
from vectorforge.vectorstore.validation import MAX_PROFILE_ID

MAX_NAME_CHARS = 200
MAX_FILTERS_BYTES = 16 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_JSON_DEPTH = 16
MAX_QUERY_CHARS = 100_000
"""Characters of a query as sent; the preprocessor cuts it to ``QuerySettings.max_query_length``."""

MAX_MESSAGES = 100
NO_SETTINGS = frozenset({"dry_run", "resumable"})
"""Fields that do not affect the answer."""
ALLOW_UNGROUNDED = "If the search fails, a model may answer without passages."

MAX_PAGE = 200
"""Maximum rows of a page."""

MAX_PARTS = 1000
"""Maximum rows of a page of parts: chunks of a document, documents of a job."""

MAX_OFFSET = 1_000_000


Locations = Annotated[
    list[Location],
    Field(
        description="Places in the original file, in order: `page` with `rects` (`[x0, y0, x1, y1]` as "
        "shares of the page, 0 to 1, from its top left corner), `slide`, `sheet` with `range`, or `heading`. "
        "A passage's also have `offsets`: where the text of each rectangle, row or heading begins, in "
        "characters of the passage. Empty if unknown."
    ),
]
LocationText = Annotated[
    str, Field(description="Such as `p. 12`, `slide 3` or `sheet Prices, A2:C9`; empty for headings.")
]


class RequestBody(BaseModel):
    """Body of a request; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        return storable(value)


_ABSENT = object()


class Body(BaseModel):
    """A body made from an object with attributes of the same names, or of those of ``validation_alias``."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True, validate_by_alias=True)

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of an object; ``given`` are fields that it lacks or that differ from it."""
        if not given:
            return cls.model_validate(source)
        for name in cls.model_fields.keys() - given.keys():
            if (value := getattr(source, name, _ABSENT)) is not _ABSENT:
                given[name] = value
        return cls(**given)


def storable(value: Any, depth: int = 0, limit: int = MAX_JSON_DEPTH) -> Any:
    """Return the JSON value with NULs and lone surrogates replaced by U+FFFD, since neither can be stored.

    Raises:
        ValueError: A number is not finite, or the value is nested more than ``limit`` levels deep.
    """
    if isinstance(value, str):
        return value if value.isascii() and "\x00" not in value else storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    if depth > limit:
        raise ValueError(f"nested more than {limit} levels deep")
    if isinstance(value, dict):
        return {storable(key, depth): storable(item, depth + 1, limit) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item, depth + 1, limit) for item in value]
    return value


def at_most(limit: int, what: str) -> Any:
    """Return the validator of an object whose JSON has a limited size."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(value)) > limit:
            raise ValueError(f"{what} must be at most {limit} bytes of JSON")
        return value

    return AfterValidator(check)


SearchModeName = Annotated[
    SearchMode,
    Field(
        description="What passages are found by: vectors and words (hybrid), vectors only (dense) or words "
        "only (lexical). Default: as the collection is set."
    ),
]
MmrLambda = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="Choose passages by maximal marginal relevance: 1 by relevance alone, 0 by difference "
        "from those chosen before. Default: by relevance, without it.",
    ),
]
VERSION = (
    "Version of the collection, incremented by every change of its documents: for a query's `min_version`."
)

MinVersion = Annotated[
    int,
    Field(
        ge=0,
        le=2**63 - 1,
        description="Search the collection at this `version` or a later one, such as the one that a write "
        "returned; 409 if the collection has not reached it.",
    ),
]
Filters = Annotated[
    dict[str, Any],
    at_most(MAX_FILTERS_BYTES, "filters"),
    Field(
        description="Conditions on the documents' metadata, all of which must hold: a plain value means "
        "equality, an object may use $eq $ne $gt $gte $lt $lte $in $nin $exists $contains $and $or $not.",
        examples=[{"category": "technology"}, {"year": {"$gte": 2024}}],
    ),
]
Metadata = Annotated[dict[str, Any], at_most(MAX_METADATA_BYTES, "metadata")]
ProviderName = Annotated[str, Field(min_length=1, max_length=100)]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]
ProfileId = Annotated[
    int,
    Field(ge=0, le=MAX_PROFILE_ID, description="Only passages of this profile; filters narrow them further."),
]
CollectionReference = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_CHARS, description="Name or id of the collection.")
]


class ChatMessage(BaseModel):
    """An earlier message of the conversation."""

    model_config = {"extra": "forbid"}

    role: Literal["user", "assistant", "system"]
    content: str = Field(max_length=100_000)


def _resumable_streams(value: bool, info: ValidationInfo) -> bool:
    if value and not info.data.get("stream"):
        raise ValueError("needs stream: true")
    return value


Temperature = Annotated[float, Field(ge=0, le=2)]
VariantReference = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        description="Named set of settings: default, precise, comprehensive or one of the server's. Explicit "
        "fields of the request override it. Null: the server's traffic split applies, if it has one.",
    ),
]
Messages = Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES)]


def _conversation_id(value: Any) -> UUID:
    id_ = as_uuid(str(value).removeprefix("conv_"))
    if id_ is None:
        raise ValueError("must be a conversation's id: `conv_` and 32 hexadecimal digits, or a UUID")
    return id_


ConversationId = Annotated[UUID, BeforeValidator(_conversation_id)]
"""Id of a conversation, with or without the prefix of OpenAI's API."""
ConversationReference = Annotated[
    ConversationId,
    Field(
        description="A stored conversation (`POST /v1/conversations`) instead of messages: its messages are "
        "part of the prompt, and the finished exchange is added to it."
    ),
]
Rewrite = Annotated[
    RewriteMode,
    Field(
        description="Make a follow-up query self-contained before searching; the result is "
        "`rewritten_query`. `auto`: by one call of the model if the query does not stand alone, else by "
        "earlier queries. True: by the model in any case. False: search for the query as it is."
    ),
]
EffortLevel = Annotated[
    Effort,
    Field(
        description="Steps of the search. `minimal`: one. `low`: up to four sub-queries, planned by one call "
        "of the model, or without a model by rules. `medium`: also up to two further rounds and the reading "
        "of one document. `auto`: `low` if the best passages lack words of the query."
    ),
]
Intents = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_SUB_QUERY_CHARS)], ...],
    Field(max_length=MAX_SUB_QUERIES, description="Sub-queries to search for in addition, without a plan."),
]


class SearchOptions(BaseModel):
    """Options of every search."""

    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None
    mmr_lambda: MmrLambda | None = None
    min_version: MinVersion | None = None


class QueryOptions(SearchOptions):
    """Options of the queries that this project defines."""

    filters: Filters | None = None
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite = "auto"
    effort: EffortLevel = "minimal"
    intents: Intents = ()
    allow_ungrounded: bool = Field(default=False, description=ALLOW_UNGROUNDED)


class QueryRequest(RequestBody, QueryOptions):
    """A query, whose answer may be streamed."""

    query: str = Field(max_length=MAX_QUERY_CHARS, description="Query text")
    stream: bool = Field(default=False, description="Stream the answer as server-sent events.")
    # Follows `stream`, which its check needs.
    resumable: Annotated[bool, AfterValidator(_resumable_streams)] = Field(
        default=False,
        description="With `stream`: store the events for a while, so that a client can resume after a "
        "disconnect with `GET /v1/queries/{id}/events`; generation continues meanwhile.",
    )
    dry_run: bool = Field(
        default=False,
        description="Return the request for the model with its tokens and cost, without sending it.",
    )


def given(
    body: RequestBody, *, but: AbstractSet[str] = frozenset(), names: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the explicit settings of a request, which override a variant; omitted fields are left out.

    ``but`` are fields that are not settings, besides the query, its messages and the variant. ``names`` maps
    a field of ``QueryConfig`` to its name in the request.
    """
    settings = body.model_dump(exclude_unset=True, exclude={"query", "messages", "variant", *but})
    for name, own in (names or {}).items():
        if own in settings:
            settings[name] = settings.pop(own)
    return settings


def history(messages: list[ChatMessage] | None) -> tuple[HistoryMessage, ...]:
    """Return the conversation so far as the pipeline's messages."""
    return tuple(HistoryMessage(message.role, message.content) for message in messages or ())
