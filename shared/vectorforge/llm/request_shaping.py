"""Request parameters that a model refused, remembered so that each costs one refusal only.

How a model is asked for JSON, and what is left of that when it refuses.

What a request must look like before it is sent to any vendor.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from vectorforge.errors import InvalidInputError
from vectorforge.llm.types import LLMRequestConfig, Message

T = TypeVar("T")

_MAX_MODELS = 256
"""Model names come from callers."""

_ABOUT_THE_PARAMETER = re.compile(
    r"unsupported|n[o']t support|deprecated|no longer|unknown|unrecogni[sz]ed|unexpected|extraneous|"
    r"(extra|additional) (inputs|fields|properties|parameters)|(cannot|can't|can not|may not)\b.{0,40}\bbe "
    r"(used|set|specified|combined)",
    re.IGNORECASE,
)
"""Texts and codes that say that the model does not take a parameter. Others complain about its value:
left out, the parameter would not be sent again, whatever its value."""
_ABOUT_THE_VALUE = re.compile(r"invalid_(value|type)|(above_max|below_min)_(value|length)")
"""Error codes that complain about a parameter's value, not about the parameter."""


class RefusedParameters:
    """What each model of a provider refused, for the life of the process; the latest 256 models."""

    def __init__(self) -> None:
        self._by_model: OrderedDict[str, frozenset[str]] = OrderedDict()

    def of(self, model: str) -> frozenset[str]:
        """Names that this model has refused."""
        return self._by_model.get(model, frozenset())

    async def send(
        self,
        model: str,
        attempt: Callable[[frozenset[str]], Awaitable[T]],
        refused_name: Callable[[Exception], str | None],
    ) -> tuple[T, frozenset[str]]:
        """Send a request, again without each parameter that the model turns out to refuse.

        Args:
            model: Whose refusals to remember. They are, once a request without them is accepted.
            attempt: Sends the request without the given parameters.
            refused_name: Which parameter an exception refuses; None lets the exception pass.

        Returns:
            What ``attempt`` returned, and the parameters it went without.
        """
        refused = self.of(model)
        while True:
            try:
                result = await attempt(refused)
            except Exception as exc:
                name = refused_name(exc)
                if name is None or name in refused:
                    raise
                refused |= {name}
            else:
                self._remember(model, refused)
                return result, refused

    def _remember(self, model: str, refused: frozenset[str]) -> None:
        if not refused:
            return
        self._by_model[model] = refused
        self._by_model.move_to_end(model)
        if len(self._by_model) > _MAX_MODELS:
            self._by_model.popitem(last=False)


def named_parameter(
    candidates: Iterable[str], *, message: str, param: str | None = None, code: str | None = None
) -> str | None:
    """The first of ``candidates`` that a vendor says the model does not take, whatever its value.

    Args:
        candidates: Parameters that may be left out.
        message: The vendor's text; searched only when the vendor names no ``param``.
        param: The parameter that the vendor names.
        code: The vendor's error code.
    """
    if code and _ABOUT_THE_VALUE.search(code):
        return None
    if not _ABOUT_THE_PARAMETER.search(f"{code} {message}"):
        return None
    for name in candidates:
        if name == param or (not param and re.search(rf"\b{re.escape(name)}\b", message)):
            return name
    return None


_STEPS = ("response_format.json_schema", "response_format")
"""What a model may refuse, in this order: to keep to a schema, then JSON at all."""
_ABOUT_THE_FORMAT = re.compile(r"response_?format|json_schema|json_object", re.IGNORECASE)
"""Every OpenAI-shaped server has its own words, but names the field, e.g.
https://github.com/ikawrakow/ik_llama.cpp/issues/778."""


def openai_format(config: LLMRequestConfig, refused: frozenset[str]) -> dict[str, Any] | None:
    """``response_format`` of a chat completion: structured outputs, else any JSON object, else nothing.

    https://developers.openai.com/api/docs/guides/structured-outputs
    """
    if config.response_schema is None or "response_format" in refused:
        return None
    if "response_format.json_schema" in refused:
        return {"type": "json_object"}
    schema = {"name": "answer", "schema": dict(config.response_schema), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def refused_openai_format(complaint: str, refused: frozenset[str]) -> str | None:
    """The next step to go without when a server complains about the format; None when it does not."""
    if not _ABOUT_THE_FORMAT.search(complaint):
        return None
    return next((step for step in _STEPS if step not in refused), None)


def refused_steps(config: LLMRequestConfig, refused: frozenset[str]) -> list[str]:
    """Which steps a request for JSON went without."""
    return [step for step in _STEPS if step in refused] if config.response_schema is not None else []


def anthropic_format(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """``output_config`` of a message; models before 4.5 refuse it.

    https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
    if config.response_schema is None or "output_config" in refused:
        return None
    return {"format": {"type": "json_schema", "schema": dict(config.response_schema)}}


def bedrock_format(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """``outputConfig`` of a conversation on Amazon Bedrock; not every model there takes it.

    https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
    """
    if config.response_schema is None or "output_config" in refused:
        return None
    schema = {"name": "answer", "schema": json.dumps(config.response_schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


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
