"""Base classes and field types of all bodies, problem documents, and responses that many routes share.

Problem documents follow RFC 9457 (https://www.rfc-editor.org/rfc/rfc9457).
"""

import json
import math
from typing import Annotated, Any, Self, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from vectorforge.errors import FilterError
from vectorforge.types import SearchMode
from vectorforge.vectorstore.validation import MAX_PROFILE_ID

MAX_NAME_CHARS = 200
MAX_FILTERS_BYTES = 16 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_JSON_DEPTH = 16
MAX_QUERY_CHARS = 100_000
"""Characters of a query as sent; the preprocessor cuts it to ``QuerySettings.max_query_length``."""

MAX_PAGE = 200
"""Maximum rows of a page."""

MAX_PARTS = 1000
"""Maximum rows of a page of parts: chunks of a document, documents of a job."""

MAX_OFFSET = 1_000_000


class RequestBody(BaseModel):
    """Body of a request; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        return storable(value)


class Body(BaseModel):
    """A body made from an object with attributes of the same names."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of an object.

        Args:
            source: Object whose attributes have the names of fields; nested objects likewise.
            **given: Fields that differ from the attributes, or have none.
        """
        if not given:
            return cls.model_validate(source)
        copied = cls.model_fields.keys() - given.keys()
        return cls(**{name: getattr(source, name) for name in copied if hasattr(source, name)}, **given)


def storable(value: Any, depth: int = 0) -> Any:
    """Return the JSON value with NULs and lone surrogates replaced by U+FFFD, since neither can be stored.

    Raises:
        ValueError: A number is not finite, or the value is nested more than 16 levels deep.
    """
    if isinstance(value, str):
        return value if value.isascii() and "\x00" not in value else _storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"nested more than {MAX_JSON_DEPTH} levels deep")
    if isinstance(value, dict):
        return {storable(key, depth + 1): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    return value


def _storable_text(text: str) -> str:
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # "surrogatepass" and back joins pairs that were escaped one by one; what stays alone is replaced.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _at_most(limit: int, what: str) -> Any:
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
Filters = Annotated[
    dict[str, Any],
    _at_most(MAX_FILTERS_BYTES, "filters"),
    Field(
        description="Conditions on the documents' metadata, all of which must hold: a plain value means "
        "equality, an object may use $eq $ne $gt $gte $lt $lte $in $nin $exists $contains $and $or $not.",
        examples=[{"category": "technology"}, {"year": {"$gte": 2024}}],
    ),
]
Metadata = Annotated[dict[str, Any], _at_most(MAX_METADATA_BYTES, "metadata")]
ProviderName = Annotated[str, Field(min_length=1, max_length=100)]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]
ProfileId = Annotated[
    int,
    Field(ge=0, le=MAX_PROFILE_ID, description="Only passages of this profile; filters narrow them further."),
]
CollectionReference = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_CHARS, description="Name or id of the collection.")
]


class FieldProblem(BaseModel):
    """Error of one field."""

    field: str = Field(description="Name of the field as the caller wrote it; nested names joined by dots.")
    message: str
    limit: int | float | None = Field(default=None, description="The bound that was crossed.")


class Problem(BaseModel):
    """An error, as ``application/problem+json``."""

    type: str = Field(description="URN that names the kind of problem.")
    title: str = Field(description="The kind of problem in words; the same for every occurrence.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened this time.")
    code: str = Field(description="Stable identifier for programs.")
    request_id: str = Field(description="Names the request in the server's log; also in X-Request-Id.")
    errors: list[FieldProblem] | None = Field(default=None, description="The fields at fault, at most 20.")


_DESCRIPTIONS = {
    400: "The body is malformed: not JSON, not UTF-8, or not a form.",
    401: "The credential is missing or invalid.",
    403: "The credential lacks the required scope.",
    404: "No object with this id.",
    409: "The request contradicts what is stored.",
    413: "The body, or one of its files, is too large.",
    415: "The media type of the body is not supported.",
    422: "A value is invalid; `errors` has fields and limits.",
    429: "A limit of the tenant is reached, or a provider is limiting requests; see Retry-After.",
    500: "An unexpected failure.",
    502: "An embedding or language model failed.",
    503: "The database is not available; see Retry-After.",
    504: "The deadline was exceeded.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return problem documents of these statuses and always 401, 403, 422, 500, 503; 400 with 415."""
    every = sorted({401, 403, 422, 500, 503, *statuses, *((400,) if 415 in statuses else ())})
    return {status: {"model": Problem, "description": _DESCRIPTIONS[status]} for status in every}


ANSWER_PROBLEMS = problems(404, 409, 413, 415, 429, 502, 504)
"""Problems of routes that embed and generate."""


def nameless_events_content(description: str) -> dict[str, Any]:
    """Return the media type of a stream of unnamed events, whose data ``description`` describes."""
    data = {"type": "string", "description": description}
    schema = {"type": "object", "required": ["data"], "properties": {"data": data}}
    return {"text/event-stream": {"itemSchema": schema}}


_T = TypeVar("_T")


def parse_query_filters(kind: TypeAdapter[_T], text: str) -> _T:
    """Parse the query parameter ``filters``, which has the JSON that bodies have as an object.

    Raises:
        FilterError: It is not JSON.
        RequestValidationError: It is no value of this kind.
    """
    try:
        return kind.validate_json(text)
    except ValidationError as exc:
        if exc.errors()[0]["type"] == "json_invalid":
            raise FilterError("filters must be a JSON object.", field="filters") from None
        errors = [{**error, "loc": ("query", "filters", *error["loc"])} for error in exc.errors()]
        raise RequestValidationError(errors) from None
