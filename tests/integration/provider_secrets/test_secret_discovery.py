"""Discovery of provider keys in the environment, in a secret and in parameters."""

from typing import Any

import pytest
from pydantic import SecretStr

from tests.contract.suites.llm import MESSAGES
from tests.integration.provider_secrets.conftest import build
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI

pytestmark = pytest.mark.filterwarnings(
    "ignore:The model 'claude-sonnet-4-20250514' is deprecated:DeprecationWarning"
)


class TestDiscovery:
    # C25 F-006 A-093 A-094 A-095
    async def test_environment_takes_precedence_over_secret_and_parameters(
        self, aws: FaultyAws, secret_id: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "vectorforge.llm.registry")
        aws.put_secret(
            secret_id, {"openai_api_key": "from-secret", "VECTORFORGE_ANTHROPIC_API_KEY": "from-secret"}
        )
        for setting in ("openai", "anthropic", "cohere"):
            aws.put_parameter(f"/{secret_id}/{setting}_api_key", "from-parameters")
        environment: dict[str, Any] = {"openai_api_key": SecretStr("from-environment")}
        async with (
            FakeOpenAI(api_key="from-environment") as openai,
            FakeAnthropic(api_key="from-secret") as anthropic,
            FakeOpenAI(api_key="from-parameters") as cohere,
        ):
            application = await build(
                secret_id=secret_id,
                path=f"/{secret_id}/",
                openai_base_url=openai.base_url,
                anthropic_base_url=anthropic.base_url,
                cohere_base_url=cohere.base_url,
                default_provider="google",
                **environment,
            )
            for name in ("openai", "anthropic", "cohere"):
                await application.llm_registry.get(name).generate(MESSAGES)
            await application.close()
        messages = [record.message for record in caplog.records if record.name == "vectorforge.llm.registry"]
        assert messages == [
            "Registered LLM provider: openai",
            "Registered LLM provider: anthropic",
            "Skipped LLM provider: ollama (no credentials)",
            "Skipped LLM provider: google (no credentials)",
            "Registered LLM provider: cohere",
            "Skipped LLM provider: max_serve (no credentials)",
            "Skipped LLM provider: bedrock (no credentials)",
            "Registered LLM provider: extractive",
            "Default LLM provider 'google' not available",
        ]
        assert aws.calls == ["GetSecretValue", "GetParametersByPath"]

    #
    async def test_missing_keys_leave_extractive_provider_only(self, aws: FaultyAws, secret_id: str) -> None:
        aws.put_secret(secret_id, {})
        application = await build(secret_id=secret_id, path="/nothing/there")
        assert application.llm_registry.list_providers() == ["extractive"]
        assert aws.calls == ["GetSecretValue", "GetParametersByPath"]

    async def test_keys_in_environment_skip_secret_lookup(self, aws: FaultyAws, secret_id: str) -> None:
        names = ("openai_api_key", "anthropic_api_key", "google_api_key", "cohere_api_key")
        keys: dict[str, Any] = {name: SecretStr("k") for name in names}
        embedding = {name: key for name, key in keys.items() if not name.startswith("anthropic")}
        await build(secret_id=secret_id, embedding=embedding, **keys)
        assert aws.calls == []

    async def test_parameters_are_read_across_pages(self, aws: FaultyAws, secret_id: str) -> None:
        for number in range(10):
            aws.put_parameter(f"/{secret_id}/a{number}", "x")
        aws.put_parameter(f"/{secret_id}/openai_api_key", "k")
        application = await build(path=f"/{secret_id}")
        assert "openai" in application.llm_registry.list_providers()
