"""What a request must look like before it is sent to any vendor."""

from collections.abc import Sequence

from vectorforge.errors import InvalidInputError
from vectorforge.llm.types import LLMRequestConfig, Message

_ROLES = ("system", "user", "assistant")


def check_messages(messages: Sequence[Message]) -> None:
    """Raise ``InvalidInputError`` unless there is a message and each has a known role and a text."""
    if not messages:
        raise InvalidInputError("messages must hold at least one message.", field="messages")
    for index, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            name = f"messages[{index}].role"
            raise InvalidInputError(f"{name} must be one of {', '.join(_ROLES)}.", field=name)
        if not isinstance(message.get("content"), str):
            name = f"messages[{index}].content"
            raise InvalidInputError(f"{name} must be a text.", field=name)


def check_sampling(config: LLMRequestConfig, provider: str, max_temperature: float) -> None:
    """Raise ``InvalidInputError`` naming the first value that is out of the provider's range.

    Args:
        config: None in an optional field means it is not sent, so it is not looked at.
        provider: Name for the text.
        max_temperature: Highest temperature that the provider knows, from 0.

    Ranges: https://platform.openai.com/docs/api-reference/chat/create; Anthropic's temperature ends at 1.
    """
    if not config.model:
        raise InvalidInputError("model must not be empty.", field="model")
    if config.max_tokens < 1:
        raise InvalidInputError("max_tokens must be at least 1.", field="max_tokens")
    ranges = {
        "temperature": (config.temperature, 0.0, max_temperature),
        "top_p": (config.top_p, 0.0, 1.0),
        "frequency_penalty": (config.frequency_penalty, -2.0, 2.0),
        "presence_penalty": (config.presence_penalty, -2.0, 2.0),
    }
    for name, (value, low, high) in ranges.items():
        if value is not None and not low <= value <= high:
            raise InvalidInputError(f"{name} must be from {low:g} to {high:g} for {provider}.", field=name)
