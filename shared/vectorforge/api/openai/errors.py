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
_UNUSABLE = "A value is not usable; `error.param` names the field."


def openai_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors of these statuses; 400, 401, 500 and 503 are always among them.

    422 is, too, so that FastAPI adds none of its own; ``vectorforge.api.openapi`` leaves it out, since 400
    takes its place.
    """
    described = {
        status: {**response, "model": OpenAIError} for status, response in problems(*statuses).items()
    }
    return {**described, 400: {**described[_UNPROCESSABLE], "description": _UNUSABLE}}


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER_ERROR = 500


def openai_status(status: int) -> int:
    """OpenAI answers values that cannot be used with 400, for which its clients have a class."""
    return 400 if status == _UNPROCESSABLE else status


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return the body of an error, which is also the data of an error event.

    ``code`` is our own, as everywhere; ``param`` names the field, where there is one.
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
