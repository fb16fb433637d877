"""Providers' keys from Secrets Manager and SSM, over HTTP, rotated while the process runs."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from tests.contract.suites.llm import MESSAGES, collect
from tests.integration.provider_secrets.conftest import NEW, OLD, VENDORS, build
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor, RecordedRequest, Reply
from vectorforge.errors import EmbeddingAuthenticationError, LLMAuthenticationError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import StreamEnd

pytestmark = pytest.mark.filterwarnings(
    "ignore:The model 'claude-sonnet-4-20250514' is deprecated:DeprecationWarning"
)


def rotate(aws: FaultyAws, secret_id: str, *vendors: FakeVendor) -> None:
    """Rotate the key of the vendor and the secret."""
    aws.put_secret(secret_id, {f"{vendor}_api_key": NEW for vendor in VENDORS})
    for vendor in vendors:
        vendor.api_key = NEW


def sent_keys(vendor: FakeVendor) -> list[str]:
    def key(request: RecordedRequest) -> str:
        return request.headers["Authorization"].removeprefix("Bearer ")

    return [key(request) for request in vendor.requests]


@asynccontextmanager
async def provider_of(
    secret_id: str, name: str, base_url: str, *, max_age_s: int = 300
) -> AsyncIterator[BaseLLMProvider]:
    """Return a discovered provider whose key is in the secret."""
    address: dict[str, Any] = {f"{name}_base_url": base_url}
    application = await build(secret_id=secret_id, max_age_s=max_age_s, **address)
    try:
        yield application.llm_registry.get(name)
    finally:
        await application.close()


class AcceptingBoth(FakeOpenAI):
    """A vendor that accepts both the old and the new key."""

    refusals = 0

    def accepts(self, request: web.Request, data: bytes) -> bool:
        if request.headers["Authorization"] in (f"Bearer {OLD}", f"Bearer {NEW}"):
            return True
        self.refusals += 1
        return False


class RefusingAsGoogle(FakeOpenAI):
    """Google's response to a deleted key."""

    def _wrong_key(self, request: web.Request) -> web.Response:
        message = "API key not valid. Please pass a valid API key."
        return web.json_response([{"error": {"code": 400, "message": message}}], status=400)


class TestRotation:
    # C25
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("vendor", ["openai", "anthropic", "google"])
    async def test_rotated_key_is_used_after_one_retry(
        self, aws: FaultyAws, secret_id: str, vendor: str, stream: bool
    ) -> None:
        kinds: dict[str, Callable[..., FakeVendor]] = {
            "openai": FakeOpenAI,
            "anthropic": FakeAnthropic,
            "google": RefusingAsGoogle,
        }
        async with (
            kinds[vendor](api_key=OLD) as server,
            provider_of(secret_id, vendor, server.base_url) as provider,
        ):

            async def ask() -> str:
                if not stream:
                    return (await provider.generate(MESSAGES)).content
                *_, end = await collect(provider)
                assert isinstance(end, StreamEnd)
                return end.response.content

            answers = [await ask()]
            rotate(aws, secret_id, server)
            answers += [await ask(), await ask()]
            assert answers == ["".join(Reply().texts)] * 3
            assert aws.calls == ["GetSecretValue"] * 2
            assert sent_keys(server) == [OLD, OLD, NEW, NEW]

    async def test_health_and_model_list_use_the_rotated_key(self, aws: FaultyAws, secret_id: str) -> None:
        async with (
            FakeOpenAI(api_key=OLD) as server,
            provider_of(secret_id, "openai", server.base_url) as provider,
        ):
            assert await provider.validate_credentials()
            rotate(aws, secret_id, server)
            assert await provider.validate_credentials()
            assert aws.calls == ["GetSecretValue"] * 2

    async def test_rotated_parameter_is_read_again(self, aws: FaultyAws, secret_id: str) -> None:
        aws.put_parameter(f"/{secret_id}/openai_api_key", OLD)
        async with FakeOpenAI(api_key=OLD) as server:
            application = await build(path=f"/{secret_id}", openai_base_url=server.base_url)
            provider = application.llm_registry.get("openai")
            await provider.generate(MESSAGES)
            aws.put_parameter(f"/{secret_id}/openai_api_key", NEW)
            server.api_key = NEW
            await provider.generate(MESSAGES)
            await application.close()
        assert aws.calls == ["GetParametersByPath"] * 2

    # C25
    async def test_concurrent_queries_during_rotation_read_secret_once(
        self, aws: FaultyAws, secret_id: str
    ) -> None:
        async with (
            FakeOpenAI(api_key=OLD) as server,
            provider_of(secret_id, "openai", server.base_url) as provider,
        ):
            server.script(Reply(pause_s=0.2))
            async with aclosing(provider.generate_stream(MESSAGES)) as running:
                texts = [await anext(running)]
                rotate(aws, secret_id, server)
                answers = await asyncio.gather(*(provider.generate(MESSAGES) for _ in range(50)))
                texts += [text async for text in running]  # with the old key and its client
            assert {answer.content for answer in answers} == {"".join(texts)} == {"".join(Reply().texts)}
            assert aws.calls == ["GetSecretValue"] * 2
            await provider.generate(MESSAGES)
            assert sent_keys(server).count(NEW) == 51

    # A-069 C25
    async def test_wrong_secret_key_is_reread_once_only(self, aws: FaultyAws, secret_id: str) -> None:
        async with (
            FakeOpenAI(api_key="another") as server,
            provider_of(secret_id, "openai", server.base_url) as provider,
        ):
            for _ in range(5):
                with pytest.raises(LLMAuthenticationError, match=r"^Invalid credentials for openai$"):
                    await provider.generate(MESSAGES)
            assert sent_keys(server) == [OLD] * 5
            assert aws.calls == ["GetSecretValue"] * 2

    async def test_wrong_environment_key_triggers_no_secret_read(
        self, aws: FaultyAws, secret_id: str
    ) -> None:
        async with FakeOpenAI(api_key="another") as server:
            application = await build(
                secret_id=secret_id, openai_base_url=server.base_url, openai_api_key=SecretStr(OLD)
            )
            with pytest.raises(LLMAuthenticationError):
                await application.llm_registry.get("openai").generate(MESSAGES)
            await application.close()
        assert len(server.requests) == 1
        assert aws.calls == ["GetSecretValue"]

    async def test_key_refresh_by_age_precedes_any_rejection(self, aws: FaultyAws, secret_id: str) -> None:
        async with (
            AcceptingBoth(api_key=OLD) as server,
            provider_of(secret_id, "openai", server.base_url, max_age_s=1) as provider,
        ):
            await provider.generate(MESSAGES)
            rotate(aws, secret_id)
            async with asyncio.timeout(20):
                while sent_keys(server)[-1] == OLD:
                    await provider.generate(MESSAGES)
                    await asyncio.sleep(0.05)
            assert server.refusals == 0

    @pytest.mark.parametrize("name", ["openai", "http"])
    async def test_embedding_provider_uses_the_rotated_key(
        self, aws: FaultyAws, secret_id: str, name: str
    ) -> None:
        async with FakeEmbeddingsServer(api_key=OLD) as server:
            settings = {
                "openai": {"openai_base_url": server.base_url, "openai_embedding_dimension": 8},
                "http": {
                    "embedding_base_url": server.base_url,
                    "embedding_model": "m",
                    "embedding_dimension": 8,
                },
            }[name]
            application = await build(
                secret_id=secret_id, embedding={"embedding_cache_entries": 0, **settings}
            )
            provider = application.embedding_registry.get(name)
            before = await provider.embed_query("a text")
            server.api_key = NEW
            rotate(aws, secret_id)
            after = await asyncio.gather(*(provider.embed_query("a text") for _ in range(20)))
            assert list(after) == [before] * 20
            assert aws.calls == ["GetSecretValue"] * 2
            server.api_key = "another"
            for _ in range(3):
                with pytest.raises(EmbeddingAuthenticationError) as caught:
                    await provider.embed_query("a text")
                assert "canary" not in "".join(traceback.format_exception(caught.value))
            assert aws.calls == ["GetSecretValue"] * 3
            await application.close()
