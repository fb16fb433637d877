"""Amazon Bedrock's Converse API: one request format for every model that Bedrock hosts."""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.llm import failures
from vectorforge.llm.base import BaseLLMProvider, StreamItem
from vectorforge.llm.failures import named_parameter
from vectorforge.llm.http import RefusedParameters, drain, dropped_parameters
from vectorforge.llm.tools import NamedTool, ToolCall, ToolCallDelta
from vectorforge.llm.types import (
    Completion,
    FinishReason,
    LLMRequestConfig,
    Message,
    ProviderCall,
    ProviderOptions,
)
from vectorforge.vendors.bedrock import BedrockClient, stream_events
from vectorforge.vendors.credentials import Credentials
from vectorforge.vendors.response import VendorStatusError

_SPELLINGS = {"top_p": "topP", "temperature": "temperature", "stop_sequences": "stopSequences"}
"""Parameters that may be left out, with Converse's names. Where a model accepts only one of temperature and
top_p, top_p is dropped."""
_UNSUPPORTED = ("frequency_penalty", "presence_penalty")
"""Sampling parameters that the API does not have."""
_ABOUT_THE_FORMAT = re.compile(r"output_?config|output_?format|text_?format|structured output", re.IGNORECASE)
_FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "tool_use": "tool_calls",
}
_TOOL_CHOICES: Mapping[Any, Mapping[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}


class BedrockProvider(BaseLLMProvider):
    """Converse and ConverseStream over boto3, in threads and without boto3's retries.

    There is no key: the credentials are those of boto3's chain, on AWS the role's.
    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html

    Args:
        default_model: Id or ARN of a model or an inference profile, e.g. "eu.amazon.nova-2-lite-v1:0".
        region: E.g. "eu-central-1"; default: from boto3's chain.
        base_url: Address of the API; default: AWS's for the region.
        session: A boto3 session with credentials of its own; default: boto3's chain.
        **options: See ``BaseLLMProvider``.
    """

    max_temperature: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        default_model: str,
        region: str | None = None,
        base_url: str | None = None,
        session: Any = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(default_model=default_model, **options)
        self._base_url = base_url
        self._client = BedrockClient(
            endpoint_url=lambda: self._base_url,
            region=region,
            read_timeout_s=self._timeout_s,
            session=session,
        )
        self._refused = RefusedParameters()

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider of the model in the settings; ``credentials`` are not used."""
        return cls(
            default_model=settings.bedrock_model or "",
            region=settings.bedrock_region,
            base_url=settings.bedrock_base_url,
            **options,
        )

    def provider_name(self) -> str:
        """Return "bedrock"."""
        return "bedrock"

    async def preload(self) -> None:
        """Import boto3 and build its client."""
        await self._client.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again and reconnects."""
        self._client.close()

    async def _call_api(self, call: ProviderCall) -> Completion:
        answer, dropped = await self._send("converse", call)
        if "output" not in answer:  # botocore reads a truncated body as an empty one
            raise ConnectionError("the response body broke off")
        blocks = answer["output"]["message"]["content"]
        text = "".join(block.get("text", "") for block in blocks)
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        calls = [ToolCall(use["toolUseId"], use["name"], json.dumps(use["input"])) for use in uses]
        return _completion(answer.get("stopReason"), answer.get("usage"), call, dropped, text, calls)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[StreamItem, None]:
        answer, dropped = await self._send("converse_stream", call)
        reason = usage = None
        places: dict[int, int] = {}  # block of the message -> place of its tool call
        async with aclosing(stream_events(answer["stream"])) as events:
            async for event in events:
                if text := event.get("contentBlockDelta", {}).get("delta", {}).get("text"):
                    yield text
                elif (piece := _tool_call_delta(event, places)) is not None:
                    yield piece
                reason = event.get("messageStop", {}).get("stopReason") or reason
                if "metadata" in event:
                    usage = event["metadata"].get("usage")
                    await drain(lambda: anext(events, None))
                    break
            if reason is not None:
                yield _completion(reason, usage, call, dropped)

    async def _list_models(self) -> list[str]:
        """List text models available on demand by their own id, then the region's inference profiles."""
        models = await self._client.call(
            "list_foundation_models",
            service="bedrock",
            byOutputModality="TEXT",
            byInferenceType="ON_DEMAND",
        )
        pages = await self._client.list_pages("list_inference_profiles")
        profiles = [
            profile["inferenceProfileId"] for page in pages for profile in page["inferenceProfileSummaries"]
        ]
        return [model["modelId"] for model in models["modelSummaries"]] + profiles

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        return _request(call, self._refused.of(call.config.model))

    async def _send(self, operation: str, call: ProviderCall) -> tuple[Any, list[str]]:
        async def attempt(refused: frozenset[str]) -> Any:
            return await self._client.call(operation, **_request(call, refused))

        config = call.config
        answer, refused = await self._refused.send(
            config.model, attempt, _refused_name, config.is_callers_schema
        )
        return answer, dropped_parameters(config, {*refused, *_UNSUPPORTED})

    def _map_error(self, exc: Exception) -> LLMError:
        return failures.error_for_exception(self.name, exc)


def _request(call: ProviderCall, refused: frozenset[str]) -> dict[str, Any]:
    """Return the parameters of ``converse`` and ``converse_stream`` without the ``refused`` ones."""
    config = call.config
    system = "\n\n".join(m["content"] for m in call.messages if m["role"] == "system")
    sampling = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        # some models refuse blanks alone
        "stop_sequences": [text for text in config.stop_sequences if text.strip()] or None,
    }
    sent = {_SPELLINGS[k]: v for k, v in sampling.items() if v is not None and k not in refused}
    request = {
        "modelId": config.model,
        "messages": _turns([m for m in call.messages if m["role"] != "system"]),
        "inferenceConfig": {"maxTokens": config.max_tokens, **sent},
        "system": [{"text": system}] if system else None,
        "outputConfig": _output_config(config, refused),
        "toolConfig": _tool_config(call) if config.tools else None,
    }
    return {name: value for name, value in request.items() if value is not None}


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation with alternating roles, as Converse requires."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message["role"] == "tool" else message["role"]
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message)
    if not turns:
        raise InvalidInputError("messages must hold a user message.", field="messages")
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = [{"text": message["content"]}]
    if message["role"] == "tool":
        return [{"toolResult": {"toolUseId": message["tool_call_id"], "content": text}}]
    if not (calls := message.get("tool_calls")):
        return text
    uses = [{"toolUse": {"toolUseId": c.id, "name": c.name, "input": c.values}} for c in calls]
    return [*(text if message["content"].strip() else ()), *uses]


def _tool_config(call: ProviderCall) -> Mapping[str, Any] | None:
    """Return ``toolConfig``; with the choice "none" only if the conversation has calls, which require it.

    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolConfiguration.html
    """
    choice = call.config.tool_choice
    if choice == "none" and not any(message.get("tool_calls") for message in call.messages):
        return None
    tools = [tool.for_bedrock() for tool in call.config.tools]
    named = {"tool": {"name": choice.name}} if isinstance(choice, NamedTool) else _TOOL_CHOICES.get(choice)
    return {"tools": tools, **({"toolChoice": named} if named else {})}


def _tool_call_delta(event: Mapping[str, Any], places: dict[int, int]) -> ToolCallDelta | None:
    """Return the piece of a tool call in an event, and note its block."""
    if begun := event.get("contentBlockStart", {}).get("start", {}).get("toolUse"):
        place = places[event["contentBlockStart"]["contentBlockIndex"]] = len(places)
        return ToolCallDelta(place, "", begun["toolUseId"], begun["name"])
    delta = event.get("contentBlockDelta", {})
    if piece := delta.get("delta", {}).get("toolUse", {}).get("input"):
        return ToolCallDelta(places[delta["contentBlockIndex"]], piece)
    return None


def _output_config(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """Return ``outputConfig`` of a conversation; not every model accepts it.

    https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
    """
    if config.response_schema is None or not config.strict_schema or "output_config" in refused:
        return None
    schema = {"name": config.schema_name, "schema": json.dumps(config.response_schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _refused_name(exc: Exception, _: frozenset[str]) -> str | None:
    if not isinstance(exc, VendorStatusError) or exc.code != "ValidationException":
        return None
    if _ABOUT_THE_FORMAT.search(exc.text):
        return "output_config"
    for name, spelling in _SPELLINGS.items():
        if named_parameter((name, spelling), message=exc.text):
            return name
    return None


def _completion(
    reason: str | None,
    usage: Any,
    call: ProviderCall,
    dropped: list[str],
    text: str = "",
    calls: Sequence[ToolCall] = (),
) -> Completion:
    usage = usage or {}
    return Completion(
        model=call.config.model,
        finish_reason=_FINISH_REASONS.get(reason, "other"),
        content=text,
        prompt_tokens=usage.get("inputTokens"),
        completion_tokens=usage.get("outputTokens"),
        tool_calls=calls,
        metadata={"dropped_parameters": dropped} if dropped else {},
    )
