"""Query parameters that choose from the query log, shared by its list and its statistics."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from vectorforge.api.schemas.base import ModelName, ProviderName, storable
from vectorforge.db.repositories.query_filter import QueryFilter
from vectorforge.pipeline.types import LoggedOutcome


def _in_utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("beyond the years 1 to 9999") from None


Moment = Annotated[datetime, AfterValidator(_in_utc)]


def _clean(value: Any) -> Any:
    return storable(value)


class RangeParameters(BaseModel):
    """A range of time, and which of its queries."""

    model_config = ConfigDict(hide_input_in_errors=True)

    since: Moment | None = Field(default=None, description="Not before; ISO 8601, UTC without an offset.")
    until: Moment | None = Field(default=None, description="Before; ISO 8601, UTC without an offset.")
    collection_id: UUID | None = None
    provider: Annotated[ProviderName, BeforeValidator(_clean)] | None = None
    model: Annotated[ModelName, BeforeValidator(_clean)] | None = Field(
        default=None, description="The name that the vendor answered with."
    )
    variant: Annotated[str, BeforeValidator(_clean), Field(min_length=1, max_length=100)] | None = None

    def matching(self) -> QueryFilter:
        """The conditions."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return QueryFilter(
            **{name: fields[name] for name in QueryFilter.__dataclass_fields__ if name in fields}
        )


class LogParameters(RangeParameters):
    """What a query of the log may be chosen by."""

    outcome: LoggedOutcome | None = Field(
        default=None,
        description='How the query ended; "started": it is still running, or was killed before its end.',
    )
    cached: bool | None = Field(default=None, description="Whether the answer came from the cache.")
    degraded: bool | None = Field(default=None, description="Whether the answer came down any step.")
    text: Annotated[str, BeforeValidator(_clean), Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Part of the question, in upper or lower case."
    )
