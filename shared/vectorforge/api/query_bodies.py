"""Request fields that all query routers share, and the response to a dry run."""

from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo

from vectorforge.api.answers import SourceBody, numbered_sources
from vectorforge.api.schemas import Body, RequestBody
from vectorforge.pipeline.types import HistoryMessage

MAX_MESSAGES = 100
MAX_SYSTEM_PROMPT_CHARS = 50_000
NO_SETTINGS = frozenset({"dry_run", "resumable"})
"""Fields that do not affect the answer."""
ALLOW_UNGROUNDED = "If the search fails, a model may answer without passages."


class ChatMessage(BaseModel):
    """An earlier message of the conversation."""

    model_config = {"extra": "forbid"}

    role: Literal["user", "assistant", "system"]
    content: str = Field(max_length=100_000)


def _with_placeholder(template: str) -> str:
    if "{context}" not in template:
        raise ValueError("must contain {context}")
    return template


def _resumable_streams(value: bool, info: ValidationInfo) -> bool:
    if value and not info.data.get("stream"):
        raise ValueError("needs stream: true")
    return value


SystemPrompt = Annotated[str, Field(max_length=MAX_SYSTEM_PROMPT_CHARS), AfterValidator(_with_placeholder)]
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
ConversationReference = Annotated[
    UUID,
    Field(
        description="A stored conversation (`POST /v1/conversations`) instead of messages: its messages are "
        "part of the prompt, and the finished exchange is added to it."
    ),
]
Rewrite = Annotated[
    bool,
    Field(
        description="Rewrite a follow-up query to be self-contained before searching; the result is "
        "`rewritten_query`. Costs one more call of the model, and none without a conversation."
    ),
]
DryRunFlag = Annotated[
    bool,
    Field(description="Return the request for the model with its tokens and cost, without sending it."),
]
ResumableFlag = Annotated[
    bool,
    AfterValidator(_resumable_streams),
    Field(
        description="With `stream`: store the events for a while, so that a client can resume after a "
        "disconnect with `GET /v1/queries/{id}/events`; generation continues meanwhile."
    ),
]
"""Must follow the field ``stream``, which it requires."""


def given(body: RequestBody, *, but: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """Return the explicit settings of a request, which override a variant; omitted fields are left out.

    Args:
        body: The request.
        but: Fields that are not settings, besides the query, its messages and the variant.
    """
    return body.model_dump(exclude_unset=True, exclude={"query", "messages", "variant", *but})


def history(messages: list[ChatMessage] | None) -> tuple[HistoryMessage, ...]:
    """Return the conversation so far as the pipeline's messages."""
    return tuple(HistoryMessage(message.role, message.content) for message in messages or ())


class DryRunResponse(Body):
    """The request for the model and its cost; no model was called and nothing was logged."""

    dry_run: Literal[True] = True
    query: str
    provider: str
    model: str | None
    request: dict[str, Any] | None = Field(
        description="Body of the request to the vendor; null if no vendor would be called."
    )
    request_sha256: str | None = Field(
        description="SHA-256 of that body as JSON with sorted keys, without white space, in UTF-8."
    )
    prompt_tokens: int = Field(description="Estimated; the vendor may count a few more for its format.")
    max_completion_tokens: int
    prompt_cost_usd: float | None = Field(description="Null if the price list does not have the model.")
    max_cost_usd: float | None = Field(description="Including the longest answer allowed.")
    context_tokens: int
    history_messages: int = Field(description="Earlier messages of the conversation in the prompt.")
    sources: list[SourceBody]
    used_chunk_ids: list[UUID]

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``DryRun``."""
        return super().of(source, sources=numbered_sources(source.sources), **given)
