"""Body of a query with ``dry_run: true``."""

from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.native.answers import SourceBody
from vectorforge.pipeline.dry_run import DryRun


class DryRunResponse(BaseModel):
    """What the model would get, and what that would cost; no model was asked and nothing was logged."""

    dry_run: Literal[True] = True
    query: str
    provider: str
    model: str | None
    request: dict[str, Any] | None = Field(
        description="Body of the request as the vendor would get it; null when no vendor would be asked."
    )
    request_sha256: str | None = Field(
        description="Of that body as JSON with sorted keys, without white space, in UTF-8."
    )
    prompt_tokens: int = Field(description="Estimated; the vendor may count a few more for its format.")
    max_completion_tokens: int
    prompt_cost_usd: float | None = Field(description="Null when the price list does not know the model.")
    max_cost_usd: float | None = Field(description="With the longest answer allowed.")
    context_tokens: int
    history_messages: int = Field(description="Earlier messages of the conversation in the prompt.")
    sources: list[SourceBody]
    used_chunk_ids: list[UUID]

    @classmethod
    def of(cls, dry_run: DryRun) -> Self:
        """The body for the dry run."""
        return cls(
            query=dry_run.query,
            provider=dry_run.provider,
            model=dry_run.model,
            request=dict(dry_run.request) if dry_run.request is not None else None,
            request_sha256=dry_run.request_sha256,
            prompt_tokens=dry_run.prompt_tokens,
            max_completion_tokens=dry_run.max_completion_tokens,
            prompt_cost_usd=dry_run.prompt_cost_usd,
            max_cost_usd=dry_run.max_cost_usd,
            context_tokens=dry_run.context_tokens,
            history_messages=dry_run.history_messages,
            sources=[SourceBody.of(n, source) for n, source in enumerate(dry_run.sources, start=1)],
            used_chunk_ids=list(dry_run.used_chunk_ids),
        )
