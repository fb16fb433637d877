"""Errors as OpenAI's clients read them: https://platform.openai.com/docs/guides/error-codes."""

from typing import Any

from vectorforge.api.schemas.problem import Problem

_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/embeddings", "/v1/vector_stores")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_UNPROCESSABLE, _SERVER_ERROR = 422, 500


def is_openai_path(path: str) -> bool:
    """Whether the path, without where the app is mounted, is one of OpenAI's API."""
    return any(path == known or path.startswith(f"{known}/") for known in _PATHS)


def openai_status(status: int) -> int:
    """OpenAI answers values that cannot be used with 400, for which its clients have a class."""
    return 400 if status == _UNPROCESSABLE else status


def openai_error(problem: Problem) -> dict[str, Any]:
    """The body of an error, and the data of one inside a stream.

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
