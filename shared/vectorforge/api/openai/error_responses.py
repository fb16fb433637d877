"""The OpenAPI descriptions of errors under the paths of OpenAI's API."""

from typing import Any

from vectorforge.api.responses import problems
from vectorforge.api.schemas.openai_error import OpenAIError

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
