"""Messages as OpenAI's API takes them; what they hold beside is ignored, as its servers do."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vectorforge.api.schemas.base import MAX_QUERY_CHARS, storable

MAX_CLIENT_MESSAGES = 1000
"""Of one request: clients send their whole conversation again; its end is what goes into the prompt."""
MAX_CONTENT_PARTS = 100
MAX_TEXT_CHARS = MAX_QUERY_CHARS

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class OpenAIBody(BaseModel):
    """A body that OpenAI's clients send: fields that are not used here are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        return storable(value)


class ContentPart(BaseModel):
    """A part of a message: text, or what is refused by its ``type``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    type: str = Field(max_length=100)
    text: Text | None = None
    refusal: Text | None = None


def _parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class ClientMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    role: str = Field(max_length=100, description="user, assistant, system or developer.")
    content: (
        Annotated[
            list[ContentPart],
            Field(max_length=MAX_CONTENT_PARTS),
            BeforeValidator(_parts, json_schema_input_type=Text | list[ContentPart]),
        ]
        | None
    ) = Field(default=None, description="Text, or parts of text.")


ClientMessages = Annotated[list[ClientMessage], Field(min_length=1, max_length=MAX_CLIENT_MESSAGES)]
