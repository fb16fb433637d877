"""Errors of OpenAI's API and their OpenAPI descriptions.

https://platform.openai.com/docs/guides/error-codes
"""

from typing import Any

from pydantic import BaseModel, Field

from vectorforge.api.schemas import Problem, problems


class OpenAIErrorDetail(BaseModel):
    """Details of an error."""

    message: str
    type: str
    param: str | None = Field(description="The field at fault.")
    code: str = Field(description="Stable identifier, the same as in problem documents.")


class OpenAIError(BaseModel):
    """The body of every error under the paths of OpenAI's API, and an event of a stream that failed."""

    error: OpenAIErrorDetail


_UNPROCESSABLE = 422
_UNUSABLE = "A value is invalid; `error.param` has the field."


def openai_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of these statuses and always 400, 401, 500 and 503.

    422 is included so that FastAPI adds none of its own; ``vectorforge.api.openapi`` removes it, since these
    paths return 400 instead.
    """
    described = {
        status: {**response, "model": OpenAIError} for status, response in problems(*statuses).items()
    }
    return {**described, 400: {**described[_UNPROCESSABLE], "description": _UNUSABLE}}


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER_ERROR = 500


def openai_status(status: int) -> int:
    """Return the status in OpenAI's API: 400 instead of 422, which its clients have a class for."""
    return 400 if status == _UNPROCESSABLE else status


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return the body of an error, which is also the data of an error event.

    ``code`` is the same as in problem documents; ``param`` is the field, if any.
    """
    field = problem.errors[0].field if problem.errors else None
    known = _TYPES.get(problem.status, "invalid_request_error")
    error = {
        "message": problem.detail,
        "type": "server_error" if problem.status >= _SERVER_ERROR else known,
        "param": field,
        "code": problem.code,
    }
    return {"error": error}
