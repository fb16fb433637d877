"""Credentials, typed errors and tenant isolation of the Bedrock API, as boto3 raises them."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from pydantic import SecretStr

from tests.integration.bedrock.conftest import add_document
from tests.support.http.knowledge_bases import ASKED, KNOWLEDGE_BASE, call, knowledge_base_client, question
from tests.support.http.live_api import LiveApi, key_of, live_api, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.config import LimitSettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

SEARCH: dict[str, Any] = {"knowledgeBaseId": KNOWLEDGE_BASE, "retrievalQuery": {"text": ASKED}}


async def test_access_key_id_that_is_no_api_key_is_denied(api: LiveApi, tenant: str) -> None:  # C42
    for key in ("AKIAIOSFODNN7EXAMPLE", key_of(tenant)[:-1], hashlib.sha256(b"x").hexdigest()):
        with closing(knowledge_base_client(api.url, tenant, aws_access_key_id=key)) as wrong:
            for operation, parameters in (
                (wrong.retrieve, SEARCH),
                (wrong.retrieve_and_generate, question()),
                (wrong.retrieve_and_generate_stream, question()),
            ):
                with pytest.raises(wrong.exceptions.AccessDeniedException) as denied:
                    await call(operation, **parameters)
                assert denied.value.response["ResponseMetadata"]["HTTPStatusCode"] == 401
                assert key not in str(denied.value.response)


async def test_unsigned_client_sends_the_key_as_bearer(api: LiveApi, tenant: str) -> None:
    def add_key(request: Any, **_: Any) -> None:
        request.headers["Authorization"] = f"Bearer {key_of(tenant)}"

    unsigned = boto3.Session().client(
        "bedrock-agent-runtime",
        region_name="us-east-1",
        endpoint_url=f"{api.url}/bedrock",
        config=Config(signature_version=UNSIGNED),
    )
    unsigned.meta.events.register("before-sign.bedrock-agent-runtime", add_key)
    with closing(unsigned):
        assert (await call(unsigned.retrieve, **SEARCH))["retrievalResults"]


async def test_signature_for_another_service_is_no_credential(api: LiveApi, tenant: str) -> None:
    scope = "20260101/us-east-1/{}/aws4_request, SignedHeaders=host, Signature=0"
    statuses = {}
    async with api.client(None) as client:
        for service in ("bedrock", "execute-api", "lambda"):
            signed = f"AWS4-HMAC-SHA256 Credential={key_of(tenant)}/{scope.format(service)}"
            response = await client.get("/v1/collections", headers={"Authorization": signed})
            statuses[service] = response.status_code
    assert statuses == {"bedrock": 200, "execute-api": 401, "lambda": 401}


async def test_another_tenant_finds_nothing(api: LiveApi, stranger: str) -> None:  # C42
    with closing(knowledge_base_client(api.url, stranger)) as theirs:
        for operation, parameters in (
            (theirs.retrieve, SEARCH),
            (theirs.retrieve_and_generate, question()),
            (theirs.retrieve_and_generate_stream, question()),
        ):
            with pytest.raises(theirs.exceptions.ResourceNotFoundException) as missing:
                await call(operation, **parameters)
            assert KNOWLEDGE_BASE in str(missing.value)
        await add_document(api, stranger, KNOWLEDGE_BASE, source="own.md", text="Dough of another tenant.")
        (own,) = (await call(theirs.retrieve, **SEARCH))["retrievalResults"]
    assert own["content"]["text"] == "Dough of another tenant."


async def test_failing_vendor_raises_typed_exceptions(client: Any, vendor: FakeOpenAI) -> None:
    for failure, name in (
        (Failure(429, retry_after="17"), "ThrottlingException"),
        (Failure(500), "BadGatewayException"),
        (Failure(400), "BadGatewayException"),
    ):
        vendor.script(failure)
        with pytest.raises(getattr(client.exceptions, name)) as raised:
            await call(client.retrieve_and_generate, **question())
        headers = raised.value.response["ResponseMetadata"]["HTTPHeaders"]
        assert headers.get("retry-after") == ("17" if name == "ThrottlingException" else None)


async def test_limit_of_the_tenant_raises_throttling_exception(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: FakeOpenAI
) -> None:
    tenant = make_tenant()
    limits = LimitSettings(limit_requests_per_minute=2)
    config = settings_for(postgres_server.app_url, [tenant], limits=limits)
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url)
    async with live_api(config, provider) as api:
        with closing(knowledge_base_client(api.url, tenant)) as client:
            for _ in range(2):
                with pytest.raises(client.exceptions.ResourceNotFoundException):
                    await call(client.retrieve, **SEARCH)
            with pytest.raises(client.exceptions.ThrottlingException) as limited:
                await call(client.retrieve, **SEARCH)
    assert int(limited.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"]) >= 1


async def test_other_operations_are_unknown(client: Any) -> None:
    with pytest.raises(ClientError) as unknown:
        await call(client.list_sessions)
    assert unknown.value.response["Error"]["Code"] == "UnknownOperationException"


async def test_endpoint_without_bedrock_is_named(api: LiveApi, tenant: str) -> None:
    with closing(knowledge_base_client(api.url, tenant, endpoint_url=api.url)) as root:
        for operation, parameters in (
            (root.retrieve, SEARCH),
            (root.retrieve_and_generate, question()),
            (root.retrieve_and_generate_stream, question()),
        ):
            with pytest.raises(ClientError, match=f"endpoint URL {api.url}/bedrock") as unknown:
                await call(operation, **parameters)
            assert unknown.value.response["Error"]["Code"] == "UnknownOperationException"


async def test_concurrent_streams_keep_their_sessions_apart(client: Any) -> None:
    async def ask() -> tuple[str, str]:
        response = await call(client.retrieve_and_generate_stream, **question())
        events = await asyncio.to_thread(list, response["stream"])
        return response["sessionId"], "".join(e["output"]["text"] for e in events if "output" in e)

    answers = await asyncio.gather(*(ask() for _ in range(3)))
    assert len({session for session, _ in answers}) == 3
    assert {text for _, text in answers} == {"The answer is 42."}
