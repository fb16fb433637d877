"""Errors as OpenAI's API describes them.

The OpenAPI descriptions of errors under the paths of OpenAI's API.

What OpenAI's clients may ask for and nobody here can do; what would not change the answer is ignored.

Errors as OpenAI's clients read them: https://platform.openai.com/docs/guides/error-codes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from vectorforge.api.identity.route_scopes import ROUTES
from vectorforge.api.openai.chat_schemas import ChatCompletionRequest
from vectorforge.api.responses import problems
from vectorforge.api.schemas import Problem
from vectorforge.errors import InvalidInputError


class OpenAIErrorDetail(BaseModel):
    """What went wrong."""

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


_NO_TOOLS = "This server answers from documents and calls no tools; leave it out, or use auto or none."


def _forces_a_tool(choice: Any) -> bool:
    return choice not in (None, "auto", "none")


def _is_structured(response_format: Any) -> bool:
    return response_format is not None and response_format != {"type": "text"}


_REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": (lambda n: n not in (None, 1), "There is one answer to a question; n must be 1."),
    "tool_choice": (_forces_a_tool, _NO_TOOLS),
    "function_call": (_forces_a_tool, _NO_TOOLS),
    "modalities": (lambda kinds: bool(kinds) and kinds != ["text"], "Answers are text only."),
    "audio": (bool, "Answers are text only."),
    "logprobs": (bool, "Log probabilities are not known here."),
    "top_logprobs": (bool, "Log probabilities are not known here."),
    "logit_bias": (bool, "Tokens cannot be biased here."),
    "response_format": (_is_structured, "Answers are text with citations; other formats are not supported."),
    "stop": (bool, "Stop sequences are not supported."),
    "web_search_options": (bool, "This server searches its own documents only."),
}


def refuse_impossible(body: ChatCompletionRequest) -> None:
    """Hold a request to what can be done.

    Raises:
        InvalidInputError: It asks for what would have to change the answer and cannot; names the field.
    """
    for field, (is_refused, reason) in _REFUSED.items():
        if is_refused(getattr(body, field)):
            raise InvalidInputError(reason, field=field)


_OPENAI_FAMILIES = frozenset({"chat", "responses", "models", "embeddings", "vector_stores"})
_NATIVE_FAMILIES = frozenset(
    path.split("/")[2]
    for routes in ROUTES.values()
    for path in (route.split(" ", 1)[1] for route in routes)
    if path.startswith("/v1/")
).difference(_OPENAI_FAMILIES)
"""First segments below ``/v1`` of routes whose errors are problem documents."""
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER_ERROR = 500


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
