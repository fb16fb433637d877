"""Amazon Bedrock's Converse API: one request format for every model that Bedrock hosts."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm import failures, response_body
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.request_shaping import RefusedParameters, bedrock_format, named_parameter
from vectorforge.llm.types import Completion, FinishReason, LLMRequestConfig, Message, ProviderCall
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.bedrock import BedrockClient, stream_events
from vectorforge.vendors.bedrock_errors import error_code, error_message, failure_of, status_of
from vectorforge.vendors.credentials import Credentials

_SPELLINGS = {"top_p": "topP", "temperature": "temperature", "stop_sequences": "stopSequences"}
"""Parameters that may be left out, and Converse's names for them. Where a model takes only one of temperature
and top_p, the first here goes."""
_UNKNOWN = ("frequency_penalty", "presence_penalty")
"""Sampling parameters that the API does not have."""
_ABOUT_THE_FORMAT = re.compile(r"output_?config|output_?format|text_?format|structured output", re.IGNORECASE)
_FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}


class BedrockProvider(BaseLLMProvider):
    """Converse and ConverseStream over boto3, which retries nothing here and blocks no event loop.

    There is no key: the credentials are those of boto3's chain, on AWS the role's.
    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
    """

    max_temperature: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        default_model: str,
        region: str | None = None,
        base_url: str | None = None,
        session: Any = None,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        retries: int = 3,
        timeout_s: float = 60.0,
        token_gap_s: float = 10.0,
    ) -> None:
        """Connects to nothing and imports no SDK yet.

        Args:
            default_model: Id or ARN of a model or an inference profile, e.g. "eu.amazon.nova-2-lite-v1:0".
            region: E.g. "eu-central-1"; None: as boto3's chain says.
            base_url: Address of the API; None: AWS's for the region.
            session: A boto3 session with credentials of its own; None: boto3's chain.
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.bedrock``.
            retries: See ``BaseLLMProvider``.
            timeout_s: See ``BaseLLMProvider``.
            token_gap_s: See ``BaseLLMProvider``.
        """
        self._base_url = base_url
        self._client = BedrockClient(
            endpoint_url=lambda: self._base_url, region=region, read_timeout_s=timeout_s, session=session
        )
        self._refused = RefusedParameters()
        super().__init__(
            default_model=default_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=retries,
            timeout_s=timeout_s,
            token_gap_s=token_gap_s,
        )

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider of the model in the settings; it needs no key."""
        return cls(
            default_model=settings.bedrock_model or "",
            region=settings.bedrock_region,
            base_url=settings.bedrock_base_url,
            **options,
        )

    def provider_name(self) -> str:
        """``bedrock``."""
        return "bedrock"

    async def preload(self) -> None:
        """Import boto3 and build its client."""
        await self._client.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        self._client.close()

    async def _call_api(self, call: ProviderCall) -> Completion:
        answer, dropped = await self._send("converse", call)
        if "output" not in answer:  # botocore takes a body that was cut off for an empty one
            raise ConnectionError("the response body broke off")
        blocks = answer["output"]["message"]["content"]
        text = "".join(block.get("text", "") for block in blocks)
        return _completion(answer.get("stopReason"), answer.get("usage"), call, dropped, text)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        answer, dropped = await self._send("converse_stream", call)
        reason = usage = None
        async with aclosing(stream_events(answer["stream"])) as events:
            async for event in events:
                if text := event.get("contentBlockDelta", {}).get("delta", {}).get("text"):
                    yield text
                reason = event.get("messageStop", {}).get("stopReason") or reason
                if "metadata" in event:
                    usage = event["metadata"].get("usage")
                    await response_body.drain(events)
                    break
            if reason is not None:
                yield _completion(reason, usage, call, dropped)

    async def _list_models(self) -> list[str]:
        """Models that answer in text when asked by their own id, then inference profiles of the region."""
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
        """The parameters of the operation, which is the same body for whole answers and streams."""
        return _request(call, self._refused.of(call.config.model))

    async def _send(self, operation: str, call: ProviderCall) -> tuple[Any, list[str]]:
        """The answer, and the parameters that the request went without."""

        async def attempt(refused: frozenset[str]) -> Any:
            return await self._client.call(operation, **_request(call, refused))

        answer, refused = await self._refused.send(call.config.model, attempt, _refused_name)
        return answer, _dropped(call.config, refused)

    def _map_error(self, exc: Exception) -> LLMError:
        if (found := status_of(exc)) is not None:
            status, headers = found
            return failures.error_for_status(self.name, status, headers, said=error_message(exc))
        match failure_of(exc):
            case "timeout":
                return failures.timed_out(self.name)
            case "unreachable":
                return failures.unreachable(self.name)
            case "broken":
                return failures.broken_stream(self.name)
            case "unusable":
                return failures.unusable_answer(self.name)


def _request(call: ProviderCall, refused: frozenset[str]) -> dict[str, Any]:
    """The parameters of ``converse`` and ``converse_stream``; ``refused`` ones are left out."""
    system = "\n\n".join(m["content"] for m in call.messages if m["role"] == "system")
    request = {
        "modelId": call.config.model,
        "messages": _turns([m for m in call.messages if m["role"] != "system"]),
        "inferenceConfig": _inference_config(call.config, refused),
    }
    output = bedrock_format(call.config, refused)
    more = {"system": [{"text": system}] if system else None, "outputConfig": output}
    return {**request, **{name: value for name, value in more.items() if value is not None}}


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation; Converse wants roles to alternate, so messages of one role in a row are one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if not turns or turns[-1]["role"] != message["role"]:
            turns.append({"role": message["role"], "content": []})
        turns[-1]["content"].append({"text": message["content"]})
    if not turns:
        raise InvalidInputError("messages must hold a user message.", field="messages")
    return turns


def _inference_config(config: LLMRequestConfig, refused: frozenset[str]) -> dict[str, Any]:
    values = {
        "temperature": config.temperature,
        "topP": config.top_p,
        "stopSequences": list(config.stop_sequences) or None,
    }
    left_out = {spelling for name, spelling in _SPELLINGS.items() if name in refused}
    sent = {k: v for k, v in values.items() if v is not None and k not in left_out}
    return {"maxTokens": config.max_tokens, **sent}


def _refused_name(exc: Exception) -> str | None:
    if error_code(exc) != "ValidationException":
        return None
    message = error_message(exc)
    if _ABOUT_THE_FORMAT.search(message):
        return "output_config"
    for name, spelling in _SPELLINGS.items():
        if named_parameter((name, spelling), message=message):
            return name
    return None


def _dropped(config: LLMRequestConfig, refused: frozenset[str]) -> list[str]:
    """What was asked for and left out, by the names of our settings."""
    asked = ("temperature", "top_p", "stop_sequences", *_UNKNOWN)
    left_out = {*refused, *_UNKNOWN}
    dropped = [name for name in asked if name in left_out and getattr(config, name) not in (None, ())]
    wanted_json = config.response_schema is not None and "output_config" in refused
    return [*dropped, "output_config"] if wanted_json else dropped


def _completion(
    reason: str | None, usage: Any, call: ProviderCall, dropped: list[str], text: str = ""
) -> Completion:
    usage = usage or {}
    return Completion(
        model=call.config.model,
        finish_reason=_FINISH_REASONS.get(reason, "other"),
        content=text,
        prompt_tokens=usage.get("inputTokens"),
        completion_tokens=usage.get("outputTokens"),
        metadata={"dropped_parameters": dropped} if dropped else {},
    )
