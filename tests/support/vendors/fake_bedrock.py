"""Amazon Bedrock's Converse API, as botocore's own service model describes it, with real signatures."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aiohttp import web

from tests.support.aws.aws_events import aws_event, aws_exception
from tests.support.aws.aws_signature import is_signed
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.vendor_behaviour import FinishWord, Refusal

MODEL = "eu.amazon.nova-2-lite-v1:0"
_FINISH: Mapping[FinishWord, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "refusal": "content_filtered",
    "tool": "tool_use",
}
_ERROR_TYPES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


class FakeBedrock(FakeVendor):
    """``Converse``, ``ConverseStream``, ``ListFoundationModels`` and ``ListInferenceProfiles`` of one region.

    Requests must be signed with ``api_key`` as the secret access key.
    """

    base_path = ""
    generation_paths = ("/model/{model}/converse", "/model/{model}/converse-stream")
    models_paths = ("/foundation-models", "/inference-profiles")
    stream_type = "application/vnd.amazon.eventstream"
    ping = aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ""}})

    def accepts(self, request: web.Request, data: bytes) -> bool:
        """Return whether the request was signed with the secret access key."""
        return is_signed(request, data, secret=self.api_key, service="bedrock")

    def wants_stream(self, path: str, body: Any) -> bool:
        """Return whether the operation streams."""
        return path.endswith("/converse-stream")

    def sampling(self, body: Any) -> Mapping[str, Any]:
        """Return the object of the sampling parameters; the response format is elsewhere."""
        return {**body.get("inferenceConfig", {}), **{k: v for k, v in body.items() if k == "outputConfig"}}

    def check(self, request: web.Request, body: Any) -> None:
        """Reject fields and values outside the service model, and conversations that do not alternate."""
        name = "ConverseStream" if self.wants_stream(request.path, body) else "Converse"
        check_input("bedrock-runtime", name, {**body, "modelId": request.match_info["model"]})
        roles = [message["role"] for message in body["messages"]]
        if roles != [("user", "assistant")[place % 2] for place in range(len(roles))]:
            raise ValueError("A conversation must start with a user message and alternate between roles.")
        _check_tool_results(body["messages"])

    def answer(self, reply: Reply, body: Any) -> Mapping[str, Any]:
        """A ``ConverseResponse``."""
        texts = [] if reply.without_choices or not reply.texts else [{"text": "".join(reply.texts)}]
        content = [*texts, *({"toolUse": use} for use in _tool_uses(reply))]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _FINISH[reply.finish],
            "metrics": {"latencyMs": 5},
            **({"usage": _usage(reply.usage)} if reply.usage else {}),
        }

    def before_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """Return the start of the message; models need not announce blocks of text, and some do not."""
        yield aws_event("messageStart", {"role": "assistant"})

    def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
        """A delta."""
        return aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})

    def after_texts(self, reply: Reply, body: Any) -> Iterator[bytes]:
        """End of the block, of the message, and the usage."""
        yield aws_event("contentBlockStop", {"contentBlockIndex": 0})
        for index, use in enumerate(_tool_uses(reply), start=1):
            yield from _streamed_tool_use(index, use)
        yield aws_event("messageStop", {"stopReason": _FINISH[reply.finish]})
        if reply.usage:
            yield aws_event("metadata", {"usage": _usage(reply.usage), "metrics": {"latencyMs": 5}})

    def error_event(self) -> bytes:
        """Return the error of a model that fails midway."""
        return aws_exception("modelStreamErrorException", "The model failed; the prompt was: secret")

    def error_body(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> Mapping[str, Any]:
        """``{"message": ...}``; the type is in a header."""
        return {"message": message}

    def error_headers(self, status: int) -> Mapping[str, str]:
        """The error's type."""
        return {"x-amzn-ErrorType": _ERROR_TYPES.get(status, "InternalServerException")}

    def overflow(self, prompt: int, completion: int, limit: int) -> Refusal:
        """Return an error without numbers, as most models do."""
        return Refusal("Input is too long for requested model.")

    def longest_answer(self, body: Any) -> int:
        """Read the limit from its own object."""
        return int(body.get("inferenceConfig", {}).get("maxTokens") or 0)

    def models_body(self, path: str) -> Mapping[str, Any]:
        """A model, and an inference profile."""
        name = "amazon.nova-2-lite-v1:0"
        arn = f"arn:aws:bedrock:eu-central-1::foundation-model/{name}"
        if path == "/foundation-models":
            return {"modelSummaries": [{"modelArn": arn, "modelId": name}]}
        profile = {
            "inferenceProfileId": MODEL,
            "inferenceProfileName": "EU Nova 2 Lite",
            "inferenceProfileArn": f"arn:aws:bedrock:eu-central-1:111122223333:inference-profile/{MODEL}",
            "models": [{"modelArn": arn}],
            "status": "ACTIVE",
            "type": "SYSTEM_DEFINED",
        }
        return {"inferenceProfileSummaries": [profile]}


def _tool_uses(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"toolUseId": f"tooluse_{number}", "name": call.name, "input": dict(call.arguments)}
        for number, call in enumerate(reply.tool_calls)
    ]


def _streamed_tool_use(index: int, use: Mapping[str, Any]) -> Iterator[bytes]:
    begun = {name: value for name, value in use.items() if name != "input"}
    yield aws_event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": begun}})
    arguments = json.dumps(use["input"])
    for piece in (arguments[:7], arguments[7:]):
        delta = {"toolUse": {"input": piece}}
        yield aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
    yield aws_event("contentBlockStop", {"contentBlockIndex": index})


def _check_tool_results(messages: list[Any]) -> None:
    """Check that the turn after tool calls has all their results."""
    waiting: set[str] = set()
    for message in messages:
        found = {b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b}
        if found != waiting:
            break
        waiting = {b["toolUse"]["toolUseId"] for b in message["content"] if "toolUse" in b}
    if waiting:
        raise ValueError("Expected toolResult blocks for the toolUse blocks of the previous turn.")


def check_input(service: str, operation: str, parameters: Any) -> None:
    """Raise ``ValueError`` unless these are parameters of an operation, by botocore's service model.

    Types, required and unknown members and lower bounds are what every SDK checks before sending; upper
    bounds and enumerations only the service.
    """
    from botocore.validate import ParamValidator

    shape = _service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(parameters, shape)
    if report.has_errors():
        raise ValueError(report.generate_report())
    _check_limits(parameters, shape, "")


def _check_limits(value: Any, shape: Any, place: str) -> None:
    if shape.type_name == "structure" and isinstance(value, dict) and not shape.is_document_type:
        for name, member in value.items():
            _check_limits(member, shape.members[name], f"{place}.{name}")
    elif shape.type_name == "list":
        for number, member in enumerate(value):
            _check_limits(member, shape.member, f"{place}[{number}]")
    size = len(value) if isinstance(value, str | list) else value
    if isinstance(size, int | float) and size > shape.metadata.get("max", size):
        raise ValueError(f"{place} is above {shape.metadata['max']}")
    if value not in (getattr(shape, "enum", None) or [value]):
        raise ValueError(f"{place} is none of {shape.enum}")


def _usage(usage: tuple[int, int]) -> Mapping[str, int]:
    return {"inputTokens": usage[0], "outputTokens": usage[1], "totalTokens": sum(usage)}


@cache
def _service_model(service: str) -> Any:
    from botocore.session import Session

    return Session().get_service_model(service)
