"""Errors as OpenAI's API describes them."""

from pydantic import BaseModel, Field


class OpenAIErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = Field(description="The field at fault.")
    code: str = Field(description="Stable identifier, the same as in problem documents.")


class OpenAIError(BaseModel):
    """The body of every error under the paths of OpenAI's API, and an event of a stream that failed."""

    error: OpenAIErrorDetail
