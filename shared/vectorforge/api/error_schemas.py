"""Bodies of errors, fields at fault, and OpenAPI descriptions: problem documents, OpenAI's and AWS's errors.

https://www.rfc-editor.org/rfc/rfc9457, https://platform.openai.com/docs/guides/error-codes,
https://smithy.io/2.0/aws/protocols/aws-restjson1-protocol.html#operation-error-serialization
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field


class FieldProblem(BaseModel):
    """Error of one field."""

    field: str = Field(description="Name of the field as the caller wrote it; nested names joined by dots.")
    message: str
    limit: int | float | None = Field(default=None, description="The bound that was crossed.")


_MAX_FIELD_CHARS = 200
_JSON_TERMS = (
    ("valid tuple", "valid list"),
    ("Tuple should", "List should"),
    ("Dictionary should", "Object should"),
    (" after validation", ""),
)
_CHUNK_COUNTS = {"k", "top_k", "n_results"}
"""Names of the number of chunks, one on each API surface."""
_LIMIT_KEYS = ("ge", "gt", "le", "lt", "max_length", "min_length", "limit")


def as_written(error: Mapping[str, Any], body: Any) -> Sequence[Any]:
    """Return the location of an error without parts that the body lacks, such as the types of a union."""
    location = error["loc"]
    if location[0] != "body" or not isinstance(body, dict | list):
        return tuple(location)
    written, end = ["body"], len(location) - (error["type"] == "missing")
    for part in location[1:end]:
        if part in (body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()):
            written.append(part)
            body = body[part]
    return [*written, *location[end:]]


def field_problem(error: Mapping[str, Any], known: Collection[str]) -> FieldProblem:
    """Return field, message and limit of a pydantic error, without the value, which may be secret or huge."""
    location = [str(part) for part in error["loc"]]
    if len(location) > 1 and location[0] in ("body", "query", "path", "header"):
        location = location[1:]
    context = error.get("ctx") or {}
    limits = [context[key] for key in _LIMIT_KEYS if key in context]
    return FieldProblem(
        field=printable(".".join(location)),
        message=printable(_message_of(error, location, context.get("known", known)), 300),
        limit=limits[0] if limits and isinstance(limits[0], int | float) else None,
    )


def _message_of(error: Mapping[str, Any], location: Sequence[str], known: Collection[str]) -> str:
    if error["type"] == "extra_forbidden":
        from difflib import get_close_matches

        name, names = location[-1][:_MAX_FIELD_CHARS], known if len(location) == 1 else ()
        similar = (
            sorted(_CHUNK_COUNTS & set(names)) if name in _CHUNK_COUNTS else get_close_matches(name, names, 1)
        )
        listed = f" Known: {', '.join(sorted(names))}." if names and "ctx" in error else ""
        return f"This field is unknown.{f' Did you mean `{similar[0]}`?' if similar else listed}"
    if error["type"] == "missing":
        return "This field is required."
    if error["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return "Input should be an object"
    message = str(error["msg"]).removeprefix("Value error, ")
    for python, term in _JSON_TERMS:
        message = message.replace(python, term)
    return message


def printable(text: str, length: int = _MAX_FIELD_CHARS) -> str:
    """Return a name or message, which may hold the caller's text, bounded and safe to encode."""
    return text[:length].encode("utf-8", "replace").decode("utf-8")


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
    416: "The file has no byte of the range.",
    422: "A value is invalid; `errors` has fields and limits.",
    429: "A limit of the tenant is reached, or a provider is limiting requests; see Retry-After.",
    500: "An unexpected failure.",
    501: "This deployment does not have what the request needs.",
    502: "An embedding or language model failed.",
    503: "The database is not available; see Retry-After.",
    504: "The deadline was exceeded.",
}

PROBLEM_MEDIA_TYPE = "application/problem+json"


def _body(model: type[BaseModel], media_type: str = "application/json") -> dict[str, Any]:
    """Return the content of a response by reference; for a "model" FastAPI builds a validator per route."""
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return problem documents of these statuses and always 401, 403, 422, 500, 503; 400 with 415."""
    every = sorted({401, 403, 422, 500, 503, *statuses, *((400,) if 415 in statuses else ())})
    content = _body(Problem, PROBLEM_MEDIA_TYPE)
    return {status: {"description": _DESCRIPTIONS[status], "content": content} for status in every}


ANSWER_PROBLEMS = problems(404, 409, 413, 415, 429, 502, 504)
"""Problems of routes that embed and generate."""


class OpenAIErrorDetail(BaseModel):
    """Details of an error."""

    message: str
    type: str
    param: str | None = Field(description="The field at fault.")
    code: str = Field(description="Stable identifier, the same as in problem documents.")


class OpenAIError(BaseModel):
    """The body of every error under the paths of OpenAI's API, and an event of a stream that failed."""

    error: OpenAIErrorDetail


_UNUSABLE = "A value is invalid; `error.param` has the field."


def openai_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of these statuses and always 400, 401, 500 and 503.

    422 is included so that FastAPI adds none of its own; ``vectorforge.api.openapi`` removes it, since these
    paths return 400 instead.
    """
    content = _body(OpenAIError)
    described = {status: {**response, "content": content} for status, response in problems(*statuses).items()}
    return {**described, 400: {**described[422], "description": _UNUSABLE}}


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def openai_status(status: int) -> int:
    """Return the status in OpenAI's API: 400 instead of 422, which its clients have a class for."""
    return 400 if status == 422 else status


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return the body of an error, which is also the data of an error event.

    ``code`` is the same as in problem documents; ``param`` is the field, if any.
    """
    field = problem.errors[0].field if problem.errors else None
    known = _TYPES.get(problem.status, "invalid_request_error")
    error = {
        "message": problem.detail,
        "type": "server_error" if problem.status >= 500 else known,
        "param": field,
        "code": problem.code,
    }
    return {"error": error}


class AwsError(BaseModel):
    """The body of every error under the paths of Bedrock's API; its type is in ``x-amzn-ErrorType``."""

    message: str
    code: str = Field(description="Stable identifier, the same as in problem documents.")


def aws_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of the statuses of ``openai_problems``."""
    described = openai_problems(*statuses).items()
    return {status: {**response, "content": _body(AwsError)} for status, response in described}


_EXCEPTIONS = {
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    409: "ConflictException",
    429: "ThrottlingException",
    502: "BadGatewayException",
}


def aws_exception(problem: Problem) -> str:
    """Return the type of an error in the service model of ``bedrock-agent-runtime``."""
    if problem.code == "route_not_found":
        return "UnknownOperationException"
    other = "InternalServerException" if problem.status >= 500 else "ValidationException"
    return _EXCEPTIONS.get(problem.status, other)


def aws_error(problem: Problem) -> dict[str, Any]:
    """Return the body of an error."""
    return {"message": problem.detail, "code": problem.code}
