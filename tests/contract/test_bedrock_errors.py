"""Bedrock's errors, before and inside a stream, as the provider's errors."""

import asyncio
from typing import Any

import pytest
from botocore.model import OperationModel
from botocore.session import Session

from tests.contract.bedrock_client import CONVERSATION, bedrock, session
from tests.contract.suites.llm import MESSAGES, collect
from tests.support.aws.aws_events import aws_exception
from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure, SmallContext
from vectorforge.errors import (
    LLMAuthenticationError,
    LLMContextOverflowError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
)


# C23: every error of the operation, by AWS's own list of them
@pytest.mark.parametrize(
    ("status", "code", "error", "retryable"),
    [
        (403, "AccessDeniedException", LLMAuthenticationError, False),
        (400, "ExpiredTokenException", LLMAuthenticationError, False),
        (404, "ResourceNotFoundException", LLMRequestError, False),
        (400, "ValidationException", LLMRequestError, False),
        (429, "ThrottlingException", LLMRateLimitError, True),
        (429, "ModelNotReadyException", LLMRateLimitError, True),
        (408, "ModelTimeoutException", LLMError, True),
        (424, "ModelErrorException", LLMRequestError, False),
        (500, "InternalServerException", LLMError, True),
        (503, "ServiceUnavailableException", LLMError, True),
    ],
)
async def test_service_error_codes_map_to_llm_errors(
    status: int, code: str, error: type[LLMError], retryable: bool
) -> None:
    class Server(FakeBedrock):
        def error_headers(self, status: int) -> dict[str, str]:
            return {"x-amzn-ErrorType": code}

    async with Server() as server:
        server.script(*[Failure(status, retry_after="7", message="the prompt was: secret")] * 2)
        provider = bedrock(server, retries=0)
        with pytest.raises(error) as caught:
            await provider.generate(MESSAGES)
        with pytest.raises(error):
            await collect(provider)
        await provider.aclose()
    assert caught.value.retryable is retryable
    assert "secret" not in caught.value.message
    if error is not LLMAuthenticationError:
        assert caught.value.retry_after_s == 7


# Fault 11: as boto3 raises it, before a stream and in one that has begun
async def test_overflow_inside_stream_raises_context_overflow() -> None:
    class EndsSo(FakeBedrock):
        def error_event(self) -> bytes:
            return aws_exception("validationException", "Input is too long for requested model.")

    async with EndsSo() as server:
        server.script(SmallContext(20), Reply(texts=(), ending="error"))
        client = session(server.api_key).client("bedrock-runtime", endpoint_url=server.base_url)
        with pytest.raises(client.exceptions.ValidationException, match="Input is too long"):
            await asyncio.to_thread(
                client.converse,
                modelId=MODEL,
                messages=CONVERSATION,
                inferenceConfig={"maxTokens": 100},
            )
        client.close()
        provider = bedrock(server, retries=0)
        with pytest.raises(LLMContextOverflowError):
            await collect(provider)
        await provider.aclose()


def test_error_table_covers_all_service_errors() -> None:
    model = Session().get_service_model("bedrock-runtime")
    operations: list[OperationModel] = [model.operation_model(n) for n in ("Converse", "ConverseStream")]
    names = {shape.name for operation in operations for shape in operation.error_shapes}
    marks = test_service_error_codes_map_to_llm_errors.pytestmark  # type: ignore[attr-defined]  # pytest's arguments of parametrize
    assert names - {row[1] for row in marks[0].args[1]} == set()


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("throttlingException", True),
        ("modelStreamErrorException", True),
        ("internalServerException", True),
        ("serviceUnavailableException", True),
        ("validationException", False),
    ],
)
async def test_errors_inside_stream_map_to_llm_errors(name: str, retryable: bool) -> None:
    class Server(FakeBedrock):
        def error_event(self) -> bytes:
            return aws_exception(name, "the prompt was: secret")

    async with Server() as server:
        server.script(Reply(texts=(), ending="error"))
        provider = bedrock(server, retries=0)
        with pytest.raises(LLMError) as caught:
            await collect(provider)
        await provider.aclose()
    assert caught.value.retryable is retryable
    assert "secret" not in caught.value.message


async def test_stream_with_wrong_checksum_raises() -> None:
    class Server(FakeBedrock):
        def text_event(self, text: str, reply: Reply, body: Any) -> bytes:
            event = super().text_event(text, reply, body)
            return event[:-5] + bytes([event[-5] ^ 1]) + event[-4:]

    async with Server() as server:
        provider = bedrock(server)
        with pytest.raises(LLMError, match="cannot be read"):
            await collect(provider)
        await provider.aclose()
