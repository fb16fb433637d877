"""Filters in the query of a URL: the JSON that bodies have as an object."""

from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from vectorforge.api.schemas.base import MAX_FILTERS_BYTES
from vectorforge.api.schemas.openai_filters import AttributeFilter
from vectorforge.db.repositories.sql_condition import SqlCondition
from vectorforge.errors import FilterError
from vectorforge.vectorstore.document_filters import condition_on_documents

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
