"""Errors as OpenAI's clients read them: https://platform.openai.com/docs/guides/error-codes."""

from typing import Any

from vectorforge.api.identity.route_scopes import ROUTES
from vectorforge.api.schemas.problem import Problem

_OPENAI_FAMILIES = frozenset({"chat", "responses", "models", "embeddings", "vector_stores"})
_NATIVE_FAMILIES = frozenset(
    path.split("/")[2]
    for routes in ROUTES.values()
    for path in (route.split(" ", 1)[1] for route in routes)
    if path.startswith("/v1/")
).difference(_OPENAI_FAMILIES)
"""First segments below ``/v1`` of routes whose errors are problem documents."""
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_UNPROCESSABLE, _SERVER_ERROR = 422, 500


def is_openai_path(path: str) -> bool:
    """Return True if errors at this path have OpenAI's shape.

    Unknown routes below ``/v1`` are among them: OpenAI's packages have calls for routes that are not served
    here, and show no text of an error in another shape.

    Args:
        path: Without the prefix at which the app is mounted.
    """
    _, _, below = path.partition("/v1/")
    return path.startswith("/v1/") and below.split("/", 1)[0] not in _NATIVE_FAMILIES


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
