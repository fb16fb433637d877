"""Query parameters that choose from the query log, shared by its list and its statistics.

Filters in the query of a URL: the JSON that bodies have as an object.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from vectorforge.api.openai.file_schemas import AttributeFilter
from vectorforge.api.schemas import MAX_FILTERS_BYTES, ModelName, ProviderName, storable
from vectorforge.db.repositories.paging import QueryFilter, SqlCondition
from vectorforge.errors import FilterError
from vectorforge.pipeline.types import LoggedOutcome
from vectorforge.vectorstore.filters.documents import condition_on_documents


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


_FILTERS: Final = TypeAdapter(dict[str, Any])
_ATTRIBUTES: Final = TypeAdapter(AttributeFilter)
_T = TypeVar("_T")


def _read(kind: TypeAdapter[_T], text: str) -> _T:
    try:
        return kind.validate_json(text)
    except ValidationError as exc:
        if exc.errors()[0]["type"] == "json_invalid":
            raise FilterError("filters must be a JSON object.", field="filters") from None
        errors = [{**error, "loc": ("query", "filters", *error["loc"])} for error in exc.errors()]
        raise RequestValidationError(errors) from None


async def _condition_of_filters(
    filters: Annotated[
        str | None,
        Query(
            max_length=MAX_FILTERS_BYTES,
            description="JSON of a condition on the documents' metadata, as `filters` of a question.",
            examples=['{"year": {"$gte": 2024}}'],
        ),
    ] = None,
) -> SqlCondition:
    return condition_on_documents(None if filters is None else _read(_FILTERS, filters))


async def _condition_of_attributes(
    filters: Annotated[
        str | None,
        Query(
            max_length=MAX_FILTERS_BYTES,
            description="JSON of a filter as the search takes it. Not in OpenAI's own API.",
            examples=['{"type": "gte", "key": "year", "value": 2024}'],
        ),
    ] = None,
) -> SqlCondition:
    return condition_on_documents(None if filters is None else _read(_ATTRIBUTES, filters).translated())


FilteredDocuments = Annotated[SqlCondition, Depends(_condition_of_filters)]
"""Which documents ``?filters=`` selects."""
FilteredFiles = Annotated[SqlCondition, Depends(_condition_of_attributes)]
"""The same in OpenAI's words."""
